package legacy

import "fmt"

// Outcome is what became of an entry. New outcomes of the service may appear.
type Outcome string

// The outcomes.
const (
	// Before sending.
	OutcomeToSend  Outcome = "to-send"  // a dry run: it would be sent
	OutcomeDropped Outcome = "dropped"  // it cannot be sent, or the service dropped it; reason says why
	OutcomeIgnored Outcome = "ignored"  // its snapshot does not count; reason says why
	OutcomeNotSent Outcome = "not-sent" // the run ended before its turn

	// Answers of the service to claims and retained identities.
	OutcomeImported        Outcome = "imported"         // it became the last known owner
	OutcomeUnchanged       Outcome = "unchanged"        // known already; also for works
	OutcomeOlder           Outcome = "older"            // a later claim is known
	OutcomeQuarantined     Outcome = "quarantined"      // it contradicts a known claim: an operator must resolve it
	OutcomeAlreadyImported Outcome = "already-imported" // the whole snapshot was taken over before

	// Answers to activity and works.
	OutcomeSet Outcome = "set"

	// An answer to release documents, which may also be imported or unchanged: it
	// is stored, now or before, but is no valid session; reason says why. No
	// release can be created until it is replaced or discarded.
	OutcomeInvalid Outcome = "invalid"

	OutcomeRefused Outcome = "refused" // the service refused its command; reason begins with the code
	OutcomeFailed  Outcome = "failed"  // its command failed and may or may not have arrived; this ended the run
	OutcomeUnknown Outcome = "unknown" // the reply did not say what became of it
)

// Report says what was found and what became of it. Its JSON form is additive:
// fields keep name and meaning, new ones may come.
type Report struct {
	SchemaVersion int    `json:"schemaVersion"` // 1
	Kind          string `json:"kind"`          // "sessions", "works", "releases" or "home"
	From          string `json:"from"`          // the home, folder or file
	DryRun        bool   `json:"dryRun"`        // nothing was sent

	// Complete: every command was answered (false in a dry run).
	Complete bool `json:"complete"`

	Commands int             `json:"commands"` // commands of the whole plan
	Counts   map[Outcome]int `json:"counts"`   // entries by outcome; outcomes without entry are left out

	Places   []PlaceReport `json:"places"`
	Entries  []EntryReport `json:"entries"`
	Problems []Problem     `json:"problems"` // what could not be read at all
	Missing  []string      `json:"missing"`  // places that the home lacks

	Works WorkCount `json:"works"`

	Forms map[string]int `json:"forms,omitempty"` // release documents by form; forms without one are left out
}

// Forms of a release document, as the service tells them.
const (
	FormCurrent  = "current"            // a valid session
	FormAwaiting = "awaiting-migration" // an older form that release.migrate understands
	FormInvalid  = "invalid"
)

// PlaceReport is the part of one place and scope.
type PlaceReport struct {
	Place    Place  `json:"place"`
	Scope    string `json:"scope,omitempty"`
	Location string `json:"location"`
	Entries  int    `json:"entries"`  // found
	Dropped  int    `json:"dropped"`  // of these, not fit to be sent
	Commands int    `json:"commands"` // in which the others are sent

	// Ignored says why the place does not count, "" when it does.
	Ignored string `json:"ignored,omitempty"`

	// Snapshot is what the service said about a snapshot as a whole: imported
	// (at least in part), already-imported or ignored; "" when it said nothing.
	Snapshot string `json:"snapshot,omitempty"`
}

// EntryReport is one entry.
type EntryReport struct {
	Place   Place   `json:"place"`
	Scope   string  `json:"scope,omitempty"`
	Index   int     `json:"index"`            // as Entry.Index
	Key     string  `json:"key,omitempty"`    // as Entry.Key
	WorkID  string  `json:"workId,omitempty"` // as Entry.WorkID
	Outcome Outcome `json:"outcome"`
	Form    string  `json:"form,omitempty"` // of a release document
	Reason  string  `json:"reason,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// WorkCount counts the works named by claims and retained identities.
type WorkCount struct {
	Named       int `json:"named"`       // different works
	CountAsOpen int `json:"countAsOpen"` // of these, without a state in the works file

	// Text says it in a sentence, "" when there is nothing to say.
	Text string `json:"text,omitempty"`
}

// Ok reports whether everything that was found was taken over or was known:
// nothing dropped, quarantined, invalid, refused, failed, unsent or unreadable.
func (r *Report) Ok() bool {
	for outcome, n := range r.Counts {
		switch outcome {
		case OutcomeToSend, OutcomeIgnored, OutcomeImported, OutcomeUnchanged, OutcomeOlder, OutcomeAlreadyImported, OutcomeSet:
		default:
			if n > 0 {
				return false
			}
		}
	}
	return len(r.Problems) == 0 && (r.Complete || r.DryRun)
}

// count fills Counts and Forms anew.
func (r *Report) count() {
	r.Counts, r.Forms = make(map[Outcome]int), make(map[string]int)
	for i := range r.Entries {
		r.Counts[r.Entries[i].Outcome]++
		if form := r.Entries[i].Form; form != "" {
			r.Forms[form]++
		}
	}
}

// clone copies what a run changes.
func (r *Report) clone() *Report {
	c := *r
	c.Places = append([]PlaceReport{}, r.Places...)
	c.Entries = append([]EntryReport{}, r.Entries...)
	c.Problems = append([]Problem{}, r.Problems...)
	c.Missing = append([]string{}, r.Missing...)
	c.count()
	return &c
}

// countWorks counts the works of the entries that are sent as claims.
func countWorks(entries []EntryReport, works *Works) WorkCount {
	known := works.known()
	named := make(map[string]bool)
	var c WorkCount
	for i := range entries {
		e := &entries[i]
		if e.Outcome != OutcomeToSend || e.Place == PlaceActivity || named[e.WorkID] {
			continue
		}
		named[e.WorkID] = true
		c.Named++
		if !known[e.WorkID] {
			c.CountAsOpen++
		}
	}
	switch c.CountAsOpen {
	case 0:
	case 1:
		c.Text = "1 work appears in claims without a known state; it counts as open"
	default:
		c.Text = fmt.Sprintf("%d works appear in claims without a known state; they count as open", c.CountAsOpen)
	}
	return c
}
