package session_test

import (
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// Every reason of a new generation, and of keeping one.
func TestGenerations(t *testing.T) {
	given(t).when(session.VerbClaim, claimBody).grants(1, events.CauseFirst)
	given(t).happened(session.VerbClaim, claimBody).after(1000).when(session.VerbClaim, claimBody).renews(1)
	lapsed := func() *work { return given(t).happened(session.VerbClaim, claimBody).after(hour) }
	lapsed().when(session.VerbClaim, claimBody).renews(1)
	lapsed().when(session.VerbClaim, otherBody).grants(2, events.CauseAfterLapse)
	lapsed().when(session.VerbResume, otherBody).grants(2, events.CauseAfterLapse)
	lapsed().when(session.VerbBind, with(otherBody, "allowClaimIfMissing", "true")).grants(2, events.CauseAfterLapse)
	released := func() *work {
		return given(t).happened(session.VerbClaim, claimBody).happened(session.VerbRelease, claimBody)
	}
	released().when(session.VerbClaim, claimBody).grants(2, events.CauseAfterRelease)
	released().after(10*hour).when(session.VerbClaim, otherBody).grants(2, events.CauseAfterRelease)
	given(t).happened(session.VerbClaim, claimBody).when(session.VerbResume, with(claimBody, "controllerInstanceId", `"i2"`)).grants(2, events.CauseRuntimeChange)
	given(t).happened(session.VerbClaim, claimBody).after(session.DefaultGraceMs).
		when(session.VerbResume, with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")).grants(2, events.CauseRecovery)
}

// Scenario 1: the first release, replayed after the work was claimed again.
func TestScenarioGenerationABA(t *testing.T) {
	w := given(t).happened(session.VerbClaim, claimBody)
	first := under(w.owner())
	w.happened(session.VerbReleaseWithAuthority, first)
	w.when(session.VerbReleaseWithAuthority, first).refused(session.ReasonClaimMissing, "")
	w.happened(session.VerbClaim, claimBody)
	for _, verb := range []string{session.VerbReleaseWithAuthority, session.VerbRenew, session.VerbTerminalize} {
		w.when(verb, first).refused(session.ReasonStaleAuthority, "live")
	}
	w.when(session.VerbReleaseObserved, `{"workId":"w1","owner":{"controllerId":"c1","controllerType":"codex","principalId":"p1","controllerInstanceId":"i1","claimGeneration":1}}`).
		refused(session.ReasonStaleAuthority, "live")
	w.when(session.VerbReleaseWithAuthority, under(w.owner())).appends("claim.released")
	w.when(session.VerbClaim, claimBody).grants(3, events.CauseAfterRelease)
}

// Scenario 2: a lapse forgets nothing, whatever happens to other works.
func TestScenarioLapse(t *testing.T) {
	second := with(claimBody, "authorityDigest", `" abc "`)
	w := given(t).happened(session.VerbClaim, otherBody).happened(session.VerbRelease, otherBody).happened(session.VerbClaim, second).after(1000 * hour)
	lapsed := w.state
	w.when(session.VerbClaim, with(otherBody, "controllerId", `"c3"`)).grants(3, events.CauseAfterLapse)
	if w.owner().AuthorityDigest != nil {
		t.Errorf("the next owner inherited the digest %s", *w.owner().AuthorityDigest)
	}
	w.state = lapsed
	w.when(session.VerbClaim, claimBody).renews(2)
	if w.owner().Digest() != "abc" || *w.owner().AuthorityDigest != "abc" {
		t.Errorf("the last owner has digest %q", w.owner().Digest())
	}
}

// Scenario 3 and 4: a paused holder is fenced by the one that recovered; a
// renewal that lands first makes the recovery lose.
func TestScenarioPausedHolder(t *testing.T) {
	recovery := with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")
	w := given(t).happened(session.VerbClaim, claimBody)
	paused := under(w.owner())
	w.after(session.DefaultGraceMs-1).when(session.VerbResume, recovery).fails(events.CodePrincipalMismatch)
	w.after(1).when(session.VerbResume, recovery).grants(2, events.CauseRecovery)
	for _, verb := range []string{session.VerbReleaseWithAuthority, session.VerbRenew, session.VerbTerminalize} {
		w.when(verb, paused).refused(session.ReasonStaleAuthority, "live")
	}
	o := w.when(session.VerbClaim, claimBody)
	o.fails(events.CodeAlreadyClaimed)
	if e := events.AsError(o.err); e.Details["controllerId"] != "c2" || e.Details["claimGeneration"] != int64(2) || e.Details["leaseExpiresAt"] == nil {
		t.Errorf("the refusal does not name holder, generation and lease end: %v", e.Details)
	}
	w.when(session.VerbResume, claimBody).fails(events.CodePrincipalMismatch)
	w.when(session.VerbBind, claimBody).fails(events.CodeOwnerMismatch)

	w = given(t).happened(session.VerbClaim, claimBody).after(session.DefaultGraceMs)
	w.happened(session.VerbRenew, under(w.owner()))
	w.when(session.VerbResume, recovery).fails(events.CodePrincipalMismatch)

	// The generation that was read is the fence: a takeover in between makes it stale.
	w = given(t).happened(session.VerbClaim, claimBody).after(session.DefaultGraceMs).happened(session.VerbResume, recovery).after(session.DefaultGraceMs)
	w.when(session.VerbResume, with(recovery, "controllerId", `"c3"`)).fails(events.CodeClaimGenerationMismatch)
}

// The evidence of a decision is what it relied on beyond the work.
func TestEvidence(t *testing.T) {
	x := &events.Execution{SessionID: "s1", ActiveWorkID: ptr("w2")}
	w := given(t).happened(session.VerbClaim, claimBody)
	w.executions["s1"] = x
	o := w.when(session.VerbResume, with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1"))
	o.grants(2, events.CauseRecovery)
	e := o.Events[0].(events.ClaimGranted).Evidence
	if e == nil || e.Execution == nil || *e.Execution.ActiveWorkID != "w2" || e.GraceMs == nil || *e.GraceMs != session.DefaultGraceMs || *e.ExpectedGeneration != 1 {
		t.Errorf("a recovery quotes %s", asText(e))
	}
	// Nothing was relied on: nothing is quoted.
	if e := given(t).when(session.VerbClaim, claimBody).Events[0].(events.ClaimGranted).Evidence; e != nil {
		t.Errorf("a first claim quotes %s", asText(e))
	}
	// An owner without principal: that of its transport session was relied on.
	w = given(t).happened(session.VerbClaim, with(claimBody, "principalId", ""))
	w.executions["s1"] = &events.Execution{SessionID: "s1", PrincipalID: ptr(" p1 ")}
	o = w.when(session.VerbResume, claimBody)
	if e := o.grants(2, events.CauseRuntimeChange).Events[0].(events.ClaimGranted).Evidence; e == nil || e.Execution == nil {
		t.Errorf("a resume by the principal of the transport session quotes %s", asText(e))
	}
	w = given(t).happened(session.VerbClaim, claimBody)
	w.facts.AnnouncedRuntime = "i2"
	o = w.when(session.VerbBind, with(claimBody, "controllerInstanceId", `"i2"`, "currentRuntimeInstanceId", `"i2"`))
	if e := o.grants(2, events.CauseRuntimeChange).Events[0].(events.ClaimGranted).Evidence; e == nil || e.Runtime != "i2" || !e.RuntimeAnnounced {
		t.Errorf("a runtime change quotes %s", asText(e))
	}
}

// Scenario 5: the same controller and transport session with another identity.
func TestScenarioIdentityTakeover(t *testing.T) {
	for _, c := range []struct {
		field, value string
		code         events.Code
	}{
		{"principalId", `"p2"`, events.CodePrincipalMismatch},
		{"principalId", "", events.CodePrincipalMismatch}, // then c1 is the principal
		{"controllerType", `"claude"`, events.CodeTypeMismatch},
		{"controllerType", "", events.CodeTypeMismatch},
		{"controllerInstanceId", `"i2"`, events.CodeInstanceMismatch},
		{"controllerInstanceId", "", events.CodeInstanceMismatch},
		{"controllerId", `"c2"`, events.CodeAlreadyClaimed},
		{"sessionId", `"s2"`, events.CodeAlreadyClaimed},
	} {
		w := given(t).happened(session.VerbClaim, claimBody).after(1000)
		w.when(session.VerbClaim, with(claimBody, c.field, c.value)).fails(c.code)
		if w.owner().Gen() != 1 || w.owner().LeaseExpiresAt != begin.Add(hour) {
			t.Errorf("%s = %s changed the owner: %s", c.field, c.value, asText(w.owner()))
		}
	}
}

// Scenario 6: rebinds of one owner keep generation and capability.
func TestScenarioRotationStorm(t *testing.T) {
	digest, err := session.AuthorityDigest("ctrl_secret")
	if err != nil {
		t.Fatal(err)
	}
	w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(digest)))
	for i := range 50 {
		w.after(1).when(session.VerbBind, with(claimBody, "sessionId", quote(strings.Repeat("s", i+2)))).renews(1)
	}
	if !session.AuthorityMatches(w.owner(), "ctrl_secret") {
		t.Error("the capability no longer matches")
	}
}

// Scenario 7: a runtime is replaced while the old one still sends.
func TestScenarioRuntimeRotation(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(digest)))
	bind := func(instance, current string) string {
		return with(claimBody, "controllerInstanceId", quote(instance), "currentRuntimeInstanceId", quote(current))
	}
	// Nothing announced: the body counts.
	w.when(session.VerbBind, bind("i2", "i3")).fails(events.CodeInstanceMismatch, "controllerInstanceId")
	w.when(session.VerbBind, bind("i2", " ")).fails(events.CodeInstanceMismatch)
	w.facts.AnnouncedRuntime = "i2"
	// i3 is not the announced one, even if it says so of itself.
	w.when(session.VerbBind, bind("i3", "i3")).fails(events.CodeInstanceMismatch)
	// i2 does not become current by silence.
	w.when(session.VerbBind, with(claimBody, "controllerInstanceId", `"i2"`)).fails(events.CodeInstanceMismatch)
	w.when(session.VerbBind, bind(" i2 ", " i2 ")).grants(2, events.CauseRuntimeChange)
	if w.owner().Digest() != digest {
		t.Errorf("the digest became %q", w.owner().Digest())
	}
	// Late binds of i1, which names itself or nobody current.
	w.when(session.VerbBind, bind("i1", "i1")).fails(events.CodeInstanceMismatch)
	w.when(session.VerbBind, bind("i1", "i2")).fails(events.CodeInstanceMismatch)
	w.when(session.VerbBind, claimBody).fails(events.CodeInstanceMismatch)
	w.when(session.VerbBind, bind("i2", "i1")).unchanged()
	if w.owner().Gen() != 2 {
		t.Errorf("generation %d", w.owner().Gen())
	}
}

// Scenario 8, as far as it is decided here: the clock of the boundary is the
// greater of clock and last commit; a shorter lease may shorten, a clock cannot.
func TestLeaseEnds(t *testing.T) {
	w := given(t).happened(session.VerbClaim, claimBody)
	if w.owner().LeaseExpiresAt != begin.Add(hour) || w.owner().ClaimedAt != begin {
		t.Errorf("the default lease is %s", asText(w.owner()))
	}
	w.after(hour-1).when(session.VerbClaim, otherBody).fails(events.CodeAlreadyClaimed)
	w.after(1).when(session.VerbRenew, under(w.owner())).refused(session.ReasonClaimMissing, "") // the end is exclusive
	w = given(t).happened(session.VerbClaim, claimBody).happened(session.VerbClaim, with(claimBody, "leaseMs", "1000"))
	if w.owner().LeaseExpiresAt != begin.Add(1000) {
		t.Errorf("a shorter renewal gives %s", asText(w.owner()))
	}
}

func TestLeases(t *testing.T) {
	for lease, want := range map[string]int64{
		"": hour, "null": hour, "1000": 1000, "1000.0": 1000, "1e3": 1000, "1001": 1001, "3600000": hour, "3600001": hour,
		"0": 1000, "-0": 1000, "1": 1000, "999": 1000, "-1": 1000, "-1e30": 1000, "1e30": hour, "9007199254740993": hour,
		"1e9223372036854775807": hour, "-1e9223372036854775807": 1000, "123456789012345678901234567890": hour, "1.5e30": hour,
	} {
		for _, verb := range []string{session.VerbClaim, session.VerbResume, session.VerbBind} {
			w := given(t).happened(verb, with(claimBody, "leaseMs", lease, "allowClaimIfMissing", "true"))
			if got := int64(w.owner().LeaseExpiresAt - begin); got != want {
				t.Errorf("%s: lease %s became %d, want %d", verb, lease, got, want)
			}
			w.after(500).happened(session.VerbRenew, under(w.owner(), "leaseMs", lease))
			if got := int64(w.owner().LeaseExpiresAt - w.facts.Now); got != want {
				t.Errorf("renew: lease %s became %d, want %d", lease, got, want)
			}
		}
	}
	for _, bad := range []string{"1000.5", "1e-3", "0.1", `"1000"`, "true", "[]", "{}", "1e-9223372036854775808"} {
		given(t).when(session.VerbClaim, with(claimBody, "leaseMs", bad)).fails(events.CodeBadRequest, "leaseMs")
		w := given(t).happened(session.VerbClaim, claimBody)
		w.when(session.VerbRenew, under(w.owner(), "leaseMs", bad)).fails(events.CodeBadRequest, "leaseMs")
	}
}

// An imported claim keeps its own lease, however long; the next claim has an
// ordinary one.
func TestImportedLeaseIsNotClamped(t *testing.T) {
	w := given(t).imported(snapshot(with(importedSession, "leaseExpiresAt", `"2999-01-01T00:00:00.000Z"`)))
	w.after(100_000*hour).when(session.VerbClaim, otherBody).fails(events.CodeAlreadyClaimed)
	if live := w.state.Live(w.facts.Now); live == nil || live.LeaseExpiresAt.String() != "2999-01-01T00:00:00.000Z" {
		t.Errorf("the live owner is %s", asText(live))
	}
	w.when(session.VerbRenew, under(w.owner())).appends("claim.renewed")
	if w.owner().LeaseExpiresAt != w.facts.Now.Add(hour) {
		t.Errorf("a renewal gives %s", asText(w.owner()))
	}
}

// Unknown members of an imported claim survive an unchanged bind and a renewal;
// the next claim, resume or renewing bind drops them.
func TestUnknownMembersOfImportedClaims(t *testing.T) {
	const extra = `{"note":{"a":1},"z":null}`
	fresh := func() *work {
		return given(t).imported(snapshot(with(importedSession, "note", `{"a":1.0}`, "z", "null")))
	}
	has := func(o *outcome, want bool) {
		t.Helper()
		if o.err != nil || o.Refused {
			t.Fatalf("%s: %v %s", o.what, o.err, asText(o.Result))
		}
		if got := string(o.w.owner().Extra); (got == extra) != want || !want && got != "" {
			t.Errorf("%s: the owner has %q", o.what, got)
		}
		if strings.Contains(asText(o.Result), `"note":{"a":1},"z":null`) != want {
			t.Errorf("%s: the result is %s", o.what, asText(o.Result))
		}
	}
	has(fresh().when(session.VerbBind, claimBody).unchanged(), true)
	w := fresh()
	has(w.when(session.VerbRenew, under(w.owner())), true)
	has(w.when(session.VerbReleaseWithAuthority, under(w.owner())), true)
	has(fresh().when(session.VerbClaim, claimBody), false)
	has(fresh().when(session.VerbResume, claimBody), false)
	has(fresh().when(session.VerbBind, with(claimBody, "sessionId", `"s2"`)), false)
	w = fresh()
	got, err := session.Get(w.state, w.facts.Now)
	if err != nil || !strings.Contains(asText(got), `"z":null`) {
		t.Errorf("get shows %s, %v", asText(got), err)
	}
}

// Digests are kept trimmed, compared trimmed, and inherited trimmed.
func TestDigests(t *testing.T) {
	digest, _ := session.AuthorityDigest("ctrl_x")
	w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(" "+digest+"\n")))
	if *w.owner().AuthorityDigest != digest {
		t.Errorf("stored as %q", *w.owner().AuthorityDigest)
	}
	w.when(session.VerbBind, with(claimBody, "authorityDigest", quote("\t"+digest))).unchanged()
	w.when(session.VerbBind, with(claimBody, "authorityDigest", `" "`)).unchanged()
	w.when(session.VerbBind, with(claimBody, "authorityDigest", `"another"`)).renews(1)
	// An imported digest stays padded, matches trimmed, and is inherited trimmed.
	w = given(t).imported(snapshot(with(importedSession, "authorityDigest", quote(" "+strings.ToUpper(digest)+" "))))
	if !session.AuthorityMatches(w.owner(), " ctrl_x ") {
		t.Error("a padded stored digest does not match")
	}
	if *w.owner().AuthorityDigest != " "+strings.ToUpper(digest)+" " {
		t.Errorf("stored as %q", *w.owner().AuthorityDigest)
	}
	w.when(session.VerbClaim, claimBody).renews(1)
	if *w.owner().AuthorityDigest != strings.ToUpper(digest) {
		t.Errorf("inherited as %q", *w.owner().AuthorityDigest)
	}
	// A blank imported one is none.
	w = given(t).imported(snapshot(with(importedSession, "authorityDigest", `"  "`))).happened(session.VerbClaim, claimBody)
	if w.owner().AuthorityDigest != nil {
		t.Errorf("inherited as %q", *w.owner().AuthorityDigest)
	}
	// Digests that are no hex SHA-256 never match.
	for _, odd := range []string{"", " ", "zz", strings.Repeat("z", 64), digest[:63], digest + "0", "é" + digest[2:]} {
		w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(odd)))
		if session.AuthorityMatches(w.owner(), "ctrl_x") || session.AuthorityMatches(w.owner(), odd) || session.AuthorityMatches(w.owner(), "") {
			t.Errorf("digest %q matches", odd)
		}
	}
}

// Imported principal, instance and digest are compared trimmed.
func TestPaddedImportedIdentity(t *testing.T) {
	w := given(t).imported(snapshot(with(importedSession, "principalId", `" p1 "`, "controllerInstanceId", `"\ti1"`)))
	if *w.owner().PrincipalID != " p1 " || *w.owner().ControllerInstanceID != "\ti1" {
		t.Errorf("stored as %s", asText(w.owner()))
	}
	w.when(session.VerbBind, claimBody).unchanged()
	w.when(session.VerbRenew, underBody).appends("claim.renewed")
	w.when(session.VerbClaim, claimBody).renews(1)
	if *w.owner().PrincipalID != "p1" || *w.owner().ControllerInstanceID != "i1" {
		t.Errorf("claimed as %s", asText(w.owner()))
	}
	// A blank one is none: the controller is the principal.
	w = given(t).imported(snapshot(with(importedSession, "principalId", `" "`, "controllerInstanceId", `""`)))
	w.when(session.VerbClaim, with(claimBody, "principalId", "", "controllerInstanceId", "")).renews(1)
}

// Ids of works, of transport sessions and of facts about them are trimmed, as the
// rules that no vector tests have it.
func TestFactsAreTrimmed(t *testing.T) {
	w := given(t).happened(session.VerbSetState, `{"workId":" w1\n","state":" done ","reason":" r "}`)
	if w.state.Work != "done" {
		t.Fatalf("the work is %q", w.state.Work)
	}
	w.when(session.VerbClaim, with(claimBody, "workId", `"\tw1 "`)).fails(events.CodeClaimTerminal)

	w = given(t).happened(session.VerbClaim, with(claimBody, "sessionId", `" s1 "`)).after(session.DefaultGraceMs)
	x, err := session.ParseExecution("s1", parseBody(t, `{"activeWorkId":" w1 ","updatedAt":" 2026-01-01T00:05:00.000Z "}`))
	if err != nil {
		t.Fatal(err)
	}
	w.executions[w.state.OwnerSession(w.facts.Now)] = x
	w.when(session.VerbResume, with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")).fails(events.CodePrincipalMismatch)
	x.ActiveWorkID = ptr(" w2 ")
	w.when(session.VerbResume, with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")).grants(2, events.CauseRecovery)
}

// The orders of the checks: whatever is listed first decides.
func TestOrderOfChecks(t *testing.T) {
	quarantined := func() *work {
		w := given(t).happened(session.VerbClaim, otherBody).happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`)
		return w.imported(snapshot(with(importedSession, "claimGeneration", "9")))
	}
	const stale = "7"
	bad := with(claimBody, "expectedClaimGeneration", stale, "leaseMs", `"x"`)
	quarantined().when(session.VerbClaim, with(bad, "sessionId", `" "`)).fails(events.CodeIdentityRequired, "sessionId")
	quarantined().when(session.VerbClaim, bad).fails(events.CodeClaimTerminal) // claim: the state of the work first
	quarantined().when(session.VerbResume, with(bad, "principalId", `" "`)).fails(events.CodeResumeAuthorityRequired)
	quarantined().when(session.VerbResume, bad).fails(events.CodeSessionIDCollision) // resume: readable first
	quarantined().when(session.VerbBind, with(bad, "principalId", "")).fails(events.CodeSessionIDCollision)

	terminal := func() *work {
		return given(t).happened(session.VerbClaim, otherBody).happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`)
	}
	terminal().when(session.VerbResume, bad).fails(events.CodeClaimTerminal)
	terminal().when(session.VerbBind, bad).fails(events.CodeOwnerMismatch)

	live := func() *work { return given(t).happened(session.VerbClaim, otherBody) }
	live().when(session.VerbClaim, bad).fails(events.CodeClaimGenerationMismatch)
	live().when(session.VerbResume, bad).fails(events.CodeClaimGenerationMismatch)
	live().when(session.VerbClaim, with(bad, "expectedClaimGeneration", "1")).fails(events.CodeAlreadyClaimed)
	live().when(session.VerbResume, with(bad, "expectedClaimGeneration", "1")).fails(events.CodePrincipalMismatch)
	live().when(session.VerbResume, with(bad, "expectedClaimGeneration", "1", "principalId", `"p2"`)).fails(events.CodeAlreadyClaimed)
	live().when(session.VerbResume, with(bad, "expectedClaimGeneration", "1", "principalId", `"p2"`, "controllerId", `"c2"`)).fails(events.CodeTypeMismatch)
	// Only then what has the wrong type and belongs to no check.
	live().when(session.VerbClaim, with(otherBody, "leaseMs", `"x"`)).fails(events.CodeBadRequest, "leaseMs")

	// bind: owner, type, principal, instance; then unchanged, or resume with its checks.
	b := with(claimBody, "controllerType", `"t"`)
	live().when(session.VerbBind, b).fails(events.CodeOwnerMismatch)
	live().when(session.VerbBind, with(b, "controllerId", `"c2"`)).fails(events.CodeTypeMismatch)
	live().when(session.VerbBind, with(b, "controllerId", `"c2"`, "controllerType", `"claude"`)).fails(events.CodePrincipalMismatch)
	live().when(session.VerbBind, with(otherBody, "controllerInstanceId", `"i1"`)).fails(events.CodeInstanceMismatch)
	terminal().when(session.VerbBind, with(otherBody, "expectedClaimGeneration", stale)).unchanged()
	terminal().when(session.VerbBind, with(otherBody, "sessionId", `"s3"`)).fails(events.CodeClaimTerminal)
	live().when(session.VerbBind, with(otherBody, "sessionId", `"s3"`, "expectedClaimGeneration", stale)).renews(1)
	given(t).when(session.VerbBind, with(claimBody, "allowClaimIfMissing", "true", "expectedClaimGeneration", stale)).grants(1, events.CauseFirst)
	given(t).when(session.VerbBind, claimBody).fails(events.CodeOwnerRequired)

	// A bind without principal cannot be let through by its controller.
	given(t).happened(session.VerbClaim, with(claimBody, "principalId", "")).when(session.VerbBind, with(claimBody, "principalId", "")).fails(events.CodePrincipalMismatch)
	given(t).happened(session.VerbClaim, with(claimBody, "principalId", "", "controllerInstanceId", "")).
		when(session.VerbBind, with(claimBody, "principalId", `"c1"`, "controllerInstanceId", "", "sessionId", `"s2"`)).fails(events.CodeResumeAuthorityRequired)
}

func ptr[T any](v T) *T { return &v }
