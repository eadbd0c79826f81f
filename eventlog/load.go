package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forge-es/forge-es/events"
)

// Boundary is where a boundary stands.
type Boundary struct {
	Head   events.Head
	Record *events.Record // the last commit; nil when the boundary is empty
	Commit *events.Commit // the same, decoded
}

// Load reads the last commit of a boundary and checks it: it decodes, it belongs
// to this log and on this subject, and it agrees with known, what the caller
// knows of the boundary (the zero Head: nothing). The state in the commit, and
// its events, are the caller's to judge.
//
// Errors: FORGE_POISONED (details subject, position) for a commit that cannot be
// used, also one that does not follow known (wraps events.ErrChain);
// FORGE_LOG_UNSAFE when the boundary lies before known or differs from it, or,
// in a log opened for reading that lacks positions, when a commit of this
// boundary is among them (wraps ErrHole, detail position); FORGE_UNAVAILABLE.
func (l *Log) Load(ctx context.Context, subject string, known events.Head, mode Mode) (*Boundary, error) {
	ctx, cancel := l.patience(ctx)
	defer cancel()
	if known.Position == 0 {
		// Nobody touched it lately: its block may have to be read from the disk.
		select {
		case l.cold <- struct{}{}:
			defer func() { <-l.cold }()
		case <-ctx.Done():
			return nil, events.Errorf(events.CodeUnavailable, "load %s: waiting for other cold loads: %w", subject, ctx.Err())
		}
	}
	r, err := l.Last(ctx, subject, mode)
	if err != nil {
		return nil, err
	}
	if before(r, known) {
		if r, err = l.reread(ctx, subject, known); err != nil {
			return nil, err
		}
	}
	if r == nil {
		return &Boundary{}, nil
	}
	c, err := l.decode(r)
	if err != nil {
		return nil, err
	}
	b := &Boundary{Head: events.HeadAfter(*r, c, events.MsgIDOf(*r, c)), Record: r, Commit: c}
	if err := follows(b, known); err != nil {
		return nil, err
	}
	if known.Position == 0 && len(l.undeclared) > 0 {
		if err := l.findHole(ctx, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func before(r *events.Record, known events.Head) bool {
	return known.Position > 0 && (r == nil || r.Position < known.Position)
}

// reread asks the leader for a boundary that another server showed older than it
// is known to be. A leader that was just elected may still be applying.
func (l *Log) reread(ctx context.Context, subject string, known events.Head) (*events.Record, error) {
	for begin := time.Now(); ; {
		r, err := l.Last(ctx, subject, Leader)
		if err != nil || !before(r, known) {
			return r, err
		}
		if l.Confirmed() || time.Since(begin) > l.cfg.lossAfter {
			at := uint64(0)
			if r != nil {
				at = r.Position
			}
			l.wake()
			return nil, events.Errorf(events.CodeLogUnsafe, "%w: %s is at position %d, it was at %d", ErrShrunk, subject, at, known.Position).
				With("subject", subject).With("position", at).With("known", known.Position)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, events.Errorf(events.CodeUnavailable, "load %s: %w", subject, ctx.Err())
		}
	}
}

// follows checks a boundary against what is known of it.
func follows(b *Boundary, known events.Head) error {
	switch r, c := b.Record, b.Commit; {
	case known.Position == 0:
		return nil
	case r.Position == known.Position:
		if b.Head.Hash != known.Hash {
			return events.Errorf(events.CodeLogUnsafe, "%w: position %d on %s holds another commit than it did", ErrReplaced, r.Position, r.Subject).
				With("subject", r.Subject).With("position", r.Position)
		}
		return nil
	case c.Version == known.Version+1:
		if err := known.Follows(*r, c); err != nil {
			return poisoned(r, err)
		}
		return nil
	case c.Version <= known.Version || c.Prev <= known.Position:
		return poisoned(r, fmt.Errorf("%w: version %d after %d, which is known at position %d", events.ErrChain, c.Version, known.Version, known.Position))
	}
	return nil
}

// decode reads the commit of a record, and checks that it belongs there.
func (l *Log) decode(r *events.Record) (*events.Commit, error) {
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		return nil, poisoned(r, err)
	}
	if c.Log != l.id {
		return nil, poisoned(r, fmt.Errorf("it belongs to log %q, this is %q", c.Log, l.id))
	}
	if want := events.CommitSubject(l.cfg.Instance, c); want != r.Subject {
		return nil, poisoned(r, fmt.Errorf("it belongs on %s", want))
	}
	if c.Prev >= r.Position {
		return nil, poisoned(r, fmt.Errorf("%w: it follows position %d", events.ErrChain, c.Prev))
	}
	return c, nil
}

// findHole walks a chain back to the first missing position of the log.
func (l *Log) findHole(ctx context.Context, b *Boundary) error {
	r, c := b.Record, b.Commit
	for c.Prev >= l.undeclared[0][0] {
		p, pc, err := l.previous(ctx, r, c)
		if err != nil {
			return err
		}
		r, c = p, pc
	}
	return nil
}

// previous reads the commit before another one, and checks that they fit.
func (l *Log) previous(ctx context.Context, r *events.Record, c *events.Commit) (*events.Record, *events.Commit, error) {
	p, err := l.At(ctx, c.Prev)
	if err != nil {
		return nil, nil, err
	}
	if p == nil {
		return nil, nil, hole(c.Prev, fmt.Sprintf("which position %d on %s follows", r.Position, r.Subject))
	}
	pc, err := l.decode(p)
	if err != nil {
		return nil, nil, err
	}
	if p.Subject != r.Subject {
		return nil, nil, poisoned(r, fmt.Errorf("%w: it follows position %d, which is on %s", events.ErrChain, c.Prev, p.Subject))
	}
	if err := events.HeadAfter(*p, pc, events.MsgID{}).Follows(*r, c); err != nil {
		return nil, nil, poisoned(r, err)
	}
	return p, pc, nil
}

// IsHole says whether an error is about a missing position, and which.
func IsHole(err error) (position uint64, ok bool) {
	var e *events.Error
	if !errors.Is(err, ErrHole) || !errors.As(err, &e) {
		return 0, false
	}
	position, ok = e.Details["position"].(uint64)
	return position, ok
}
