package release

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/events"
)

// Ledger is the state: all documents of an instance, and its release authority.
// It is never changed; changes give a new one that shares what stayed.
type Ledger struct {
	docs []*Document // in document order

	// Authority is the published release authority, as JSON; nil if none was.
	Authority json.RawMessage
	// AuthorityRevision is its revision, 0 without one.
	AuthorityRevision int64

	// previous is the rollback release that the events of a migration share: the
	// first of a commit brings it.
	previous json.RawMessage

	// touched are the documents that events changed since Placed was called.
	touched []string
	moved   bool // events were folded since then

	// latest are the latest commits, oldest first: at most latestCommits.
	latest []events.RecentID
}

// Documents are ordered by the bytes of their whole file name.
func fileOrder(a, b string) int { return strings.Compare(a+extension, b+extension) }

// extension ends the file name of a document.
const extension = ".json"

func (l Ledger) index(name string) (int, bool) {
	return slices.BinarySearchFunc(l.docs, name, func(d *Document, name string) int { return fileOrder(d.Name, name) })
}

// find gives a document by its name, nil if there is none.
func (l Ledger) find(name string) *Document {
	if i, ok := l.index(name); ok {
		return l.docs[i]
	}
	return nil
}

// put gives the ledger with a document in its place.
func (l Ledger) put(d *Document) Ledger {
	l.touched = append(slices.Clip(l.touched), d.Name)
	i, ok := l.index(d.Name)
	if ok {
		l.docs = slices.Clone(l.docs)
		l.docs[i] = d
	} else {
		l.docs = slices.Insert(slices.Clip(l.docs), i, d)
	}
	return l
}

// remembered is how many commits of a session are recognised when their commands
// come again, besides the one that opened it.
const remembered = 64

// latestCommits is how many commits of the ledger are recognised, whatever they
// are about.
const latestCommits = 1024

// Placed notes where on the log the commit lies whose events were just folded, and
// under which message id: that of the sessions that it made or changed.
func (l Ledger) Placed(position uint64, id events.MsgID) Ledger {
	touched, moved := l.touched, l.moved
	l.touched, l.moved = nil, false
	if !moved {
		return l
	}
	l.latest = append(slices.Clip(l.latest), events.RecentID{ID: id, Position: position})
	if extra := len(l.latest) - latestCommits; extra > 0 {
		l.latest = l.latest[extra:]
	}
	l.docs = slices.Clone(l.docs)
	for _, name := range touched {
		i, ok := l.index(name)
		if !ok || len(l.docs[i].commands) > 0 && l.docs[i].commands[len(l.docs[i].commands)-1].Position == position {
			continue
		}
		d := *l.docs[i]
		if d.Incarnation == 0 {
			d.Incarnation = position
		}
		d.commands = append(slices.Clip(d.commands), events.RecentID{ID: id, Position: position})
		if len(d.commands) > remembered+1 {
			d.commands = slices.Delete(slices.Clone(d.commands), 1, 2)
		}
		d.before = append(slices.Clip(d.before), &d)
		if extra := len(d.before) - recollected; extra > 0 {
			d.before = d.before[extra:]
		}
		l.docs[i] = &d
	}
	return l
}

// Applied is the position of a command about a session that was applied before,
// 0 if it is none of those that are remembered.
func (l Ledger) Applied(target string, id events.MsgID) uint64 {
	if d := l.find(target); d != nil {
		for _, c := range d.commands {
			if c.ID == id {
				return c.Position
			}
		}
	}
	for _, c := range l.latest {
		if c.ID == id {
			return c.Position
		}
	}
	return 0
}

// recollected is how many of the latest forms of a session are kept, so that the
// commands that made them can be answered again without folding the ledger.
const recollected = 16

// Recollect gives the ledger as far as it matters to the answer of a command about
// a session: with that session as it was after the commit at a position. ok is
// false when that is no longer known.
func (l Ledger) Recollect(target string, position uint64) (_ Ledger, ok bool) {
	d := l.find(target)
	if d == nil {
		return l, false
	}
	for _, was := range d.before {
		if n := len(was.commands); n > 0 && was.commands[n-1].Position == position {
			return Ledger{docs: []*Document{was}}, true
		}
	}
	return l, false
}

func (l Ledger) remove(name string) Ledger {
	if i, ok := l.index(name); ok {
		l.docs = slices.Delete(slices.Clone(l.docs), i, i+1)
	}
	return l
}

// Len is the number of documents.
func (l Ledger) Len() int { return len(l.docs) }

// session finds a readable session: RELEASE_SESSION_INVALID, RELEASE_SESSION_MISSING.
func (l Ledger) session(id string) (*Document, error) {
	d := l.find(id)
	if d == nil {
		return nil, events.Errorf(events.CodeReleaseMissing, "%s", id).With("sessionId", id)
	}
	return d, d.valid
}

// Session gives a session by its id, as an answer: nil when there is none,
// RELEASE_SESSION_INVALID when its document is no valid session.
func (l Ledger) Session(id string) (*Document, error) {
	d := l.find(id)
	if d == nil {
		return nil, nil
	}
	if d.valid != nil {
		return nil, d.valid
	}
	return d, nil
}

// Evolve gives the ledger after an event.
func (l Ledger) evolve(event events.Payload) (Ledger, error) {
	switch e := event.(type) {
	case events.ReleaseOpened:
		if l.find(e.SessionID) != nil {
			return l, impossible(event, e.SessionID, "it is there")
		}
		return l.put(opened(e)), nil
	case events.ReleaseAdvanced:
		if d := l.find(e.SessionID); d != nil && d.phase != e.From {
			return l, impossible(event, e.SessionID, "it is in "+d.phase+", not in "+e.From)
		}
		return l.change(event, e.SessionID, func(d *Document) *Document { return d.advanced(e) })
	case events.ReleaseReceiptsRecorded:
		return l.change(event, e.SessionID, func(d *Document) *Document {
			return d.withReceipts(splitList(e.Receipts)).revised(e.At)
		})
	case events.ReleaseTransactionRecorded:
		if d := l.find(e.SessionID); d != nil && d.body.raw("transaction") != nil {
			return l, impossible(event, e.SessionID, "it has a transaction")
		}
		return l.change(event, e.SessionID, func(d *Document) *Document {
			return d.ofBody(d.body.with(member("transaction", json.RawMessage(e.Transaction)))).revised(e.At)
		})
	case events.ReleaseDocumentReceived:
		if there := l.find(e.Name) != nil; there != e.Replaced {
			return l, impossible(event, e.Name, "it replaces one exactly when there is one")
		}
		return l.put(received(e.Name, e.Text)), nil
	case events.ReleaseDocumentDiscarded:
		if l.find(e.Name) == nil {
			return l, impossible(event, e.Name, "it is not there")
		}
		return l.remove(e.Name), nil
	case events.ReleaseMigrated:
		d := l.find(e.Document)
		if d == nil || !d.body.there {
			return l, impossible(event, e.Document, "it is not there, or no object")
		}
		if len(e.Previous) > 0 {
			l.previous = json.RawMessage(e.Previous)
		}
		after := d.migrated(e, l.previous)
		if after.valid != nil {
			return l, impossible(event, e.Document, after.valid.Error())
		}
		return l.put(after), nil
	case events.AuthorityPublished:
		if e.Revision <= l.AuthorityRevision {
			return l, impossible(event, "authority", "the revision does not grow")
		}
		l.Authority, l.AuthorityRevision = json.RawMessage(e.Authority), e.Revision
		return l, nil
	}
	return l, impossible(event, "", "not an event of the ledger")
}

// change applies a change to a valid session.
func (l Ledger) change(e events.Payload, id string, change func(*Document) *Document) (Ledger, error) {
	d := l.find(id)
	if d == nil || d.valid != nil {
		return l, impossible(e, id, "no valid session")
	}
	after := change(d)
	if after.valid != nil {
		return l, impossible(e, id, after.valid.Error())
	}
	return l.put(after), nil
}

func impossible(e events.Payload, id, why string) error {
	name, _ := e.EventType()
	return fmt.Errorf("%w: %s of %q: %s", events.ErrEncoding, name, id, why)
}

// opened makes the first document of a session.
func opened(e events.ReleaseOpened) *Document {
	body := object{there: true, given: true}
	add := func(name string, v any) { body.members = append(body.members, member(name, v)) }
	raw := func(name string, v events.JSON) {
		if len(v) > 0 {
			add(name, json.RawMessage(v))
		}
	}
	add("schemaVersion", sessionSchema)
	add("semanticEpoch", sessionEpoch)
	add("sessionId", e.SessionID)
	raw("stable", e.Stable)
	raw("stableRelease", e.StableRelease)
	raw("candidate", e.Candidate)
	add("sourceRevision", e.SourceRevision)
	add("phase", SourceFrozen)
	add("revision", 1)
	add("receipts", json.RawMessage("["+string(receipt("source:"+e.SessionID, kindSource, "source frozen at "+e.SourceRevision, "", e.At))+"]"))
	add("createdAt", e.At.String())
	add("updatedAt", e.At.String())
	at := e.At
	d := &Document{Name: e.SessionID, body: body, PhaseSince: &at}
	d.readReceipts()
	d.refresh()
	return d
}

// receipt makes a receipt as it is stored.
func receipt(id, kind, summary, outcome string, at events.Time) json.RawMessage {
	var b bytes.Buffer
	text := func(name, v string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`)
		events.AppendJSONString(&b, v)
	}
	text("id", id)
	text("kind", kind)
	text("recordedAt", at.String())
	text("summary", summary)
	if outcome != "" && outcome != OutcomePassed {
		text("outcome", outcome)
	}
	return json.RawMessage("{" + b.String() + "}")
}

func splitList(raw events.JSON) (list []json.RawMessage) {
	_ = json.Unmarshal(raw, &list) // it was checked when it was decoded
	return list
}

// revised raises the revision. A phase of which it is not known when it began
// counts from now on.
func (d *Document) revised(at events.Time) *Document {
	c := d.ofBody(d.body.with(member("revision", d.revision+1), member("updatedAt", at.String())))
	if c.PhaseSince == nil {
		c.PhaseSince = &at
	}
	return c
}

// advanced moves a session to another phase.
func (d *Document) advanced(e events.ReleaseAdvanced) *Document {
	if len(e.CandidateRelease) > 0 {
		d = d.withCandidate(json.RawMessage(e.CandidateRelease))
	}
	d = d.withReceipts(splitList(e.Receipts))
	at := e.At
	c := d.ofBody(d.body.with(member("phase", e.To), member("revision", d.revision+1), member("updatedAt", e.At.String())))
	c.PhaseSince = &at
	return c
}

// migrated brings a received document to the present form.
func (d *Document) migrated(e events.ReleaseMigrated, previous json.RawMessage) *Document {
	body := d.body
	if e.Outcome != events.MigratedReconciled {
		body = body.with(member("schemaVersion", sessionSchema), member("semanticEpoch", sessionEpoch))
	}
	if len(e.Transaction) > 0 {
		transaction := parseObject(json.RawMessage(e.Transaction)).with(member("rollbackRelease", previous))
		body = body.with(member("transaction", transaction.bytes()))
	}
	switch e.Outcome {
	case events.MigratedReconciled:
		body = body.with(member("revision", d.Revision()+1), member("updatedAt", e.At.String()))
	case events.MigratedHistorical:
		body = body.with(member("phase", KnownGood))
	}
	c := *d
	if len(e.Receipt) > 0 {
		c = *c.withReceipts([]json.RawMessage{json.RawMessage(e.Receipt)})
	}
	return c.ofBody(body)
}

// bytes writes the object.
func (o object) bytes() json.RawMessage {
	var b bytes.Buffer
	o.append(&b, func(string) (json.RawMessage, bool) { return nil, false })
	return b.Bytes()
}
