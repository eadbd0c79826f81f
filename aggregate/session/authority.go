package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Authority is an owner epoch: what has to be shown to act for a work. The
// transport session is deliberately not part of it.
type Authority struct {
	ControllerID         string `json:"controllerId"`
	ControllerType       string `json:"controllerType"`
	PrincipalID          string `json:"principalId"`
	ControllerInstanceID string `json:"controllerInstanceId"`
	ClaimGeneration      int64  `json:"claimGeneration"`
}

// Capability is a minted secret and the digest that may be stored. AuthorityID
// is the secret: it appears here and nowhere else.
type Capability struct {
	AuthorityID     string `json:"authorityId"`
	AuthorityDigest string `json:"authorityDigest"`
}

// capabilityPrefix begins every capability.
const capabilityPrefix = "ctrl_"

// Mint makes a capability of a random UUID, with or without dashes.
func Mint(uuid string) Capability {
	id := capabilityPrefix + strings.ReplaceAll(uuid, "-", "")
	return Capability{AuthorityID: id, AuthorityDigest: digest(id)}
}

func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// AuthorityDigest is the hex SHA-256 of a trimmed capability, or
// WORK_CONTROLLER_AUTHORITY_REQUIRED when it is blank.
func AuthorityDigest(authorityID string) (string, error) {
	id := strings.TrimSpace(authorityID)
	if id == "" {
		return "", events.Errorf(events.CodeAuthorityRequired, "a capability is needed").With("field", "authorityId")
	}
	return digest(id), nil
}

// AuthorityMatches reports whether a capability is the one that a session is
// bound to. A stored digest that is not 64 hex digits never matches.
func AuthorityMatches(s *events.Session, authorityID string) bool {
	id, stored := strings.TrimSpace(authorityID), s.Digest()
	if id == "" || len(stored) != hex.EncodedLen(sha256.Size) {
		return false
	}
	want, err := hex.DecodeString(stored)
	if err != nil {
		return false
	}
	got := sha256.Sum256([]byte(id))
	return subtle.ConstantTimeCompare(want, got[:]) == 1
}

// RequireAuthority is the authority of a session, or why it has none:
// WORK_CONTROLLER_INSTANCE_MISMATCH, WORK_CONTROLLER_CLAIM_GENERATION_REQUIRED.
func RequireAuthority(s *events.Session) (Authority, error) {
	if s.Instance() == "" {
		return Authority{}, events.Errorf(events.CodeInstanceMismatch, "the owner of %s has no controller instance", s.WorkID)
	}
	if s.Gen() < 1 {
		return Authority{}, events.Errorf(events.CodeClaimGenerationRequired, "the owner of %s has no generation", s.WorkID)
	}
	return Authority{
		ControllerID: s.ControllerID, ControllerType: s.ControllerType, PrincipalID: s.Principal(),
		ControllerInstanceID: s.Instance(), ClaimGeneration: s.Gen(),
	}, nil
}

// Expected is whom a caller believes to be the owner.
type Expected struct {
	ControllerID         aggregate.Field[string]
	PrincipalID          aggregate.Field[string]
	ControllerType       aggregate.Field[string]
	ControllerInstanceID aggregate.Field[string]
}

// ParseExpected reads it from its object.
func ParseExpected(b *aggregate.Body) Expected {
	return Expected{
		ControllerID: b.Text("controllerId"), PrincipalID: b.Text("principalId"),
		ControllerType: b.Text("controllerType"), ControllerInstanceID: b.Text("controllerInstanceId"),
	}
}

// AssertAuthority is RequireAuthority, then the differences to what the caller
// expects: WORK_CONTROLLER_OWNER_MISMATCH, _TYPE_MISMATCH, _PRINCIPAL_MISMATCH,
// _INSTANCE_MISMATCH.
func AssertAuthority(s *events.Session, want Expected) (Authority, error) {
	a, err := RequireAuthority(s)
	if err != nil {
		return a, err
	}
	switch {
	case s.ControllerID != aggregate.Trimmed(want.ControllerID):
		err = mismatch(events.CodeOwnerMismatch, s, "controllerId")
	case want.ControllerType.Bad || strings.TrimSpace(want.ControllerType.Value) != "" && s.ControllerType != want.ControllerType.Value:
		err = mismatch(events.CodeTypeMismatch, s, "controllerType")
	case s.Principal() != aggregate.Trimmed(want.PrincipalID):
		err = mismatch(events.CodePrincipalMismatch, s, "principalId")
	case want.ControllerInstanceID.Bad || want.ControllerInstanceID.Set && a.ControllerInstanceID != aggregate.Trimmed(want.ControllerInstanceID):
		err = mismatch(events.CodeInstanceMismatch, s, "controllerInstanceId")
	default:
		return a, nil
	}
	return Authority{}, err
}

// mismatch names the holder of a work, without secrets, to one who is not.
func mismatch(code events.Code, owner *events.Session, field string) *events.Error {
	return holderDetails(events.Errorf(code, "%s is owned by %s: %s differs", owner.WorkID, owner.Fence(), field).With("field", field), owner)
}

// holderDetails adds who holds a work, in which generation, until when.
func holderDetails(e *events.Error, owner *events.Session) *events.Error {
	return e.With("workId", owner.WorkID).With("controllerId", owner.ControllerID).With("controllerType", owner.ControllerType).
		With("claimGeneration", owner.Gen()).With("leaseExpiresAt", owner.LeaseExpiresAt)
}

// ShownAuthority is an authority as a command shows it.
type ShownAuthority struct {
	ControllerID         aggregate.Field[string]
	ControllerType       aggregate.Field[string]
	PrincipalID          aggregate.Field[string]
	ControllerInstanceID aggregate.Field[string]
	ClaimGeneration      aggregate.Field[int64]
}

func parseShown(b *aggregate.Body) ShownAuthority {
	return ShownAuthority{
		ControllerID: b.Text("controllerId"), ControllerType: b.Text("controllerType"), PrincipalID: b.Text("principalId"),
		ControllerInstanceID: b.Text("controllerInstanceId"), ClaimGeneration: b.Int("claimGeneration"),
	}
}

// matches compares with a live session. A malformed member never matches.
func (a ShownAuthority) matches(owner *events.Session) bool {
	return a.ControllerID.Set && aggregate.Trimmed(a.ControllerID) == owner.ControllerID &&
		a.ControllerType.Set && a.ControllerType.Value == owner.ControllerType &&
		a.PrincipalID.Set && aggregate.Trimmed(a.PrincipalID) == owner.Principal() &&
		!a.ControllerInstanceID.Bad && aggregate.Trimmed(a.ControllerInstanceID) == owner.Instance() &&
		a.ClaimGeneration.Set && owner.Generation != nil && a.ClaimGeneration.Value == *owner.Generation
}

// Reasons of a refused fence.
const (
	ReasonClaimMissing   = "controller_claim_missing"
	ReasonStaleAuthority = "stale_controller_authority"
	ReasonActiveClaim    = "active_controller_claim"
)

// Fence is the answer of a command that acts under an authority. A refused one
// is a normal answer that changed nothing.
type Fence struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
	// Owner is the live or released session, or the one that was given.
	Owner any `json:"owner,omitempty"`
	// Value is what the fenced operation gave.
	Value any `json:"value,omitempty"`
}

func refused(reason string, owner any) aggregate.Decision {
	return aggregate.Decision{Refused: true, Result: Fence{Reason: reason, Owner: owner}}
}

// Literal reads a session that a caller holds, for the pure operations above. It
// takes every member as given and checks nothing: what is malformed is missing.
func Literal(b *aggregate.Body) *events.Session {
	if b == nil {
		return &events.Session{}
	}
	ptr := func(f aggregate.Field[string]) *string {
		if !f.Set {
			return nil
		}
		return &f.Value
	}
	return &events.Session{
		WorkID: b.Text("workId").Value, ControllerID: b.Text("controllerId").Value, ControllerType: b.Text("controllerType").Value,
		SessionID: b.Text("sessionId").Value, AuthorityDigest: ptr(b.Text("authorityDigest")), PrincipalID: ptr(b.Text("principalId")),
		ControllerInstanceID: ptr(b.Text("controllerInstanceId")), Generation: intPtr(b.Int("claimGeneration")),
	}
}
