package replay

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// kinds are the boundary kinds that can be folded.
var kinds = map[string]struct {
	start   func(id string) fold
	carries bool // every commit carries the state
}{
	events.KindWork: {carries: true, start: func(id string) fold {
		return begin(session.Decider{}, id, judgeOwner)
	}},
	events.KindImport: {carries: true, start: func(id string) fold {
		return begin(session.Imports{}, id, nil)
	}},
	events.KindRelease: {start: func(id string) fold {
		return begin(release.Decider{}, id, nil)
	}},
}

// fold is a boundary of any kind.
type fold interface {
	// evolve goes on by the events of one commit, which lies at.
	evolve(list []events.Payload, at place) error
	// state is where it stands, encoded.
	state() events.State
	// same reports whether a carried state says the same as the fold; known is
	// false if its version is not known here.
	same(carried events.State) (same, known bool, err error)
	// again folds the events twice more from where evolve began, and fails
	// unless that gives the same. was is the state as it was there.
	again(list []events.Payload, at place, was events.State) error
}

// place is where a commit lies, and under which message id.
type place struct {
	position uint64
	id       events.MsgID
}

// folded is a fold by a decider.
type folded[S, C, F any] struct {
	decider       aggregate.Decider[S, C, F]
	id            string
	before, after S // the last commit
	// judge, if any, checks what the decider's Evolve leaves open.
	judge func(id string, before, after S, e events.Payload) error
}

func begin[S, C, F any](d aggregate.Decider[S, C, F], id string, judge func(string, S, S, events.Payload) error) fold {
	return &folded[S, C, F]{decider: d, id: id, after: d.Initial(id), judge: judge}
}

func (f *folded[S, C, F]) evolve(list []events.Payload, at place) error {
	f.before = f.after
	for i, e := range list {
		next, err := f.decider.Evolve(f.after, e)
		if err == nil && f.judge != nil {
			err = f.judge(f.id, f.after, next, e)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		f.after = next
	}
	f.after = aggregate.Place(f.after, at.position, at.id)
	return nil
}

func (f *folded[S, C, F]) state() events.State { return f.decider.EncodeState(f.after) }

func (f *folded[S, C, F]) same(carried events.State) (same, known bool, err error) {
	now := f.state()
	if carried.V == now.V {
		return equal(carried, now), true, nil
	}
	state, known, err := f.decider.DecodeState(f.id, carried)
	if err != nil || !known {
		return false, known, err
	}
	return equal(f.decider.EncodeState(state), now), true, nil
}

// errUnstable is a fold that does not depend on its arguments alone: a mistake in
// this program, not in the log.
var errUnstable = errors.New("the same events fold to another state the second time")

func (f *folded[S, C, F]) again(list []events.Payload, at place, was events.State) error {
	now := f.state()
	for range 2 {
		state, err := aggregate.Evolve(f.decider, f.before, list)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnstable, err)
		}
		state = aggregate.Place(state, at.position, at.id)
		if !equal(f.decider.EncodeState(state), now) || !equal(f.decider.EncodeState(f.before), was) {
			return errUnstable
		}
	}
	return nil
}

func equal(a, b events.State) bool { return a.V == b.V && bytes.Equal(a.Data, b.Data) }
