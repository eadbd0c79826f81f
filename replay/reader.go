package replay

import (
	"context"
	"iter"

	"github.com/forge-es/forge-es/events"
)

// Reader gives the records of one log.
type Reader interface {
	// Records gives every commit from a position on (0 and 1: the first), in
	// stream order, up to where the reader ends. An error is the last thing that
	// it gives; the context's, if that ended. Records share no memory that is
	// used again.
	Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error]
}

// Memory is a log in memory.
type Memory []events.Record

// Records gives them.
func (m Memory) Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for _, r := range m {
			if err := ctx.Err(); err != nil {
				yield(events.Record{}, err)
				return
			}
			if r.Position >= from && !yield(r, nil) {
				return
			}
		}
	}
}
