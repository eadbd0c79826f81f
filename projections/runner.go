package projections

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forge-es/forge-es/events"
)

// Projection is a view folded from the log.
type Projection interface {
	// Name is how it is called in statuses and metrics.
	Name() string
	// Apply takes the next commit. Commits come in order, each once. It must not
	// keep references into r.
	Apply(r events.Record, c *events.Commit) error
}

// Tolerant is implemented by projections that can go on without what they cannot
// read.
type Tolerant interface {
	// Unreadable takes a record that is no commit, and reports whether the
	// projection goes on.
	Unreadable(r events.Record, cause error) bool
}

// Log is what a Runner reads.
type Log interface {
	// Tail gives fn every commit from a position on, in order, without gap, until
	// the context ends or fn fails.
	Tail(ctx context.Context, from uint64, fn func(events.Record) error) error
}

// Status says where a projection stands.
type Status struct {
	Name     string `json:"name"`
	Position uint64 `json:"position"` // of the last commit that was applied
	Err      error  `json:"-"`        // why it stopped, nil while it runs
}

// Runner feeds projections. It is for concurrent use.
type Runner struct {
	log  Log
	feed []*fed

	mu       sync.Mutex
	position uint64 // of the last commit that was read
	err      error  // why reading ended
	moved    chan struct{}
}

// fed is a projection that is being fed.
type fed struct {
	Projection
	position uint64
	err      error
}

// NewRunner makes a runner of projections that stand before the first commit.
func NewRunner(log Log, list ...Projection) *Runner {
	r := &Runner{log: log, moved: make(chan struct{})}
	for _, p := range list {
		r.feed = append(r.feed, &fed{Projection: p})
	}
	return r
}

// Run reads the log until the context ends, or the log can no longer be followed.
func (r *Runner) Run(ctx context.Context) error {
	err := r.log.Tail(ctx, 1, func(rec events.Record) error {
		c, err := events.DecodeCommit(rec.Payload)
		r.apply(rec, c, err)
		return nil
	})
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	close(r.moved)
	r.moved = make(chan struct{})
	return err
}

// apply feeds one commit; decodeErr is why it is none.
func (r *Runner) apply(rec events.Record, c *events.Commit, decodeErr error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.feed {
		if p.err != nil {
			continue
		}
		err := decodeErr
		if err == nil {
			err = p.Apply(rec, c)
		} else if t, ok := p.Projection.(Tolerant); ok && t.Unreadable(rec, err) {
			err = nil
		}
		if err != nil {
			p.err = events.Errorf(events.CodePoisoned, "projection %s: position %d on %s: %w", p.Name(), rec.Position, rec.Subject, err).
				With("projection", p.Name()).With("position", rec.Position).With("subject", rec.Subject)
			continue
		}
		p.position = rec.Position
	}
	r.position = rec.Position
	close(r.moved)
	r.moved = make(chan struct{})
}

// Wait returns once a projection has applied everything up to a position. It
// fails with FORGE_VIEW_BEHIND when the context ends first, and with the error
// that stopped the projection or the reading.
func (r *Runner) Wait(ctx context.Context, name string, position uint64) error {
	for {
		at, moved, err := r.standing(name)
		if err != nil {
			return err
		}
		if at >= position {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return events.Errorf(events.CodeViewBehind, "%s is at position %d, wanted %d", name, at, position).
				With("position", at).With("minPosition", position)
		}
	}
}

func (r *Runner) standing(name string) (position uint64, moved <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.feed {
		if p.Name() != name {
			continue
		}
		switch {
		case p.err != nil:
			return p.position, nil, p.err
		case r.err != nil && !errors.Is(r.err, context.Canceled):
			return p.position, nil, r.err
		case r.err != nil:
			return p.position, nil, events.Errorf(events.CodeUnavailable, "stopped")
		}
		return p.position, r.moved, nil
	}
	return 0, nil, fmt.Errorf("no projection %q", name)
}

// Position is up to where the log was read.
func (r *Runner) Position() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

// Statuses lists where the projections stand.
func (r *Runner) Statuses() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Status, len(r.feed))
	for i, p := range r.feed {
		out[i] = Status{Name: p.Name(), Position: p.position, Err: p.err}
		if out[i].Err == nil {
			out[i].Err = r.err
		}
	}
	return out
}
