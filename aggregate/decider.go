package aggregate

import (
	"fmt"

	"github.com/forge-es/forge-es/events"
)

// Decision is what a Decider makes of a command that it does not refuse with an
// error.
type Decision struct {
	// Events are appended in one commit. None: nothing changes.
	Events []events.Payload
	// Result is the answer; it marshals to JSON. nil is null.
	Result any
	// Refused marks a fence that did not let the command through: a normal
	// answer that changes nothing.
	Refused bool
}

// Decider is the behaviour of one kind of boundary: state S, command C, facts F.
type Decider[S, C, F any] interface {
	// Kind is the boundary kind (events.KindWork …).
	Kind() string
	// Rules is the version of the rules of Decide, as commits record it.
	Rules() int
	// Initial is the state of a boundary without commits.
	Initial(id string) S
	// Decide applies the rules. It returns an *events.Error for a refusal.
	Decide(state S, command C, facts F) (Decision, error)
	// Evolve gives the state after an event. It fails on an event that cannot
	// follow the state, or that is not one of this kind.
	Evolve(state S, event events.Payload) (S, error)
	// Carries reports whether every commit carries the state after it.
	Carries() bool
	// EncodeState and DecodeState turn a state into what a commit carries, and
	// what digests are made of.
	// DecodeState reports ok = false for a version that it does not know; then
	// the state has to be folded.
	EncodeState(state S) events.State
	DecodeState(id string, carried events.State) (state S, ok bool, err error)
}

// Folded is a state and where its boundary stands.
type Folded[S any] struct {
	State S
	Head  events.Head
}

// Evolve applies the events of one commit, in order.
func Evolve[S, C, F any](d Decider[S, C, F], state S, list []events.Payload) (S, error) {
	for i, e := range list {
		next, err := d.Evolve(state, e)
		if err != nil {
			return state, fmt.Errorf("event %d: %w", i, err)
		}
		state = next
	}
	return state, nil
}

// Payloads decodes the events of a commit.
func Payloads(c *events.Commit) ([]events.Payload, error) {
	list := make([]events.Payload, len(c.Events))
	for i, e := range c.Events {
		p, err := events.Decode(e)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		list[i] = p
	}
	return list, nil
}

// Next folds one more commit of a boundary: it must follow the head
// (events.ErrChain), decode, and evolve the state.
func Next[S, C, F any](d Decider[S, C, F], f Folded[S], r events.Record) (Folded[S], error) {
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		return f, err
	}
	if err := f.Head.Follows(r, c); err != nil {
		return f, err
	}
	if c.Kind != d.Kind() {
		return f, fmt.Errorf("%w: kind %q, want %q", events.ErrEncoding, c.Kind, d.Kind())
	}
	list, err := Payloads(c)
	if err != nil {
		return f, err
	}
	state, err := Evolve(d, f.State, list)
	if err != nil {
		return f, err
	}
	id := events.MsgIDOf(r, c)
	return Folded[S]{State: Place(state, r.Position, id), Head: events.HeadAfter(r, c, id)}, nil
}

// Placer is implemented by states that remember where their commits lie, which
// events do not say.
type Placer[S any] interface {
	// Placed gives the state after a commit was appended at a position, under a
	// message id.
	Placed(position uint64, id events.MsgID) S
}

// Place tells a state where the commit lies whose events were just folded.
func Place[S any](state S, position uint64, id events.MsgID) S {
	if p, ok := any(state).(Placer[S]); ok {
		return p.Placed(position, id)
	}
	return state
}

// Start is the folded form of an empty boundary.
func Start[S, C, F any](d Decider[S, C, F], id string) Folded[S] {
	return Folded[S]{State: d.Initial(id)}
}
