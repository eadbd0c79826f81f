package legacy

import (
	"fmt"
	"iter"
	"strings"
)

// Limits of one command.
const (
	MaxBody    = 400 << 10 // bytes of a body
	MaxEntries = 500       // entries in a body
)

// DefaultReason is the reason of work.set-state when none is given.
const DefaultReason = "import of work states"

const rootOperator = "op"

// Plan is what would be sent, in order. The same finds give the same plan.
type Plan struct {
	base    Report // entries: to-send, dropped or ignored
	steps   []step
	entries int // in all steps
	reason  string
}

// step is one command.
type step struct {
	group *Group
	place int   // index of the group in Report.Places
	first int   // index of the group's first entry in Report.Entries
	picks []int // indexes into group.Entries
}

// PlanSessions plans the import of sessions: records, then files, retained
// identities, activity. Snapshots go out even when they are empty, since an empty
// record silences files, too. works, which may be nil, is what is known about
// states, for counting only.
func PlanSessions(s *Sessions, works *Works) *Plan {
	p := newPlan("sessions", s.From, s.Problems, s.Missing)
	p.addSessions(s, works)
	return p.done()
}

func (p *Plan) addSessions(s *Sessions, works *Works) {
	for _, place := range []Place{PlaceRecord, PlaceFile, PlaceRetained, PlaceActivity} {
		for _, g := range s.Groups {
			if g.Place == place {
				p.add(g)
			}
		}
	}
	p.base.Works = countWorks(p.base.Entries, works)
}

// PlanWorks plans one work.set-state for each work of a works file. A blank
// reason is DefaultReason.
func PlanWorks(w *Works, reason string) *Plan {
	p := newPlan("works", w.From, w.Problems, nil)
	p.addWorks(w, reason)
	return p.done()
}

func (p *Plan) addWorks(w *Works, reason string) {
	if p.reason = strings.TrimSpace(reason); p.reason == "" {
		p.reason = DefaultReason
	}
	p.add(&Group{Place: PlaceWorks, Location: w.From, Entries: w.Entries})
}

func newPlan(kind, from string, problems []Problem, missing []string) *Plan {
	return &Plan{base: Report{SchemaVersion: 1, Kind: kind, From: from, DryRun: true, Problems: problems, Missing: missing}}
}

// Report is the dry run: what was found, and what would be sent.
func (p *Plan) Report() *Report { return p.base.clone() }

// Len is the number of commands.
func (p *Plan) Len() int { return len(p.steps) }

// Entries is the number of entries that would be sent.
func (p *Plan) Entries() int { return p.entries }

// Commands gives the commands in order, made anew each time. The bodies hold
// digests of capabilities.
func (p *Plan) Commands() iter.Seq[Command] {
	return func(yield func(Command) bool) {
		for i := range p.steps {
			if !yield(p.command(&p.steps[i])) {
				return
			}
		}
	}
}

func (p *Plan) done() *Plan {
	p.base.Commands = len(p.steps)
	for i := range p.steps {
		p.entries += len(p.steps[i].picks)
	}
	p.base.count()
	return p
}

// add plans a group: its commands and its part of the report.
func (p *Plan) add(g *Group) {
	s := step{group: g, place: len(p.base.Places), first: len(p.base.Entries)}
	report := PlaceReport{Place: g.Place, Scope: g.Scope, Location: g.Location, Entries: len(g.Entries), Ignored: g.Ignored}
	perBody := MaxEntries
	if !g.chunked() {
		perBody = 1
	}
	empty := len(p.body(&s))
	size, begun := empty, g.Place == PlaceRecord || g.Place == PlaceFile
	flush := func() {
		if begun {
			p.steps = append(p.steps, s)
			report.Commands++
		}
		s.picks, size, begun = nil, empty, false
	}
	for i := range g.Entries {
		e := &g.Entries[i]
		line := EntryReport{Place: g.Place, Scope: g.Scope, Index: e.Index, Key: e.Key, WorkID: e.WorkID, Outcome: OutcomeToSend, Note: e.Note}
		alone := step{group: g, picks: []int{i}}
		var one int // what the entry adds to a body, with a comma
		if e.Dropped == "" {
			one = len(p.body(&alone)) - empty + 1
		}
		switch {
		case g.Ignored != "":
			line.Outcome, line.Reason = OutcomeIgnored, g.Ignored
		case e.Dropped != "":
			line.Outcome, line.Reason = OutcomeDropped, e.Dropped
		case empty+one > g.maxBody():
			line.Outcome, line.Reason = OutcomeDropped, fmt.Sprintf("it needs a command of %d bytes, the most is %d", empty+one, g.maxBody())
		default:
			if len(s.picks) == perBody || size+one > g.maxBody() {
				flush()
			}
			s.picks, size, begun = append(s.picks, i), size+one, true
		}
		if line.Outcome == OutcomeDropped {
			report.Dropped++
		}
		p.base.Entries = append(p.base.Entries, line)
	}
	if g.Ignored == "" {
		flush()
	}
	p.base.Places = append(p.base.Places, report)
}

// chunked reports whether a command carries several entries of the group.
func (g *Group) chunked() bool {
	return g.Place == PlaceRecord || g.Place == PlaceFile || g.Place == PlaceRetained
}

// ordered reports whether the commands of the group go one after another.
func (g *Group) ordered() bool { return g.Place != PlaceActivity && g.Place != PlaceWorks }

// maxBody is the most bytes of a body that carries entries of the group.
func (g *Group) maxBody() int {
	if g.Place == PlaceRelease {
		return MaxDocumentBody
	}
	return MaxBody
}

// command makes the command of a step.
func (p *Plan) command(s *step) Command {
	c := Command{Root: rootOperator, Aggregate: "work", Verb: "import", Body: p.body(s)}
	switch s.group.Place {
	case PlaceActivity:
		c.Aggregate, c.Verb = "activity", "set"
	case PlaceWorks:
		c.Verb = "set-state"
	case PlaceRelease:
		c.Aggregate, c.Verb = "release", "receive-document"
	case PlaceAuthority:
		c.Aggregate, c.Verb = "authority", "publish"
	}
	return c
}

// body writes the body of a step; one without entries is the frame alone.
func (p *Plan) body(s *step) []byte {
	g := s.group
	var e Entry
	if len(s.picks) > 0 {
		e = g.Entries[s.picks[0]]
	}
	switch g.Place {
	case PlaceActivity:
		b := appendText([]byte(`{"sessionId":`), e.Key)
		b = append(append(b, `,"session":`...), e.Raw...)
		return append(b, `,"keepNewer":true}`...)
	case PlaceWorks:
		b := appendText([]byte(`{"workId":`), e.WorkID)
		b = append(append(b, `,"state":`...), e.Raw...)
		b = appendText(append(b, `,"reason":`...), p.reason)
		return append(b, '}')
	case PlaceRelease:
		return e.Raw
	case PlaceAuthority:
		return append(append([]byte(`{"authority":`), e.Raw...), '}')
	}
	b := appendText([]byte(`{"source":`), string(g.Place))
	if !g.Wide {
		b = appendText(append(b, `,"scope":`...), g.Scope)
	}
	end := `]}`
	if g.Place == PlaceRetained {
		b = append(b, `,"records":[`...)
	} else {
		b = append(b, `,"store":{"schemaVersion":1,`...)
		if g.UpdatedAt != nil {
			b = append(append(append(b, `"updatedAt":`...), g.UpdatedAt...), ',')
		}
		b = append(b, `"sessions":[`...)
		end = `]}}`
	}
	for n, i := range s.picks {
		if n > 0 {
			b = append(b, ',')
		}
		e := &g.Entries[i]
		if g.Place == PlaceRetained {
			b = appendText(append(b, `{"workId":`...), e.WorkID)
			b = append(append(append(b, `,"record":`...), e.Raw...), '}')
		} else {
			b = append(b, e.Raw...)
		}
	}
	return append(b, end...)
}
