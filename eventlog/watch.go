package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// Advisories that say that the stream may no longer be what it was. That of a
// deletion may be lost: the server ends the loop that sends it right after handing
// it over (server 2.15, stream.go, stop). Then the next check, or an append that
// nobody answers, finds out.
var advisories = []string{"UPDATED", "DELETED", "CREATED", "RESTORE_COMPLETE", "LEADER_ELECTED"}

// watch starts the goroutine that keeps checking the stream.
func (l *Log) watch(ctx context.Context) error {
	subs := make([]*nats.Subscription, 0, len(advisories))
	for _, what := range advisories {
		sub, err := l.nc.Subscribe("$JS.EVENT.ADVISORY.STREAM."+what+"."+l.stream, func(*nats.Msg) { l.wake() })
		if err != nil {
			for _, s := range subs {
				_ = s.Unsubscribe()
			}
			return events.Errorf(events.CodeUnavailable, "subscribe to advisories: %w", err)
		}
		subs = append(subs, sub)
	}
	l.done.Go(func() {
		defer func() {
			for _, s := range subs {
				_ = s.Unsubscribe()
			}
		}()
		l.watchUntil(ctx)
	})
	return nil
}

// wake has the stream checked now.
func (l *Log) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *Log) watchUntil(ctx context.Context) {
	tick := time.NewTicker(l.cfg.CheckEvery)
	defer tick.Stop()
	told := l.state()
	if told != nil {
		l.tell(told)
	}
	for {
		var soon <-chan time.Time
		if l.recoverable() {
			soon = time.After(unsafeCheckEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-tick.C:
		case <-soon:
		}
		l.Check(ctx)
		if now := l.state(); !sameState(now, told) {
			told = now
			l.tell(now)
		}
	}
}

// state is Err without the end of the log.
func (l *Log) state() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped != nil {
		return l.stopped
	}
	return l.unsafe
}

// recoverable says that the log is unsafe, but not for good.
func (l *Log) recoverable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsafe != nil && l.stopped == nil && !l.cfg.ReadOnly
}

func sameState(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

func (l *Log) tell(err error) {
	if err != nil {
		l.cfg.Logger.Error().Err(err).AnErr("cause", errors.Unwrap(err)).Str("stream", l.stream).Msg("the log takes no appends")
	} else {
		l.cfg.Logger.Info().Str("stream", l.stream).Msg("the log takes appends again")
	}
	if l.cfg.OnState != nil {
		l.cfg.OnState(err)
	}
}

// lossConfirmed is how long a loss must last before it is believed: a leader that
// was just elected may still be applying what it has.
const lossConfirmed = 3 * time.Second

// unsafeCheckEvery is the time between checks while a setting is wrong: whoever
// puts it back need not wait, even if the advisory is lost.
const unsafeCheckEvery = time.Second

// Check compares the stream with what it must be, now, and gives what Err gives
// afterwards. A server that does not answer changes nothing: what it does not
// answer is not appended either.
func (l *Log) Check(ctx context.Context) error {
	loss := time.Time{}
	for {
		known := l.seen.Load()
		bounded, cancel := context.WithTimeout(ctx, l.cfg.Patience)
		info, err := l.streamInfo(bounded, false)
		cancel()
		switch {
		case errors.Is(err, errNoStream):
			l.setUnsafe(gone(err))
			return l.Err()
		case err != nil:
			return l.Err()
		}
		l.learnTime(info)
		soft, final := l.judge(info, known)
		if errors.Is(final, ErrShrunk) {
			if loss.IsZero() {
				loss = time.Now()
			}
			if time.Since(loss) < l.cfg.lossAfter && pause(ctx, 100*time.Millisecond) {
				continue
			}
			if ctx.Err() != nil && time.Since(loss) < l.cfg.lossAfter {
				return l.Err()
			}
		}
		if final != nil {
			l.stop(final)
		} else {
			l.note(info.State.Last)
		}
		l.setUnsafe(soft)
		return l.Err()
	}
}

// judge says what is wrong while it lasts, and what is wrong for good. known is
// a position that was on the log before info was asked for.
func (l *Log) judge(info *streamInfo, known uint64) (soft, final error) {
	if l.cfg.ReadOnly {
		return l.state(), nil
	}
	soft = l.cfg.lossy(info)
	meta := info.metadata()
	if soft == nil {
		soft = l.checkMetadata(meta)
	}
	if soft == nil && (meta[MetaLog] != l.id || meta[MetaIncarnation] != l.incarnation) {
		soft = events.Errorf(events.CodeLogUnsafe, "%w: stream %s says it is log %s, incarnation %s; it was %s, %s", ErrReplaced, l.stream,
			meta[MetaLog], meta[MetaIncarnation], l.id, l.incarnation)
	}
	switch holes := l.declared.count(info.State.Last); {
	case !info.Created.Equal(l.created):
		final = events.Errorf(events.CodeLogUnsafe, "%w: stream %s was created at %s, not at %s", ErrReplaced, l.stream, info.Created, l.created)
	case info.State.Last < known:
		final = events.Errorf(events.CodeLogUnsafe, "%w: stream %s ends at position %d, %d was known", ErrShrunk, l.stream, info.State.Last, known).
			With("last", info.State.Last).With("known", known)
	case info.missing() != holes:
		final = events.Errorf(events.CodeLogUnsafe, "%w: stream %s holds %d messages from %d to %d, %d too few", ErrHole, l.stream,
			info.State.Messages, info.State.First, info.State.Last, info.missing()-holes)
	}
	return soft, final
}

func (l *Log) setUnsafe(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsafe = err
}

// stop ends appending for good.
func (l *Log) stop(err error) {
	l.mu.Lock()
	first := l.stopped == nil
	if first {
		l.stopped = err
	}
	l.mu.Unlock()
	if first {
		l.wake()
	}
}
