package replay

import (
	"fmt"

	"github.com/forge-es/forge-es/events"
)

// Aspect is what of a commit is checked.
type Aspect string

// The aspects, in the order in which a commit is checked.
const (
	AspectPosition  Aspect = "position"   // positions are 1, 2, 3 … but for declared holes
	AspectEncoding  Aspect = "encoding"   // envelope and events are canonical, and known
	AspectLog       Aspect = "log"        // the commit is of this log
	AspectSubject   Aspect = "subject"    // it lies on the boundary that it names
	AspectMessageID Aspect = "message-id" // its message id is that of its command
	AspectChain     Aspect = "chain"      // version, prev and prevHash follow the commit before
	AspectTime      Aspect = "time"       // it was not decided before the commit before
	AspectRecent    Aspect = "recent"     // it names the commits before, and none of them is its own command
	AspectFold      Aspect = "fold"       // its events can follow the state
	AspectOwner     Aspect = "owner"      // generations never go back, and each has one owner
	AspectState     Aspect = "state"      // the state that it carries is the fold
	AspectEnd       Aspect = "end"        // the log reaches as far as it is known to
)

// A Violation is the first thing that is wrong with a log.
type Violation struct {
	Position uint64 // of the bad commit; the missing one for AspectPosition and AspectEnd
	Subject  string // "" for a missing commit
	Aspect   Aspect
	Err      error // wraps events.ErrChain or events.ErrEncoding
}

// Error names position, subject and aspect.
func (v *Violation) Error() string {
	if v.Subject == "" {
		return fmt.Sprintf("position %d: %s: %v", v.Position, v.Aspect, v.Err)
	}
	return fmt.Sprintf("position %d on %s: %s: %v", v.Position, v.Subject, v.Aspect, v.Err)
}

// Unwrap gives what is wrong.
func (v *Violation) Unwrap() error { return v.Err }

// broken makes the error of something that does not follow what is known.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{events.ErrChain}, args...)...)
}
