package replay_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
)

const (
	instance = "main"
	logID    = "log-1"
	start    = events.Time(1767225600000) // 2026-01-01T00:00:00.000Z
)

// maker writes logs as the service does, and, where a test changes a commit
// before it is written, logs that go on as if that were right.
type maker struct {
	t       testing.TB
	log     replay.Memory
	heads   map[string]events.Head
	works   map[string]session.State
	imports session.ImportState
	at      events.Time
}

func newMaker(t testing.TB) *maker {
	return &maker{t: t, heads: map[string]events.Head{}, works: map[string]session.State{}, at: start}
}

// work appends a commit of a work. Events that cannot follow leave the state as
// it is.
func (m *maker) work(id string, change func(*events.Commit), list ...events.Payload) {
	state, ok := m.works[id]
	if !ok {
		state = session.Decider{}.Initial(id)
	}
	if after, err := aggregate.Evolve(session.Decider{}, state, list); err == nil {
		state = after
	}
	m.works[id] = state
	m.commit(events.KindWork, id, change, session.Decider{}.EncodeState(state), list)
}

// snapshot appends an import.started.
func (m *maker) snapshot(change func(*events.Commit), e events.ImportStarted) {
	after, err := session.Imports{}.Evolve(m.imports, e)
	if err != nil {
		m.t.Fatal(err)
	}
	m.imports = after
	m.commit(events.KindImport, instance, change, session.Imports{}.EncodeState(after), []events.Payload{e})
}

func (m *maker) commit(kind, id string, change func(*events.Commit), state events.State, list []events.Payload) {
	position := uint64(len(m.log)) + 1
	m.at = m.at.Add(1000)
	c := &events.Commit{
		V: events.EnvelopeVersion, Log: logID, ID: fmt.Sprintf("command-%d", position), Kind: kind, AggregateID: id, At: m.at, Rules: 1,
		Command: events.Command{Verb: "work.test", RequestDigest: events.HashOf([]byte{byte(position)})},
		Actor:   events.Actor{Principal: "alice"}, State: &state,
	}
	head := m.heads[events.CommitSubject(instance, c)]
	c.Version, c.Prev, c.PrevHash, c.Recent = head.Version+1, head.Position, head.Hash, slices.Clone(head.Recent)
	for _, p := range list {
		c.Events = append(c.Events, events.Encode(p))
	}
	if change != nil {
		change(c)
	}
	subject := events.CommitSubject(instance, c)
	msgID := events.NewMsgID(subject, events.Token(c.Actor.Principal), c.ID)
	r := events.Record{Position: position, Subject: subject, Payload: c.Encode(), Header: map[string][]string{events.MsgIDHeader: {msgID.String()}}}
	m.log = append(m.log, r)
	m.heads[subject] = events.HeadAfter(r, c, msgID)
}

// owner is a session of a work.
func owner(workID, controller string, generation int64, at events.Time) events.Session {
	instance, principal := "runtime-1", "principal-of-"+controller
	return events.Session{
		WorkID: workID, ControllerID: controller, ControllerType: "codex", SessionID: "sess-" + controller, PrincipalID: &principal,
		ControllerInstanceID: &instance, Generation: &generation, ClaimedAt: at, LeaseExpiresAt: at.Add(3_600_000),
	}
}

func granted(cause, workID, controller string, generation int64) events.ClaimGranted {
	return events.ClaimGranted{Cause: cause, Owner: owner(workID, controller, generation, start)}
}

func renewed(workID, controller string, generation int64) events.ClaimRenewed {
	return events.ClaimRenewed{Owner: owner(workID, controller, generation, start.Add(5000))}
}

// day writes a log with everything in it: 16 commits on 4 boundaries.
func day(t testing.TB) *maker {
	m := newMaker(t)
	m.work("w1", nil, granted(events.CauseFirst, "w1", "a", 1))                                                                                       // 1
	m.work("w 2", nil, events.WorkStateSet{State: "open", How: events.SetByOperator, Reason: "known"})                                                // 2
	m.work("w1", nil, renewed("w1", "a", 1))                                                                                                          // 3
	m.snapshot(nil, events.ImportStarted{Source: events.SourceRecord, Scope: "repo", Entries: 2})                                                     // 4
	m.work("w3", nil, events.ClaimImported{Source: events.SourceRecord, Scope: "repo", Standing: events.StandingHeld, Owner: owner("w3", "a", 5, 0)}) // 5
	m.work("w1", nil, events.ClaimReleased{How: events.ReleasedByAuthority, Generation: 1})                                                           // 6
	m.work("w1", nil, granted(events.CauseAfterRelease, "w1", "b", 2))                                                                                // 7
	conflict := owner("w3", "b", 5, 1)
	m.work("w3", nil, events.ClaimImportConflicted{Source: events.SourceRecord, Scope: "repo", Standing: events.StandingHeld, Owner: conflict}) // 8
	m.work("w3", nil, events.ClaimImportResolved{Keep: events.KeepImported, Generation: 5, Reason: "b has it"})                                 // 9
	for i := range 6 {                                                                                                                          // 10 … 15
		m.work("w1", nil, granted(events.CauseRecovery, "w1", string("ab"[i%2]), int64(3+i)))
	}
	m.work("w1", nil, events.WorkStateSet{State: "completed", How: events.SetByTerminalize}, events.ClaimReleased{How: events.ReleasedAtTerminal, Generation: 8}) // 16
	return m
}

// clone copies a log so that it can be changed.
func clone(log replay.Memory) replay.Memory {
	out := make(replay.Memory, len(log))
	for i, r := range log {
		r.Payload = slices.Clone(r.Payload)
		r.Header = maps.Clone(r.Header)
		out[i] = r
	}
	return out
}

// rewrite changes the commit of a record and leaves all others as they are.
func rewrite(t testing.TB, r *events.Record, change func(*events.Commit)) {
	t.Helper()
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		t.Fatal(err)
	}
	change(c)
	r.Payload = c.Encode()
}
