package session_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// A scenario is told as given, when, then:
//
//	w := given(t).happened(session.VerbClaim, claim)   // what was accepted before
//	w.after(1000)                                      // time goes by
//	w.when(session.VerbClaim, other).fails(events.CodeAlreadyClaimed, "controllerId")
//
// Every command that goes through a scenario is checked for what must hold of
// all commands: deciding is deterministic and leaves the state alone, an error
// or a refused fence appends nothing, facts that were said not to be needed
// change nothing, the events survive their encoding, the folded state agrees
// with the result, and the result can be recalled from the commit.

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

const begin events.Time = 1767225600000 // 2026-01-01T00:00:00.000Z

// work is one work of a scenario.
type work struct {
	t     failer
	state session.State
	facts session.Facts
	// executions are what is known of transport sessions.
	executions map[string]*events.Execution
	// log are the events so far.
	log []events.Payload
}

func given(t failer) *work { return givenWork(t, "w1") }

func givenWork(t failer, id string) *work {
	return &work{t: t, state: session.Decider{}.Initial(id), facts: session.Facts{Now: begin}, executions: map[string]*events.Execution{}}
}

// after moves the clock.
func (w *work) after(ms int64) *work {
	w.facts.Now = w.facts.Now.Add(ms)
	return w
}

// happened is a command that must have been accepted.
func (w *work) happened(verb, body string) *work {
	w.t.Helper()
	o := w.when(verb, body)
	if o.err != nil || o.Refused {
		w.t.Fatalf("given %s %s: %v %s", verb, body, o.err, asText(o.Result))
	}
	return w
}

// imported is an entry of a snapshot that was taken over.
func (w *work) imported(body string) *work {
	w.t.Helper()
	for _, e := range w.entries(body) {
		w.do(e)
	}
	return w
}

// entries reads a snapshot none of whose entries is dropped.
func (w *work) entries(body string) (list []*session.Entry) {
	w.t.Helper()
	s, err := session.ParseSnapshot(parseBody(w.t, body))
	if err != nil {
		w.t.Fatalf("%s: %v", body, err)
	}
	for _, e := range s.Entries {
		if e.Dropped != nil {
			w.t.Fatalf("%s: dropped: %v", body, e.Dropped)
		}
		list = append(list, s.Entry(e))
	}
	return list
}

func parseBody(t failer, body string) *aggregate.Body {
	t.Helper()
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return b
}

func (w *work) when(verb, body string) *outcome {
	w.t.Helper()
	c, err := session.Parse(verb, parseBody(w.t, body))
	if err != nil {
		w.t.Fatalf("%s: %v", verb, err)
	}
	return w.do(c)
}

// outcome is what a command came to.
type outcome struct {
	aggregate.Decision
	err  error
	w    *work
	what string
}

// do decides a command and folds its events, with all general checks.
func (w *work) do(c session.Command) *outcome {
	w.t.Helper()
	d := session.Decider{}
	before, now := w.state, w.facts.Now
	if c.Target() != before.WorkID {
		// The service loads the boundary that the command names.
		before = d.Initial(c.Target())
	}
	f := w.facts
	known := w.executions[before.OwnerSession(now)]
	if before.NeedsExecution(c, now) {
		f.Execution = known
	}
	kept := copyState(w.t, before)
	decision, err := d.Decide(before, c, f)
	o := &outcome{Decision: decision, err: err, w: w, what: c.Verb()}
	if !reflect.DeepEqual(before, kept) {
		w.t.Fatalf("%s: deciding changed the state:\n%s", o.what, cmp.Diff(kept, before))
	}
	try := func(why string, f session.Facts) {
		w.t.Helper()
		again, errAgain := d.Decide(copyState(w.t, before), c, f)
		if !reflect.DeepEqual(decision.Events, again.Events) || asText(decision.Result) != asText(again.Result) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			w.t.Fatalf("%s decides otherwise %s: %v, %s\n%v, %s", o.what, why, err, asText(decision), errAgain, asText(again))
		}
	}
	try("the second time", f)
	if !before.NeedsExecution(c, now) {
		g := f
		g.Execution = known
		try("with an execution session that was not needed", g)
	}
	if !before.NeedsRuntime(c, now) {
		g := f
		g.AnnouncedRuntime = "a runtime that nobody asked for"
		try("with an announced runtime that was not needed", g)
	}
	if err != nil {
		if len(decision.Events) > 0 || decision.Result != nil {
			w.t.Fatalf("%s fails with %v and still decides %s", o.what, err, asText(decision))
		}
		if events.CodeOf(err) == "" {
			w.t.Fatalf("%s: an error without a code: %v", o.what, err)
		}
		return o
	}
	if decision.Refused && len(decision.Events) > 0 {
		w.t.Fatalf("%s is refused and still appends %s", o.what, asText(decision.Events))
	}
	if len(decision.Events) == 0 {
		return o
	}
	after := commit(w.t, d, c.Target(), before, decision.Events)
	if !reflect.DeepEqual(before, kept) {
		w.t.Fatalf("%s: folding changed the state before", o.what)
	}
	if len(decision.Events) > 0 && c.Target() == w.state.WorkID {
		w.state = after
		w.log = append(w.log, decision.Events...)
	}
	recalled := session.Recall(&events.Commit{At: now, Command: events.Command{Verb: c.Verb()}}, decision.Events, after)
	if first, again := asText(decision.Result), asText(recalled); first != again {
		w.t.Fatalf("%s: the recalled result differs\nfirst %s\nagain %s", o.what, first, again)
	}
	consistent(w.t, o, decision.Events, after, now)
	return o
}

// consistent checks that the state after a command is what its events and its
// result say.
func consistent(t failer, o *outcome, list []events.Payload, after session.State, now events.Time) {
	t.Helper()
	for _, p := range list {
		switch e := p.(type) {
		case events.ClaimGranted:
			if after.Standing != events.StandingHeld || !after.Owner.Equal(&e.Owner) || asText(o.Result) != asText(e.Owner) || e.Owner.Gen() < 1 {
				t.Fatalf("granted %s, the state has %s, the result is %s", asText(e.Owner), asText(after.Owner), asText(o.Result))
			}
		case events.ClaimRenewed:
			if after.Standing != events.StandingHeld || !after.Owner.Equal(&e.Owner) || e.Owner.ClaimedAt != now || e.Owner.LeaseExpiresAt <= now {
				t.Fatalf("renewed %s, the state has %s", asText(e.Owner), asText(after.Owner))
			}
		case events.ClaimReleased:
			if after.Standing != events.StandingReleased || after.Live(now) != nil || e.Generation != after.Owner.Gen() {
				t.Fatalf("released, the state has %s %s", after.Standing, asText(after.Owner))
			}
		case events.WorkStateSet:
			if after.Work != e.State {
				t.Fatalf("set to %q, the state has %q", e.State, after.Work)
			}
		case events.ClaimImportConflicted:
			if after.Readable() == nil {
				t.Fatalf("in conflict, and readable")
			}
		case events.ClaimImportResolved:
			if after.Readable() != nil || after.Owner.Gen() != e.Generation {
				t.Fatalf("resolved at generation %d, the state has %s, %v", e.Generation, asText(after.Owner), after.Readable())
			}
		}
	}
}

// copyState makes a state that shares nothing with the first.
func copyState(t failer, s session.State) session.State {
	t.Helper()
	d := session.Decider{}
	carried := d.EncodeState(s)
	c, ok, err := d.DecodeState(s.WorkID, carried)
	if !ok || err != nil {
		t.Fatalf("the state cannot be carried: %v", err)
	}
	return c
}

func asText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// fails is an error with a code, and with the field if one is given.
func (o *outcome) fails(code events.Code, field ...string) {
	o.w.t.Helper()
	if events.CodeOf(o.err) != code {
		o.w.t.Errorf("%s: got %v %s, want %s", o.what, o.err, asText(o.Result), code)
		return
	}
	for _, name := range field {
		if got := events.AsError(o.err).Details["field"]; got != name {
			o.w.t.Errorf("%s: %v names field %v, want %s", o.what, o.err, got, name)
		}
	}
}

// refused is a fence that was not passed. owner is its JSON, "" for none, "live"
// for the live owner.
func (o *outcome) refused(reason, owner string) {
	o.w.t.Helper()
	fence, _ := o.Result.(session.Fence)
	if o.err != nil || !o.Refused || fence.Allowed || fence.Reason != reason || len(o.Events) > 0 {
		o.w.t.Errorf("%s: got %v %s, want refused %s", o.what, o.err, asText(o.Result), reason)
		return
	}
	if owner == "live" {
		owner = asText(o.w.state.Live(o.w.facts.Now))
	}
	shown := asText(o.Result)
	if want := `{"allowed":false,"reason":"` + reason + `"}`; owner == "" && shown != want {
		o.w.t.Errorf("%s: got %s, want no owner", o.what, shown)
	} else if owner != "" && !strings.Contains(shown, `"owner":`+owner) {
		o.w.t.Errorf("%s: got %s, want owner %s", o.what, shown, owner)
	}
}

// appends is the types of the events that were decided, in order.
func (o *outcome) appends(types ...string) *outcome {
	o.w.t.Helper()
	var got []string
	for _, p := range o.Events {
		name, _ := p.EventType()
		got = append(got, name)
	}
	if o.err != nil || o.Refused || strings.Join(got, " ") != strings.Join(types, " ") {
		o.w.t.Errorf("%s: got %v, %v %s; want %v", o.what, got, o.err, asText(o.Result), types)
	}
	return o
}

// unchanged is an answer that appends nothing and is no refusal.
func (o *outcome) unchanged() *outcome {
	o.w.t.Helper()
	return o.appends()
}

// answers is the JSON of the result.
func (o *outcome) answers(want string) *outcome {
	o.w.t.Helper()
	if got := asText(o.Result); got != want {
		o.w.t.Errorf("%s: got %s, want %s", o.what, got, want)
	}
	return o
}

// grants is a new generation, and its cause.
func (o *outcome) grants(generation int64, cause string) *outcome {
	o.w.t.Helper()
	o.appends("claim.granted")
	if len(o.Events) == 1 {
		if e, ok := o.Events[0].(events.ClaimGranted); ok && (e.Owner.Gen() != generation || e.Cause != cause) {
			o.w.t.Errorf("%s: got generation %d, %s; want %d, %s", o.what, e.Owner.Gen(), e.Cause, generation, cause)
		}
	}
	return o
}

// renews is the same generation with another lease.
func (o *outcome) renews(generation int64) *outcome {
	o.w.t.Helper()
	o.appends("claim.renewed")
	if len(o.Events) == 1 {
		if e, ok := o.Events[0].(events.ClaimRenewed); ok && e.Owner.Gen() != generation {
			o.w.t.Errorf("%s: got generation %d, want %d", o.what, e.Owner.Gen(), generation)
		}
	}
	return o
}

// owner is the last known owner, as the state has it.
func (w *work) owner() *events.Session {
	w.t.Helper()
	if w.state.Owner == nil {
		w.t.Fatalf("the work has no owner")
	}
	return w.state.Owner
}

// with patches a JSON object: pairs of member and value, "" drops the member.
func with(body string, pairs ...string) string {
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", body, err))
	}
	var list []string
	replaced := map[string]bool{}
	value := func(name string, was string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				replaced[name] = true
				return pairs[i+1]
			}
		}
		return was
	}
	for _, name := range b.Ignored() { // nobody asked for any: all of them
		raw, ok := b.Raw(name)
		if !ok {
			raw = []byte("null")
		}
		if v := value(name, string(raw)); v != "" {
			list = append(list, quote(name)+":"+v)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !replaced[pairs[i]] && pairs[i+1] != "" {
			list = append(list, quote(pairs[i])+":"+pairs[i+1])
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

func quote(s string) string { return asText(s) }

// Bodies of the owner that most scenarios are about.
const (
	claimBody = `{"workId":"w1","controllerId":"c1","controllerType":"codex","sessionId":"s1","principalId":"p1","controllerInstanceId":"i1"}`
	otherBody = `{"workId":"w1","controllerId":"c2","controllerType":"claude","sessionId":"s2","principalId":"p2","controllerInstanceId":"i2"}`
	underBody = `{"workId":"w1","authority":{"controllerId":"c1","controllerType":"codex","principalId":"p1","controllerInstanceId":"i1","claimGeneration":1}}`
	hour      = int64(session.MaxLeaseMs)
)

// under is a body with the authority of a session.
func under(s *events.Session, pairs ...string) string {
	a := session.Authority{
		ControllerID: s.ControllerID, ControllerType: s.ControllerType, PrincipalID: s.Principal(), ControllerInstanceID: s.Instance(),
		ClaimGeneration: s.Gen(),
	}
	return with(`{"workId":`+quote(s.WorkID)+`,"authority":`+asText(a)+`}`, pairs...)
}

func TestScenarioNoticesWhatIsWrong(t *testing.T) {
	for name, tell := range map[string]func(w *work){
		"a failure that did not come": func(w *work) { w.when(session.VerbClaim, claimBody).fails(events.CodeAlreadyClaimed) },
		"another code":                func(w *work) { w.when(session.VerbClaim, `{}`).fails(events.CodeAlreadyClaimed) },
		"another field":               func(w *work) { w.when(session.VerbClaim, `{}`).fails(events.CodeIdentityRequired, "leaseMs") },
		"another event":               func(w *work) { w.when(session.VerbClaim, claimBody).renews(1) },
		"another generation":          func(w *work) { w.when(session.VerbClaim, claimBody).grants(2, events.CauseFirst) },
		"another cause":               func(w *work) { w.when(session.VerbClaim, claimBody).grants(1, events.CauseRecovery) },
		"a change":                    func(w *work) { w.when(session.VerbClaim, claimBody).unchanged() },
		"another reason":              func(w *work) { w.when(session.VerbRenew, underBody).refused(session.ReasonStaleAuthority, "") },
		"an owner":                    func(w *work) { w.when(session.VerbRenew, underBody).refused(session.ReasonClaimMissing, "live") },
		"a given that failed":         func(w *work) { w.happened(session.VerbClaim, `{}`) },
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
