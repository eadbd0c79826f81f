package release

import "slices"

// Phases of a release session, in order. RolledBack and Failed are outside it.
const (
	SourceFrozen      = "source_frozen"
	Built             = "built"
	StaticVerified    = "static_verified"
	CandidateBooted   = "candidate_booted"
	CandidateVerified = "candidate_verified"
	CutoverEligible   = "cutover_eligible"
	CutoverAttempting = "cutover_attempting"
	CutoverCommitted  = "cutover_committed"
	Soaking           = "soaking"
	KnownGood         = "known_good"
	RolledBack        = "rolled_back"
	Failed            = "failed"
)

// order is the way of a release that succeeds.
var order = []string{
	SourceFrozen, Built, StaticVerified, CandidateBooted, CandidateVerified, CutoverEligible, CutoverAttempting,
	CutoverCommitted, Soaking, KnownGood,
}

// knownPhase reports whether a text is a phase.
func knownPhase(phase string) bool {
	return slices.Contains(order, phase) || phase == RolledBack || phase == Failed
}

// Terminal reports whether nothing follows a phase.
func Terminal(phase string) bool {
	return phase == KnownGood || phase == RolledBack || phase == Failed
}

// CandidateRetired reports whether the candidate lane of a phase is no longer
// needed: the terminal ones, and soaking.
func CandidateRetired(phase string) bool { return Terminal(phase) || phase == Soaking }

// next is the phase after one, "" after the last and outside the order.
func next(phase string) string {
	i := slices.Index(order, phase)
	if i < 0 || i+1 == len(order) {
		return ""
	}
	return order[i+1]
}

// Gate is a receipt that a phase needs.
type Gate struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// Gates are the required receipts per phase.
var Gates = map[string][]Gate{
	StaticVerified:    gates(kindStatic, "type", "runtime_architecture", "architecture_sync", "bootstrap"),
	CandidateVerified: gates(kindCanary, "recovery", "mcp", "scheduler", "supervisor", "controller"),
	KnownGood:         gates(kindSoak, "supervisor_continuation_proof"),
}

// Kinds of receipts.
const (
	kindSource    = "source"
	kindStatic    = "static_gate"
	kindCanary    = "candidate_canary"
	kindSoak      = "soak"
	kindKnownGood = "known_good"
)

var kinds = []string{kindSource, "build", kindStatic, kindCanary, "cutover", kindSoak, kindKnownGood, "rollback"}

func gates(kind string, ids ...string) []Gate {
	list := make([]Gate, len(ids))
	for i, id := range ids {
		list[i] = Gate{kind, id}
	}
	return list
}

// required reports whether any phase needs a receipt.
func required(g Gate) bool {
	for _, list := range Gates {
		if slices.Contains(list, g) {
			return true
		}
	}
	return false
}
