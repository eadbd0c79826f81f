package session

import (
	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Verbs that set the state of a work.
const (
	VerbTerminalize = "work.terminalize"
	VerbSetState    = "work.set-state"
)

// Terminalize sets the state of a work under the fence of its live owner, or
// freely where there is none (specification 1.5). With release it ends the claim
// in the same commit.
type Terminalize struct {
	target
	shown
	State   aggregate.Field[string]
	Release aggregate.Field[bool]
}

// Fenced reports whether an authority was sent.
func (c *Terminalize) Fenced() bool { return c.given() }

func (c *Terminalize) decide(s State, f Facts) (aggregate.Decision, error) {
	if err := checkIDs(c.body, "workId"); err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.proves(f.Caller); err != nil {
		return aggregate.Decision{}, err
	}
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	live := s.Live(f.Now)
	switch {
	case live == nil && c.given():
		return refused(ReasonClaimMissing, nil), nil
	case live != nil && !c.given():
		return refused(ReasonActiveClaim, *live), nil
	case live != nil:
		if d, err := c.fence(live, f); d != nil || err != nil {
			return orEmpty(d), err
		}
	}
	state := aggregate.Trimmed(c.State)
	if state == "" || c.Target() == "" {
		field := "state"
		if c.Target() == "" {
			field = "workId"
		}
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "%s is blank or no text", field).With("field", field)
	}
	fence := Fence{Allowed: true, Value: state}
	if live != nil {
		fence.Owner = *live
	}
	d := aggregate.Decision{Result: fence}
	if s.Work != state {
		d.Events = append(d.Events, events.WorkStateSet{State: state, How: events.SetByTerminalize})
	}
	if c.Release.Value && s.Owner != nil && s.Standing == events.StandingHeld {
		d.Events = append(d.Events, released(events.ReleasedAtTerminal, s.Owner, ""))
	}
	return d, nil
}

// SetState sets the state of a work because an operator says so, or forgets it
// (null). It looks at no claim.
type SetState struct {
	target
	State  aggregate.Field[string]
	Reason aggregate.Field[string]
}

// WorkState is the answer of set-state: State is nil for an unknown work.
type WorkState struct {
	WorkID string  `json:"workId"`
	State  *string `json:"state"`
}

func (c *SetState) decide(s State, _ Facts) (aggregate.Decision, error) {
	reason, err := operatorReason(c.target, c.Reason)
	if err != nil {
		return aggregate.Decision{}, err
	}
	state := aggregate.Trimmed(c.State)
	if c.State.Set && state == "" {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "state is blank; null forgets it").With("field", "state")
	}
	d := aggregate.Decision{Result: WorkState{WorkID: s.WorkID, State: textPtr(state)}}
	if s.Work != state {
		d.Events = []events.Payload{events.WorkStateSet{State: state, How: events.SetByOperator, Reason: reason}}
	}
	return d, nil
}
