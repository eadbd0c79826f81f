package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

func testLoad(t *testing.T, s *site) {
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "w1")
	for _, mode := range []eventlog.Mode{eventlog.Any, eventlog.Leader} {
		if b, err := l.Load(t.Context(), c.Subject, events.Head{}, mode); err != nil || b.Record != nil || b.Commit != nil || b.Head.Position != 0 {
			t.Fatalf("load an empty boundary: %+v, %v", b, err)
		}
	}
	c.Fill(t, 1)
	one := c.Head
	c.Fill(t, 1)
	two := c.Head
	c.Fill(t, 1)
	for _, known := range []events.Head{{}, one, two, c.Head} {
		for _, mode := range []eventlog.Mode{eventlog.Any, eventlog.Leader} {
			if known.Position < c.Head.Position && mode == eventlog.Any {
				continue // may be behind
			}
			b, err := l.Load(t.Context(), c.Subject, known, mode)
			if err != nil || b.Head.Position != c.Head.Position || b.Head.Hash != c.Head.Hash || b.Commit.Version != 3 || len(b.Head.Recent) != 3 {
				t.Fatalf("load knowing %+v: %+v, %v", known, b, err)
			}
		}
	}
	ahead := c.Head
	ahead.Position += 10
	_, err := l.Load(t.Context(), c.Subject, ahead, eventlog.Any)
	if wantCode(t, err, events.CodeLogUnsafe); !errors.Is(err, eventlog.ErrShrunk) {
		t.Fatalf("a boundary that went back: %v", err)
	}
	other := c.Head
	other.Hash[0] ^= 1
	_, err = l.Load(t.Context(), c.Subject, other, eventlog.Leader)
	wantCode(t, err, events.CodeLogUnsafe)
	forked := two
	forked.Hash[0] ^= 1
	_, err = l.Load(t.Context(), c.Subject, forked, eventlog.Leader)
	if wantCode(t, err, events.CodePoisoned); !errors.Is(err, events.ErrChain) {
		t.Fatalf("a commit that does not follow: %v", err)
	}
	if r, err := l.At(t.Context(), 2); err != nil || r == nil || r.Position != 2 || r.Subject != c.Subject || r.StoredAt.IsZero() {
		t.Fatalf("at 2: %+v, %v", r, err)
	}
	if r, err := l.At(t.Context(), 99); err != nil || r != nil {
		t.Fatalf("beyond the end: %+v, %v", r, err)
	}
	direct, err1 := l.Last(t.Context(), c.Subject, eventlog.Leader)
	at, err2 := l.At(t.Context(), 3)
	if err1 != nil || err2 != nil || fmt.Sprint(direct) == "" || fmt.Sprintf("%v", *direct) != fmt.Sprintf("%v", *at) {
		t.Fatalf("the leader shows %v, a direct get %v; %v %v", direct, at, err1, err2)
	}
}

func testPoison(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	l := logtest.Open(t, nc, s.config())
	good := logtest.WorkChain(l, "good")
	good.Fill(t, 1)
	for name, payload := range map[string]func(c *logtest.Chain) []byte{
		"bytes":    func(*logtest.Chain) []byte { return []byte("no commit") },
		"nothing":  func(*logtest.Chain) []byte { return nil },
		"trailing": func(c *logtest.Chain) []byte { return append(c.Next("x").Payload, 0) },
		"log": func(c *logtest.Chain) []byte {
			commit := c.Commit("x", 0)
			commit.Log = "another"
			return commit.Encode()
		},
		"subject": func(c *logtest.Chain) []byte {
			commit := c.Commit("x", 0)
			commit.AggregateID = "elsewhere"
			return commit.Encode()
		},
		"kind": func(c *logtest.Chain) []byte {
			commit := c.Commit("x", 0)
			commit.Kind = events.KindRelease
			return commit.Encode()
		},
		"version": func(c *logtest.Chain) []byte {
			commit := c.Commit("x", 0)
			commit.V = 77
			return commit.Encode()
		},
	} {
		c := logtest.WorkChain(l, "bad-"+name)
		c.Fill(t, 1)
		position := publishRaw(t, nc, c.Subject, payload(c))
		_, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader)
		e := wantCode(t, err, events.CodePoisoned)
		if e.Details["subject"] != c.Subject || e.Details["position"] != position {
			t.Errorf("%s: details %v", name, e.Details)
		}
		n := 0
		err = l.History(t.Context(), c.Subject, 0, func(events.Record, *events.Commit) error { n++; return nil })
		if e := wantCode(t, err, events.CodePoisoned); e.Details["position"] != position || n != 1 {
			t.Errorf("%s: history gave %d commits, details %v", name, n, e.Details)
		}
		stale := c.Next("y")
		_, err = l.Append(t.Context(), stale)
		wantCode(t, err, events.CodePoisoned)
		good.Fill(t, 1) // the others go on
	}
}

func testChain(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	l := logtest.Open(t, nc, s.config())
	for name, spoil := range map[string]func(*events.Commit){
		"version":     func(c *events.Commit) { c.Version++ },
		"older":       func(c *events.Commit) { c.Version-- },
		"prev":        func(c *events.Commit) { c.Prev-- },
		"hash":        func(c *events.Commit) { c.PrevHash[3]++ },
		"from-future": func(c *events.Commit) { c.Prev += 1000 },
		"beginning":   func(c *events.Commit) { c.Version, c.Prev, c.PrevHash, c.Recent = 1, 0, events.Hash{}, nil },
	} {
		c := logtest.WorkChain(l, name)
		c.Fill(t, 3)
		commit := c.Commit("spoilt", 0)
		spoil(commit)
		position := publishRaw(t, nc, c.Subject, commit.Encode())
		if _, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader); name != "version" || err != nil { // one more in between is possible
			e := wantCode(t, err, events.CodePoisoned)
			if !errors.Is(err, events.ErrChain) || e.Details["position"] != position {
				t.Errorf("%s: load: %v, details %v", name, err, e.Details)
			}
		}
		n := 0
		err := l.History(t.Context(), c.Subject, 0, func(events.Record, *events.Commit) error { n++; return nil })
		if e := wantCode(t, err, events.CodePoisoned); n != 3 || !errors.Is(err, events.ErrChain) || e.Details["position"] != position {
			t.Errorf("%s: history gave %d commits, %v", name, n, err)
		}
	}
}

// damaged makes a log of n commits, on two boundaries in turn, that lacks some.
func damaged(t *testing.T, s *site, nc *nats.Conn, n int, lacks ...uint64) eventlog.Config {
	t.Helper()
	cfg, good := goodConfig(t, s, nc)
	api := js(t, nc)
	if err := api.DeleteStream(t.Context(), good.Name); err != nil {
		t.Fatal(err)
	}
	open := clone(good)
	open.DenyDelete, open.DenyPurge = false, false
	stream, err := api.CreateStream(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	// A log opened for reading lends its id to the chains.
	readOnly := cfg
	readOnly.ReadOnly = true
	l := logtest.Open(t, nc, readOnly)
	chains := []*logtest.Chain{logtest.WorkChain(l, "w0"), logtest.WorkChain(l, "w1")}
	for i := range n {
		c := chains[i%2]
		e := c.Next(fmt.Sprintf("c%d", i))
		c.Took(e, publishRaw(t, nc, e.Subject, e.Payload))
	}
	for _, p := range lacks {
		if err := stream.DeleteMsg(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.UpdateStream(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func testHoles(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	for _, tc := range []struct {
		name        string
		lacks       []uint64
		text        string
		bad, intact string // work ids; "" for none
	}{
		{"middle", []uint64{4}, "4", "w1", "w0"},
		{"head", []uint64{1}, "1", "w0", "w1"},
		{"several", []uint64{3, 4, 5, 8}, "3-5,8", "w0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := damaged(t, s, nc, 12, tc.lacks...)
			_, err := eventlog.Open(t.Context(), nc, cfg)
			if e := wantCode(t, err, events.CodeLogUnsafe); !errors.Is(err, eventlog.ErrHole) || e.Details["holes"] != tc.text {
				t.Fatalf("open: %v, details %v", err, e.Details)
			}
			cfg.ReadOnly = true
			l := logtest.Open(t, nc, cfg)
			missing := func(what string, err error) {
				t.Helper()
				p, ok := eventlog.IsHole(err)
				for _, h := range tc.lacks {
					if ok && h == p {
						return
					}
				}
				t.Errorf("%s: %v (position %d)", what, err, p)
			}
			bad := events.WorkSubject(cfg.Instance, tc.bad)
			_, err = l.Load(t.Context(), bad, events.Head{}, eventlog.Leader)
			missing("load", err)
			missing("history", l.History(t.Context(), bad, 0, func(events.Record, *events.Commit) error { return nil }))
			if tc.intact != "" {
				b, err := l.Load(t.Context(), events.WorkSubject(cfg.Instance, tc.intact), events.Head{}, eventlog.Leader)
				if err != nil || b.Head.Version != 6 {
					t.Errorf("the other boundary: %+v, %v", b, err)
				}
			}
			var next uint64 = 1
			err = l.Tail(t.Context(), 1, func(r events.Record) error { next = r.Position + 1; return nil })
			missing("tail", err)
			if p, _ := eventlog.IsHole(err); p != next || next != tc.lacks[0] {
				t.Errorf("the tail gave everything up to %d, and missed %d", next-1, p)
			}

			// Holes that a restore declared are known to everybody.
			known := streamConfig(t, nc, events.StreamName(cfg.Instance))
			known.Metadata[eventlog.MetaHoles] = tc.text
			if _, err := js(t, nc).UpdateStream(t.Context(), known); err != nil {
				t.Fatal(err)
			}
			cfg.ReadOnly = false
			if l, err = eventlog.Open(t.Context(), nc, cfg); err != nil {
				t.Fatalf("open with declared holes: %v", err)
			}
			defer l.Close()
			if got := len(readAll(t, l)); got != 12-len(tc.lacks) {
				t.Errorf("the tail gave %d commits", got)
			}
			c := logtest.WorkChain(l, "new")
			c.Fill(t, 1)
			if err := l.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
		})
	}
}

func testHistory(t *testing.T, s *site) {
	l, _ := s.open(t)
	c, other := logtest.WorkChain(l, "w1"), logtest.WorkChain(l, "w2")
	n := rounds(600)
	for range n {
		c.Fill(t, 1)
		if c.Head.Version%3 == 0 {
			other.Fill(t, 1)
		}
	}
	read := func(from uint64) (versions []uint64) {
		t.Helper()
		err := l.History(t.Context(), c.Subject, from, func(r events.Record, commit *events.Commit) error {
			if r.Position < from {
				t.Fatalf("position %d before %d", r.Position, from)
			}
			versions = append(versions, commit.Version)
			return nil
		})
		if err != nil {
			t.Fatalf("history from %d: %v", from, err)
		}
		return versions
	}
	for i, v := range read(0) {
		if v != uint64(i+1) {
			t.Fatalf("version %d in place %d", v, i)
		}
	}
	if got := len(read(0)); got != n {
		t.Fatalf("%d commits, want %d", got, n)
	}
	half := read(c.Head.Position / 2)
	if len(half) == 0 || half[len(half)-1] != c.Head.Version || half[0]+uint64(len(half)) != c.Head.Version+1 {
		t.Fatalf("from the middle: %d commits, from version %d", len(half), half[0])
	}
	if got := read(c.Head.Position + 1); len(got) != 0 {
		t.Fatalf("from beyond the end: %v", got)
	}
	stop := errors.New("enough")
	if err := l.History(t.Context(), c.Subject, 0, func(events.Record, *events.Commit) error { return stop }); err != stop { //nolint:errorlint // as it is
		t.Fatalf("stopped history: %v", err)
	}
	if err := l.History(t.Context(), events.WorkSubject(l.Instance(), "nobody"), 0, func(events.Record, *events.Commit) error { return stop }); err != nil {
		t.Fatalf("history of nothing: %v", err)
	}
	if info, err := l.Info(t.Context()); err != nil || info.Consumers != 0 {
		t.Fatalf("consumers left: %+v, %v", info, err)
	}
}

// Loads of boundaries that nobody knows wait for each other; those of known ones
// do not.
func testColdLoads(t *testing.T, s *site) {
	var w logtest.Wire
	cfg := s.config()
	cfg.ColdLoads = 1
	l := logtest.Open(t, s.ForgeConn(t, w.TCP()), cfg)
	slow, quick := logtest.WorkChain(l, "slow"), logtest.WorkChain(l, "quick")
	quick.Fill(t, 1)
	blocked := make(chan struct{})
	w.Swallow(func(subject string) bool {
		if !strings.HasSuffix(subject, slow.Subject) {
			return false
		}
		select {
		case <-blocked:
		default:
			close(blocked)
		}
		return true
	})
	ended := make(chan error)
	go func() {
		_, err := l.Load(t.Context(), slow.Subject, events.Head{}, eventlog.Any)
		ended <- err
	}()
	<-blocked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := l.Load(ctx, quick.Subject, events.Head{}, eventlog.Any)
	wantCode(t, err, events.CodeUnavailable)
	if _, err := l.Load(t.Context(), quick.Subject, quick.Head, eventlog.Leader); err != nil {
		t.Errorf("load of a known boundary: %v", err)
	}
	w.Swallow(nil)
	if err := <-ended; err != nil {
		t.Errorf("the slow load: %v", err)
	}
}

func testWriteVersion(t *testing.T, s *site) {
	l, nc := s.open(t)
	if l.WriteVersion() != 1 {
		t.Fatalf("write version %d", l.WriteVersion())
	}
	raised := streamConfig(t, nc, events.StreamName(l.Instance()))
	raised.Metadata[eventlog.MetaWriteVersion] = "2"
	if _, err := js(t, nc).UpdateStream(t.Context(), raised); err != nil {
		t.Fatal(err)
	}
	logtest.Eventually(t, 5*time.Second, "the write version is seen", func() bool { return l.WriteVersion() == 2 && l.Err() == nil })
}
