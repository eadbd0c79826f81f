package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

func TestSmoke(t *testing.T) {
	_, l := logtest.OpenEmbedded(t)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 3)
	if a, err := l.Append(t.Context(), c.Next("c3")); err != nil || !a.AlreadyApplied {
		t.Fatal(a, err)
	}
	b, err := l.Load(t.Context(), c.Subject, events.Head{}, eventlog.Leader)
	if err != nil || b.Head.Version != 3 || b.Head.Position != c.Head.Position {
		t.Fatal(b, err)
	}
	n := 0
	if err := l.History(t.Context(), c.Subject, 0, func(events.Record, *events.Commit) error { n++; return nil }); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []uint64
	err = l.Tail(ctx, 1, func(r events.Record) error {
		if got = append(got, r.Position); len(got) == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(got) != 3 {
		t.Fatal(got, err)
	}
	info, err := l.Info(t.Context())
	t.Logf("%+v %v", info, err)
}
