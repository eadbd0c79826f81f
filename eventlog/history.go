package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-es/forge-es/events"
)

// One request of a history asks for at most so many commits and bytes.
const (
	historyBatch = 256
	historyBytes = 8 << 20
)

// History gives fn every commit of a boundary from a position on (0: the first),
// in order, up to the one that is the last when History is called; what is
// appended meanwhile is not among them. From the first on, the chain is checked
// from its beginning, else from the first commit that is given. It returns nil
// only when fn has seen all of them. It leaves nothing behind on the server.
//
// Errors: what fn returns, as it is; FORGE_POISONED for a commit that cannot be
// used or does not follow the one before (wraps events.ErrChain); FORGE_LOG_UNSAFE
// when commits are missing (wraps ErrHole); FORGE_UNAVAILABLE.
func (l *Log) History(ctx context.Context, subject string, from uint64, fn func(events.Record, *events.Commit) error) error {
	last, err := l.Last(ctx, subject, Leader)
	if err != nil || last == nil || last.Position < from {
		return err
	}
	w := &walk{log: l, subject: subject, end: last.Position, next: max(from, 1), fn: fn, checked: from <= 1}
	stalled := 0
	for w.head.Position < w.end {
		before := w.next
		if err := w.batch(ctx); err != nil {
			return err
		}
		if w.next > before {
			stalled = 0
			continue
		}
		// Nothing came: a server that is behind, or cut off. The leader knows.
		if stalled++; stalled > 2 {
			if err := w.fromLeader(ctx); err != nil {
				return err
			}
		} else if !pause(ctx, jitter(5*time.Millisecond, 25*time.Millisecond)) {
			return events.Errorf(events.CodeUnavailable, "history of %s: %w", subject, ctx.Err())
		}
	}
	return nil
}

// walk is a history under way.
type walk struct {
	log     *Log
	subject string
	next    uint64 // no commit before this position is still to come
	end     uint64
	head    events.Head
	checked bool // head is one that the next commit has to follow
	fn      func(events.Record, *events.Commit) error
}

// take checks a commit and hands it over.
func (w *walk) take(ctx context.Context, r *events.Record) error {
	if r.Subject != w.subject || r.Position < w.next {
		return events.Errorf(events.CodeUnavailable, "history of %s: the server answers with position %d on %s", w.subject, r.Position, r.Subject)
	}
	c, err := w.log.decode(r)
	if err != nil {
		return err
	}
	if w.checked {
		if err := w.head.Follows(*r, c); err != nil {
			if c.Prev > w.head.Position { // something may be missing in between
				if p, aerr := w.log.At(ctx, c.Prev); aerr == nil && p == nil {
					return hole(c.Prev, fmt.Sprintf("which position %d on %s follows", r.Position, r.Subject))
				}
			}
			return poisoned(r, err)
		}
	}
	w.head, w.checked, w.next = events.HeadAfter(*r, c, events.MsgIDOf(*r, c)), true, r.Position+1
	return w.fn(*r, c)
}

// batch asks the nearest server for what comes next, and takes what it sends.
// What it does not send is asked for again.
func (w *walk) batch(ctx context.Context) error {
	l := w.log
	ctx, cancel := l.connected(ctx, l.cfg.Patience)
	defer cancel()
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return events.Errorf(events.CodeUnavailable, "history of %s: %w", w.subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	body, _ := json.Marshal(msgRequest{Seq: w.next, NextFor: w.subject, Batch: historyBatch, Bytes: historyBytes})
	if err := l.nc.PublishRequest(l.prefix+"DIRECT.GET."+l.stream, inbox, body); err != nil {
		return nil //nolint:nilerr // as if nothing came
	}
	for {
		one, cancel := context.WithTimeout(ctx, l.cfg.ReadTimeout)
		m, err := sub.NextMsgWithContext(one)
		cancel()
		if err != nil {
			return nil //nolint:nilerr // as if nothing more came
		}
		if m.Header.Get("Status") != "" {
			return nil // the end of the batch, or nothing there
		}
		r, err := directRecord(m)
		if err != nil || r == nil || r.Position > w.end {
			return nil //nolint:nilerr // as if nothing more came
		}
		if err := w.take(ctx, r); err != nil {
			return err
		}
	}
}

// fromLeader takes one commit from the leader. If it has none, commits are
// missing.
func (w *walk) fromLeader(ctx context.Context) error {
	r, err := w.log.get(ctx, "history of "+w.subject, Leader, msgRequest{Seq: w.next, NextFor: w.subject})
	if err != nil {
		return err
	}
	if r == nil {
		return events.Errorf(events.CodeLogUnsafe, "%w: %s ends at position %d, position %d was its last", ErrHole, w.subject, w.head.Position, w.end).
			With("subject", w.subject).With("position", w.end)
	}
	return w.take(ctx, r)
}
