package replay

import (
	"fmt"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// ownerError is a violation of AspectOwner.
type ownerError struct{ error }

func (e ownerError) Unwrap() error { return e.error }

// judgeOwner checks the fencing token of a work: its generation never goes back,
// a grant raises it, a renewal keeps it and its owner, and no generation has two
// owners. The last known owner never vanishes, so comparing with it is enough.
//
// An operator who resolves a quarantine may put another owner into the same
// generation; both are named in the events that lead there.
func judgeOwner(id string, before, after session.State, e events.Payload) error {
	last, now := before.Owner, after.Owner
	wrong := func(format string, args ...any) error {
		return ownerError{broken("work %q: "+format, append([]any{id}, args...)...)}
	}
	switch e := e.(type) {
	case events.ClaimGranted:
		if now.Gen() < 1 || now.Gen() <= last.Gen() {
			return wrong("generation %d is granted after generation %d", now.Gen(), last.Gen())
		}
	case events.ClaimRenewed:
		switch {
		case before.Standing == events.StandingReleased:
			return wrong("generation %d was released and is renewed", last.Gen())
		case now.Gen() != max(1, last.Gen()):
			return wrong("generation %d is renewed as generation %d", last.Gen(), now.Gen())
		case identityOf(last) != identityOf(now):
			return wrong("generation %d of %s is renewed for %s", now.Gen(), identityOf(last), identityOf(now))
		}
	case events.ClaimReleased:
		if e.Generation != last.Gen() {
			return wrong("generation %d is released, the last is %d", e.Generation, last.Gen())
		}
	case events.ClaimImportResolved:
		if e.Generation != max(last.Gen(), before.Conflict.Owner.Gen()) {
			return wrong("generation %d after a conflict of %d and %d", e.Generation, last.Gen(), before.Conflict.Owner.Gen())
		}
	}
	for _, owner := range []*events.Session{now, conflicting(after)} {
		if owner != nil && owner.WorkID != id {
			return wrong("an owner of work %q", owner.WorkID)
		}
	}
	if last == nil {
		return nil
	}
	_, resolved := e.(events.ClaimImportResolved)
	switch {
	case now == nil:
		return wrong("the last known owner is gone")
	case now.Gen() < last.Gen():
		return wrong("generation %d after generation %d", now.Gen(), last.Gen())
	case now.Gen() == last.Gen() && !resolved && identityOf(last) != identityOf(now):
		return wrong("generation %d belongs to %s, then to %s", now.Gen(), identityOf(last), identityOf(now))
	}
	return nil
}

func conflicting(s session.State) *events.Session {
	if s.Conflict == nil {
		return nil
	}
	return s.Conflict.Owner
}

// identity is who an owner is, whatever transport session serves it
// (specification 1.2).
type identity struct{ controller, kind, principal, instance string }

func identityOf(s *events.Session) identity {
	return identity{s.ControllerID, s.ControllerType, s.Principal(), s.Instance()}
}

// String names an identity in messages.
func (i identity) String() string {
	return fmt.Sprintf("%q/%q/%q/%q", i.controller, i.kind, i.principal, i.instance)
}
