package release_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// A scenario is told as given, when, then:
//
//	l := given(t).upTo(release.Soaking)              // what was accepted before
//	l.after(1000)                                    // time goes by
//	l.when(release.VerbAdvance, to(release.Failed)).fails(events.CodeReleaseRevisionFenced)
//
// Every command that goes through a scenario is checked for what must hold of
// all commands: deciding is deterministic and leaves the ledger alone, an error
// appends nothing, the events survive their encoding, folding twice gives the
// same ledger and leaves the one before alone, the result is what the ledger
// then holds, it can be recalled from the commit, and the command is recognised.

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

const begin events.Time = 1767225600000 // 2026-01-01T00:00:00.000Z

// ledger is a ledger of a scenario.
type ledger struct {
	t     failer
	state release.Ledger
	facts release.Facts
	// log are the commits so far.
	log [][]events.Payload
}

func given(t failer) *ledger {
	return &ledger{t: t, state: release.Decider{}.Initial("main"), facts: release.Facts{Now: begin}}
}

// fork is another ledger with the same past.
func (l *ledger) fork() *ledger {
	c := *l
	c.log = slices.Clip(c.log)
	return &c
}

// after moves the clock.
func (l *ledger) after(ms int64) *ledger {
	l.facts.Now = l.facts.Now.Add(ms)
	return l
}

// happened is a command that must have been accepted.
func (l *ledger) happened(verb, body string) *ledger {
	l.t.Helper()
	if o := l.when(verb, body); o.err != nil {
		l.t.Fatalf("given %s %s: %v", verb, body, o.err)
	}
	return l
}

// received is a document that was taken over.
func (l *ledger) received(name, text string) *ledger {
	l.t.Helper()
	return l.happened(release.VerbReceiveDocument, with(`{}`, "name", quote(name), "text", quote(text), "replace", "true", "reason", `"found"`))
}

func (l *ledger) when(verb, body string) *outcome {
	l.t.Helper()
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		l.t.Fatalf("%s: %v", body, err)
	}
	c, err := release.Parse(verb, b)
	if err != nil {
		l.t.Fatalf("%s: %v", verb, err)
	}
	return l.do(c)
}

// outcome is what a command came to.
type outcome struct {
	aggregate.Decision
	err  error
	l    *ledger
	what string
}

// do decides a command and folds its events, with all general checks.
func (l *ledger) do(c release.Command) *outcome {
	l.t.Helper()
	d := release.Decider{}
	before := l.state
	kept := release.Dump(before)
	decision, err := d.Decide(before, c, l.facts)
	o := &outcome{Decision: decision, err: err, l: l, what: c.Verb()}
	answer := asText(decision.Result)
	again, errAgain := d.Decide(before, c, l.facts)
	if asText(again.Events) != asText(decision.Events) || asText(again.Result) != answer || fmt.Sprint(errAgain) != fmt.Sprint(err) {
		l.t.Fatalf("%s decides otherwise the second time: %v %s\n%v %s", o.what, err, asText(decision), errAgain, asText(again))
	}
	if now := release.Dump(before); now != kept {
		l.t.Fatalf("%s: deciding changed the ledger:\n%s\nbefore\n%s", o.what, now, kept)
	}
	if err != nil {
		if len(decision.Events) > 0 || decision.Result != nil {
			l.t.Fatalf("%s fails with %v and still decides %s", o.what, err, asText(decision))
		}
		if events.CodeOf(err) == "" {
			l.t.Fatalf("%s: an error without a code: %v", o.what, err)
		}
		return o
	}
	if decision.Refused {
		l.t.Fatalf("%s: the ledger has no fences that are normal answers", o.what)
	}
	if len(decision.Events) == 0 {
		return o
	}
	list := make([]events.Payload, len(decision.Events))
	for i, p := range decision.Events {
		if list[i], err = events.Decode(events.Encode(p)); err != nil {
			l.t.Fatalf("%s: %v", o.what, err)
		}
	}
	once := l.fold(before, list)
	first := release.Dump(once)
	if twice := release.Dump(l.fold(before, list)); twice != first {
		l.t.Fatalf("%s: folding twice gives two ledgers:\n%s\n%s", o.what, first, twice)
	}
	if now := release.Dump(once); now != first {
		l.t.Fatalf("%s: folding again changed the first ledger:\n%s\n%s", o.what, first, now)
	}
	if now := release.Dump(before); now != kept {
		l.t.Fatalf("%s: folding changed the ledger before:\n%s\nbefore\n%s", o.what, now, kept)
	}
	recalled := release.Recall(&events.Commit{At: l.facts.Now, Command: events.Command{Verb: c.Verb()}}, list, once)
	if asText(recalled) != answer {
		l.t.Fatalf("%s: the recalled result differs\nfirst %s\nagain %s", o.what, answer, asText(recalled))
	}
	l.log = append(l.log, list)
	position, id := uint64(len(l.log)), l.msgID()
	l.state = once.Placed(position, id)
	l.placed(o, c, position, id)
	l.judge(o, before, list, answer)
	return o
}

func (l *ledger) msgID() events.MsgID {
	return events.NewMsgID("forge.log.main.release", "p", fmt.Sprint(len(l.log)))
}

func (l *ledger) fold(s release.Ledger, list []events.Payload) release.Ledger {
	l.t.Helper()
	s, err := aggregate.Evolve(release.Decider{}, s, list)
	if err != nil {
		l.t.Fatalf("%s: %v", asText(list), err)
	}
	return s
}

// placed checks that a command is recognised by what it is about.
func (l *ledger) placed(o *outcome, c release.Command, position uint64, id events.MsgID) {
	l.t.Helper()
	if got := l.state.Applied(c.Target(), id); got != position {
		l.t.Fatalf("%s of %q at %d is known at %d", o.what, c.Target(), position, got)
	}
	if got := release.Dump(l.state.Placed(position+1, events.MsgID{})); got != release.Dump(l.state) {
		l.t.Fatalf("%s: placing twice changes the ledger", o.what)
	}
}

// judge checks what holds of every change.
func (l *ledger) judge(o *outcome, before release.Ledger, list []events.Payload, answer string) {
	l.t.Helper()
	for _, p := range list {
		id := ""
		switch e := p.(type) {
		case events.ReleaseOpened:
			id = e.SessionID
		case events.ReleaseAdvanced:
			id = e.SessionID
		case events.ReleaseReceiptsRecorded:
			id = e.SessionID
		case events.ReleaseTransactionRecorded:
			id = e.SessionID
		default:
			continue
		}
		d := l.state.Find(id)
		if d == nil || d.Why() != nil {
			l.t.Fatalf("%s leaves %s unreadable", o.what, id)
		}
		if asText(d) != answer {
			l.t.Fatalf("%s answers %s, the ledger has %s", o.what, answer, asText(d))
		}
		revision := int64(0)
		if was := before.Find(id); was != nil {
			revision = was.Revision()
		}
		if d.Revision() != revision+1 || d.Text("updatedAt") != l.facts.Now.String() {
			l.t.Fatalf("%s: from revision %d to %d, updated at %s", o.what, revision, d.Revision(), d.Text("updatedAt"))
		}
	}
}

func asText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// fails is an error with a code, and with the field if one is given.
func (o *outcome) fails(code events.Code, field ...string) *outcome {
	o.l.t.Helper()
	if events.CodeOf(o.err) != code {
		o.l.t.Errorf("%s: got %v %s, want %s", o.what, o.err, asText(o.Result), code)
		return o
	}
	for _, name := range field {
		if got := events.AsError(o.err).Details["field"]; got != name {
			o.l.t.Errorf("%s: %v names field %v, want %s", o.what, o.err, got, name)
		}
	}
	return o
}

// says is a detail of an error, as JSON.
func (o *outcome) says(detail, want string) *outcome {
	o.l.t.Helper()
	if got := asText(events.AsError(o.err).Details[detail]); got != want {
		o.l.t.Errorf("%s: %v says %s %s, want %s", o.what, o.err, detail, got, want)
	}
	return o
}

// appends is the types of the events that were decided, in order.
func (o *outcome) appends(types ...string) *outcome {
	o.l.t.Helper()
	var got []string
	for _, p := range o.Events {
		name, _ := p.EventType()
		got = append(got, name)
	}
	if o.err != nil || strings.Join(got, " ") != strings.Join(types, " ") {
		o.l.t.Errorf("%s: got %v, %v %s; want %v", o.what, got, o.err, asText(o.Result), types)
	}
	return o
}

// unchanged is an answer that appends nothing.
func (o *outcome) unchanged() *outcome {
	o.l.t.Helper()
	return o.appends()
}

// answers is the JSON of the result.
func (o *outcome) answers(want string) *outcome {
	o.l.t.Helper()
	if got := asText(o.Result); got != want {
		o.l.t.Errorf("%s: got %s, want %s", o.what, got, want)
	}
	return o
}

// doc is a document that must be there.
func (l *ledger) doc(name string) *release.Document {
	l.t.Helper()
	d := l.state.Find(name)
	if d == nil {
		l.t.Fatalf("there is no %s", name)
	}
	return d
}

// at is where a session stands.
func (l *ledger) at(id, phase string, revision int64) *ledger {
	l.t.Helper()
	if d := l.doc(id); d.Phase() != phase || d.Revision() != revision {
		l.t.Errorf("%s is in %s at revision %d, want %s at %d", id, d.Phase(), d.Revision(), phase, revision)
	}
	return l
}

// members reads an object; nil for what is none.
func members(body string) []events.Member {
	list, err := events.ObjectMembers([]byte(body))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", body, err))
	}
	return list
}

// with patches a JSON object: pairs of a member, or a path of members with dots,
// and a value; "" drops the member.
func with(body string, pairs ...string) string {
	list := members(body)
	for i := 0; i < len(pairs); i += 2 {
		name, rest, deep := strings.Cut(pairs[i], ".")
		at := slices.IndexFunc(list, func(m events.Member) bool { return m.Key == name })
		value := pairs[i+1]
		if deep {
			inner := "{}"
			if at >= 0 {
				inner = string(list[at].Value)
			}
			value = with(inner, rest, value)
		}
		switch {
		case value == "" && at >= 0:
			list = slices.Delete(list, at, at+1)
		case value == "":
		case at >= 0:
			list[at].Value = json.RawMessage(value)
		default:
			list = append(list, events.Member{Key: name, Value: json.RawMessage(value)})
		}
	}
	var texts []string
	for _, m := range list {
		texts = append(texts, quote(m.Key)+":"+string(m.Value))
	}
	return "{" + strings.Join(texts, ",") + "}"
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The session that most scenarios are about.
const (
	one = "release-0001"
	two = "release-0002"

	stableRelease = `{"authorityRevision":1,"releaseId":"r-1","artifactIdentity":"sha256:a1","manifestSha256":"m1","workerProtocolVersion":1,"releaseFencingTokenSha256":"f1"}`
	candidate     = `{"releaseId":"r-2","manifestPath":"/m/2","artifactIdentity":"sha256:a2","manifestSha256":"m2",` +
		`"treeSha256":"00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF","sourceCommit":"abc"}`
	published = `{"releaseId":"r-1","artifactIdentity":"sha256:a1","manifestPath":"/m/1","manifestSha256":"m1","workerProtocolVersion":1,` +
		`"publishedAt":"2025-12-01T00:00:00Z","databaseBackup":{"path":"/b/1.db","schemaVersion":3,"createdAt":"2025-12-01T00:00:00Z","auditEventCount":5}}`
	transaction = `{"schemaVersion":1,"operationId":"op-1","candidateReleaseId":"r-2","cutoverAuthorityRevision":2,"rollbackRelease":` + published +
		`,"startedAt":"2026-01-01T00:00:00Z"}`
	createBody = `{"sessionId":"release-0001","stable":{"controllerHome":"/srv/a","port":1},"stableRelease":` + stableRelease +
		`,"candidate":{"controllerHome":"/srv/b","port":2},"sourceRevision":"abc"}`
	// document is a session that another system wrote, before anything happened.
	document = `{"schemaVersion":1,"semanticEpoch":2,"sessionId":"release-0001","stable":{"controllerHome":"/srv/a","port":1},"stableRelease":` + stableRelease +
		`,"candidate":{"controllerHome":"/srv/b","port":2},"sourceRevision":"abc","phase":"source_frozen","revision":1,"receipts":[],` +
		`"createdAt":"2025-12-31T00:00:00.000Z","updatedAt":"2025-12-31T00:00:00.000Z"}`
	staticGates = `[{"id":"type","kind":"static_gate","summary":"ok"},{"id":"runtime_architecture","kind":"static_gate","summary":"ok"},` +
		`{"id":"architecture_sync","kind":"static_gate","summary":"ok"},{"id":"bootstrap","kind":"static_gate","summary":"ok"}]`
	canaries = `[{"id":"recovery","kind":"candidate_canary","summary":"ok"},{"id":"mcp","kind":"candidate_canary","summary":"ok"},` +
		`{"id":"scheduler","kind":"candidate_canary","summary":"ok"},{"id":"supervisor","kind":"candidate_canary","summary":"ok"},` +
		`{"id":"controller","kind":"candidate_canary","summary":"ok"}]`
	soakProof = `[{"id":"supervisor_continuation_proof","kind":"soak","summary":"ok"}]`
)

// gatesOf are the receipts that a phase needs.
var gatesOf = map[string]string{release.StaticVerified: staticGates, release.CandidateVerified: canaries, release.KnownGood: soakProof}

// step is the body of an advance of the session as it stands.
func (l *ledger) step(id, phase string, pairs ...string) string {
	l.t.Helper()
	return with(`{}`, append([]string{"sessionId", quote(id), "expectedRevision", fmt.Sprint(l.doc(id).Revision()), "phase", quote(phase)}, pairs...)...)
}

// advanced takes a session to the next phase.
func (l *ledger) advanced(id, phase string, pairs ...string) *ledger {
	l.t.Helper()
	return l.happened(release.VerbAdvance, l.step(id, phase, pairs...))
}

// record is the body of a transaction of the session as it stands.
func (l *ledger) record(id, tx string) string {
	l.t.Helper()
	return with(`{}`, "sessionId", quote(id), "expectedRevision", fmt.Sprint(l.doc(id).Revision()), "transaction", tx)
}

// upTo takes the session to a phase on the way of a release that succeeds.
func (l *ledger) upTo(phase string) *ledger {
	l.t.Helper()
	if l.state.Find(one) == nil {
		l.happened(release.VerbCreate, createBody)
	}
	for l.doc(one).Phase() != phase {
		l.onward(one)
	}
	return l
}

// onward takes a session one phase further, with all that it needs.
func (l *ledger) onward(id string) *ledger {
	l.t.Helper()
	order := release.Order()
	next := order[slices.Index(order, l.doc(id).Phase())+1]
	var pairs []string
	if next == release.Built && l.doc(id).Raw("candidateRelease") == nil {
		pairs = append(pairs, "candidateRelease", with(candidate, "sourceCommit", quote(l.doc(id).Text("sourceRevision"))))
	}
	if gates := gatesOf[next]; gates != "" {
		pairs = append(pairs, "receipts", gates)
	}
	if next == release.CutoverCommitted && l.doc(id).Raw("transaction") == nil {
		l.happened(release.VerbTransaction, l.record(id, transaction))
	}
	return l.advanced(id, next, pairs...)
}

// evidence is the body of a receipts command.
func evidence(id string, receipts string, pairs ...string) string {
	return with(`{}`, append([]string{"sessionId", quote(id), "receipts", receipts}, pairs...)...)
}

// gate is one receipt of a gate.
func gate(kind, id, outcome string) string {
	r := with(`{"summary":"s"}`, "id", quote(id), "kind", quote(kind))
	if outcome != "" {
		r = with(r, "outcome", quote(outcome))
	}
	return r
}

func TestScenarioNoticesWhatIsWrong(t *testing.T) {
	for name, tell := range map[string]func(l *ledger){
		"a failure that did not come": func(l *ledger) { l.when(release.VerbCreate, createBody).fails(events.CodeReleaseActiveExists) },
		"another code":                func(l *ledger) { l.when(release.VerbCreate, `{}`).fails(events.CodeReleaseActiveExists) },
		"another field":               func(l *ledger) { l.when(release.VerbCreate, `{}`).fails(events.CodeReleaseIDInvalid, "x") },
		"another detail":              func(l *ledger) { l.when(release.VerbCreate, `{}`).says("field", `"x"`) },
		"another event":               func(l *ledger) { l.when(release.VerbCreate, createBody).appends("release.advanced") },
		"a change":                    func(l *ledger) { l.when(release.VerbCreate, createBody).unchanged() },
		"another answer":              func(l *ledger) { l.when(release.VerbCreate, createBody).answers("null") },
		"a given that failed":         func(l *ledger) { l.happened(release.VerbCreate, `{}`) },
		"another phase":               func(l *ledger) { l.upTo(release.Built).at(one, release.Soaking, 2) },
		"another revision":            func(l *ledger) { l.upTo(release.Built).at(one, release.Built, 3) },
	} {
		r := &recorder{}
		func() {
			defer func() { _ = recover() }()
			tell(given(r))
		}()
		if r.failures == 0 {
			t.Errorf("%s passes", name)
		}
	}
}

// recorder takes the failures of a scenario that has to fail.
type recorder struct{ failures int }

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failures++ }
func (r *recorder) Fatalf(format string, args ...any) {
	r.failures++
	panic(fmt.Sprintf(format, args...))
}
