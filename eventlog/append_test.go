package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

var errDone = errors.New("done")

// bounded is a context that also serves cleanups, which run after the test's own
// is over.
func bounded(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func mustAppend(t *testing.T, l *eventlog.Log, e eventlog.Entry) eventlog.Appended {
	t.Helper()
	a, err := l.Append(t.Context(), e)
	if err != nil {
		t.Fatalf("append on %s: %v", e.Subject, err)
	}
	return a
}

func testAppend(t *testing.T, s *site) {
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "w1")
	first := c.Next("a")
	if a := mustAppend(t, l, first); a.Position != 1 || a.AlreadyApplied || a.Commit != nil {
		t.Fatalf("first append: %+v", a)
	}
	second := c.Next("b") // also rests on an empty boundary
	_, err := l.Append(t.Context(), second)
	var conflict *eventlog.Conflict
	if !errors.As(err, &conflict) || !errors.Is(err, events.ErrConflict) || conflict.Found != 1 || conflict.Expected != 0 || conflict.Last == nil || conflict.Last.Position != 1 {
		t.Fatalf("second append on an empty boundary: %v, %+v", err, conflict)
	}
	c.Took(first, 1)
	if a, err := c.Append(t.Context(), "b"); err != nil || a.Position != 2 {
		t.Fatalf("append after reloading: %+v, %v", a, err)
	}
	ahead := c.Commit("c", 0)
	ahead.Prev = 40
	if _, err := l.Append(t.Context(), c.Entry(ahead)); !errors.As(err, &conflict) || conflict.Found != 2 {
		t.Fatalf("append with an expectation beyond the end: %v", err)
	}
	for name, spoil := range map[string]func(*eventlog.Entry){
		"subject":  func(e *eventlog.Entry) { e.Subject = events.WorkSubject(l.Instance(), "w2") },
		"expected": func(e *eventlog.Entry) { e.Expected++ },
		"id":       func(e *eventlog.Entry) { e.ID = "else" },
		"digest":   func(e *eventlog.Entry) { e.Digest[0]++ },
		"payload":  func(e *eventlog.Entry) { e.Payload = append(e.Payload, 0) },
		"log": func(e *eventlog.Entry) {
			e.Payload = bytes.Replace(e.Payload, []byte(l.ID()), bytes.Repeat([]byte("0"), 32), 1)
		},
	} {
		e := c.Next("poison")
		spoil(&e)
		if _, err := l.Append(t.Context(), e); events.CodeOf(err) != events.CodeBadRequest {
			t.Errorf("append of a payload with another %s: %v", name, err)
		}
	}
	other := logtest.ReleaseChain(l)
	if a, err := other.Append(t.Context(), "b"); err != nil || a.Position != 3 || a.AlreadyApplied {
		t.Fatalf("the same command id on another boundary: %+v, %v", a, err)
	}
	if got := l.Durable(); got != 3 {
		t.Errorf("durable position %d, want 3", got)
	}
	if _, err := l.Append(t.Context(), eventlog.Entry{Subject: "forge.log.else.release"}); events.CodeOf(err) != events.CodeBadRequest {
		t.Errorf("append on a subject of another instance: %v", err)
	}
	if _, err := l.Append(t.Context(), eventlog.Entry{Subject: "forge.log." + l.Instance() + ".work.*"}); events.CodeOf(err) != events.CodeBadRequest {
		t.Errorf("append on a wildcard: %v", err)
	}
}

// again appends the command of a first commit anew, in the two ways that a caller
// can: still resting on what the first rested on, or on the boundary as it is now;
// and with another request under the same id.
func again(t *testing.T, c *logtest.Chain, first eventlog.Entry, position uint64) {
	t.Helper()
	for _, stale := range []bool{true, false} {
		commit := c.Commit(first.ID, 0)
		if stale {
			var err error
			if commit, err = events.DecodeCommit(first.Payload); err != nil {
				t.Fatal(err)
			}
		}
		a, err := c.Log.Append(t.Context(), c.Entry(commit))
		if stale && errors.Is(err, eventlog.ErrConflict) && c.Head.Version > events.RecentCommits {
			continue // it is beyond what the last commit names: loaded and decided again
		}
		if err != nil || a.Position != position || !a.AlreadyApplied || a.Commit == nil || a.Commit.ID != first.ID || a.Record.Position != position {
			t.Fatalf("the command again (stale %t, at version %d): %+v, %v; want already applied at %d", stale, c.Head.Version, a, err, position)
		}
		commit.Command.RequestDigest[0]++
		_, err = c.Log.Append(t.Context(), c.Entry(commit))
		if d := wantCode(t, err, events.CodeCommandIDReused).Details; d["position"] != position {
			t.Fatalf("reuse of the id (stale %t): details %v, want position %d", stale, d, position)
		}
	}
}

func testAlreadyApplied(t *testing.T, s *site) {
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 2)
	first := c.Next("twice")
	position := mustAppend(t, l, first).Position
	c.Took(first, position)
	again(t, c, first, position) // it is the last commit
	c.Fill(t, 1)
	again(t, c, first, position) // the last commit names it
	c.Fill(t, 6)
	again(t, c, first, position)
	c.Fill(t, 3)
	again(t, c, first, position) // only the server's window knows it
}

func testDuplicateNotBelieved(t *testing.T, s *site) {
	l, _ := s.open(t)
	a, b := logtest.WorkChain(l, "a"), logtest.WorkChain(l, "b")
	ea := a.Next("one")
	mustAppend(t, l, ea)
	eb := b.Next("two")
	eb.MsgID = ea.MsgID // cannot happen by the making of message ids
	_, err := l.Append(t.Context(), eb)
	wantCode(t, err, events.CodeCommandIDReused)
	if r, err := l.Last(t.Context(), b.Subject, eventlog.Leader); r != nil || err != nil {
		t.Fatalf("the other boundary holds %v, %v", r, err)
	}
}

// A restored log has no message ids; the commits still say whose they are.
func testRestored(t *testing.T, s *site) {
	l, nc := s.open(t)
	c := logtest.WorkChain(l, "w1")
	first := c.Next("one")
	if _, err := js(t, nc).Publish(t.Context(), first.Subject, first.Payload); err != nil {
		t.Fatal(err)
	}
	c.Took(first, 1)
	again(t, c, first, 1)
	c.Fill(t, 2)
	again(t, c, first, 1)
}

func testRace(t *testing.T, s *site) {
	const racers = 8
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "contested")
	for round := range rounds(200) {
		var wg sync.WaitGroup
		entries := make([]eventlog.Entry, racers)
		results := make([]eventlog.Appended, racers)
		errs := make([]error, racers)
		for i := range racers {
			entries[i] = c.Next(fmt.Sprintf("r%d-%d", round, i))
			wg.Go(func() { results[i], errs[i] = l.Append(t.Context(), entries[i]) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0 && !results[i].AlreadyApplied:
				winner = i
			case !errors.Is(err, eventlog.ErrConflict):
				t.Fatalf("round %d: racer %d: %+v, %v; racer %d has won", round, i, results[i], err, winner)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		c.Took(entries[winner], results[winner].Position)
	}
}

func testLostAck(t *testing.T, s *site) {
	var w logtest.Wire
	nc := s.ForgeConn(t, w.TCP())
	cfg := s.config()
	cfg.DuplicateWindow = 100 * time.Millisecond
	cfg.AppendTimeout = 150 * time.Millisecond
	l := logtest.Open(t, nc, cfg)
	verifyAtEnd(t, l)
	c := logtest.WorkChain(l, "w1")

	// The call itself finds out.
	w.LoseAcks(1)
	e := c.Next("in-call")
	if a := mustAppend(t, l, e); a.AlreadyApplied || w.Lost() != 1 {
		t.Fatalf("append whose answer was lost: %+v, lost %d", a, w.Lost())
	} else {
		c.Took(e, a.Position)
	}

	// The caller gives up, and asks again: at once, and when the server has
	// forgotten the id.
	for i, wait := range []time.Duration{0, 250 * time.Millisecond} {
		w.LoseAcks(1000)
		e := c.Next("given-up-" + strconv.Itoa(i))
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		_, err := l.Append(ctx, e)
		cancel()
		wantCode(t, err, events.CodeUnavailable)
		w.Lose(nil)
		time.Sleep(wait + 2*time.Millisecond)
		a, err := l.Append(t.Context(), c.Next(e.ID)) // decided anew, later
		if err != nil || !a.AlreadyApplied || a.Commit.ID != e.ID {
			t.Fatalf("the command again after %s: %+v, %v", wait, a, err)
		}
		c.Took(e, a.Position)
	}
	if c.Head.Version != 3 || l.Err() != nil {
		t.Fatalf("head %+v, %v", c.Head, l.Err())
	}
}

func testLostAckRestart(t *testing.T, s *site) {
	var w logtest.Wire
	l, _ := s.open(t, w.TCP())
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 1)
	w.LoseAcks(1000)
	e := c.Next("before-restart")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := l.Append(ctx, e)
	wantCode(t, err, events.CodeUnavailable)
	w.Lose(nil)
	s.Restart(max(s.Leader(events.StreamName(l.Instance())), 0))
	a, err := l.Append(t.Context(), c.Next(e.ID)) // decided anew, later
	if err != nil || !a.AlreadyApplied {
		t.Fatalf("the command again after a restart: %+v, %v", a, err)
	}
	c.Took(e, a.Position)
	c.Fill(t, 2)
}

// Connections that break at any time lose nothing and repeat nothing.
func testCutOff(t *testing.T, s *site) {
	var w logtest.Wire
	l, _ := s.open(t, w.TCP())
	underTrouble(t, l, 4, rounds(20), func() { w.Cut() })
}

// Elections neither (alone, the leader stays).
func testElection(t *testing.T, s *site) {
	l, _ := s.open(t)
	underTrouble(t, l, 4, rounds(20), func() { s.StepDown(events.StreamName(l.Instance())) })
}

// underTrouble has writers append, each to a boundary of its own, until there was
// trouble a number of times. Each command is repeated until it is answered.
func underTrouble(t *testing.T, l *eventlog.Log, writers, times int, trouble func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var wg sync.WaitGroup
	var total atomic.Uint64
	over := make(chan struct{})
	for i := range writers {
		wg.Go(func() {
			c := logtest.WorkChain(l, "w"+strconv.Itoa(i))
			for k := 0; ; k++ {
				select {
				case <-over:
					return
				default:
				}
				e := c.Next(fmt.Sprintf("c%d", k))
				for {
					a, err := l.Append(t.Context(), e)
					if err == nil {
						c.Took(e, a.Position)
						total.Add(1)
						break
					}
					if !errors.Is(err, events.ErrUnavailable) || t.Context().Err() != nil {
						t.Errorf("writer %d, command %d: %v", i, k, err)
						return
					}
				}
			}
		})
	}
	for range times {
		time.Sleep(time.Duration(10+random.IntN(50)) * time.Millisecond)
		trouble()
	}
	time.Sleep(20 * time.Millisecond)
	close(over)
	wg.Wait()
	if end, err := l.LastPosition(t.Context()); err != nil || end != total.Load() || end == 0 {
		t.Errorf("the log ends at %d, %v; want %d", end, err, total.Load())
	}
	t.Logf("%d commits", total.Load())
}

func testTooLarge(t *testing.T, s *site) {
	l, _ := s.open(t)
	c := logtest.WorkChain(l, "w1")
	commit := c.Commit("big", 0)
	room := events.MaxCommit - len(commit.Encode()) - 8
	e := c.Entry(c.Commit("big", room))
	if n := len(e.Payload); n > events.MaxCommit || n < events.MaxCommit-16 {
		t.Fatalf("the payload has %d bytes", n)
	}
	a := mustAppend(t, l, e)
	for _, mode := range []eventlog.Mode{eventlog.Any, eventlog.Leader} {
		logtest.Eventually(t, 5*time.Second, "a commit of the full size is read", func() bool {
			r, err := l.Last(t.Context(), c.Subject, mode)
			return err == nil && r != nil && r.Position == a.Position && len(r.Payload) == len(e.Payload)
		})
	}
	c.Took(e, a.Position)
	over := c.Entry(c.Commit("bigger", events.MaxCommit))
	_, err := l.Append(t.Context(), over)
	wantCode(t, err, events.CodeTooLarge)
}

func testLogFull(t *testing.T, s *site) {
	cfg := s.config()
	cfg.MaxBytes = 256 << 10
	l := logtest.Open(t, s.ForgeConn(t), cfg)
	verifyAtEnd(t, l)
	c := logtest.WorkChain(l, "w1")
	var err error
	for i := 0; err == nil && i < 100; i++ {
		e := c.Entry(c.Commit(strconv.Itoa(i), 16<<10))
		var a eventlog.Appended
		if a, err = l.Append(t.Context(), e); err == nil {
			c.Took(e, a.Position)
		}
	}
	wantCode(t, err, events.CodeLogFull)
	b, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader)
	if err != nil || b.Head.Version != c.Head.Version {
		t.Fatalf("load from a full log: %+v, %v", b, err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Fatalf("a full log is not an unsafe one: %v", err)
	}
}

func testClockSkew(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	cfg := s.config()
	l := logtest.Open(t, nc, cfg)
	if off := l.LeaderOffset(); off.Abs() > 200*time.Millisecond {
		t.Errorf("leader offset %s on one machine", off)
	}
	c := logtest.WorkChain(l, "w1")
	commit := c.Commit("future", 0)
	commit.At = events.TimeOf(time.Now().Add(3 * time.Second))
	_, err := l.Append(t.Context(), c.Entry(commit))
	wantCode(t, err, events.CodeClockSkew)

	cfg.LeaderTime = func() time.Time { return time.Now().Add(5 * time.Second) }
	cfg.Clock = func() time.Time { return time.Now().Add(-time.Hour) }
	ahead := logtest.Open(t, nc, cfg)
	mustAppend(t, ahead, c.Entry(commit))
	if off := ahead.LeaderOffset(); (off - time.Hour - 5*time.Second).Abs() > time.Second {
		t.Errorf("leader offset %s, want an hour and 5 s", off)
	}
}

// Messages that are no commits of ours, as another program would send them.
func publishRaw(t *testing.T, nc *nats.Conn, subject string, payload []byte) uint64 {
	t.Helper()
	ack, err := js(t, nc).Publish(t.Context(), subject, payload)
	if err != nil {
		t.Fatalf("publish on %s: %v", subject, err)
	}
	return ack.Sequence
}
