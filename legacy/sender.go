package legacy

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/forge-es/forge-es/events"
)

// Command is one command to send. It has no command id of its own: what a later
// run says must be decided anew, and everything in it may be decided twice. The
// Sender makes one for each call, and keeps it while it repeats the call.
type Command struct {
	Root      string // "op": every command of an import is an operator's
	Aggregate string // "work", "activity", "release" or "authority"
	Verb      string // "import", "set-state", "set", "receive-document" or "publish"

	Body json.RawMessage // compact JSON
}

// Reply is what the service answered.
type Reply struct {
	Outcome string          // appended, already-applied, unchanged or refused
	Result  json.RawMessage // the result; may be nil
}

// Sender sends one command and waits for the reply. It must be safe for
// concurrent use.
//
// An answer of the service that is an error is returned as *events.Error
// (possibly wrapped). If that concerns this one command (numbers 400 to 428 but
// for what the caller may not do at all, and FORGE_POISONED), the run goes on with
// the next; every other error ends the run. A Sender repeats by itself what is worth repeating
// (time-out, FORGE_BUSY), with the same id.
type Sender interface {
	Send(ctx context.Context, cmd Command) (Reply, error)
}

// SenderFunc is a function as a Sender.
type SenderFunc func(ctx context.Context, cmd Command) (Reply, error)

// Send calls f.
func (f SenderFunc) Send(ctx context.Context, cmd Command) (Reply, error) { return f(ctx, cmd) }

// older reports whether the service refused an authority because it has a later
// revision than the given one.
func older(refused *events.Error, revision float64) bool {
	if refused == nil || refused.Code != events.CodeVersionConflict {
		return false
	}
	published, ok := refused.Details["revision"].(float64)
	return ok && published > revision
}

// refusal gives the service's refusal of a single command; ok is false for an
// error that the next command would meet, too.
func refusal(err error) (refused *events.Error, ok bool) {
	if !errors.As(err, &refused) {
		return nil, false
	}
	if errors.Is(err, events.ErrForbidden) || refused.Code == events.CodeUnknownVerb {
		return nil, false
	}
	number := refused.Code.Info().Number
	return refused, number >= 400 && number <= 428 || refused.Code == events.CodePoisoned
}
