package servicetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
)

// checkPatience is how long CheckLog waits for the next commit.
const checkPatience = 30 * time.Second

// CheckLog reads a log from its first commit to its present last one, and fails
// the test with the first bad position (replay.Check). Every commit is folded
// twice. A log that cannot be read fails the test, too.
func CheckLog(t testing.TB, log *eventlog.Log) *replay.Report {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stalled := time.AfterFunc(checkPatience, func() { cancel(errStalled) })
	defer stalled.Stop()
	last, err := log.LastPosition(ctx)
	if err != nil {
		t.Errorf("check the log of %s (a test that breaks it sets Node.Unchecked): %v", log.Instance(), err)
		return nil
	}
	report, err := replay.Check(ctx, log.Instance(), log.ID(), moving{UpTo(log, last), stalled}, replay.Options{Last: last, Twice: true})
	if err != nil {
		if context.Cause(ctx) != nil {
			err = context.Cause(ctx)
		}
		t.Errorf("check the log of %s, good up to position %d of %d: %v", log.Instance(), report.Last, last, err)
	}
	return report
}

var errStalled = fmt.Errorf("nothing came for %s", checkPatience)

// moving puts a timer off with every record.
type moving struct {
	replay.Reader
	timer *time.Timer
}

func (m moving) Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for r, err := range m.Reader.Records(ctx, from) {
			m.timer.Reset(checkPatience)
			if !yield(r, err) {
				return
			}
		}
	}
}

// UpTo reads an open log up to a position that it has reached.
func UpTo(log *eventlog.Log, last uint64) replay.Reader { return upTo{log, last} }

type upTo struct {
	log  *eventlog.Log
	last uint64
}

var errEnough = errors.New("enough")

// Records follows the log by Tail.
func (u upTo) Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if u.last < max(from, 1) {
			return
		}
		err := u.log.Tail(ctx, from, func(r events.Record) error {
			if r.Position > u.last || !yield(r, nil) || r.Position == u.last {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			yield(events.Record{}, err)
		}
	}
}
