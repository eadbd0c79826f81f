package session_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// wrong are values of the wrong JSON type for a field of a kind.
var wrong = map[string][]string{
	"text":    {`7`, `1.5`, `true`, `[]`, `["x"]`, `{}`, `{"x":1}`},
	"integer": {`"1"`, `""`, `1.5`, `1e-1`, `true`, `[]`, `[1]`, `{}`, `9007199254740992`, `-1e30`, `1e9223372036854775807`},
	"millis":  {`"1000"`, `1000.5`, `false`, `[]`, `{}`},
	"bool":    {`"true"`, `1`, `0`, `[]`, `{}`, `""`},
	"object":  {`"x"`, `7`, `true`, `[]`, `[{}]`, `{"a":1,"a":2}`},
}

// A wrong type of a field is the failure of the check that the field belongs to,
// at its place in the order; of a field that no check owns, FORGE_BAD_REQUEST
// with the field, after all checks.
func TestWrongTypes(t *testing.T) {
	none := func() *work { return given(t) }
	live := func() *work { return given(t).happened(session.VerbClaim, claimBody).after(1000) }
	bindMissing := with(claimBody, "allowClaimIfMissing", "true")
	rotate := with(claimBody, "controllerInstanceId", `"i2"`, "currentRuntimeInstanceId", `"i2"`)
	recover := with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")
	const (
		bad     = events.CodeBadRequest
		blank   = events.CodeIdentityRequired
		stale   = events.Code(session.ReasonStaleAuthority) // a refused fence
		missing = events.Code(session.ReasonClaimMissing)
	)
	for _, c := range []struct {
		verb, body string
		given      func() *work
		fields     []string // name, kind, code
	}{
		{session.VerbClaim, claimBody, none, []string{
			"workId", "text", string(blank), "controllerId", "text", string(blank), "sessionId", "text", string(blank),
			"controllerType", "text", string(bad), "principalId", "text", string(bad), "controllerInstanceId", "text", string(bad),
			"authorityDigest", "text", string(bad), "expectedClaimGeneration", "integer", string(events.CodeClaimGenerationMismatch),
			"leaseMs", "millis", string(bad), "allowStaleRecovery", "bool", string(bad), "actor", "text", string(bad),
		}},
		{session.VerbClaim, claimBody, live, []string{
			"controllerType", "text", string(events.CodeTypeMismatch), "principalId", "text", string(events.CodePrincipalMismatch),
			"controllerInstanceId", "text", string(events.CodeInstanceMismatch), "authorityDigest", "text", string(bad),
			"expectedClaimGeneration", "integer", string(events.CodeClaimGenerationMismatch), "leaseMs", "millis", string(bad),
		}},
		{session.VerbResume, claimBody, none, []string{
			"workId", "text", string(blank), "controllerId", "text", string(blank), "sessionId", "text", string(blank),
			"principalId", "text", string(events.CodeResumeAuthorityRequired), "controllerInstanceId", "text", string(events.CodeResumeAuthorityRequired),
			"controllerType", "text", string(bad), "authorityDigest", "text", string(bad), "leaseMs", "millis", string(bad),
			"expectedClaimGeneration", "integer", string(events.CodeClaimGenerationMismatch), "allowStaleRecovery", "bool", string(bad),
		}},
		{session.VerbResume, claimBody, live, []string{
			"controllerType", "text", string(events.CodeTypeMismatch), "expectedClaimGeneration", "integer", string(events.CodeClaimGenerationMismatch),
			"leaseMs", "millis", string(bad), "allowStaleRecovery", "bool", string(bad),
		}},
		{session.VerbResume, recover, func() *work { return live().after(session.DefaultGraceMs) }, []string{
			"allowStaleRecovery", "bool", string(events.CodePrincipalMismatch), "controllerType", "text", string(bad),
		}},
		{session.VerbBind, bindMissing, none, []string{
			"workId", "text", string(blank), "controllerId", "text", string(blank), "sessionId", "text", string(blank),
			"allowClaimIfMissing", "bool", string(events.CodeOwnerRequired), "principalId", "text", string(bad), "controllerInstanceId", "text", string(bad),
			"controllerType", "text", string(bad), "expectedClaimGeneration", "integer", string(bad), "currentRuntimeInstanceId", "text", string(bad),
		}},
		{session.VerbBind, claimBody, live, []string{ // unchanged, were it well-formed
			"controllerType", "text", string(events.CodeTypeMismatch), "principalId", "text", string(events.CodePrincipalMismatch),
			"controllerInstanceId", "text", string(events.CodeInstanceMismatch), "authorityDigest", "text", string(bad), "leaseMs", "millis", string(bad),
			"expectedClaimGeneration", "integer", string(bad), "currentRuntimeInstanceId", "text", string(bad), "allowClaimIfMissing", "bool", string(bad),
			"allowStaleRecovery", "bool", string(bad), "actor", "text", string(bad),
		}},
		{session.VerbBind, rotate, live, []string{"currentRuntimeInstanceId", "text", string(events.CodeInstanceMismatch), "leaseMs", "millis", string(bad)}},
		{session.VerbRenew, underBody, live, []string{
			"workId", "text", string(blank), "authority", "object", string(blank), "leaseMs", "millis", string(bad), "authorityId", "text", string(bad),
			"actor", "text", string(bad),
		}},
		{session.VerbRenew, underBody, none, []string{"workId", "text", string(blank), "authority", "object", string(blank), "leaseMs", "millis", string(missing)}},
		{session.VerbRelease, `{"workId":"w1","controllerId":"c1"}`, live, []string{"workId", "text", string(bad), "controllerId", "text", string(bad), "actor", "text", string(bad)}},
		{session.VerbReleaseWithAuthority, underBody, live, []string{
			"workId", "text", string(missing), "authority", "object", string(stale), "authorityId", "text", string(bad), "actor", "text", string(bad),
		}},
		{session.VerbReleaseWithAuthority, underBody, none, []string{"authority", "object", string(missing)}},
		{session.VerbReleaseObserved, `{"workId":"w1","owner":` + importedSession + `}`, live, []string{
			"workId", "text", string(missing), "owner", "object", string(stale), "actor", "text", string(bad),
		}},
		{session.VerbTerminalize, with(underBody, "state", `"done"`), live, []string{
			"workId", "text", string(missing), "authority", "object", string(stale), "state", "text", string(bad), "release", "bool", string(bad),
			"authorityId", "text", string(bad), "actor", "text", string(bad),
		}},
		{session.VerbTerminalize, `{"workId":"w1","state":"done"}`, none, []string{
			"workId", "text", string(bad), "authority", "object", string(missing), "state", "text", string(bad), "release", "bool", string(bad),
		}},
		{session.VerbForceRelease, `{"workId":"w1","reason":"r"}`, live, []string{
			"workId", "text", string(events.CodeIDInvalid), "reason", "text", string(events.CodeReasonRequired), "actor", "text", string(bad),
		}},
		{session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`, live, []string{
			"workId", "text", string(events.CodeIDInvalid), "state", "text", string(bad), "reason", "text", string(events.CodeReasonRequired),
		}},
		{session.VerbResolveImport, `{"workId":"w1","keep":"current","reason":"r"}`, live, []string{
			"workId", "text", string(events.CodeIDInvalid), "keep", "text", string(bad), "reason", "text", string(events.CodeReasonRequired),
		}},
	} {
		// As it is, the body is accepted, or refused for want of an owner.
		if o := c.given().when(c.verb, c.body); o.err != nil {
			t.Errorf("%s %s: %v", c.verb, c.body, o.err)
		}
		for i := 0; i < len(c.fields); i += 3 {
			name, kind, want := c.fields[i], c.fields[i+1], events.Code(c.fields[i+2])
			for _, value := range wrong[kind] {
				w := c.given()
				was := asText(w.state.Owner)
				o := w.when(c.verb, with(c.body, name, value))
				switch {
				case want == stale || want == missing:
					if fence, _ := o.Result.(session.Fence); !o.Refused || fence.Reason != string(want) {
						t.Errorf("%s with %s = %s: %v %s, want refused %s", c.verb, name, value, o.err, asText(o.Result), want)
					}
				case events.CodeOf(o.err) != want:
					t.Errorf("%s with %s = %s: %v %s, want %s", c.verb, name, value, o.err, asText(o.Result), want)
				case want == bad && events.AsError(o.err).Details["field"] != name:
					t.Errorf("%s with %s = %s: %v names field %v", c.verb, name, value, o.err, events.AsError(o.err).Details["field"])
				}
				if asText(w.state.Owner) != was {
					t.Errorf("%s with %s = %s changed the owner", c.verb, name, value)
				}
				// A check that stands before the one of the field decides first.
				if want != blank && strings.HasPrefix(c.verb, "work.") && c.verb != session.VerbReleaseObserved && c.verb != session.VerbSetState && c.verb != session.VerbResolveImport &&
					want != events.CodeResumeAuthorityRequired && want != events.CodeReasonRequired && want != events.CodeIDInvalid && name != "workId" {
					q := given(t).happened(session.VerbClaim, otherBody).imported(snapshot(with(importedSession, "claimGeneration", "9")))
					q.when(c.verb, with(c.body, name, value)).fails(events.CodeSessionIDCollision)
				}
			}
			// null is absent.
			with1, with2 := c.given(), c.given()
			a, b := with1.when(c.verb, with(c.body, name, "null")), with2.when(c.verb, with(c.body, name, ""))
			if fmt.Sprint(a.err) != fmt.Sprint(b.err) || asText(a.Result) != asText(b.Result) || asText(a.Events) != asText(b.Events) {
				t.Errorf("%s with %s = null: %v %s, without it %v %s", c.verb, name, a.err, asText(a.Result), b.err, asText(b.Result))
			}
		}
	}
}

// Scenario 10: odd ids give one owner and a literal subject, or a typed error.
func TestOddIDs(t *testing.T) {
	long := strings.Repeat("x", events.MaxID)
	for id, stored := range map[string]string{
		"w1": "w1", " w1": "w1", "w1\n": "w1", "\t w1 \r\n": "w1", "\u00a0w1": "w1", "*": "*", ">": ">", "a.b": "a.b", "a b": "a b", "$JS.API.>": "$JS.API.>",
		"日本": "日本", "é": "é", "e\u0301": "e\u0301", "\u202ew1": "\u202ew1", long: long, " " + long + " ": long, strings.Repeat("é", 256): strings.Repeat("é", 256),
	} {
		w := givenWork(t, stored)
		o := w.when(session.VerbClaim, with(claimBody, "workId", quote(id), "controllerId", quote(id), "sessionId", quote(id), "principalId", quote(id), "controllerInstanceId", quote(id)))
		o.grants(1, events.CauseFirst)
		s := w.owner()
		if s.WorkID != stored || s.ControllerID != stored || s.SessionID != stored || *s.PrincipalID != stored || *s.ControllerInstanceID != stored {
			t.Errorf("%.20q is stored as %.100s", id, asText(s))
		}
		if subject := events.WorkSubject("main", s.WorkID); strings.Count(subject, ".") != 4 || strings.ContainsAny(subject, "*> ") {
			t.Errorf("%.20q has the subject %s", id, subject)
		}
		w.when(session.VerbRenew, under(s)).appends("claim.renewed")
		w.when(session.VerbReleaseWithAuthority, under(s)).appends("claim.released")
	}
	fields := map[string][]string{
		session.VerbClaim:  {"workId", "controllerId", "sessionId", "principalId", "controllerInstanceId"},
		session.VerbResume: {"workId", "controllerId", "sessionId", "principalId", "controllerInstanceId"},
		session.VerbBind:   {"workId", "controllerId", "sessionId", "principalId", "controllerInstanceId"},
		session.VerbRenew:  {"workId"}, session.VerbRelease: {"workId"}, session.VerbReleaseWithAuthority: {"workId"}, session.VerbReleaseObserved: {"workId"},
		session.VerbTerminalize: {"workId"}, session.VerbForceRelease: {"workId"}, session.VerbSetState: {"workId"}, session.VerbResolveImport: {"workId"},
	}
	for verb, names := range fields {
		body := with(claimBody, "authority", `{"controllerId":"c1"}`, "reason", `"r"`, "keep", `"current"`, "state", `"done"`)
		for _, name := range names {
			for _, id := range []string{long + "x", strings.Repeat("é", 257), strings.Repeat("x", 10_000), "a\x00b", "a\nb", "a\tb", "\x7f", "a\u0085b", "\x01"} {
				given(t).when(verb, with(body, name, quote(id))).fails(events.CodeIDInvalid, name)
			}
		}
	}
	// The blank checks come first.
	given(t).when(session.VerbClaim, with(claimBody, "workId", quote(long+"x"), "sessionId", `" "`)).fails(events.CodeIdentityRequired, "sessionId")
}

// The principal rule: p is the trimmed principalId of the body, or if blank its
// controllerId; of a command with an authority, the principal of that.
func TestPrincipalRule(t *testing.T) {
	long := strings.Repeat("p", 65)
	for _, c := range []struct {
		principal, controller, token string
		ok                           bool
	}{
		{`"p1"`, `"c1"`, "p1", true},
		{`" p1\n"`, `"c1"`, "p1", true},
		{`"p1"`, `"c1"`, "c1", false},
		{`"p1"`, `"c1"`, "P1", false},
		{`"p1"`, `"c1"`, "p2", false},
		{`""`, `"c1"`, "c1", true},
		{`" "`, `" c1 "`, "c1", true},
		{`null`, `"c1"`, "c1", true},
		{``, `"c1"`, "c1", true},
		{``, `"c1"`, "p1", false},
		{`"a.b"`, `"c1"`, events.Token("a.b"), true},
		{`"a.b"`, `"c1"`, "a.b", false},
		{`"*"`, `"c1"`, "=Kg", true},
		{quote(long), `"c1"`, events.Token(long), true},
		{quote(long), `"c1"`, long, false},
		{`7`, `"c1"`, "c1", false},
		{`{}`, `"c1"`, "p1", false},
		{`"p1"`, `"c1"`, "", true}, // nobody to compare with: a library call
	} {
		for _, verb := range []string{session.VerbClaim, session.VerbResume, session.VerbBind} {
			body := with(claimBody, "principalId", c.principal, "controllerId", c.controller, "allowClaimIfMissing", "true")
			w := given(t)
			w.facts.Caller = session.Caller{Token: c.token}
			o := w.when(verb, body)
			if failed := events.CodeOf(o.err) == events.CodeCallerMismatch; failed == c.ok {
				t.Errorf("%s by %q with principal %s, controller %s: %v", verb, c.token, c.principal, c.controller, o.err)
			}
			// An operator is not compared.
			w.facts.Caller = session.Caller{Token: "op", Operator: true}
			if o := w.when(verb, body); events.CodeOf(o.err) == events.CodeCallerMismatch {
				t.Errorf("%s by an operator: %v", verb, o.err)
			}
		}
	}
	for _, c := range []struct {
		principal, token string
		ok               bool
	}{
		{`"p1"`, "p1", true},
		{`" p1 "`, "p1", true},
		{`"p1"`, "c1", false},
		{`"p1"`, "p2", false},
		{`""`, "p2", true}, // no principal: compared with nobody, and it matches no owner
		{`null`, "c1", true},
		{`7`, "p1", false},
	} {
		for _, verb := range []string{session.VerbRenew, session.VerbReleaseWithAuthority, session.VerbTerminalize} {
			w := given(t).happened(session.VerbClaim, claimBody)
			w.facts.Caller = session.Caller{Token: c.token}
			// The principal beside the authority is not the one that counts.
			body := with(`{"workId":"w1","state":"done","principalId":"x","controllerId":"x"}`, "authority",
				with(`{"controllerId":"c1","controllerType":"codex","controllerInstanceId":"i1","claimGeneration":1}`, "principalId", c.principal))
			o := w.when(verb, body)
			if failed := events.CodeOf(o.err) == events.CodeCallerMismatch; failed == c.ok {
				t.Errorf("%s by %q under principal %s: %v", verb, c.token, c.principal, o.err)
			}
			if o.err == nil && o.Refused != (c.principal == `""` || c.principal == "null") {
				t.Errorf("%s by %q under principal %s: %s", verb, c.token, c.principal, asText(o.Result))
			}
		}
	}
	// After the blank checks and before everything else.
	w := given(t).happened(session.VerbClaim, otherBody).happened(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`).
		imported(snapshot(with(importedSession, "claimGeneration", "9")))
	w.facts.Caller = session.Caller{Token: "p9"}
	for _, verb := range []string{session.VerbClaim, session.VerbResume, session.VerbBind} {
		w.when(verb, with(claimBody, "workId", `" "`)).fails(events.CodeIdentityRequired)
		w.when(verb, with(claimBody, "expectedClaimGeneration", "7")).fails(events.CodeCallerMismatch)
	}
	w.when(session.VerbRenew, `{"workId":"w1"}`).fails(events.CodeIdentityRequired)
	for _, verb := range []string{session.VerbRenew, session.VerbReleaseWithAuthority, session.VerbTerminalize} {
		w.when(verb, with(underBody, "state", "7")).fails(events.CodeCallerMismatch)
	}
	// A resume without a principal is compared by its controller, first.
	w.when(session.VerbResume, with(claimBody, "principalId", "")).fails(events.CodeCallerMismatch)
	// The operator verbs compare nobody.
	w = given(t).happened(session.VerbClaim, claimBody)
	w.facts.Caller = session.Caller{Token: "somebody", Operator: true}
	w.when(session.VerbReleaseObserved, `{"workId":"w1","owner":`+importedSession+`}`).appends("claim.released")
	w.when(session.VerbTerminalize, `{"workId":"w1","state":"done"}`).appends("work.state-set")
}

func TestRequireCapability(t *testing.T) {
	digest, _ := session.AuthorityDigest("ctrl_x")
	held := func() *work {
		w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(digest)))
		w.facts.RequireCapability = true
		return w
	}
	shown := func(id string) string { return with(underBody, "state", `"done"`, "authorityId", id) }
	for _, verb := range []string{session.VerbRenew, session.VerbReleaseWithAuthority, session.VerbTerminalize} {
		for _, none := range []string{"", "null", `""`, `" "`, "7", "[]"} {
			held().when(verb, shown(none)).fails(events.CodeAuthorityRequired, "authorityId")
		}
		held().when(verb, shown(`"ctrl_y"`)).refused(session.ReasonStaleAuthority, "live")
		held().when(verb, shown(quote(digest))).refused(session.ReasonStaleAuthority, "live")
		if o := held().when(verb, shown(`" ctrl_x\n"`)); o.err != nil || o.Refused {
			t.Errorf("%s with the capability: %v %s", verb, o.err, asText(o.Result))
		}
		// The capability alone is no authority.
		held().when(verb, with(shown(`"ctrl_x"`), "authority", `{"controllerId":"c1","principalId":"p1"}`)).refused(session.ReasonStaleAuthority, "live")
		// An owner that is bound to none is matched by none.
		w := given(t).happened(session.VerbClaim, claimBody)
		w.facts.RequireCapability = true
		w.when(verb, shown(`"ctrl_x"`)).refused(session.ReasonStaleAuthority, "live")
		// Without an owner there is nothing to show it for.
		w = given(t)
		w.facts.RequireCapability = true
		w.when(verb, shown("")).refused(session.ReasonClaimMissing, "")
		// Not required, it is not looked at.
		w = held()
		w.facts.RequireCapability = false
		if o := w.when(verb, shown(`"ctrl_y"`)); o.err != nil || o.Refused {
			t.Errorf("%s, not required: %v %s", verb, o.err, asText(o.Result))
		}
	}
	// Those who show no authority need none.
	held().when(session.VerbReleaseObserved, `{"workId":"w1","owner":`+importedSession+`}`).appends("claim.released")
	held().when(session.VerbTerminalize, `{"workId":"w1","state":"done"}`).refused(session.ReasonActiveClaim, "live")
	held().when(session.VerbClaim, claimBody).renews(1)
	held().when(session.VerbBind, claimBody).unchanged()
	held().when(session.VerbForceRelease, `{"workId":"w1","reason":"r"}`).appends("claim.released")
}

// Errors name what would help, and no secret.
func TestErrorsHoldNoSecret(t *testing.T) {
	const secret = "ctrl_0123456789abcdef"
	digest, _ := session.AuthorityDigest(secret)
	w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(digest)))
	w.facts.RequireCapability = true
	for _, c := range [][2]string{
		{session.VerbClaim, otherBody},
		{session.VerbClaim, with(claimBody, "expectedClaimGeneration", "9", "authorityDigest", quote(secret))},
		{session.VerbResume, with(otherBody, "authorityDigest", quote(secret))},
		{session.VerbBind, with(otherBody, "authorityDigest", quote(secret))},
		{session.VerbRenew, with(underBody, "authorityId", `["`+secret+`"]`)},
	} {
		o := w.when(c[0], c[1])
		if o.err == nil {
			t.Errorf("%s %s is accepted", c[0], c[1])
			continue
		}
		text := o.err.Error() + asText(events.AsError(o.err).Details)
		if strings.Contains(text, secret) || strings.Contains(text, digest) {
			t.Errorf("%s: %s", c[0], text)
		}
	}
}

// Pure operations take literals as they are.
func TestLiterals(t *testing.T) {
	if s := session.Literal(nil); s.WorkID != "" || s.Gen() != 0 {
		t.Errorf("nothing is %s", asText(s))
	}
	s := session.Literal(parseBody(t, `{"controllerId":" c1 ","controllerType":7,"principalId":" ","claimGeneration":"1","controllerInstanceId":" i "}`))
	if s.Principal() != " c1 " || s.ControllerType != "" || s.Generation != nil || s.Instance() != "i" {
		t.Errorf("read as %s", asText(s))
	}
	for body, code := range map[string]events.Code{
		`{}`:                           events.CodeInstanceMismatch,
		`{"controllerInstanceId":" "}`: events.CodeInstanceMismatch,
		`{"controllerInstanceId":7}`:   events.CodeInstanceMismatch,
		`{"controllerInstanceId":"i"}`: events.CodeClaimGenerationRequired,
		`{"controllerInstanceId":"i","claimGeneration":0}`:   events.CodeClaimGenerationRequired,
		`{"controllerInstanceId":"i","claimGeneration":-1}`:  events.CodeClaimGenerationRequired,
		`{"controllerInstanceId":"i","claimGeneration":1.5}`: events.CodeClaimGenerationRequired,
		`{"controllerInstanceId":"i","claimGeneration":"1"}`: events.CodeClaimGenerationRequired,
		`{"controllerInstanceId":"i","claimGeneration":1.0}`: "",
	} {
		a, err := session.RequireAuthority(session.Literal(parseBody(t, body)))
		if events.CodeOf(err) != code || (err != nil) != (code != "") || err != nil && a != (session.Authority{}) {
			t.Errorf("%s: %+v, %v; want %s", body, a, err, code)
		}
	}
	var _ aggregate.Field[string] = aggregate.Of("x")
}

// A text that is stored has at most 4 KiB; what is refused changes nothing.
func TestTextsAreBounded(t *testing.T) {
	for _, field := range []string{"controllerType", "authorityDigest", "actor"} {
		for n, want := range map[int]events.Code{4 << 10: "", 4<<10 + 1: events.CodeTooLarge} {
			members := map[string]string{"workId": "w", "controllerId": "c", "sessionId": "s", "controllerType": "codex"}
			members[field] = strings.Repeat("x", n)
			raw, _ := json.Marshal(members)
			body, err := aggregate.ParseBody(raw)
			if err != nil {
				t.Fatal(err)
			}
			c, err := session.Parse(session.VerbClaim, body)
			if err != nil {
				t.Fatal(err)
			}
			d, err := session.Decider{}.Decide(session.State{WorkID: "w"}, c, session.Facts{Now: 1})
			if events.CodeOf(err) != want || want != "" && len(d.Events) > 0 {
				t.Errorf("%s of %d bytes: %v", field, n, err)
			}
		}
	}
}
