package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// Every answer that a server may give to a publish, true or not: a command is
// never "done" without its commit being there, and never there twice.
func testCodes(t *testing.T, s *site) {
	l, nc := s.open(t)
	refusal := func(code int, text string) []byte {
		return fmt.Appendf(nil, `{"type":"io.nats.jetstream.api.v1.pub_ack","error":{"code":400,"err_code":%d,"description":%q},"stream":"","seq":0}`, code, text)
	}
	const always = 1 << 30
	type outcome int
	const (
		appended outcome = iota
		already          // by another decision, which lay there before
		conflict         // with another command, which lay there before
		failed           // with the code
	)
	for i, tc := range []struct {
		name   string
		code   int
		text   string
		times  int // how often it is answered; then the server answers
		before outcome
		want   outcome
		err    events.Code
		sent   int // publishes, 0: any number
	}{
		{"wrong last, once", 10071, "wrong last sequence: 0", 1, appended, appended, "", 2},
		{"wrong last, always", 10071, "wrong last sequence: 0", always, appended, failed, events.CodeUnavailable, 0},
		{"wrong last, moved", 10071, "wrong last sequence: 0", always, conflict, conflict, "", 1},
		{"wrong last, own", 10071, "wrong last sequence", always, already, already, "", 1},
		{"in flight, once", 10164, "wrong last sequence", 1, appended, appended, "", 2},
		{"in flight, three times", 10164, "wrong last sequence", 3, appended, appended, "", 4},
		{"in flight, always", 10164, "wrong last sequence", always, appended, failed, events.CodeUnavailable, 0},
		{"in flight, moved", 10164, "wrong last sequence", always, conflict, conflict, "", 4},
		{"in flight, own", 10164, "wrong last sequence", always, already, already, "", 4},
		{"duplicate in flight, once", 10158, "duplicate message id is in process", 1, appended, appended, "", 2},
		{"duplicate in flight, own", 10158, "duplicate message id is in process", always, already, already, "", 4},
		{"duplicate in flight, moved", 10158, "duplicate message id is in process", always, conflict, conflict, "", 4},
		{"duplicate in batch, own", 10201, "duplicate message id in batch", always, already, already, "", 4},
		{"batches in flight", 10210, "too many batches", 2, appended, appended, "", 3},
		{"too many requests", 10167, "too many requests", 2, appended, appended, "", 3},
		{"not available", 10008, "temporarily unavailable", 2, appended, appended, "", 3},
		{"not leader", 10009, "can not handle request", 2, appended, appended, "", 3},
		{"full", 10077, "maximum bytes exceeded", always, appended, failed, events.CodeLogFull, 1},
		{"storage", 10047, "insufficient storage", always, appended, failed, events.CodeLogFull, 1},
		{"resources", 10023, "insufficient resources", always, appended, failed, events.CodeLogFull, 1},
		{"account", 10002, "resource limits exceeded for account", always, appended, failed, events.CodeLogFull, 1},
		{"size", 10054, "message size exceeds maximum", always, appended, failed, events.CodeTooLarge, 1},
		{"sealed", 10109, "invalid operation on sealed stream", always, appended, failed, events.CodeLogUnsafe, 1},
		{"unknown", 19999, "never heard of", always, appended, failed, events.CodeUnavailable, 1},
	} {
		c := logtest.WorkChain(l, fmt.Sprintf("w%d", i))
		c.Fill(t, 1)
		base := c.Head
		e := c.Next("mine")
		switch tc.before {
		case already:
			mustAppend(t, l, e)
			time.Sleep(2 * time.Millisecond)
			e = c.Next("mine") // decided anew, later
		case conflict:
			c.Fill(t, 1)
			c.Head = base
		}
		sent := 0
		l.Answer(func(*nats.Msg) []byte {
			if sent++; sent <= tc.times {
				return refusal(tc.code, tc.text)
			}
			return nil
		})
		a, err := l.Append(t.Context(), e)
		l.Answer(func(*nats.Msg) []byte { return nil })
		if tc.sent != 0 && sent != tc.sent {
			t.Errorf("%s: %d publishes, want %d", tc.name, sent, tc.sent)
		}
		var moved *eventlog.Conflict
		switch tc.want {
		case appended:
			if err != nil || a.AlreadyApplied || a.Position == 0 {
				t.Errorf("%s: %+v, %v", tc.name, a, err)
			}
		case already:
			if err != nil || !a.AlreadyApplied || a.Commit.ID != "mine" {
				t.Errorf("%s: %+v, %v", tc.name, a, err)
			}
		case conflict:
			if !errors.As(err, &moved) || moved.Found <= base.Position || moved.Expected != base.Position {
				t.Errorf("%s: %+v, %v", tc.name, a, err)
			}
		case failed:
			if events.CodeOf(err) != tc.err {
				t.Errorf("%s: %+v, %v, want %s", tc.name, a, err, tc.err)
			}
		}
		r, err := l.Last(t.Context(), c.Subject, eventlog.Leader)
		if err != nil || (r.Position > base.Position) != (tc.want != failed) {
			t.Errorf("%s: afterwards the boundary is at %+v, it was at %d; %v", tc.name, r, base.Position, err)
		}
	}

	// Acknowledgements that are not true.
	other := logtest.WorkChain(l, "other")
	other.Fill(t, 1)
	for name, tc := range map[string]struct {
		answer string
		code   events.Code
	}{
		"duplicate of nothing":          {fmt.Sprintf(`{"stream":%q,"seq":99999,"duplicate":true}`, events.StreamName(l.Instance())), events.CodeUnavailable},
		"duplicate of another boundary": {fmt.Sprintf(`{"stream":%q,"seq":%d,"duplicate":true}`, events.StreamName(l.Instance()), other.Head.Position), events.CodeCommandIDReused},
		"another stream":                {`{"stream":"ELSE","seq":99999}`, events.CodeUnavailable},
		"no position":                   {fmt.Sprintf(`{"stream":%q}`, events.StreamName(l.Instance())), events.CodeUnavailable},
		"no acknowledgement":            {`+OK`, events.CodeUnavailable},
	} {
		c := logtest.WorkChain(l, "untrue")
		l.Answer(func(*nats.Msg) []byte { return []byte(tc.answer) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := l.Append(ctx, c.Next("mine"))
		cancel()
		if events.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	// What was not answered once is in doubt, whatever is answered next.
	sent := 0
	l.Answer(func(*nats.Msg) []byte {
		if sent++; sent == 1 {
			return []byte{}
		}
		return refusal(10077, "maximum bytes exceeded")
	})
	_, err := l.Append(t.Context(), logtest.WorkChain(l, "doubt").Next("mine"))
	wantCode(t, err, events.CodeUnavailable)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}

	// A position that was there before belongs to an older copy of the log.
	l2 := logtest.Open(t, nc, eventlog.Config{Instance: l.Instance(), Replicas: s.Replicas(), CheckEvery: time.Hour})
	l2.Answer(func(*nats.Msg) []byte {
		return fmt.Appendf(nil, `{"stream":%q,"seq":2}`, events.StreamName(l.Instance()))
	})
	_, err = l2.Append(t.Context(), logtest.WorkChain(l2, "old").Next("mine"))
	if wantCode(t, err, events.CodeLogUnsafe); !errors.Is(err, eventlog.ErrShrunk) || !errors.Is(l2.Err(), eventlog.ErrShrunk) {
		t.Errorf("an old position: %v; %v", err, l2.Err())
	}
}

// A server that comes back with an older copy of its data.
func testOlderCopy(t *testing.T, s *site) {
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 3)
	old := t.TempDir()
	stopAll := func() {
		for i := range s.Len() {
			s.Stop(i)
		}
	}
	each := func(do func(i int)) {
		for i := range s.Len() {
			do(i)
		}
	}
	stopAll()
	each(func(i int) {
		if err := os.CopyFS(fmt.Sprintf("%s/%d", old, i), os.DirFS(s.StoreDir(i))); err != nil {
			t.Fatal(err)
		}
	})
	s.StartAll()
	c.Fill(t, 3)
	f := follow(t, l, 1)
	f.reach(t, 6)
	stopAll()
	each(func(i int) {
		if err := os.RemoveAll(s.StoreDir(i)); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(s.StoreDir(i), os.DirFS(fmt.Sprintf("%s/%d", old, i))); err != nil {
			t.Fatal(err)
		}
	})
	s.StartAll()
	_, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader)
	if wantCode(t, err, events.CodeLogUnsafe); !errors.Is(err, eventlog.ErrShrunk) {
		t.Errorf("load: %v", err)
	}
	logtest.Eventually(t, 10*time.Second, "the loss is seen", func() bool { return errors.Is(l.Err(), eventlog.ErrShrunk) })
	select {
	case <-f.ended:
		if !errors.Is(f.err, eventlog.ErrShrunk) {
			t.Errorf("tail: %v", f.err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the tail goes on")
	}
	if _, err := l.Append(t.Context(), c.Next("refused")); events.CodeOf(err) != events.CodeLogUnsafe {
		t.Errorf("append: %v", err)
	}
}
