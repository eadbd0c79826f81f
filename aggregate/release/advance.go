package release

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// fence is what a change of a session may be guarded by.
type fence struct {
	Revision    aggregate.Field[int64]
	Phase       aggregate.Field[string]
	Incarnation aggregate.Field[int64]
}

func newFence(b *aggregate.Body) fence {
	return fence{Revision: b.Int("expectedRevision"), Phase: b.Text("expectedPhase"), Incarnation: b.Int("expectedIncarnation")}
}

// What a fence asks for at least.
type need int

const (
	needNothing need = iota
	needRevision
	needRevisionOrPhase
)

// check is RELEASE_SESSION_REVISION_FENCED when the session is not where the
// command expects it, or when the command does not say what it has to.
func (f fence) check(d *Document, n need) error {
	if err := f.checkIncarnation(d); err != nil {
		return err
	}
	switch {
	case f.Revision.Bad || f.Revision.Set && f.Revision.Value != d.revision,
		f.Phase.Bad || f.Phase.Set && f.Phase.Value != d.phase,
		n == needRevision && !f.Revision.Set,
		n == needRevisionOrPhase && !f.Revision.Set && !f.Phase.Set:
		return d.fenced()
	}
	return nil
}

// checkIncarnation is RELEASE_SESSION_REVISION_FENCED when another session has
// taken the place of the expected one under its id.
func (f fence) checkIncarnation(d *Document) error {
	if f.Incarnation.Bad || f.Incarnation.Set && (f.Incarnation.Value < 0 || uint64(f.Incarnation.Value) != d.Incarnation) {
		return d.fenced()
	}
	return nil
}

func (d *Document) fenced() error {
	return events.Errorf(events.CodeReleaseRevisionFenced, "%s is in %s at revision %d", d.Name, d.phase, d.revision).
		With("sessionId", d.Name).With("phase", d.phase).With("revision", d.revision).With("incarnation", d.Incarnation)
}

// Advance moves a session to another phase (specification 2.2).
type Advance struct {
	command
	fence
	To        aggregate.Field[string]
	Candidate json.RawMessage
	Receipts  json.RawMessage
	Reason    aggregate.Field[string] // optional
}

func newAdvance(verb string, b *aggregate.Body) Command {
	return &Advance{
		command: newCommand(verb, b), fence: newFence(b), To: b.Text("phase"), Candidate: value(b, "candidateRelease"), Receipts: raw(b, "receipts"),
		Reason: b.Text("reason"),
	}
}

func (c *Advance) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	id, err := sessionID(c.ID)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d, err := l.session(id)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.fence.check(d, needRevisionOrPhase); err != nil {
		return aggregate.Decision{}, err
	}
	stored := d.body.raw("candidateRelease")
	candidate := c.Candidate
	if candidate == nil {
		candidate = stored
	}
	if err := checkCandidate(d, candidate); err != nil {
		return aggregate.Decision{}, err
	}
	if d.Phase() != SourceFrozen && stored != nil && c.Candidate != nil && !equal(stored, c.Candidate) {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseCandidateImmutable, "%s has a candidate already", id).With("sessionId", id)
	}
	receipts, err := takeReceipts(c.Receipts, f.Now)
	if err != nil {
		return aggregate.Decision{}, err
	}
	next := d
	if c.Candidate != nil {
		next = next.withCandidate(c.Candidate)
	}
	next = next.withReceipts(receipts)
	if err := c.transition(next, f); err != nil {
		return aggregate.Decision{}, err
	}
	e := events.ReleaseAdvanced{
		SessionID: id, From: d.Phase(), To: c.To.Value, CandidateRelease: events.JSON(c.Candidate), Reason: aggregate.Trimmed(c.Reason), At: f.Now,
	}
	if len(receipts) > 0 {
		e.Receipts = events.JSON(joinReceipts(0, receipts))
	}
	if err := writable(d, d.advanced(e), len(receipts) > 0); err != nil {
		return aggregate.Decision{}, err
	}
	return after(l, id, e)
}

// writable is RELEASE_SESSION_INVALID when a change would leave a session that
// cannot be read, or cannot be made.
func writable(before, after *Document, appends bool) error {
	switch {
	case before.Revision() >= maxRevision:
		return events.Errorf(events.CodeReleaseInvalid, "%s: the revision cannot grow", before.Name).With("sessionId", before.Name)
	case appends && !before.listed:
		return events.Errorf(events.CodeReleaseInvalid, "%s: its receipts are no list", before.Name).With("sessionId", before.Name)
	}
	return after.valid
}

// checkCandidate refuses a candidate that does not identify a release of this
// source.
func checkCandidate(d *Document, raw json.RawMessage) error {
	if missing(raw) {
		return nil
	}
	o := parseObject(raw)
	bad := func(field string) error {
		return events.Errorf(events.CodeReleaseCandidateIdentity, "candidateRelease.%s", field).With("field", "candidateRelease."+field)
	}
	for _, name := range []string{"releaseId", "manifestPath", "artifactIdentity", "manifestSha256"} {
		if !o.filled(name) {
			return bad(name)
		}
	}
	if tree, ok := o.text("treeSha256"); !ok || !isHex64(tree) {
		return bad("treeSha256")
	}
	commit, ok := o.text("sourceCommit")
	if source, known := d.body.text("sourceRevision"); !ok || !known || commit != source {
		return bad("sourceCommit")
	}
	return nil
}

func isHex64(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// takeReceipts reads the receipts of a request, and stamps them.
func takeReceipts(raw json.RawMessage, now events.Time) ([]json.RawMessage, error) {
	if missing(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, events.Errorf(events.CodeReleaseReceiptInvalid, "receipts is no list").With("field", "receipts")
	}
	out := make([]json.RawMessage, len(list))
	for i, item := range list {
		r := parseObject(item)
		bad := func(field string) error {
			return events.Errorf(events.CodeReleaseReceiptInvalid, "receipt %d: %s", i, field).With("index", i).With("field", field)
		}
		id, okID := r.text("id")
		kind, okKind := r.text("kind")
		summary, okSummary := r.text("summary")
		outcome, okOutcome := r.text("outcome")
		switch {
		case !okID || strings.TrimSpace(id) == "":
			return nil, bad("id")
		case !okKind || !slices.Contains(kinds, kind):
			return nil, bad("kind")
		case !okSummary:
			return nil, bad("summary")
		case r.raw("outcome") != nil && (!okOutcome || !slices.Contains([]string{OutcomePassed, OutcomeFailed, OutcomeInconclusive}, outcome)):
			return nil, bad("outcome")
		}
		out[i] = receipt(id, kind, summary, outcome, now)
	}
	return out, nil
}

// gateCode is the refusal when the required receipts of a phase are missing.
var gateCode = map[string]events.Code{
	StaticVerified: events.CodeReleaseStaticGates, CandidateVerified: events.CodeReleaseCanaries, KnownGood: events.CodeReleaseSoakGates,
}

// transition judges the step, with the new candidate and receipts added.
func (c *Advance) transition(d *Document, f Facts) error {
	from, to := d.Phase(), c.To.Value
	say := func(code events.Code, format string, args ...any) *events.Error {
		return events.Errorf(code, format, args...).With("sessionId", d.Name).With("phase", from).With("revision", d.Revision())
	}
	switch {
	case Terminal(from):
		return say(events.CodeReleaseTerminal, "%s is %s", d.Name, from)
	case to == Failed:
		return nil
	case to == RolledBack:
		if slices.Index(order, from) < slices.Index(order, CutoverAttempting) {
			return say(events.CodeReleaseRollbackBefore, "%s is in %s", d.Name, from)
		}
		return nil
	case to != next(from):
		return say(events.CodeReleaseTransition, "%s is in %s, after which comes %s", d.Name, from, next(from)).With("next", next(from))
	case to == CutoverCommitted && d.body.raw("transaction") == nil:
		return say(events.CodeReleaseTxRequired, "%s has no transaction recorded", d.Name)
	case (to == Built || to == StaticVerified) && d.body.raw("candidateRelease") == nil:
		return say(events.CodeReleaseCandidateRequired, "%s has no candidate", d.Name)
	}
	if gates := d.missingGates(to); len(gates) > 0 {
		return say(gateCode[to], "%s needs %s", to, gateNames(gates)).With("missing", gates)
	}
	if until, known, over := d.soaked(f); to == KnownGood && !over {
		if known {
			return say(events.CodeReleaseSoakGates, "%s soaks until %s", d.Name, until).With("until", until)
		}
		return say(events.CodeReleaseSoakGates, "%s soaks since a time that is not known", d.Name).With("remedy", "record a receipt: it counts from then on")
	}
	if to == CutoverEligible && d.lanesCollide() {
		return say(events.CodeReleaseLaneCollision, "both lanes have the same home or port")
	}
	return nil
}

// soaked reports whether a soaking session has soaked long enough, and if not,
// until when it has to, as far as that is known.
func (d *Document) soaked(f Facts) (until events.Time, known, over bool) {
	switch {
	case f.MinimumSoakMs <= 0:
		return 0, true, true
	case d.PhaseSince == nil:
		return 0, false, false
	}
	until = d.PhaseSince.Add(f.MinimumSoakMs)
	return until, true, f.Now >= until
}

// lanesCollide compares homes and ports as they are.
func (d *Document) lanesCollide() bool {
	a, b := d.body.object("stable"), d.body.object("candidate")
	return equal(a.raw("controllerHome"), b.raw("controllerHome")) || equal(a.raw("port"), b.raw("port"))
}

func gateNames(list []Gate) string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = g.Kind + " " + g.ID
	}
	return strings.Join(names, ", ")
}

// Receipts records evidence as it arrives.
type Receipts struct {
	command
	fence
	Receipts json.RawMessage
}

func newReceipts(verb string, b *aggregate.Body) Command {
	return &Receipts{command: newCommand(verb, b), fence: newFence(b), Receipts: raw(b, "receipts")}
}

func (c *Receipts) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	id, err := sessionID(c.ID)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d, err := l.session(id)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.fence.check(d, needNothing); err != nil {
		return aggregate.Decision{}, err
	}
	receipts, err := takeReceipts(c.Receipts, f.Now)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if len(receipts) == 0 {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseReceiptInvalid, "no receipts").With("field", "receipts")
	}
	if Terminal(d.Phase()) {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseTerminal, "%s is %s", id, d.Phase()).
			With("sessionId", id).With("phase", d.Phase()).With("revision", d.Revision())
	}
	e := events.ReleaseReceiptsRecorded{SessionID: id, Receipts: events.JSON(joinReceipts(0, receipts)), At: f.Now}
	if err := writable(d, d.withReceipts(receipts).revised(f.Now), true); err != nil {
		return aggregate.Decision{}, err
	}
	return after(l, id, e)
}

// RecordTransaction records the rollback authority of a cutover (specification 2.2).
type RecordTransaction struct {
	command
	fence
	Transaction json.RawMessage
}

func newRecordTransaction(verb string, b *aggregate.Body) Command {
	return &RecordTransaction{command: newCommand(verb, b), fence: newFence(b), Transaction: value(b, "transaction")}
}

func (c *RecordTransaction) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	id, err := sessionID(c.ID)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d, err := l.session(id)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.fence.checkIncarnation(d); err != nil {
		return aggregate.Decision{}, err
	}
	if d.Phase() != CutoverAttempting {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseTxAttempting, "%s is in %s", id, d.Phase()).
			With("sessionId", id).With("phase", d.Phase()).With("revision", d.Revision())
	}
	if stored := d.body.raw("transaction"); stored != nil {
		if sameTransaction(parseObject(stored), parseObject(c.Transaction)) {
			return aggregate.Decision{Result: d}, nil
		}
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseTxConflict, "%s has another transaction", id).With("sessionId", id)
	}
	if err := c.fence.check(d, needRevision); err != nil {
		return aggregate.Decision{}, err
	}
	why := "transaction is missing"
	if c.Transaction != nil {
		why = d.checkTransaction(c.Transaction)
	}
	if why != "" {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseTxInvalid, "%s: %s", id, why).With("sessionId", id)
	}
	e := events.ReleaseTransactionRecorded{SessionID: id, Transaction: events.JSON(c.Transaction), At: f.Now}
	if err := writable(d, d.ofBody(d.body.with(member("transaction", c.Transaction))).revised(f.Now), false); err != nil {
		return aggregate.Decision{}, err
	}
	return after(l, id, e)
}

// End takes a session that can no longer end by itself to failed, because an
// operator says so.
type End struct {
	command
	fence
	Reason aggregate.Field[string]
}

func newEnd(verb string, b *aggregate.Body) Command {
	return &End{command: newCommand(verb, b), fence: newFence(b), Reason: b.Text("reason")}
}

func (c *End) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	id, err := sessionID(c.ID)
	if err != nil {
		return aggregate.Decision{}, err
	}
	reason, err := needReason(c.verb, c.Reason)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d, err := l.session(id)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if err := c.fence.check(d, needNothing); err != nil {
		return aggregate.Decision{}, err
	}
	if Terminal(d.Phase()) {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseTerminal, "%s is %s", id, d.Phase()).With("sessionId", id).With("phase", d.Phase())
	}
	e := events.ReleaseAdvanced{SessionID: id, From: d.Phase(), To: Failed, Cause: events.CauseOperator, Reason: reason, At: f.Now}
	if err := writable(d, d.advanced(e), false); err != nil {
		return aggregate.Decision{}, err
	}
	return after(l, id, e)
}

func needReason(verb string, f aggregate.Field[string]) (string, error) {
	reason := aggregate.Trimmed(f)
	if reason == "" {
		return "", events.Errorf(events.CodeReasonRequired, "%s needs a reason", verb).With("field", "reason")
	}
	return reason, nil
}
