package logtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
)

// Chain writes the commits of one boundary.
type Chain struct {
	Log     *eventlog.Log
	Subject string
	Head    events.Head
	kind    string
	id      string
}

// WorkChain begins at the start of a work that nothing was written of.
func WorkChain(l *eventlog.Log, workID string) *Chain {
	return &Chain{Log: l, Subject: events.WorkSubject(l.Instance(), workID), kind: events.KindWork, id: workID}
}

// ReleaseChain begins at the start of an empty ledger.
func ReleaseChain(l *eventlog.Log) *Chain {
	return &Chain{Log: l, Subject: events.ReleaseSubject(l.Instance()), kind: events.KindRelease, id: l.Instance()}
}

// Principal is who writes the commits of a chain.
const Principal = "tester"

// Commit is the next commit of the chain for a command id; what it says is of no
// meaning but for size filler bytes.
func (c *Chain) Commit(commandID string, filler int) *events.Commit {
	w := events.NewWriter(filler + 64)
	w.Object()
	w.Text("note", commandID)
	w.Bin("filler", make([]byte, filler))
	w.End()
	return &events.Commit{
		V: events.EnvelopeVersion, Log: c.Log.ID(), ID: commandID, Kind: c.kind, AggregateID: c.id,
		Version: c.Head.Version + 1, Prev: c.Head.Position, PrevHash: c.Head.Hash,
		At: events.TimeOf(time.Now()), Rules: 1,
		Command: events.Command{Verb: "test", RequestDigest: Digest(commandID)},
		Actor:   events.Actor{Principal: Principal},
		Events:  []events.Event{{Type: "test.happened", V: 1, Data: events.Raw(w.Bytes())}},
		Recent:  c.Head.Recent,
	}
}

// Digest is the request digest of a command of a chain.
func Digest(commandID string) events.Hash { return events.HashOf([]byte("request of " + commandID)) }

// Entry is a commit as it is appended.
func (c *Chain) Entry(commit *events.Commit) eventlog.Entry {
	return eventlog.Entry{
		Subject: c.Subject, Expected: commit.Prev, MsgID: events.NewMsgID(c.Subject, events.Token(commit.Actor.Principal), commit.ID),
		ID: commit.ID, Digest: commit.Command.RequestDigest, Payload: commit.Encode(),
	}
}

// Next is the entry of a new command.
func (c *Chain) Next(commandID string) eventlog.Entry { return c.Entry(c.Commit(commandID, 0)) }

// Took moves the chain on, after its entry e was appended at a position.
func (c *Chain) Took(e eventlog.Entry, position uint64) {
	commit, err := events.DecodeCommit(e.Payload)
	if err != nil {
		panic(err) // it was encoded by Commit
	}
	c.Head = events.HeadAfter(events.Record{Position: position, Subject: e.Subject, Payload: e.Payload}, commit, e.MsgID)
}

// Append appends the next commit and moves on.
func (c *Chain) Append(ctx context.Context, commandID string) (eventlog.Appended, error) {
	e := c.Next(commandID)
	a, err := c.Log.Append(ctx, e)
	if err == nil && !a.AlreadyApplied {
		c.Took(e, a.Position)
	}
	return a, err
}

// Fill appends n commits, with ids of their versions.
func (c *Chain) Fill(t testing.TB, n int) {
	t.Helper()
	for range n {
		if _, err := c.Append(t.Context(), fmt.Sprintf("c%d", c.Head.Version+1)); err != nil {
			t.Fatalf("append version %d on %s: %v", c.Head.Version+1, c.Subject, err)
		}
	}
}
