package session

import (
	"bytes"
	"fmt"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// RulesVersion is the version of the rules in this package. It grows when the
// same state, command and facts would be decided differently.
const RulesVersion = 1

// Facts are what a decision needs from outside its boundary.
type Facts struct {
	// Now is the present time; never before the last commit of the boundary.
	Now events.Time
	// Caller is who sent the command.
	Caller Caller
	// Execution is what is known of the transport session of the live owner
	// (OwnerSession), nil if nothing is.
	Execution *events.Execution
	// AnnouncedRuntime is the controller instance that an operator announced as
	// the present runtime, "" if none was.
	AnnouncedRuntime string
	// RequireCapability makes the verbs that show an authority show the
	// capability, too.
	RequireCapability bool
}

// Caller is who sent a command, as its subject proves it.
type Caller struct {
	// Token is the subject token of the principal. Empty, and on the operator
	// root, the principal is not compared.
	Token    string
	Operator bool
}

// Command is one verb with its input.
type Command interface {
	// Verb is its name on the wire, for example "work.claim".
	Verb() string
	// Target is the trimmed id of the work it is about, "" if it names none.
	Target() string
	// Body is what it was parsed from.
	Body() *aggregate.Body
	decide(s State, f Facts) (aggregate.Decision, error)
}

// Decider is the work decider.
type Decider struct{}

var _ aggregate.Decider[State, Command, Facts] = Decider{}

// Kind is events.KindWork.
func (Decider) Kind() string { return events.KindWork }

// Rules is RulesVersion.
func (Decider) Rules() int { return RulesVersion }

// Initial is an unknown work that nobody ever owned.
func (Decider) Initial(id string) State { return State{WorkID: id} }

// Carries is true: a work is small.
func (Decider) Carries() bool { return true }

// EncodeState gives what a commit carries.
func (Decider) EncodeState(s State) events.State { return encodeState(s) }

// DecodeState reads it.
func (Decider) DecodeState(id string, carried events.State) (State, bool, error) {
	return decodeState(id, carried)
}

// Decide applies the rules of a command, then refuses input that no rule looked
// at and that has the wrong type (FORGE_BAD_REQUEST).
func (Decider) Decide(s State, c Command, f Facts) (aggregate.Decision, error) {
	d, err := c.decide(s, f)
	if err != nil || d.Refused {
		return d, err
	}
	if err := c.Body().Malformed(); err != nil {
		return aggregate.Decision{}, err
	}
	if len(d.Events) > 0 {
		if err := c.Body().TooLong(maxText, texts...); err != nil {
			return aggregate.Decision{}, err
		}
	}
	return d, nil
}

// texts are the members that are stored and are no ids; maxText is the most bytes
// of each, so that what is stored can be answered.
var texts = []string{"controllerType", "authorityDigest", "currentRuntimeInstanceId", "state", "reason", "actor"}

const maxText = 4 << 10

// Evolve gives the state of a work after an event.
func (Decider) Evolve(s State, event events.Payload) (State, error) {
	switch e := event.(type) {
	case events.ClaimGranted:
		return s.held(e.Owner)
	case events.ClaimRenewed:
		if s.Owner == nil {
			return s, impossible(s, event, "nobody to renew")
		}
		return s.held(e.Owner)
	case events.ClaimReleased:
		if s.Owner == nil || s.Standing != events.StandingHeld {
			return s, impossible(s, event, "nothing is held")
		}
		s.Standing = events.StandingReleased
	case events.ClaimImported:
		if s.Owner != nil {
			return s, impossible(s, event, "there is an owner")
		}
		s.Owner, s.Standing = own(e.Owner), e.Standing
	case events.ClaimImportConflicted:
		if s.Owner == nil {
			return s, impossible(s, event, "no owner to contradict")
		}
		s.Conflict = &Conflict{Source: e.Source, Scope: e.Scope, Standing: e.Standing, Owner: own(e.Owner)}
	case events.ClaimImportResolved:
		if s.Conflict == nil {
			return s, impossible(s, event, "not quarantined")
		}
		if e.Keep == events.KeepImported {
			s.Owner, s.Standing = s.Conflict.Owner, s.Conflict.Standing
		} else {
			s.Rejected = digestOf(s.Conflict.Owner)
		}
		if e.Generation != s.Owner.Gen() {
			owner := *s.Owner
			owner.Generation = &e.Generation
			s.Owner = &owner
		}
		s.Conflict = nil
	case events.WorkStateSet:
		s.Work = e.State
	default:
		return s, impossible(s, event, "not an event of a work")
	}
	return s, nil
}

func (s State) held(owner events.Session) (State, error) {
	if owner.WorkID != s.WorkID {
		return s, fmt.Errorf("%w: an owner of work %q on work %q", events.ErrEncoding, owner.WorkID, s.WorkID)
	}
	if s.Conflict != nil {
		return s, fmt.Errorf("%w: a claim on quarantined work %q", events.ErrEncoding, s.WorkID)
	}
	s.Owner, s.Standing = own(owner), events.StandingHeld
	return s, nil
}

// own copies an owner out of an event; the copy shares nothing with it.
func own(s events.Session) *events.Session {
	s.AuthorityDigest, s.PrincipalID, s.ControllerInstanceID = clone(s.AuthorityDigest), clone(s.PrincipalID), clone(s.ControllerInstanceID)
	s.Generation, s.Extra = clone(s.Generation), bytes.Clone(s.Extra)
	return &s
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func impossible(s State, e events.Payload, why string) error {
	name, _ := e.EventType()
	return fmt.Errorf("%w: %s on work %q: %s", events.ErrEncoding, name, s.WorkID, why)
}
