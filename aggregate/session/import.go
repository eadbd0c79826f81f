package session

import (
	"encoding/json"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// VerbImport takes over claims of another system; VerbResolveImport decides a
// contradiction that this left.
const (
	VerbImport        = "work.import"
	VerbResolveImport = "work.resolve-import"
)

// Outcomes of an imported entry.
const (
	EntryImported    = "imported"    // it became the last known owner
	EntryUnchanged   = "unchanged"   // it is known already
	EntryOlder       = "older"       // something newer is known
	EntryQuarantined = "quarantined" // it contradicts the last known owner
	EntryDropped     = "dropped"     // it cannot be a fact here
)

// Entry is one imported claim, as a command about its work.
type Entry struct {
	body     *aggregate.Body
	Source   string // events.SourceRecord …
	Scope    string
	Standing string
	Session  *events.Session
}

// Verb is work.import.
func (e *Entry) Verb() string { return VerbImport }

// Target is the work of the session.
func (e *Entry) Target() string { return e.Session.WorkID }

// Body is nil: an entry is judged when it is read.
func (e *Entry) Body() *aggregate.Body { return e.body }

// decide applies the rules of specification 1.3. The result is the outcome.
func (e *Entry) decide(s State, _ Facts) (aggregate.Decision, error) {
	done := func(outcome string, list ...events.Payload) (aggregate.Decision, error) {
		return aggregate.Decision{Result: outcome, Events: list}, nil
	}
	switch {
	case s.Owner == nil:
		return done(EntryImported, events.ClaimImported{Source: e.Source, Scope: e.Scope, Standing: e.Standing, Owner: *e.Session})
	case e.Session.Equal(s.Owner):
		return done(EntryUnchanged)
	case notNewer(e.Session, s.Owner), s.Rejected == digestOf(e.Session):
		return done(EntryOlder)
	case s.Conflict != nil && e.Session.Equal(s.Conflict.Owner):
		return done(EntryQuarantined)
	case s.Conflict != nil && notNewer(e.Session, s.Conflict.Owner):
		return done(EntryQuarantined)
	}
	return done(EntryQuarantined, events.ClaimImportConflicted{Source: e.Source, Scope: e.Scope, Standing: e.Standing, Owner: *e.Session})
}

// notNewer reports whether a known session outranks an imported one: a higher
// generation, or the same and a claim time that is not before.
func notNewer(imported, known *events.Session) bool {
	return known.Gen() > imported.Gen() || known.Gen() == imported.Gen() && known.ClaimedAt >= imported.ClaimedAt
}

// ResolveImport lifts a quarantine.
type ResolveImport struct {
	target
	Keep   aggregate.Field[string]
	Reason aggregate.Field[string]
}

func (c *ResolveImport) decide(s State, _ Facts) (aggregate.Decision, error) {
	reason, err := operatorReason(c.target, c.Reason)
	if err != nil {
		return aggregate.Decision{}, err
	}
	keep := aggregate.Trimmed(c.Keep)
	if keep != events.KeepCurrent && keep != events.KeepImported {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "keep is neither %s nor %s", events.KeepCurrent, events.KeepImported).With("field", "keep")
	}
	if s.Conflict == nil {
		return aggregate.Decision{Result: retained(s)}, nil
	}
	e := events.ClaimImportResolved{Keep: keep, Generation: max(s.Owner.Gen(), s.Conflict.Owner.Gen()), Reason: reason}
	after, err := Decider{}.Evolve(s, e)
	if err != nil {
		return aggregate.Decision{}, err
	}
	return aggregate.Decision{Events: []events.Payload{e}, Result: retained(after)}, nil
}

// retained is the last known owner as an answer: null without one.
func retained(s State) any {
	if s.Owner == nil {
		return nil
	}
	return *s.Owner
}

// Snapshot is the input of work.import: claims of another system, as it stored
// them.
type Snapshot struct {
	Source  string
	Scope   string // repository; empty: the whole instance
	Digest  events.Hash
	Entries []SnapshotEntry
}

// SnapshotEntry is one claim of a snapshot: a session, or why it was dropped.
type SnapshotEntry struct {
	WorkID  string // as far as it can be told
	Session *events.Session
	// Standing is held, released or identity.
	Standing string
	Dropped  error
}

// ParseSnapshot reads {source, scope?, store: {schemaVersion, sessions}} of a
// record or file, or {source: "retained", scope?, records: [{workId?, record:
// {schemaVersion, session, releasedAt?}}]} (or one workId and record) of retained identities. An entry that
// cannot be a fact is dropped alone; what is no snapshot at all is
// FORGE_BAD_REQUEST.
func ParseSnapshot(b *aggregate.Body) (*Snapshot, error) {
	bad := func(field, why string) error {
		return events.Errorf(events.CodeBadRequest, "%s %s", field, why).With("field", field)
	}
	source, scope := b.Text("source"), b.Text("scope")
	s := &Snapshot{Source: aggregate.Trimmed(source), Scope: aggregate.Trimmed(scope)}
	if s.Source == "" {
		if _, ok := b.Raw("record"); ok {
			s.Source = events.SourceRetained
		}
	}
	if err := events.CheckID("scope", s.Scope); err != nil {
		return nil, err
	}
	store, records, record := b.Object("store"), list(b, "records"), b.Object("record")
	workID := b.Text("workId")
	if err := b.Malformed(); err != nil {
		return nil, err
	}
	var content []json.RawMessage
	switch s.Source {
	case events.SourceRecord, events.SourceFile:
		if !store.Set {
			return nil, bad("store", "is missing")
		}
		sessions := list(store.Value, "sessions")
		if v := store.Value.Int("schemaVersion"); v.Bad || v.Set && v.Value != 1 {
			return nil, bad("store.schemaVersion", "is not 1")
		}
		if !sessions.Set {
			return nil, bad("store.sessions", "is no list")
		}
		content = sessions.Value
		for _, raw := range content {
			s.Entries = append(s.Entries, newEntry(raw, events.StandingHeld))
		}
	case events.SourceRetained:
		switch {
		case records.Set:
			for _, raw := range records.Value {
				s.Entries = append(s.Entries, parseRetained(raw))
			}
			content = records.Value
		case record.Set:
			raw, _ := b.Raw("record")
			e := newRetained(raw)
			if e.WorkID == "" {
				e.WorkID = aggregate.Trimmed(workID)
			}
			s.Entries, content = []SnapshotEntry{e}, []json.RawMessage{raw}
		default:
			return nil, bad("records", "is missing")
		}
	default:
		return nil, bad("source", "is none of record, file, retained")
	}
	all, err := json.Marshal(content)
	if err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "%w", err)
	}
	canon, err := events.CanonicalJSON(all)
	if err != nil {
		canon = all // an entry with duplicate keys is dropped, not the snapshot
	}
	s.Digest = events.HashOf(canon)
	return s, nil
}

func list(b *aggregate.Body, name string) aggregate.Field[[]json.RawMessage] {
	return aggregate.Decode(b, name, func(raw json.RawMessage) (v []json.RawMessage, ok bool) {
		return v, json.Unmarshal(raw, &v) == nil
	})
}

// maxGeneration is the largest generation that can be shown in an authority; the
// next claim of an imported owner that has it could not.
const maxGeneration = 1<<53 - 1

func newEntry(raw json.RawMessage, standing string) SnapshotEntry {
	e := SnapshotEntry{Standing: standing}
	e.Session, e.Dropped = events.ParseSession(raw)
	if e.Dropped == nil {
		e.WorkID = e.Session.WorkID
		if e.Session.Gen() >= maxGeneration {
			e.Dropped = events.Errorf(events.CodeBadRequest, "session: claimGeneration cannot grow any more").With("field", "claimGeneration")
		}
		return e
	}
	var named struct {
		WorkID string `json:"workId"`
	}
	if json.Unmarshal(raw, &named) == nil {
		e.WorkID = strings.TrimSpace(named.WorkID)
	}
	return e
}

// parseRetained reads {workId?, record}.
func parseRetained(raw json.RawMessage) SnapshotEntry {
	b, err := aggregate.ParseBody(raw)
	if err != nil {
		return SnapshotEntry{Dropped: err}
	}
	record, ok := b.Raw("record")
	if !ok {
		return SnapshotEntry{WorkID: aggregate.Trimmed(b.Text("workId")), Dropped: events.Errorf(events.CodeBadRequest, "record is missing").With("field", "record")}
	}
	e := newRetained(record)
	if e.WorkID == "" {
		e.WorkID = aggregate.Trimmed(b.Text("workId"))
	}
	return e
}

// newRetained reads {schemaVersion, session, releasedAt?}.
func newRetained(raw json.RawMessage) SnapshotEntry {
	b, err := aggregate.ParseBody(raw)
	if err != nil {
		return SnapshotEntry{Dropped: err}
	}
	session, ok := b.Raw("session")
	if !ok {
		return SnapshotEntry{Dropped: events.Errorf(events.CodeBadRequest, "session is missing").With("field", "session")}
	}
	e := newEntry(session, events.StandingIdentity)
	if e.Dropped != nil {
		return e
	}
	at := b.Text("releasedAt")
	if v := b.Int("schemaVersion"); v.Bad || v.Set && v.Value != 1 {
		e.Dropped = events.Errorf(events.CodeBadRequest, "schemaVersion is not 1").With("field", "schemaVersion")
	}
	if released := aggregate.Trimmed(at); released != "" {
		e.Standing = events.StandingReleased
		if _, err := events.ParseTime(released); err != nil {
			e.Dropped = events.Errorf(events.CodeBadRequest, "releasedAt is unreadable: %w", err).With("field", "releasedAt")
		}
	}
	if at.Bad {
		e.Dropped = events.Errorf(events.CodeBadRequest, "releasedAt is no text").With("field", "releasedAt")
	}
	return e
}

// Entry makes the command of a claim that was not dropped.
func (s *Snapshot) Entry(e SnapshotEntry) *Entry {
	return &Entry{Source: s.Source, Scope: s.Scope, Standing: e.Standing, Session: e.Session}
}
