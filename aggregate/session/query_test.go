package session_test

import (
	"errors"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// blocks asks blocks-recovery; the numbers are JSON.
func blocks(w *work, nowMs, graceMs string) (bool, error) {
	b, err := aggregate.ParseBody([]byte(with(`{}`, "nowMs", nowMs, "graceMs", graceMs)))
	if err != nil {
		return false, err
	}
	return session.Blocks(w.state, b.Int("nowMs"), b.Millis("graceMs"), func(owner *events.Session) (*events.Execution, error) {
		return w.executions[owner.SessionID], nil
	}, w.facts.Now)
}

func TestBlocksRecovery(t *testing.T) {
	const minute = 60_000
	for name, c := range map[string]struct {
		after          int64
		execution      string
		nowMs, graceMs string
		want           bool
	}{
		"a fresh claim":                            {0, "", "", "", true},
		"within the default grace":                 {session.DefaultGraceMs - 1, "", "", "", true},
		"the end is exclusive":                     {session.DefaultGraceMs, "", "", "", false},
		"a short grace is clamped":                 {minute - 1, "", "", "1", true},
		"a short grace is clamped, end":            {minute, "", "", "1", false},
		"a negative grace":                         {minute - 1, "", "", "-1e30", true},
		"a negative grace, end":                    {minute, "", "", "-5", false},
		"a zero grace, end":                        {minute, "", "", "0", false},
		"a long grace":                             {hour - 1, "", "", "1e30", true},
		"a long grace, as the lease":               {hour - 1, "", "", "9007199254740993", true},
		"null is the default":                      {session.DefaultGraceMs, "", "null", "null", false},
		"activity":                                 {session.DefaultGraceMs, `{"updatedAt":"2026-01-01T00:00:01Z"}`, "", "", true},
		"activity, end":                            {session.DefaultGraceMs + 1000, `{"updatedAt":"2026-01-01T00:00:01Z"}`, "", "", false},
		"the latest activity":                      {session.DefaultGraceMs, `{"updatedAt":"2020-01-01T00:00:00Z","lastValidatedAt":"2026-01-01T00:00:01Z"}`, "", "", true},
		"activity before the claim":                {session.DefaultGraceMs - 1, `{"updatedAt":"2020-01-01T00:00:00Z"}`, "", "", true},
		"activity in the future":                   {10 * minute, `{"updatedAt":"2030-01-01T00:00:00Z"}`, "", "", true},
		"nothing known of the session":             {session.DefaultGraceMs - 1, `{}`, "", "", true},
		"busy with another work":                   {0, `{"activeWorkId":"w2"}`, "", "", false},
		"busy with this work":                      {0, `{"activeWorkId":" w1 "}`, "", "", true},
		"busy with none":                           {0, `{"activeWorkId":" "}`, "", "", true},
		"invalidated, within grace":                {session.DefaultGraceMs - 1, `{"invalidatedAt":"2026-01-01T00:00:00Z","activeWorkId":"w2"}`, "", "", true},
		"invalidated, after grace":                 {session.DefaultGraceMs, `{"invalidatedAt":"2026-01-01T00:00:00Z","updatedAt":"2026-01-01T00:04:00Z"}`, "", "", false},
		"invalidated long ago, a fresh claim":      {0, `{"invalidatedAt":"2020-01-01T00:00:00Z"}`, "", "", false},
		"asked for an earlier time":                {session.DefaultGraceMs, "", "1767225600000", "", true},
		"asked for a later time within the lease":  {0, "", "1767225900000", "", false},
		"asked for the end of the lease":           {0, "", "1767229200000", "", false},
		"asked for the greatest time":              {0, "", "9007199254740991", "", false},
		"asked for the least time":                 {0, "", "-9007199254740991", "", true},
		"a lapsed claim":                           {hour, "", "", "1e30", false},
		"a lapsed claim, asked for before its end": {hour, "", "1767225600001", "1e30", true},
	} {
		w := given(t).happened(session.VerbClaim, claimBody).after(c.after)
		if c.execution != "" {
			x, err := session.ParseExecution("s1", parseBody(t, c.execution))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.executions["s1"] = x
		}
		if got, err := blocks(w, c.nowMs, c.graceMs); err != nil || got != c.want {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
	}
	if got, err := blocks(given(t), "", ""); got || err != nil {
		t.Errorf("nobody's work: %t, %v", got, err)
	}
	w := given(t).happened(session.VerbClaim, claimBody).happened(session.VerbRelease, claimBody)
	if got, err := blocks(w, "", ""); got || err != nil {
		t.Errorf("a released work: %t, %v", got, err)
	}
	// Not knowing is not silence.
	w = given(t).happened(session.VerbClaim, claimBody)
	lost := errors.New("no leader")
	_, err := session.Blocks(w.state, aggregate.Field[int64]{}, aggregate.Field[int64]{}, func(*events.Session) (*events.Execution, error) { return nil, lost }, begin)
	if !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

func TestParseExecution(t *testing.T) {
	x, err := session.ParseExecution("s1", parseBody(t, `{"principalId":" p ","activeWorkId":null,"invalidatedAt":" 2026-01-01T01:00:00+01:00 ","updatedAt":null,"x":1}`))
	if err != nil || *x.PrincipalID != " p " || x.ActiveWorkID != nil || *x.InvalidatedAt != begin || x.UpdatedAt != nil || x.SessionID != "s1" {
		t.Errorf("got %s, %v", asText(x), err)
	}
	for field, values := range map[string][]string{
		"principalId": {`7`, `{}`}, "activeWorkId": {`[]`, `true`},
		"invalidatedAt":   {`""`, `"soon"`, `7`, `"9999-12-31T23:59:59-01:00"`, `"2026-01-01T00:00:00,5Z"`},
		"lastValidatedAt": {`"x"`, `1767225600000`}, "updatedAt": {`"2026-01-01"`, `{}`},
	} {
		for _, v := range values {
			_, err := session.ParseExecution("s1", parseBody(t, with(`{}`, field, v)))
			if events.CodeOf(err) != events.CodeBadRequest || events.AsError(err).Details["field"] != field {
				t.Errorf("%s = %s: %v", field, v, err)
			}
		}
	}
}

func TestGetAndRetained(t *testing.T) {
	ask := func(w *work, wantGet, wantRetained string) {
		t.Helper()
		got, err := session.Get(w.state, w.facts.Now)
		if err != nil || asText(got) != wantGet {
			t.Errorf("get: %s, %v; want %s", asText(got), err, wantGet)
		}
		got, err = session.Retained(w.state)
		if err != nil || asText(got) != wantRetained {
			t.Errorf("retained: %s, %v; want %s", asText(got), err, wantRetained)
		}
	}
	w := given(t)
	ask(w, "null", "null")
	w.happened(session.VerbClaim, claimBody)
	ask(w, importedSession, importedSession)
	w.after(hour - 1)
	ask(w, importedSession, importedSession)
	w.after(1)
	ask(w, "null", importedSession)
	w.happened(session.VerbRelease, claimBody)
	ask(w, "null", importedSession)
	ask(given(t).imported(retainedRecord(importedSession, "")), "null", importedSession)
}

// check asks check-authority.
func check(w *work, body string) (session.Check, error) {
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		return session.Check{}, err
	}
	var expected *session.Expected
	if o := b.Object("expected"); o.Set {
		e := session.ParseExpected(o.Value)
		expected = &e
	}
	return session.CheckAuthority(w.state, w.facts.Now, b.Text("authorityId"), expected)
}

func TestCheckAuthority(t *testing.T) {
	digest, _ := session.AuthorityDigest("ctrl_x")
	w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", quote(digest)))
	const authority = `"authority":{"controllerId":"c1","controllerType":"codex","principalId":"p1","controllerInstanceId":"i1","claimGeneration":1}`
	for body, want := range map[string]string{
		`{}`:                         `{"matches":true,` + authority + `}`,
		`{"authorityId":null}`:       `{"matches":true,` + authority + `}`,
		`{"authorityId":" ctrl_x "}`: `{"matches":true,` + authority + `}`,
		`{"authorityId":"ctrl_y"}`:   `{"matches":false,` + authority + `}`,
		`{"authorityId":""}`:         `{"matches":false,` + authority + `}`,
		`{"authorityId":7}`:          `{"matches":false,` + authority + `}`, // and FORGE_BAD_REQUEST afterwards
		`{"authorityId":["ctrl_x"]}`: `{"matches":false,` + authority + `}`,
		`{"expected":{"controllerId":" c1 ","principalId":"p1"}}`:                                                                      `{"matches":true,` + authority + `}`,
		`{"authorityId":"ctrl_x","expected":{"controllerId":"c1","principalId":"p1","controllerType":"","controllerInstanceId":"i1"}}`: `{"matches":true,` + authority + `}`,
		`{"authorityId":"y","expected":{"controllerId":"c1","principalId":"p1"}}`:                                                      `{"matches":false,` + authority + `}`,
	} {
		if got, err := check(w, body); err != nil || asText(got) != want {
			t.Errorf("%s: %s, %v; want %s", body, asText(got), err, want)
		}
	}
	for body, code := range map[string]events.Code{
		`{"expected":{}}`: events.CodeOwnerMismatch,
		`{"expected":{"controllerId":7,"principalId":"p1"}}`:                                                      events.CodeOwnerMismatch,
		`{"expected":{"controllerId":"c2","principalId":"p2"}}`:                                                   events.CodeOwnerMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p2","controllerType":"x"}}`:                              events.CodeTypeMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p1","controllerType":7}}`:                                events.CodeTypeMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p2","controllerInstanceId":"i2"}}`:                       events.CodePrincipalMismatch,
		`{"expected":{"controllerId":"c1"}}`:                                                                      events.CodePrincipalMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p1","controllerInstanceId":"i2"}}`:                       events.CodeInstanceMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p1","controllerInstanceId":""}}`:                         events.CodeInstanceMismatch,
		`{"expected":{"controllerId":"c1","principalId":"p1","controllerInstanceId":7}}`:                          events.CodeInstanceMismatch,
		`{"authorityId":"ctrl_x","expected":{"controllerId":"c1","principalId":"p1","controllerType":"x","y":1}}`: events.CodeTypeMismatch,
	} {
		if got, err := check(w, body); events.CodeOf(err) != code || asText(got) != `{"matches":false}` {
			t.Errorf("%s: %s, %v; want %s", body, asText(got), err, code)
		}
	}
	// Without a live owner nothing matches, whatever is expected.
	w.after(hour)
	for _, body := range []string{`{}`, `{"authorityId":"ctrl_x"}`, `{"expected":{"controllerId":"c2"}}`} {
		if got, err := check(w, body); err != nil || asText(got) != `{"matches":false}` {
			t.Errorf("lapsed, %s: %s, %v", body, asText(got), err)
		}
	}
	// An owner without instance or generation has no authority.
	w = given(t).happened(session.VerbClaim, with(claimBody, "controllerInstanceId", "", "authorityDigest", quote(digest)))
	if got, err := check(w, `{}`); err != nil || got.Matches || got.Authority != nil {
		t.Errorf("no instance: %s, %v", asText(got), err)
	}
	if got, err := check(w, `{"authorityId":"ctrl_x"}`); err != nil || !got.Matches || got.Authority != nil {
		t.Errorf("no instance, its capability: %s, %v", asText(got), err)
	}
	if _, err := check(w, `{"expected":{"controllerId":"c1","principalId":"p1"}}`); events.CodeOf(err) != events.CodeInstanceMismatch {
		t.Errorf("no instance, expected: %v", err)
	}
	w = given(t).imported(snapshot(with(importedSession, "claimGeneration", "0")))
	if _, err := check(w, `{"expected":{"controllerId":"c1","principalId":"p1"}}`); events.CodeOf(err) != events.CodeClaimGenerationRequired {
		t.Errorf("no generation, expected: %v", err)
	}
}

func TestMint(t *testing.T) {
	a, b := session.Mint("01234567-89ab-cdef-0123-456789abcdef"), session.Mint("0123456789abcdef0123456789abcdef")
	if a != b || a.AuthorityID != "ctrl_0123456789abcdef0123456789abcdef" {
		t.Errorf("minted %v and %v", a, b)
	}
	digest, err := session.AuthorityDigest("\n" + a.AuthorityID + " ")
	if err != nil || digest != a.AuthorityDigest || len(digest) != 64 {
		t.Errorf("its digest is %s, %v; want %s", digest, err, a.AuthorityDigest)
	}
	for _, blank := range []string{"", " \t\n"} {
		if _, err := session.AuthorityDigest(blank); events.CodeOf(err) != events.CodeAuthorityRequired {
			t.Errorf("%q: %v", blank, err)
		}
	}
}
