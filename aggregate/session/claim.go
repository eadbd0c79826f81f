package session

import (
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Claim is the input of claim, resume and bind (specification 1.5).
type Claim struct {
	verb string
	body *aggregate.Body

	WorkID, ControllerID, ControllerType, SessionID    aggregate.Field[string]
	PrincipalID, ControllerInstanceID, AuthorityDigest aggregate.Field[string]
	ExpectedGeneration                                 aggregate.Field[int64]
	LeaseMs                                            aggregate.Field[int64]
	AllowStaleRecovery                                 aggregate.Field[bool]
	CurrentRuntime                                     aggregate.Field[string] // bind
	AllowClaimIfMissing                                aggregate.Field[bool]   // bind
}

// Verbs of Claim.
const (
	VerbClaim  = "work.claim"
	VerbResume = "work.resume"
	VerbBind   = "work.bind"
)

func parseClaim(verb string, b *aggregate.Body) Command {
	c := &Claim{
		verb: verb, body: b,
		WorkID: b.Text("workId"), ControllerID: b.Text("controllerId"), ControllerType: b.Text("controllerType"), SessionID: b.Text("sessionId"),
		PrincipalID: b.Text("principalId"), ControllerInstanceID: b.Text("controllerInstanceId"), AuthorityDigest: b.Text("authorityDigest"),
		ExpectedGeneration: b.Int("expectedClaimGeneration"), LeaseMs: b.Millis("leaseMs"), AllowStaleRecovery: b.Bool("allowStaleRecovery"),
	}
	if verb == VerbBind {
		c.CurrentRuntime, c.AllowClaimIfMissing = b.Text("currentRuntimeInstanceId"), b.Bool("allowClaimIfMissing")
	}
	return c
}

// Verb is work.claim, work.resume or work.bind.
func (c *Claim) Verb() string { return c.verb }

// Target is the trimmed work id.
func (c *Claim) Target() string { return aggregate.Trimmed(c.WorkID) }

// Body is what the command was parsed from.
func (c *Claim) Body() *aggregate.Body { return c.body }

func (c *Claim) decide(s State, f Facts) (aggregate.Decision, error) {
	if err := c.identity(f); err != nil {
		return aggregate.Decision{}, err
	}
	switch c.verb {
	case VerbResume:
		return c.resume(s, f, nil)
	case VerbBind:
		return c.bind(s, f)
	default:
		return c.claim(s, f)
	}
}

// identity is the check that all three verbs begin with; after it stand the
// checks of the edge: ids that cannot be stored, and whether the subject proves
// the principal.
func (c *Claim) identity(f Facts) error {
	for _, id := range []struct {
		name string
		f    aggregate.Field[string]
	}{{"workId", c.WorkID}, {"controllerId", c.ControllerID}, {"sessionId", c.SessionID}} {
		if aggregate.Trimmed(id.f) == "" {
			return events.Errorf(events.CodeIdentityRequired, "%s is blank", id.name).With("field", id.name)
		}
	}
	if err := checkIDs(c.body, "workId", "controllerId", "sessionId", "principalId", "controllerInstanceId"); err != nil {
		return err
	}
	return f.Caller.Proves(c.PrincipalID, c.ControllerID)
}

// checkIDs refuses ids that are too long or hold control characters.
func checkIDs(b *aggregate.Body, names ...string) error {
	for _, name := range names {
		if err := events.CheckID(name, aggregate.Trimmed(b.Text(name))); err != nil {
			return err
		}
	}
	return nil
}

// Proves compares the subject token with the principal that a body names: its
// principal id, or if blank the controller id. A body that names none passes.
func (c Caller) Proves(principalID, controllerID aggregate.Field[string]) error {
	if c.Operator || c.Token == "" {
		return nil
	}
	p := aggregate.Trimmed(principalID)
	if p == "" {
		p = aggregate.Trimmed(controllerID)
	}
	if !principalID.Bad && (p == "" || events.Token(p) == c.Token) {
		return nil
	}
	return events.Errorf(events.CodeCallerMismatch, "the subject names principal %s, the body another one", c.Token).
		With("subject", c.Token).With("field", "principalId")
}

// principal is the input principal: trimmed principal id or else controller id.
func (c *Claim) principal() string {
	if p := aggregate.Trimmed(c.PrincipalID); p != "" {
		return p
	}
	return aggregate.Trimmed(c.ControllerID)
}

func checkWorkOpen(s State) error {
	if !s.Terminal() {
		return nil
	}
	return events.Errorf(events.CodeClaimTerminal, "%s is %s", s.WorkID, s.Work).With("workId", s.WorkID).With("state", s.Work)
}

// checkGeneration compares the expected generation with that of the live owner,
// 0 without one.
func checkGeneration(s State, live *events.Session, expected aggregate.Field[int64]) error {
	if !expected.Bad && (!expected.Set || expected.Value == live.Gen()) {
		return nil
	}
	e := events.Errorf(events.CodeClaimGenerationMismatch, "%s: the live generation is %d", s.WorkID, live.Gen()).
		With("workId", s.WorkID).With("claimGeneration", live.Gen())
	if live != nil {
		e = holderDetails(e, live)
	}
	return e
}

func (c *Claim) claim(s State, f Facts) (aggregate.Decision, error) {
	if err := checkWorkOpen(s); err != nil {
		return aggregate.Decision{}, err
	}
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	live := s.Live(f.Now)
	if err := checkGeneration(s, live, c.ExpectedGeneration); err != nil {
		return aggregate.Decision{}, err
	}
	if live != nil {
		switch {
		case live.ControllerID != aggregate.Trimmed(c.ControllerID):
			return aggregate.Decision{}, mismatch(events.CodeAlreadyClaimed, live, "controllerId")
		case live.SessionID != aggregate.Trimmed(c.SessionID):
			return aggregate.Decision{}, mismatch(events.CodeAlreadyClaimed, live, "sessionId")
		case c.PrincipalID.Bad || live.Principal() != c.principal():
			return aggregate.Decision{}, mismatch(events.CodePrincipalMismatch, live, "principalId")
		case c.ControllerType.Bad || live.ControllerType != c.ControllerType.Value:
			return aggregate.Decision{}, mismatch(events.CodeTypeMismatch, live, "controllerType")
		case c.ControllerInstanceID.Bad || live.Instance() != aggregate.Trimmed(c.ControllerInstanceID):
			return aggregate.Decision{}, mismatch(events.CodeInstanceMismatch, live, "controllerInstanceId")
		}
	}
	return c.grant(s, f, aggregate.Trimmed(c.AuthorityDigest), "", &events.Evidence{ExpectedGeneration: intPtr(c.ExpectedGeneration)})
}

// rebinding is what bind hands to resume: its own expected generation and digest
// instead of those of the input, and the runtime that it relied on.
type rebinding struct {
	expected         aggregate.Field[int64]
	digest           string
	runtime          string
	runtimeAnnounced bool
}

func (c *Claim) resume(s State, f Facts, r *rebinding) (aggregate.Decision, error) {
	if aggregate.Trimmed(c.PrincipalID) == "" || aggregate.Trimmed(c.ControllerInstanceID) == "" {
		field := "principalId"
		if aggregate.Trimmed(c.PrincipalID) != "" {
			field = "controllerInstanceId"
		}
		return aggregate.Decision{}, events.Errorf(events.CodeResumeAuthorityRequired, "resume needs principalId and controllerInstanceId").With("field", field)
	}
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	if err := checkWorkOpen(s); err != nil {
		return aggregate.Decision{}, err
	}
	if r == nil {
		r = &rebinding{expected: c.ExpectedGeneration, digest: aggregate.Trimmed(c.AuthorityDigest)}
	}
	live := s.Live(f.Now)
	if err := checkGeneration(s, live, r.expected); err != nil {
		return aggregate.Decision{}, err
	}
	evidence := &events.Evidence{ExpectedGeneration: intPtr(r.expected), Runtime: r.runtime, RuntimeAnnounced: r.runtimeAnnounced}
	if live == nil {
		return c.grant(s, f, r.digest, "", evidence)
	}
	principal, fromExecution := effectivePrincipal(live, f.Execution)
	var differs *events.Error
	switch {
	case principal != aggregate.Trimmed(c.PrincipalID):
		differs = mismatch(events.CodePrincipalMismatch, live, "principalId")
	case live.ControllerID != aggregate.Trimmed(c.ControllerID):
		differs = mismatch(events.CodeAlreadyClaimed, live, "controllerId")
	case c.ControllerType.Bad || live.ControllerType != c.ControllerType.Value:
		differs = mismatch(events.CodeTypeMismatch, live, "controllerType")
	}
	cause := events.CauseRuntimeChange
	switch {
	case differs == nil:
		if fromExecution {
			evidence.Execution = f.Execution
		}
	case c.AllowStaleRecovery.Value && r.expected.Set && !BlocksRecovery(live, f.Execution, f.Now, DefaultGraceMs):
		grace := int64(DefaultGraceMs)
		cause, evidence.Execution, evidence.GraceMs = events.CauseRecovery, f.Execution, &grace
	default:
		return aggregate.Decision{}, differs
	}
	return c.grant(s, f, r.digest, cause, evidence)
}

func (c *Claim) bind(s State, f Facts) (aggregate.Decision, error) {
	if err := s.Readable(); err != nil {
		return aggregate.Decision{}, err
	}
	live := s.Live(f.Now)
	if live == nil {
		if !c.AllowClaimIfMissing.Value {
			return aggregate.Decision{}, events.Errorf(events.CodeOwnerRequired, "%s has no live owner", s.WorkID).With("workId", s.WorkID)
		}
		first := *c
		first.ExpectedGeneration = aggregate.Of(int64(0))
		return first.claim(s, f)
	}
	instance, runtime := aggregate.Trimmed(c.ControllerInstanceID), aggregate.Trimmed(c.CurrentRuntime)
	if f.AnnouncedRuntime != "" && runtime != f.AnnouncedRuntime {
		runtime = "" // a runtime counts only if it is the announced one
	}
	switch {
	case live.ControllerID != aggregate.Trimmed(c.ControllerID):
		return aggregate.Decision{}, mismatch(events.CodeOwnerMismatch, live, "controllerId")
	case c.ControllerType.Bad || live.ControllerType != c.ControllerType.Value:
		return aggregate.Decision{}, mismatch(events.CodeTypeMismatch, live, "controllerType")
	case live.Principal() != aggregate.Trimmed(c.PrincipalID):
		return aggregate.Decision{}, mismatch(events.CodePrincipalMismatch, live, "principalId")
	case c.ControllerInstanceID.Bad, live.Instance() != instance && (runtime == "" || runtime != instance):
		return aggregate.Decision{}, mismatch(events.CodeInstanceMismatch, live, "controllerInstanceId")
	}
	digest := aggregate.Trimmed(c.AuthorityDigest)
	if live.Instance() == instance && live.SessionID == aggregate.Trimmed(c.SessionID) && (digest == "" || digest == live.Digest()) {
		return aggregate.Decision{Result: *live}, nil
	}
	r := &rebinding{digest: digest}
	if r.digest == "" {
		r.digest = live.Digest()
	}
	if live.Generation != nil {
		r.expected = aggregate.Of(*live.Generation)
	}
	if live.Instance() != instance {
		r.runtime, r.runtimeAnnounced = runtime, f.AnnouncedRuntime != ""
	}
	return c.resume(s, f, r)
}

// grant is the successful claim (specification 1.4). liveCause is the cause of a
// new generation over a live owner.
func (c *Claim) grant(s State, f Facts, digest, liveCause string, evidence *events.Evidence) (aggregate.Decision, error) {
	if !c.ControllerType.Set && !c.ControllerType.Bad {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "controllerType is missing").With("field", "controllerType")
	}
	owner := events.Session{
		WorkID: s.WorkID, ControllerID: aggregate.Trimmed(c.ControllerID), ControllerType: c.ControllerType.Value, SessionID: aggregate.Trimmed(c.SessionID),
		PrincipalID: textPtr(aggregate.Trimmed(c.PrincipalID)), ControllerInstanceID: textPtr(aggregate.Trimmed(c.ControllerInstanceID)),
		ClaimedAt: f.Now, LeaseExpiresAt: f.Now.Add(clamp(c.LeaseMs, DefaultLeaseMs, MinLeaseMs, MaxLeaseMs)),
	}
	last := s.Owner
	same := last != nil && s.Standing != events.StandingReleased && c.sameOwner(last)
	generation := max(0, last.Gen()) + 1
	if same {
		generation = max(1, last.Gen())
		if digest == "" {
			digest = last.Digest()
		}
	}
	owner.Generation, owner.AuthorityDigest = &generation, textPtr(digest)
	if *evidence == (events.Evidence{}) {
		evidence = nil
	}
	d := aggregate.Decision{Result: owner}
	if same {
		d.Events = []events.Payload{events.ClaimRenewed{Owner: owner, Evidence: evidence}}
		return d, nil
	}
	cause := liveCause
	switch {
	case last == nil:
		cause = events.CauseFirst
	case s.Standing == events.StandingReleased:
		cause = events.CauseAfterRelease
	case s.Live(f.Now) == nil:
		cause = events.CauseAfterLapse
	}
	d.Events = []events.Payload{events.ClaimGranted{Cause: cause, Owner: owner, Evidence: evidence}}
	return d, nil
}

// sameOwner compares the input with an earlier session (specification 1.2).
func (c *Claim) sameOwner(o *events.Session) bool {
	return aggregate.Trimmed(c.ControllerID) == o.ControllerID && c.ControllerType.Value == o.ControllerType &&
		c.principal() == o.Principal() && aggregate.Trimmed(c.ControllerInstanceID) == o.Instance()
}

func textPtr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func intPtr(f aggregate.Field[int64]) *int64 {
	if !f.Set {
		return nil
	}
	v := f.Value
	return &v
}

// NeedsExecution reports whether deciding the command about a work may look at
// the transport session of the live owner: a takeover by silence, or an owner
// whose principal is not stored.
func (s State) NeedsExecution(c Command, now events.Time) bool {
	in, ok := c.(*Claim)
	live := s.Live(now)
	if !ok || live == nil || in.verb == VerbClaim {
		return false
	}
	return in.AllowStaleRecovery.Value || live.PrincipalID == nil || strings.TrimSpace(*live.PrincipalID) == ""
}

// NeedsRuntime reports whether deciding the command may look at the announced
// runtime: a bind of another controller instance.
func (s State) NeedsRuntime(c Command, now events.Time) bool {
	in, ok := c.(*Claim)
	live := s.Live(now)
	return ok && in.verb == VerbBind && live != nil && live.Instance() != aggregate.Trimmed(in.ControllerInstanceID)
}
