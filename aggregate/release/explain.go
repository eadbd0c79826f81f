package release

import (
	"bytes"
	"encoding/json"

	"github.com/forge-es/forge-es/events"
)

// Explanation says what a session's next phase waits for, since when, and what
// would unblock it.
type Explanation struct {
	SessionID   string `json:"sessionId"`
	Phase       string `json:"phase"`
	Revision    int64  `json:"revision"`
	Next        string `json:"next,omitempty"`  // the phase that comes after; none after a terminal one
	Since       string `json:"since,omitempty"` // when the present phase began
	Done        []Gate `json:"done"`            // required receipts of the next phase that count
	Missing     []Gate `json:"missing"`         // and those that do not
	Waits       []Wait `json:"waits"`           // everything that is missing, in words
	CanFail     bool   `json:"canFail"`
	CanRollBack bool   `json:"canRollBack"`
}

// Wait is one thing that the next phase waits for.
type Wait struct {
	Code   events.Code `json:"code"` // the refusal that it would be
	Text   string      `json:"text"`
	Remedy string      `json:"remedy"`
}

// Explain looks at a valid session.
func (d *Document) Explain(f Facts) Explanation {
	phase := d.Phase()
	x := Explanation{
		SessionID: d.Name, Phase: phase, Revision: d.Revision(), Next: next(phase), Done: []Gate{}, Missing: []Gate{}, Waits: []Wait{},
		CanFail: !Terminal(phase), CanRollBack: phase == CutoverAttempting || phase == CutoverCommitted || phase == Soaking,
	}
	if d.PhaseSince != nil {
		x.Since = d.PhaseSince.String()
	}
	if x.Next == "" {
		return x
	}
	wait := func(code events.Code, text, remedy string) {
		x.Waits = append(x.Waits, Wait{Code: code, Text: text, Remedy: remedy})
	}
	if checkCandidate(d, d.body.raw("candidateRelease")) != nil {
		remedy := "have an operator end this session"
		if phase == SourceFrozen {
			remedy = "give another candidateRelease with the advance"
		}
		wait(events.CodeReleaseCandidateIdentity, "the candidate release does not identify a release of this source", remedy)
	}
	switch {
	case (x.Next == Built || x.Next == StaticVerified) && d.body.raw("candidateRelease") == nil:
		wait(events.CodeReleaseCandidateRequired, "there is no candidate release", "give candidateRelease with the advance")
	case x.Next == CutoverCommitted && d.body.raw("transaction") == nil:
		wait(events.CodeReleaseTxRequired, "the cutover transaction is not recorded", "record it with release transaction")
	}
	for _, g := range Gates[x.Next] {
		if d.passed[g] {
			x.Done = append(x.Done, g)
			continue
		}
		x.Missing = append(x.Missing, g)
		wait(gateCode[x.Next], g.Kind+" "+g.ID+" has not passed for this candidate", "record a passed receipt of kind "+g.Kind+" with id "+g.ID)
	}
	if until, known, over := d.soaked(f); x.Next == KnownGood && !over {
		if known {
			wait(events.CodeReleaseSoakGates, "it has to soak until "+until.String(), "wait")
		} else {
			wait(events.CodeReleaseSoakGates, "it is not known since when it soaks", "record a receipt: it counts from then on")
		}
	}
	if x.Next == CutoverEligible && d.lanesCollide() {
		wait(events.CodeReleaseLaneCollision, "both lanes have the same home or port", "end this session and create one with lanes of their own")
	}
	return x
}

// ReceiptPage is a part of the receipts of a session, oldest first.
type ReceiptPage struct {
	SessionID string            `json:"sessionId"`
	Receipts  []json.RawMessage `json:"receipts"`
	From      int               `json:"from"`  // index of the first one
	Total     int               `json:"total"` // of the session
}

// ReceiptPage gives at most limit receipts from an index on.
func (d *Document) ReceiptPage(from, limit int) ReceiptPage {
	total := d.receipts.len()
	from = min(max(from, 0), total)
	to := from + min(max(limit, 1), total-from)
	return ReceiptPage{SessionID: d.Name, Receipts: d.receipts.part(from, to), From: from, Total: total}
}

// Shortened gives the session with its newest receipts only, so that it has at
// most the given bytes if leaving out receipts can do that; omitted is how many
// were left out.
func (d *Document) Shortened(most int) (short *Document, omitted int) {
	size, total := d.size(), d.receipts.len()
	if size <= most {
		return d, 0
	}
	for omitted < total && size > most {
		size -= len(d.receipts.at(omitted)) + 1
		omitted++
	}
	c := *d
	c.receipts = receipts{}.with(d.receipts.part(omitted, total))
	return &c, omitted
}

// Reduced is Shortened, and where that is not enough only says where the session
// stands: id, phase, revision, times, and membersOmitted.
func (d *Document) Reduced(most int) (short *Document, omitted int) {
	short, omitted = d.Shortened(most)
	if !d.body.there || short.size() <= most {
		return short, omitted
	}
	c := *short
	c.body = c.body.only("schemaVersion", "semanticEpoch", "sessionId", "phase", "revision", "createdAt", "updatedAt").with(member("membersOmitted", true))
	return &c, d.receipts.len()
}

// size is the length of the document as JSON.
func (d *Document) size() int {
	if d.body.there && d.listed {
		return d.bodySize() + d.receipts.size()
	}
	return d.bodySize()
}

// bodySize is size without the receipts.
func (d *Document) bodySize() int {
	if !d.body.there {
		return len(d.text)
	}
	var b bytes.Buffer
	d.body.append(&b, func(name string) (json.RawMessage, bool) { return nil, name == "receipts" && d.listed })
	return b.Len()
}
