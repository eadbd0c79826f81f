package servicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
)

// Verified is what Verify found on a log.
type Verified struct {
	Last    uint64                                     // position of the last commit
	Works   map[string]aggregate.Folded[session.State] // by work id
	Records []events.Record
	Commits []*events.Commit // of Records
}

// Verify reads a log from its beginning and fails the test unless it holds
// together: no position is missing, every boundary is one chain whose times never
// go back, it folds, every carried state is the fold, recent commits are those of
// the chain, no command id was applied twice, generations of a work never go
// back, and no claim was granted on a work that was not open.
func Verify(t testing.TB, l *eventlog.Log) *Verified {
	t.Helper()
	v, err := verify(l)
	if err != nil {
		t.Errorf("the log does not verify: %v", err)
	}
	return v
}

// VerifyAtEnd is Verify when the test ends, while its nodes still run.
func VerifyAtEnd(t testing.TB, l *eventlog.Log) {
	t.Helper()
	t.Cleanup(func() { Verify(t, l) })
}

var errEnd = errors.New("end")

func verify(l *eventlog.Log) (*Verified, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v := &Verified{Works: map[string]aggregate.Folded[session.State]{}}
	last, err := l.LastPosition(ctx)
	if err != nil || last == 0 {
		return v, err
	}
	imports := aggregate.Start(session.Imports{}, l.Instance())
	applied := map[events.MsgID]uint64{}
	err = l.Tail(ctx, 1, func(r events.Record) error {
		if r.Position != v.Last+1 {
			return fmt.Errorf("position %d comes after %d", r.Position, v.Last)
		}
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			return fmt.Errorf("position %d: %w", r.Position, err)
		}
		id := eventlog.MsgIDOf(&r, c)
		if at := applied[id]; at != 0 {
			return fmt.Errorf("position %d applies the command of position %d again", r.Position, at)
		}
		applied[id] = r.Position
		if !bytes.Equal(c.Encode(), r.Payload) {
			return fmt.Errorf("position %d is not canonical", r.Position)
		}
		if r.Subject != events.CommitSubject(l.Instance(), c) {
			return fmt.Errorf("position %d is on %s", r.Position, r.Subject)
		}
		if c.Kind == events.KindImport {
			imports, err = step(session.Imports{}, imports, r, c)
		} else {
			f, known := v.Works[c.AggregateID]
			if !known {
				f = aggregate.Start(session.Decider{}, c.AggregateID)
			}
			before := f.State
			if f, err = step(session.Decider{}, f, r, c); err == nil {
				err = plausible(before, f.State, c)
			}
			v.Works[c.AggregateID] = f
		}
		if err != nil {
			return fmt.Errorf("position %d: %w", r.Position, err)
		}
		v.Last, v.Records, v.Commits = r.Position, append(v.Records, r), append(v.Commits, c)
		if r.Position >= last {
			return errEnd
		}
		return nil
	})
	if errors.Is(err, errEnd) {
		err = nil
	}
	return v, err
}

// step folds one commit and compares what it carries with that.
func step[S, C, F any](d aggregate.Decider[S, C, F], f aggregate.Folded[S], r events.Record, c *events.Commit) (aggregate.Folded[S], error) {
	next, err := aggregate.Next(d, f, r)
	if err != nil {
		return f, err
	}
	fold := d.EncodeState(next.State)
	if c.State == nil || c.State.V != fold.V || !bytes.Equal(c.State.Data, fold.Data) {
		return f, errors.New("the carried state is not the fold")
	}
	if !slices.Equal(c.Recent, f.Head.Recent) {
		return f, errors.New("recent commits are not those of the chain")
	}
	return next, nil
}

// plausible checks what holds between any two states of a work.
func plausible(before, after session.State, c *events.Commit) error {
	if after.Owner.Gen() < before.Owner.Gen() {
		return fmt.Errorf("generation %d after %d", after.Owner.Gen(), before.Owner.Gen())
	}
	for _, e := range c.Events {
		if strings.HasPrefix(e.Type, "claim.granted") && before.Terminal() {
			return fmt.Errorf("a claim granted on a work that is %s", before.Work)
		}
	}
	return nil
}
