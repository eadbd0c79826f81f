package eventlog

import (
	"errors"
	"fmt"

	"github.com/forge-es/forge-es/events"
)

// Reasons, for errors.Is. They are causes inside errors with a code.
var (
	// ErrConflict: the boundary moved. Load it and decide again.
	ErrConflict = fmt.Errorf("%w: the boundary moved", events.ErrConflict)
	// ErrHole: a position holds no message, although later ones do.
	ErrHole = errors.New("a hole in the log")
	// ErrShrunk: the log is shorter than it is known to have been.
	ErrShrunk = errors.New("the log is shorter than it was")
	// ErrReplaced: another log, or another incarnation, has the name of the log.
	ErrReplaced = errors.New("the log was replaced")
	// ErrClosed: the log, or its connection, was closed.
	ErrClosed = errors.New("the log is closed")
)

// A Conflict says that the boundary is not where the entry expected it.
// errors.Is matches ErrConflict and events.ErrConflict.
type Conflict struct {
	Subject  string
	Expected uint64         // where the entry expected it
	Found    uint64         // where it is, 0 for empty
	Last     *events.Record // its last commit, read from the leader; nil when empty
}

// Error names subject and positions.
func (c *Conflict) Error() string {
	return fmt.Sprintf("%s: conflict: %s is at position %d, expected %d", events.CodeVersionConflict, c.Subject, c.Found, c.Expected)
}

// Is matches ErrConflict and its parent.
func (c *Conflict) Is(target error) bool {
	return target == ErrConflict || target == events.ErrConflict || target == events.ErrForge
}

// poisoned is a commit that cannot be used.
func poisoned(r *events.Record, cause error) error {
	return events.Errorf(events.CodePoisoned, "position %d on %s: %w", r.Position, r.Subject, cause).
		With("subject", r.Subject).With("position", r.Position)
}

// hole is the error for a missing position.
func hole(position uint64, where string) error {
	return events.Errorf(events.CodeLogUnsafe, "%w: position %d, %s", ErrHole, position, where).With("position", position)
}
