package release

import (
	"encoding/json"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// The predicates look at a session, which may hold only the members that matter,
// and at the release that is stable now.

// IsTerminal and CandidateIsRetired judge by the phase of a session.
func IsTerminal(session json.RawMessage) bool {
	phase, _ := parseObject(session).text("phase")
	return Terminal(phase)
}

// CandidateIsRetired reports whether the candidate lane is no longer needed.
func CandidateIsRetired(session json.RawMessage) bool {
	phase, _ := parseObject(session).text("phase")
	return CandidateRetired(phase)
}

// soakingCutover gives the candidate and the transaction of a soaking session
// whose two agree.
func soakingCutover(session object) (candidate, transaction object, ok bool) {
	phase, _ := session.text("phase")
	candidate, transaction = session.object("candidateRelease"), session.object("transaction")
	return candidate, transaction, phase == Soaking && candidate.there && transaction.there &&
		equal(transaction.raw("candidateReleaseId"), candidate.raw("releaseId"))
}

// IsSoakingPredecessorOfStable reports whether a soaking session made exactly the
// release that is stable now.
func IsSoakingPredecessorOfStable(session, stableRelease json.RawMessage) bool {
	return soakingPredecessor(parseObject(session), parseObject(stableRelease))
}

func soakingPredecessor(session, stable object) bool {
	candidate, transaction, ok := soakingCutover(session)
	return ok && equal(transaction.raw("cutoverAuthorityRevision"), stable.raw("authorityRevision")) &&
		agree(candidate, stable, releaseIdentity...)
}

// IsSoakingSupersededByStableAuthority reports whether another release became
// stable after a soaking session's cutover.
func IsSoakingSupersededByStableAuthority(session, stableRelease json.RawMessage) bool {
	stable := parseObject(stableRelease)
	candidate, transaction, ok := soakingCutover(parseObject(session))
	if !ok {
		return false
	}
	now, okNow := stable.integer("authorityRevision")
	then, okThen := transaction.integer("cutoverAuthorityRevision")
	return okNow && okThen && now > then && !agree(candidate, stable, releaseIdentity...)
}

// Predicates by name.
var predicates = map[string]func(session, stableRelease json.RawMessage) bool{
	"isTerminal":                           func(s, _ json.RawMessage) bool { return IsTerminal(s) },
	"candidateIsRetired":                   func(s, _ json.RawMessage) bool { return CandidateIsRetired(s) },
	"isSoakingPredecessorOfStable":         IsSoakingPredecessorOfStable,
	"isSoakingSupersededByStableAuthority": IsSoakingSupersededByStableAuthority,
}

// Predicate asks a predicate about a session as it is given, or about the stored
// one of a sessionId, with the errors of Read and RELEASE_SESSION_MISSING.
func Predicate(l Ledger, name string, b *aggregate.Body) (bool, error) {
	ask, ok := predicates[name]
	if !ok {
		return false, events.Errorf(events.CodeBadRequest, "no predicate %q", name).With("field", "predicate")
	}
	id := b.Text("sessionId")
	session, literal := b.Raw("session")
	if !literal {
		d, err := Read(l, id)
		if err != nil {
			return false, err
		}
		if d == nil {
			return false, events.Errorf(events.CodeReleaseMissing, "%s", aggregate.Trimmed(id))
		}
		if session, err = d.MarshalJSON(); err != nil {
			return false, err
		}
	}
	return ask(session, raw(b, "stableRelease")), nil
}

// Read gives a session by its id: nil when there is none;
// RELEASE_SESSION_ID_INVALID, RELEASE_SESSION_INVALID.
func Read(l Ledger, id aggregate.Field[string]) (*Document, error) {
	name, err := sessionID(id)
	if err != nil {
		return nil, err
	}
	return l.Session(name)
}
