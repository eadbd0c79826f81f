package session

import (
	"encoding/json"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Verbs that end or extend a claim.
const (
	VerbRenew                = "work.renew"
	VerbRelease              = "work.release"
	VerbReleaseWithAuthority = "work.release-with-authority"
	VerbReleaseObserved      = "work.release-observed"
	VerbForceRelease         = "work.force-release"
)

// target is what all commands but Claim share: the work and the body.
type target struct {
	verb   string
	body   *aggregate.Body
	WorkID aggregate.Field[string]
}

func newTarget(verb string, b *aggregate.Body) target {
	return target{verb: verb, body: b, WorkID: b.Text("workId")}
}

// Verb is the name on the wire.
func (t target) Verb() string { return t.verb }

// Target is the trimmed work id.
func (t target) Target() string { return aggregate.Trimmed(t.WorkID) }

// Body is what the command was parsed from.
func (t target) Body() *aggregate.Body { return t.body }

// shown is an authority as a command shows it, with the capability that may be
// asked for.
type shown struct {
	authority   aggregate.Field[*aggregate.Body]
	Authority   ShownAuthority
	AuthorityID aggregate.Field[string]
}

func newShown(b *aggregate.Body) shown {
	s := shown{authority: b.Object("authority"), AuthorityID: b.Text("authorityId")}
	if s.authority.Set {
		s.Authority = parseShown(s.authority.Value)
	}
	return s
}

// given reports whether an authority was sent, well-formed or not.
func (s shown) given() bool { return s.authority.Set || s.authority.Bad }

// proves compares the subject with the principal of the authority.
func (s shown) proves(c Caller) error {
	return c.Proves(s.Authority.PrincipalID, aggregate.Field[string]{})
}

// fence lets a command through that shows the authority of the live owner; it
// gives a refusal to answer, or nil.
func (s shown) fence(owner *events.Session, f Facts) (*aggregate.Decision, error) {
	if f.RequireCapability {
		if _, err := AuthorityDigest(s.AuthorityID.Value); err != nil {
			return nil, err
		}
	}
	if !s.Authority.matches(owner) || f.RequireCapability && !AuthorityMatches(owner, s.AuthorityID.Value) {
		d := refused(ReasonStaleAuthority, *owner)
		return &d, nil
	}
	return nil, nil
}

func released(how string, owner *events.Session, reason string) events.Payload {
	return events.ClaimReleased{How: how, Generation: owner.Gen(), Reason: reason}
}

// Renew extends the lease of the owner that shows its authority.
type Renew struct {
	target
	shown
	LeaseMs aggregate.Field[int64]
}

func (c *Renew) decide(s State, f Facts) (aggregate.Decision, error) {
	if c.Target() == "" || aggregate.Trimmed(c.Authority.ControllerID) == "" {
		field := "workId"
		if c.Target() != "" {
			field = "authority.controllerId"
		}
		return aggregate.Decision{}, events.Errorf(events.CodeIdentityRequired, "%s is blank or no text", field).With("field", field)
	}
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
	if live == nil {
		return refused(ReasonClaimMissing, nil), nil
	}
	if d, err := c.fence(live, f); d != nil || err != nil {
		return orEmpty(d), err
	}
	if err := checkWorkOpen(s); err != nil {
		return aggregate.Decision{}, err
	}
	owner := *live
	owner.ClaimedAt, owner.LeaseExpiresAt = f.Now, f.Now.Add(clamp(c.LeaseMs, DefaultLeaseMs, MinLeaseMs, MaxLeaseMs))
	return aggregate.Decision{
		Events: []events.Payload{events.ClaimRenewed{Owner: owner}},
		Result: Fence{Allowed: true, Owner: owner},
	}, nil
}

func orEmpty(d *aggregate.Decision) aggregate.Decision {
	if d == nil {
		return aggregate.Decision{}
	}
	return *d
}

// Release ends the claim of a controller, live or expired. It never fails for
// want of a claim.
type Release struct {
	target
	ControllerID aggregate.Field[string]
}

func (c *Release) decide(s State, _ Facts) (aggregate.Decision, error) {
	if err := checkIDs(c.body, "workId"); err != nil {
		return aggregate.Decision{}, err
	}
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	if s.Owner == nil || s.Standing != events.StandingHeld || !c.ControllerID.Set || s.Owner.ControllerID != aggregate.Trimmed(c.ControllerID) {
		return aggregate.Decision{}, nil
	}
	return aggregate.Decision{Events: []events.Payload{released(events.ReleasedByController, s.Owner, "")}}, nil
}

// ReleaseWithAuthority ends the claim of the live owner that shows its authority.
type ReleaseWithAuthority struct {
	target
	shown
}

func (c *ReleaseWithAuthority) decide(s State, f Facts) (aggregate.Decision, error) {
	if err := checkIDs(c.body, "workId"); err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.proves(f.Caller); err != nil {
		return aggregate.Decision{}, err
	}
	return c.release(s, f, events.ReleasedByAuthority)
}

func (s shown) release(st State, f Facts, how string) (aggregate.Decision, error) {
	if err := st.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	live := st.Live(f.Now)
	if live == nil {
		return refused(ReasonClaimMissing, nil), nil
	}
	if d, err := s.fence(live, f); d != nil || err != nil {
		return orEmpty(d), err
	}
	return aggregate.Decision{
		Events: []events.Payload{released(how, live, "")},
		Result: Fence{Allowed: true, Owner: *live},
	}, nil
}

// ReleaseObserved ends the claim of an owner as an operator saw it, if it is
// still the same epoch.
type ReleaseObserved struct {
	target
	Owner aggregate.Field[*aggregate.Body]
	given json.RawMessage
}

func newReleaseObserved(verb string, b *aggregate.Body) Command {
	c := &ReleaseObserved{target: newTarget(verb, b), Owner: b.Object("owner")}
	if given, ok := b.Raw("owner"); ok {
		c.given = given
	}
	return c
}

func (c *ReleaseObserved) decide(s State, f Facts) (aggregate.Decision, error) {
	if err := checkIDs(c.body, "workId"); err != nil {
		return aggregate.Decision{}, err
	}
	var a ShownAuthority
	if c.Owner.Set {
		a = parseShown(c.Owner.Value)
	}
	// An owner without an instance or a generation has no authority to release by.
	if aggregate.Trimmed(a.ControllerInstanceID) == "" || !a.ClaimGeneration.Set || a.ClaimGeneration.Value < 1 {
		var owner any
		if c.given != nil {
			owner = c.given
		}
		return refused(ReasonStaleAuthority, owner), nil
	}
	if strings.TrimSpace(a.PrincipalID.Value) == "" && !a.PrincipalID.Bad {
		a.PrincipalID = a.ControllerID
	}
	by := shown{Authority: a}
	f.RequireCapability = false // an operator has seen the owner, not its secret
	return by.release(s, f, events.ReleasedObserved)
}

// ForceRelease ends a claim, live or expired, because an operator says so.
type ForceRelease struct {
	target
	Reason aggregate.Field[string]
}

func (c *ForceRelease) decide(s State, _ Facts) (aggregate.Decision, error) {
	reason, err := operatorReason(c.target, c.Reason)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	if s.Owner == nil || s.Standing != events.StandingHeld {
		return aggregate.Decision{}, nil
	}
	return aggregate.Decision{
		Events: []events.Payload{released(events.ReleasedByForce, s.Owner, reason)},
		Result: *s.Owner,
	}, nil
}

// operatorReason checks what all overriding verbs need: a work, and a reason.
func operatorReason(t target, f aggregate.Field[string]) (string, error) {
	if t.Target() == "" {
		return "", events.Errorf(events.CodeIDInvalid, "workId is blank").With("field", "workId")
	}
	if err := checkIDs(t.body, "workId"); err != nil {
		return "", err
	}
	reason := aggregate.Trimmed(f)
	if reason == "" {
		return "", events.Errorf(events.CodeReasonRequired, "%s needs a reason", t.verb).With("field", "reason")
	}
	return reason, nil
}
