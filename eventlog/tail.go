package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go/jetstream"
)

// tailPrefix begins the names of the consumers of Tail.
const tailPrefix = "forge-tail-"

// How a tail reads. A consumer that nobody asks any more, because its process
// died, is gone after tailIdle. A silence of twice tailHeartbeat is trouble.
const (
	tailIdle      = 30 * time.Second
	tailHeartbeat = time.Second
	tailExpiry    = 20 * time.Second
	tailBatch     = 1000
	tailBytes     = 16 << 20
)

// Tail gives fn every commit of the log from a position on (0 and 1: the first),
// then every new one, in order, without gap or duplicate, until the context ends
// or fn fails. It goes on over lost connections, restarts and elections. The
// records are as they lie there: nothing about the commits is checked. fn is
// called from one goroutine; while it works, nothing is lost and little read
// ahead (1000 commits, 16 MB). What fn sees is on the log for good, as far as the
// server promises it (see Durable). The consumer is deleted when Tail returns.
//
// Errors: the context's; what fn returns, as it is; FORGE_LOG_UNSAFE when a
// position is missing (wraps ErrHole, detail position: all before it were given),
// when from lies beyond the end plus one or the log became shorter (wraps
// ErrShrunk), or when it is another log or incarnation (wraps ErrReplaced).
func (l *Log) Tail(ctx context.Context, from uint64, fn func(events.Record) error) error {
	t := &tail{log: l, next: max(from, 1), fn: fn}
	defer func() { t.remove(context.WithoutCancel(ctx)) }() // the tail's own context is over
	wait := 10 * time.Millisecond
	for {
		before := t.next
		err := t.run(ctx)
		var fatal *tailEnd
		switch {
		case errors.As(err, &fatal):
			return fatal.err
		case ctx.Err() != nil:
			return ctx.Err()
		case l.closing(), l.nc.IsClosed():
			return events.Errorf(events.CodeUnavailable, "tail at position %d: %w", t.next, ErrClosed)
		}
		l.cfg.Logger.Debug().Err(err).Uint64("next", t.next).Msg("tail resumes")
		if t.next > before {
			wait = 10 * time.Millisecond
		}
		if !pause(ctx, jitter(wait/2, wait)) {
			return ctx.Err()
		}
		wait = min(2*wait, time.Second)
	}
}

func (l *Log) closing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// tail is a Tail under way.
type tail struct {
	log  *Log
	next uint64 // the position that is to come
	fn   func(events.Record) error
	used []string // consumers that were not deleted yet

	shrunk time.Time // since when the log has been shorter than it was
}

// tailEnd is an error that resuming does not help against.
type tailEnd struct{ err error }

func (e *tailEnd) Error() string { return e.err.Error() }

// run follows the log with one consumer, until that one is of no use any more.
func (t *tail) run(ctx context.Context) error {
	l := t.log
	info, err := l.streamInfo(ctx, false)
	if errors.Is(err, errNoStream) {
		return &tailEnd{gone(err)}
	}
	if err != nil {
		return err
	}
	if err := t.same(info); err != nil {
		return err
	}
	t.remove(ctx)
	name := tailPrefix + randomID()
	t.used = append(t.used, name)
	consumer, err := l.js.CreateConsumer(ctx, l.stream, jetstream.ConsumerConfig{
		Name:              name,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       t.next,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: l.cfg.tailIdle,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(tailBatch, tailBytes),
		jetstream.PullExpiry(tailExpiry), jetstream.PullHeartbeat(tailHeartbeat),
	)
	if err != nil {
		return err
	}
	line := *l.line.Load()
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(line, cancel)() // a broken connection ends the consumer
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(alive))
		if err != nil {
			return err
		}
		if err := t.take(ctx, m); err != nil {
			return err
		}
	}
}

// same checks that the log is still the one that was opened, and no shorter.
func (t *tail) same(info *streamInfo) error {
	l, meta := t.log, info.metadata()
	switch {
	case !info.Created.Equal(l.created) || meta[MetaLog] != l.id || meta[MetaIncarnation] != l.incarnation:
		return &tailEnd{events.Errorf(events.CodeLogUnsafe, "%w: stream %s holds log %q, incarnation %q", ErrReplaced, l.stream, meta[MetaLog], meta[MetaIncarnation])}
	case info.State.Last+1 >= t.next:
		t.shrunk = time.Time{}
		return nil
	case t.next-1 <= l.seen.Load() && !l.Confirmed():
		// It was longer; but a leader that was just elected may still be applying.
		if l.wake(); t.shrunk.IsZero() {
			t.shrunk = time.Now()
		}
		if time.Since(t.shrunk) < l.cfg.lossAfter {
			return fmt.Errorf("%w: it ends at position %d", ErrShrunk, info.State.Last)
		}
	}
	return &tailEnd{events.Errorf(events.CodeLogUnsafe, "%w: position %d is to come next, but the log ends at %d", ErrShrunk, t.next, info.State.Last).
		With("position", t.next).With("last", info.State.Last)}
}

// take hands one message over, if it is the one that is to come.
func (t *tail) take(ctx context.Context, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	l, position := t.log, meta.Sequence.Stream
	if position < t.next {
		return nil // given before
	}
	for ; t.next < position; t.next++ {
		if l.declared.contains(t.next) {
			continue
		}
		r, err := l.At(ctx, t.next)
		if err != nil {
			return err
		}
		if r != nil {
			return fmt.Errorf("position %d was not delivered", t.next) // resume from there
		}
		l.wake()
		return &tailEnd{hole(t.next, fmt.Sprintf("while position %d is there", position))}
	}
	l.note(position)
	header := m.Headers()
	r := events.Record{Position: position, Subject: m.Subject(), Header: header, StoredAt: meta.Timestamp.UTC(), Payload: m.Data()}
	if err := t.fn(r); err != nil {
		return &tailEnd{err}
	}
	t.next = position + 1
	return nil
}

// remove deletes the consumers that were used. While the connection is down it
// cannot; what is left over at the end goes by itself after tailIdle.
func (t *tail) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.log.cfg.ReadTimeout)
	defer cancel()
	t.used = slices.DeleteFunc(t.used, func(name string) bool {
		err := t.log.js.DeleteConsumer(ctx, t.log.stream, name)
		return err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
	})
	if len(t.used) > 0 {
		t.log.cfg.Logger.Debug().Strs("consumers", t.used).Msg("consumers not deleted yet")
	}
}

// IsTailConsumer says whether a consumer of the stream is one of a Tail.
func IsTailConsumer(name string) bool { return strings.HasPrefix(name, tailPrefix) }
