package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

// follower tails a log and checks that nothing is missing, doubled or out of order.
type follower struct {
	next   atomic.Uint64
	err    error
	ended  chan struct{}
	cancel context.CancelFunc
}

func follow(t *testing.T, l *eventlog.Log, from uint64) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{ended: make(chan struct{}), cancel: cancel}
	f.next.Store(max(from, 1))
	go func() {
		defer close(f.ended)
		f.err = l.Tail(ctx, from, func(r events.Record) error {
			if want := f.next.Load(); r.Position != want {
				return fmt.Errorf("position %d came, want %d", r.Position, want)
			}
			if len(r.Payload) == 0 || r.Subject == "" || len(r.Header[events.MsgIDHeader]) != 1 {
				return fmt.Errorf("position %d is not whole: %+v", r.Position, r)
			}
			f.next.Add(1)
			return nil
		})
	}()
	t.Cleanup(f.stop)
	return f
}

func (f *follower) stop() {
	f.cancel()
	<-f.ended
}

// reach waits until the follower has seen a position.
func (f *follower) reach(t *testing.T, position uint64) {
	t.Helper()
	logtest.Eventually(t, 30*time.Second, "the tail reaches position "+strconv.FormatUint(position, 10), func() bool {
		select {
		case <-f.ended:
			t.Fatalf("the tail ended at %d: %v", f.next.Load(), f.err)
		default:
		}
		return f.next.Load() > position
	})
}

// write appends n commits to each of some boundaries, all at the same time, and
// gives the position of the last one.
func write(t *testing.T, l *eventlog.Log, name string, boundaries, n int) uint64 {
	t.Helper()
	var last atomic.Uint64
	var wg sync.WaitGroup
	for i := range boundaries {
		wg.Go(func() {
			c := logtest.WorkChain(l, fmt.Sprintf("%s-%d", name, i))
			for k := range n {
				a, err := c.Append(t.Context(), strconv.Itoa(k))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				for old := last.Load(); a.Position > old && !last.CompareAndSwap(old, a.Position); old = last.Load() {
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return last.Load()
}

func noConsumers(t *testing.T, l *eventlog.Log) {
	t.Helper()
	logtest.Eventually(t, 5*time.Second, "no consumer is left", func() bool {
		info, err := l.Info(t.Context())
		return err == nil && info.Consumers == 0
	})
}

func testTail(t *testing.T, s *site) {
	l, _ := s.open(t)
	early := follow(t, l, 0)
	begin := write(t, l, "a", 4, 10)
	tails := []*follower{early, follow(t, l, 1), follow(t, l, begin), follow(t, l, begin+1)}
	end := write(t, l, "b", 16, rounds(200))
	tails = append(tails, follow(t, l, end/2))
	for _, f := range tails {
		f.reach(t, end)
	}
	for _, f := range tails {
		if f.stop(); !errors.Is(f.err, context.Canceled) {
			t.Errorf("stopped tail: %v", f.err)
		}
	}
	noConsumers(t, l)
}

func testTailRestart(t *testing.T, s *site) {
	l, _ := s.open(t)
	f := follow(t, l, 1)
	f.reach(t, write(t, l, "before", 2, 5))
	for i := range s.Len() {
		s.Restart(i)
		f.reach(t, write(t, l, "after-"+strconv.Itoa(i), 2, 5))
	}
	f.stop()
	noConsumers(t, l)
}

func testTailConsumerDeleted(t *testing.T, s *site) {
	l, nc := s.open(t)
	f := follow(t, l, 1)
	f.reach(t, write(t, l, "before", 2, 5))
	stream, err := js(t, nc).Stream(t.Context(), events.StreamName(l.Instance()))
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if !eventlog.IsTailConsumer(name) {
			t.Errorf("consumer %s", name)
		}
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	f.reach(t, write(t, l, "after", 2, 5))
	f.stop()
	noConsumers(t, l)
}

func testTailRefuses(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	cfg := s.config()
	l := logtest.Open(t, nc, cfg)
	end := write(t, l, "a", 2, 5)
	f := follow(t, l, end+2)
	<-f.ended
	if wantCode(t, f.err, events.CodeLogUnsafe); !errors.Is(f.err, eventlog.ErrShrunk) {
		t.Errorf("a start beyond the end: %v", f.err)
	}
	enough := errors.New("enough")
	if err := l.Tail(t.Context(), 1, func(events.Record) error { return enough }); err != enough { //nolint:errorlint // as it is
		t.Errorf("a tail whose function fails: %v", err)
	}

	f = follow(t, l, 1)
	f.reach(t, end)
	good := streamConfig(t, nc, events.StreamName(cfg.Instance))
	if err := js(t, nc).DeleteStream(t.Context(), good.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := js(t, nc).CreateStream(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	select {
	case <-f.ended:
		if !errors.Is(f.err, eventlog.ErrReplaced) {
			t.Errorf("a tail of a stream that was replaced: %v", f.err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a tail goes on over a stream that was replaced")
	}
}

// A process that dies while it tails leaves a consumer behind; it goes by itself.
func testTailAbandoned(t *testing.T, s *site) {
	l, _ := s.open(t)
	end := write(t, l, "a", 2, 5)
	cfg := s.config()
	cfg.Instance = l.Instance()
	nc := s.ForgeConn(t)
	dying := logtest.Open(t, nc, cfg)
	for range 3 {
		f := follow(t, dying, 1)
		f.reach(t, end)
	}
	nc.Close()
	f := follow(t, dying, 1)
	<-f.ended
	if wantCode(t, f.err, events.CodeUnavailable); !errors.Is(f.err, eventlog.ErrClosed) {
		t.Errorf("a tail of a closed connection: %v", f.err)
	}
	if info, err := l.Info(t.Context()); err != nil || info.Consumers != 3 {
		t.Errorf("consumers left: %+v, %v", info, err)
	}
	logtest.Eventually(t, 15*time.Second, "the consumers are gone", func() bool {
		info, err := l.Info(t.Context())
		return err == nil && info.Consumers == 0
	})
}
