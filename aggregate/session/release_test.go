package session_test

import (
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

func TestRelease(t *testing.T) {
	const body = `{"workId":" w1 ","controllerId":" c1 "}`
	held := func() *work { return given(t).happened(session.VerbClaim, claimBody) }
	o := held().when(session.VerbRelease, body).appends("claim.released").answers("null")
	if e := o.Events[0].(events.ClaimReleased); e.How != events.ReleasedByController || e.Generation != 1 || e.Reason != "" {
		t.Errorf("recorded %+v", e)
	}
	held().after(100*hour).when(session.VerbRelease, body).appends("claim.released") // expired, too
	for _, other := range []string{`"c2"`, `""`, `"C1"`, `null`, ``} {
		held().when(session.VerbRelease, with(body, "controllerId", other)).unchanged().answers("null")
	}
	given(t).when(session.VerbRelease, body).unchanged().answers("null")
	held().happened(session.VerbRelease, body).when(session.VerbRelease, body).unchanged()
	held().when(session.VerbRelease, `{"workId":" ","controllerId":"c1"}`).unchanged() // a work that does not exist
	held().when(session.VerbRelease, `{}`).unchanged()
	held().when(session.VerbRelease, with(body, "controllerId", `7`)).fails(events.CodeBadRequest, "controllerId")
}

func TestReleaseWithAuthority(t *testing.T) {
	held := func() *work { return given(t).happened(session.VerbClaim, claimBody) }
	w := held()
	o := w.when(session.VerbReleaseWithAuthority, underBody).appends("claim.released")
	o.answers(`{"allowed":true,"owner":` + importedSession + `}`)
	if e := o.Events[0].(events.ClaimReleased); e.How != events.ReleasedByAuthority {
		t.Errorf("recorded %+v", e)
	}
	// A changed transport session is no other epoch; padded texts are trimmed.
	w = held().happened(session.VerbBind, with(claimBody, "sessionId", `"s9"`))
	w.when(session.VerbReleaseWithAuthority, `{"workId":"w1","authority":{"controllerId":" c1","controllerType":"codex","principalId":"p1 ","controllerInstanceId":"\ti1","claimGeneration":1.0}}`).
		appends("claim.released")
	authority := func(field, value string) string {
		return with(`{"workId":"w1"}`, "authority", with(`{"controllerId":"c1","controllerType":"codex","principalId":"p1","controllerInstanceId":"i1","claimGeneration":1}`, field, value))
	}
	for _, c := range [][2]string{
		{"controllerId", `"c2"`},
		{"controllerId", ""},
		{"controllerType", `"claude"`},
		{"controllerType", `" codex "`}, // opaque: as it is
		{"principalId", `"p2"`},
		{"principalId", `""`},
		{"controllerInstanceId", `"i2"`},
		{"controllerInstanceId", `""`},
		{"controllerInstanceId", "null"},
		{"claimGeneration", "0"},
		{"claimGeneration", "2"},
		{"claimGeneration", "null"},
		{"claimGeneration", `"1"`},
		{"claimGeneration", "1.5"},
		{"claimGeneration", "1e30"},
		{"claimGeneration", "true"},
		{"controllerId", "7"},
		{"controllerType", "[]"},
		{"principalId", "{}"},
		{"controllerInstanceId", "7"},
	} {
		w := held()
		for _, verb := range []string{session.VerbReleaseWithAuthority, session.VerbTerminalize} {
			w.when(verb, authority(c[0], c[1])).refused(session.ReasonStaleAuthority, "live")
		}
		if o := w.when(session.VerbRenew, authority(c[0], c[1])); c[0] == "controllerId" && c[1] != `"c2"` {
			o.fails(events.CodeIdentityRequired)
		} else {
			o.refused(session.ReasonStaleAuthority, "live")
		}
	}
	// An owner without instance is matched by none, not by another.
	bare := with(claimBody, "controllerInstanceId", "", "principalId", "")
	given(t).happened(session.VerbClaim, bare).when(session.VerbReleaseWithAuthority,
		`{"workId":"w1","authority":{"controllerId":"c1","controllerType":"codex","principalId":"c1","claimGeneration":1}}`).appends("claim.released")
	// No authority at all is one that does not match.
	for _, none := range []string{`{"workId":"w1"}`, `{"workId":"w1","authority":null}`, `{"workId":"w1","authority":{}}`, `{"workId":"w1","authority":"c1"}`, `{"workId":"w1","authority":[]}`} {
		held().when(session.VerbReleaseWithAuthority, none).refused(session.ReasonStaleAuthority, "live")
	}
	given(t).when(session.VerbReleaseWithAuthority, underBody).refused(session.ReasonClaimMissing, "")
	held().when(session.VerbReleaseWithAuthority, with(underBody, "workId", `" "`)).refused(session.ReasonClaimMissing, "")
	held().when(session.VerbReleaseWithAuthority, with(underBody, "workId", `7`)).refused(session.ReasonClaimMissing, "")
}

// A refused release of an expired owner leaves it unreleased: the same owner
// keeps its generation.
func TestRefusedReleaseOfAnExpiredOwner(t *testing.T) {
	for _, c := range [][2]string{
		{session.VerbReleaseWithAuthority, underBody},
		{session.VerbReleaseObserved, `{"workId":"w1","owner":` + importedSession + `}`},
	} {
		w := given(t).happened(session.VerbClaim, claimBody).after(hour)
		w.when(c[0], c[1]).refused(session.ReasonClaimMissing, "")
		if w.state.Standing != events.StandingHeld {
			t.Errorf("%s: it is %s", c[0], w.state.Standing)
		}
		w.when(session.VerbClaim, claimBody).renews(1)
	}
}

func TestReleaseObserved(t *testing.T) {
	held := func() *work { return given(t).happened(session.VerbClaim, claimBody) }
	body := func(pairs ...string) string {
		return `{"workId":"w1","owner":` + with(importedSession, pairs...) + `}`
	}
	o := held().when(session.VerbReleaseObserved, body()).appends("claim.released").answers(`{"allowed":true,"owner":` + importedSession + `}`)
	if e := o.Events[0].(events.ClaimReleased); e.How != events.ReleasedObserved {
		t.Errorf("recorded %+v", e)
	}
	// workId beside an owner is a label; lease and transport session do not count.
	held().when(session.VerbReleaseObserved, body("workId", `"w9"`, "sessionId", "7", "leaseExpiresAt", `"x"`)).appends("claim.released")
	// A stale owner is answered with the live one.
	held().when(session.VerbReleaseObserved, body("claimGeneration", "2")).refused(session.ReasonStaleAuthority, "live")
	held().when(session.VerbReleaseObserved, body("controllerId", `"c2"`)).refused(session.ReasonStaleAuthority, "live")
	// A missing principal is the controller.
	held().when(session.VerbReleaseObserved, body("principalId", `" "`)).refused(session.ReasonStaleAuthority, "live")
	given(t).happened(session.VerbClaim, with(claimBody, "principalId", "")).when(session.VerbReleaseObserved, body("principalId", "null")).appends("claim.released")
	given(t).happened(session.VerbClaim, with(claimBody, "principalId", "")).when(session.VerbReleaseObserved, body("principalId", "7")).
		refused(session.ReasonStaleAuthority, "live")
	// An owner that has no authority is answered as it was given, before anything else.
	for _, pairs := range [][]string{
		{"controllerInstanceId", ""},
		{"controllerInstanceId", `" "`},
		{"controllerInstanceId", "7"},
		{"controllerInstanceId", "null"},
		{"claimGeneration", ""},
		{"claimGeneration", "0"},
		{"claimGeneration", "-1"},
		{"claimGeneration", "1.5"},
		{"claimGeneration", `"1"`},
		{"claimGeneration", "1e30"},
		{"claimGeneration", "null"},
	} {
		held().when(session.VerbReleaseObserved, body(pairs...)).refused(session.ReasonStaleAuthority, with(importedSession, pairs...))
		given(t).when(session.VerbReleaseObserved, body(pairs...)).refused(session.ReasonStaleAuthority, with(importedSession, pairs...))
	}
	held().when(session.VerbReleaseObserved, `{"workId":"w1","owner":{ "x" : 1.0 }}`).refused(session.ReasonStaleAuthority, `{"x":1.0}`)
	held().when(session.VerbReleaseObserved, `{"workId":"w1","owner":7}`).refused(session.ReasonStaleAuthority, `7`)
	held().when(session.VerbReleaseObserved, `{"workId":"w1","owner":[]}`).refused(session.ReasonStaleAuthority, `[]`)
	// null is absent, and an absent owner is not answered.
	held().when(session.VerbReleaseObserved, `{"workId":"w1"}`).refused(session.ReasonStaleAuthority, "")
	held().when(session.VerbReleaseObserved, `{"workId":"w1","owner":null}`).refused(session.ReasonStaleAuthority, "")
	given(t).when(session.VerbReleaseObserved, body()).refused(session.ReasonClaimMissing, "")
}

func TestRenew(t *testing.T) {
	held := func() *work {
		return given(t).imported(snapshot(with(importedSession, "note", "1", "authorityDigest", `" d "`))).after(1000)
	}
	w := held()
	o := w.when(session.VerbRenew, with(underBody, "leaseMs", "5000")).appends("claim.renewed")
	// All else is unchanged: digest and unknown members, too.
	want := mustSession(t, with(importedSession, "claimedAt", `"2026-01-01T00:00:01Z"`, "leaseExpiresAt", `"2026-01-01T00:00:06Z"`, "note", "1", "authorityDigest", `" d "`))
	o.answers(`{"allowed":true,"owner":` + asText(want) + `}`)
	// The order of the checks.
	quarantined := func() *work { return held().imported(snapshot(with(importedSession, "claimGeneration", "9"))) }
	for _, blank := range []string{`{}`, with(underBody, "workId", `" "`), with(underBody, "workId", "7"), `{"workId":"w1"}`, `{"workId":"w1","authority":null}`, `{"workId":"w1","authority":7}`, `{"workId":"w1","authority":{"controllerId":" "}}`} {
		quarantined().when(session.VerbRenew, blank).fails(events.CodeIdentityRequired)
	}
	quarantined().when(session.VerbRenew, with(underBody, "leaseMs", `"x"`)).fails(events.CodeSessionIDCollision)
	given(t).happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`).when(session.VerbRenew, with(underBody, "leaseMs", `"x"`)).
		refused(session.ReasonClaimMissing, "")
	terminal := func() *work {
		return held().happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`)
	}
	terminal().when(session.VerbRenew, `{"workId":"w1","leaseMs":"x","authority":{"controllerId":"c1"}}`).refused(session.ReasonStaleAuthority, "live")
	terminal().when(session.VerbRenew, with(underBody, "leaseMs", `"x"`)).fails(events.CodeClaimTerminal)
	held().when(session.VerbRenew, with(underBody, "leaseMs", `"x"`)).fails(events.CodeBadRequest, "leaseMs")
	held().happened(session.VerbSetState, `{"workId":"w1","state":"open","reason":"r"}`).when(session.VerbRenew, underBody).appends("claim.renewed")
	// A lapsed lease cannot be renewed, only claimed again.
	held().after(hour).when(session.VerbRenew, underBody).refused(session.ReasonClaimMissing, "")
}

func mustSession(t failer, text string) *events.Session {
	t.Helper()
	s, err := events.ParseSession([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestForceRelease(t *testing.T) {
	const body = `{"workId":" w1 ","reason":" stuck "}`
	for name, w := range map[string]*work{
		"live":            given(t).happened(session.VerbClaim, claimBody),
		"expired":         given(t).happened(session.VerbClaim, claimBody).after(hour),
		"held, imported":  given(t).imported(snapshot(importedSession)),
		"on a closed one": given(t).happened(session.VerbClaim, claimBody).happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`),
	} {
		o := w.when(session.VerbForceRelease, body).appends("claim.released").answers(importedSession)
		if len(o.Events) == 1 {
			if e := o.Events[0].(events.ClaimReleased); e.How != events.ReleasedByForce || e.Reason != "stuck" || e.Generation != 1 {
				t.Errorf("%s: recorded %+v", name, e)
			}
		}
		w.when(session.VerbForceRelease, body).unchanged().answers("null")
	}
	given(t).when(session.VerbForceRelease, body).unchanged().answers("null")
	w := given(t).happened(session.VerbClaim, claimBody)
	for _, none := range []string{"", "null", `""`, `" \n"`, "7", "{}"} {
		w.when(session.VerbForceRelease, with(body, "reason", none)).fails(events.CodeReasonRequired, "reason")
	}
	w.when(session.VerbForceRelease, with(body, "workId", `" "`)).fails(events.CodeIDInvalid, "workId")
	w.when(session.VerbForceRelease, body).appends("claim.released")
	w.when(session.VerbClaim, claimBody).grants(2, events.CauseAfterRelease)
}

func TestTerminalize(t *testing.T) {
	const free = `{"workId":"w1","state":" done "}`
	shown := with(underBody, "state", `"done"`)
	held := func() *work { return given(t).happened(session.VerbClaim, claimBody) }
	given(t).when(session.VerbTerminalize, free).appends("work.state-set").answers(`{"allowed":true,"value":"done"}`)
	given(t).when(session.VerbTerminalize, shown).refused(session.ReasonClaimMissing, "")
	held().when(session.VerbTerminalize, free).refused(session.ReasonActiveClaim, "live")
	held().when(session.VerbTerminalize, with(shown, "authority", `{}`)).refused(session.ReasonStaleAuthority, "live")
	held().when(session.VerbTerminalize, with(shown, "authority", `7`)).refused(session.ReasonStaleAuthority, "live")
	held().when(session.VerbTerminalize, with(shown, "authority", `null`)).refused(session.ReasonActiveClaim, "live")
	held().when(session.VerbTerminalize, shown).appends("work.state-set").answers(`{"allowed":true,"owner":` + importedSession + `,"value":"done"}`)
	// An expired owner is none.
	held().after(hour).when(session.VerbTerminalize, shown).refused(session.ReasonClaimMissing, "")
	w := held().after(hour)
	w.when(session.VerbTerminalize, free).appends("work.state-set").answers(`{"allowed":true,"value":"done"}`)
	if w.state.Standing != events.StandingHeld || w.state.Terminal() != true {
		t.Errorf("the claim is %s, the work %q", w.state.Standing, w.state.Work)
	}
	// Scenario 9: after the close no claim is granted, and the open lease cannot be renewed.
	w = held().happened(session.VerbTerminalize, shown)
	for _, verb := range []string{session.VerbClaim, session.VerbResume} {
		w.when(verb, claimBody).fails(events.CodeClaimTerminal)
	}
	w.when(session.VerbRenew, underBody).fails(events.CodeClaimTerminal)
	// The state of the work is not looked at; the same one again changes nothing.
	w.when(session.VerbTerminalize, shown).unchanged().answers(`{"allowed":true,"owner":` + importedSession + `,"value":"done"}`)
	w.when(session.VerbTerminalize, with(shown, "state", `"superseded"`)).appends("work.state-set")
	w.when(session.VerbTerminalize, with(shown, "state", `"open"`)).appends("work.state-set")
	w.when(session.VerbClaim, claimBody).renews(1)

	// With release the claim ends in the same commit.
	release := with(shown, "release", "true")
	w = held()
	o := w.when(session.VerbTerminalize, release).appends("work.state-set", "claim.released").answers(`{"allowed":true,"owner":` + importedSession + `,"value":"done"}`)
	if e := o.Events[1].(events.ClaimReleased); e.How != events.ReleasedAtTerminal || e.Generation != 1 {
		t.Errorf("recorded %+v", e)
	}
	w.happened(session.VerbSetState, `{"workId":"w1","state":"open","reason":"r"}`).when(session.VerbClaim, claimBody).grants(2, events.CauseAfterRelease)
	held().happened(session.VerbTerminalize, shown).when(session.VerbTerminalize, release).appends("claim.released").answers(`{"allowed":true,"owner":` + importedSession + `,"value":"done"}`)
	// An expired claim, too, of which the answer says nothing.
	held().after(hour).when(session.VerbTerminalize, with(free, "release", "true")).appends("work.state-set", "claim.released").answers(`{"allowed":true,"value":"done"}`)
	held().when(session.VerbTerminalize, with(shown, "release", "false")).appends("work.state-set")
	held().when(session.VerbTerminalize, with(shown, "release", "null")).appends("work.state-set")
	given(t).when(session.VerbTerminalize, with(free, "release", "true")).appends("work.state-set")
	given(t).imported(retainedRecord(importedSession, "")).when(session.VerbTerminalize, with(free, "release", "true")).appends("work.state-set")

	// An error of the operation is the answer, after the fence.
	for _, bad := range []string{"", "null", `""`, `" "`, "7", "{}"} {
		held().when(session.VerbTerminalize, with(shown, "state", bad)).fails(events.CodeBadRequest, "state")
		held().when(session.VerbTerminalize, with(free, "state", bad)).refused(session.ReasonActiveClaim, "live")
	}
	held().when(session.VerbTerminalize, with(shown, "release", `"yes"`)).fails(events.CodeBadRequest, "release")
	given(t).when(session.VerbTerminalize, with(free, "workId", `" "`)).fails(events.CodeBadRequest, "workId")
	held().imported(snapshot(with(importedSession, "claimGeneration", "2"))).when(session.VerbTerminalize, with(shown, "state", "7")).fails(events.CodeSessionIDCollision)

	for body, fenced := range map[string]bool{free: false, shown: true, with(free, "authority", "null"): false, with(free, "authority", "7"): true, with(free, "authority", "{}"): true} {
		c, err := session.Parse(session.VerbTerminalize, parseBody(t, body))
		if err != nil || c.(*session.Terminalize).Fenced() != fenced {
			t.Errorf("%s: fenced is not %t (%v)", body, fenced, err)
		}
	}
}

func TestSetState(t *testing.T) {
	const body = `{"workId":" w1 ","state":" done ","reason":" r "}`
	w := given(t)
	o := w.when(session.VerbSetState, body).appends("work.state-set").answers(`{"workId":"w1","state":"done"}`)
	if e := o.Events[0].(events.WorkStateSet); e.How != events.SetByOperator || e.Reason != "r" {
		t.Errorf("recorded %+v", e)
	}
	w.when(session.VerbSetState, body).unchanged().answers(`{"workId":"w1","state":"done"}`)
	w.when(session.VerbSetState, with(body, "state", `"open"`)).appends("work.state-set").answers(`{"workId":"w1","state":"open"}`)
	w.when(session.VerbSetState, with(body, "state", "null")).appends("work.state-set").answers(`{"workId":"w1","state":null}`)
	w.when(session.VerbSetState, with(body, "state", "")).unchanged().answers(`{"workId":"w1","state":null}`)
	for _, none := range []string{"", "null", `" "`, "7"} {
		w.when(session.VerbSetState, with(body, "reason", none)).fails(events.CodeReasonRequired, "reason")
	}
	w.when(session.VerbSetState, with(body, "state", `" "`)).fails(events.CodeBadRequest, "state")
	w.when(session.VerbSetState, with(body, "workId", `" "`)).fails(events.CodeIDInvalid, "workId")
	w.when(session.VerbSetState, with(body, "workId", "")).fails(events.CodeIDInvalid, "workId")
	// A state of the wrong type must not forget the state.
	w.happened(session.VerbSetState, body)
	for _, bad := range []string{"7", "{}", "[]", "false"} {
		w.when(session.VerbSetState, with(body, "state", bad)).fails(events.CodeBadRequest, "state")
	}
	if w.state.Work != "done" {
		t.Errorf("the work is %q", w.state.Work)
	}
	// It looks at no claim, and leaves it.
	w = given(t).happened(session.VerbClaim, claimBody)
	w.when(session.VerbSetState, body).appends("work.state-set")
	if w.state.Live(begin) == nil {
		t.Error("the claim is gone")
	}
	// An unknown work behaves like an open one.
	for state, terminal := range map[string]bool{"null": false, `"open"`: false, `"Open"`: true, `"done"`: true} {
		w := given(t).happened(session.VerbSetState, with(body, "state", state))
		if w.state.Terminal() != terminal {
			t.Errorf("state %s: terminal is not %t", state, terminal)
		}
		if o := w.when(session.VerbClaim, claimBody); terminal {
			o.fails(events.CodeClaimTerminal)
		} else {
			o.grants(1, events.CauseFirst)
		}
	}
}
