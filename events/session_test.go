package events

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const sampleSessionJSON = `{
	"schemaVersion": 1, "workId": " w1 ", "controllerId": "\tc1\n", "controllerType": " codex ", "sessionId": " s1",
	"authorityDigest": " aa ", "principalId": " p ", "controllerInstanceId": "", "claimGeneration": 7.0,
	"claimedAt": "2026-01-01T01:00:00+01:00", "leaseExpiresAt": "2030-01-01T00:00:00Z", "z": [1.0], "a": {"y": null, "x": "é"}
}`

func TestParseSessionKeepsWhatWasGiven(t *testing.T) {
	got, err := ParseSession([]byte(sampleSessionJSON))
	if err != nil {
		t.Fatal(err)
	}
	want := &Session{
		WorkID: "w1", ControllerID: "c1", ControllerType: " codex ", SessionID: "s1",
		AuthorityDigest: ptr(" aa "), PrincipalID: ptr(" p "), ControllerInstanceID: ptr(""), Generation: ptr(int64(7)),
		ClaimedAt: 1767225600000, LeaseExpiresAt: 1893456000000, Extra: []byte(`{"a":{"x":"é","y":null},"z":[1]}`),
	}
	if d := diff(want, got); d != "" {
		t.Errorf("differs (-want +got):\n%s", d)
	}
	if got.Gen() != 7 || got.Digest() != "aa" || got.Principal() != "p" || got.Instance() != "" {
		t.Errorf("compared as %d, %q, %q, %q", got.Gen(), got.Digest(), got.Principal(), got.Instance())
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const shown = `{"schemaVersion":1,"workId":"w1","controllerId":"c1","controllerType":" codex ","sessionId":"s1","authorityDigest":" aa ",` +
		`"principalId":" p ","controllerInstanceId":"","claimGeneration":7,"claimedAt":"2026-01-01T00:00:00.000Z",` +
		`"leaseExpiresAt":"2030-01-01T00:00:00.000Z","a":{"x":"é","y":null},"z":[1]}`
	if string(b) != shown {
		t.Errorf("shown as\n%s, want\n%s", b, shown)
	}
}

// change gives the sample with one member replaced; "" drops it.
func change(t *testing.T, name, value string) []byte {
	t.Helper()
	members, err := ObjectMembers([]byte(sampleSessionJSON))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	found := false
	for _, m := range members {
		if m.Key == name {
			found = true
			if value == "" {
				continue
			}
			m.Value = json.RawMessage(value)
		}
		list = append(list, jsonText(m.Key)+":"+string(m.Value))
	}
	if !found && value != "" {
		list = append(list, jsonText(name)+":"+value)
	}
	return []byte("{" + strings.Join(list, ",") + "}")
}

func TestParseSessionRefuses(t *testing.T) {
	for _, c := range []struct{ field, value string }{
		{"workId", ""},
		{"workId", "null"},
		{"workId", "7"},
		{"workId", `" \t "`},
		{"workId", `[]`},
		{"controllerId", ""},
		{"controllerId", `""`},
		{"controllerId", `{}`},
		{"sessionId", ""},
		{"sessionId", `"\n"`},
		{"sessionId", `true`},
		{"controllerType", ""},
		{"controllerType", "null"},
		{"controllerType", "1"},
		{"claimedAt", ""},
		{"claimedAt", "null"},
		{"claimedAt", `"soon"`},
		{"claimedAt", "1767225600000"},
		{"claimedAt", `""`},
		{"leaseExpiresAt", ""},
		{"leaseExpiresAt", `"2026-01-01"`},
		{"leaseExpiresAt", `"9999-12-31T23:59:59-23:00"`},
		{"schemaVersion", "2"},
		{"schemaVersion", `"1"`},
		{"schemaVersion", "1.5"},
	} {
		got, err := ParseSession(change(t, c.field, c.value))
		e := AsError(err)
		if got != nil || e.Code != CodeBadRequest || e.Details["field"] != c.field {
			t.Errorf("%s = %q: got %v, %v %v", c.field, c.value, got, err, e.Details)
		}
	}
	for name, c := range map[string]struct {
		text []byte
		code Code
	}{
		"a long id":              {change(t, "workId", jsonText(strings.Repeat("x", 513))), CodeIDInvalid},
		"a control character":    {change(t, "sessionId", `"a\u0000b"`), CodeIDInvalid},
		"an inner line":          {change(t, "controllerId", `"a\nb"`), CodeIDInvalid},
		"much that is unknown":   {change(t, "z", jsonText(strings.Repeat("x", MaxExtra))), CodeTooLarge},
		"an unknown doubled key": {change(t, "z", `{"a":1,"a":2}`), CodeBadRequest},
		"deep unknown members":   {change(t, "z", strings.Repeat("[", 70)+strings.Repeat("]", 70)), CodeBadRequest},
		"a doubled key":          {[]byte(strings.TrimSuffix(sampleSessionJSON, "}") + `,"workId":"w2"}`), CodeBadRequest},
		"no object":              {[]byte(`[]`), CodeBadRequest},
		"null":                   {[]byte(`null`), CodeBadRequest},
		"nothing":                {nil, CodeBadRequest},
		"a tail":                 {append(change(t, "z", ""), " x"...), CodeBadRequest},
		"invalid UTF-8":          {bytes.Replace(change(t, "z", ""), []byte("codex"), []byte("\xff"), 1), CodeBadRequest},
	} {
		if got, err := ParseSession(c.text); got != nil || CodeOf(err) != c.code {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// What has the wrong type and is no fact of its own is carried along: it counts
// as missing, and every result that shows the session has it.
func TestParseSessionCarriesOddMembers(t *testing.T) {
	for _, c := range []struct {
		field, value string
		missing      func(s *Session) bool
	}{
		{"authorityDigest", "null", func(s *Session) bool { return s.AuthorityDigest == nil && s.Digest() == "" }},
		{"authorityDigest", "7", func(s *Session) bool { return s.AuthorityDigest == nil }},
		{"principalId", "null", func(s *Session) bool { return s.PrincipalID == nil && s.Principal() == "c1" }},
		{"principalId", "[1]", func(s *Session) bool { return s.PrincipalID == nil }},
		{"controllerInstanceId", "null", func(s *Session) bool { return s.ControllerInstanceID == nil }},
		{"controllerInstanceId", "{}", func(s *Session) bool { return s.ControllerInstanceID == nil }},
		{"claimGeneration", "null", func(s *Session) bool { return s.Generation == nil && s.Gen() == 0 }},
		{"claimGeneration", `"7"`, func(s *Session) bool { return s.Generation == nil }},
		{"claimGeneration", "1.5e0", func(s *Session) bool { return s.Generation == nil }},
		{"claimGeneration", "9007199254740992", func(s *Session) bool { return s.Generation == nil }},
		{"claimGeneration", "1e9223372036854775807", func(s *Session) bool { return s.Generation == nil }},
		{"unknown", "null", func(s *Session) bool { return true }},
	} {
		s, err := ParseSession(change(t, c.field, c.value))
		if err != nil {
			t.Errorf("%s = %s: %v", c.field, c.value, err)
			continue
		}
		if !c.missing(s) {
			t.Errorf("%s = %s does not count as missing", c.field, c.value)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), jsonText(c.field)+":"+c.value) {
			t.Errorf("%s = %s is not shown: %s", c.field, c.value, b)
		}
	}
	for _, gen := range []string{"0", "-5", "-0", "9007199254740991", "1e1"} {
		if s, err := ParseSession(change(t, "claimGeneration", gen)); err != nil || s.Generation == nil {
			t.Errorf("generation %s: %v", gen, err)
		}
	}
	// schemaVersion may be missing: there is only one.
	for _, v := range []string{"", "null", "1.0"} {
		if _, err := ParseSession(change(t, "schemaVersion", v)); err != nil {
			t.Errorf("schemaVersion %q: %v", v, err)
		}
	}
}

func TestSessionEqual(t *testing.T) {
	parse := func(text []byte) *Session {
		t.Helper()
		s, err := ParseSession(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := parse([]byte(sampleSessionJSON))
	equal := map[string][]byte{
		"itself":                    []byte(sampleSessionJSON),
		"padded ids":                change(t, "workId", `"w1"`),
		"the same instant":          change(t, "claimedAt", `"2026-01-01T00:00:00.0000Z"`),
		"another form of a number":  change(t, "claimGeneration", `70e-1`),
		"unknown members otherwise": change(t, "a", `{"x":"\u00e9", "y":null}`),
		// A null member counts as missing in every rule.
		"one more null member":      change(t, "b", `null`),
		"a null member less inside": change(t, "a", `{"x":"é"}`),
		"a null member more inside": change(t, "a", `{"x":"é","y":null,"z":null}`),
	}
	for name, text := range equal {
		if other := parse(text); !base.Equal(other) || !other.Equal(base) {
			t.Errorf("%s: not equal", name)
		}
	}
	for name, text := range map[string][]byte{
		"another work": change(t, "workId", `"w2"`), "another controller": change(t, "controllerId", `"c2"`),
		"another transport session": change(t, "sessionId", `"s2"`), "another type": change(t, "controllerType", `"codex"`),
		"a trimmed principal": change(t, "principalId", `"p"`), "no principal": change(t, "principalId", "null"),
		"no instance": change(t, "controllerInstanceId", ""), "a trimmed digest": change(t, "authorityDigest", `"aa"`),
		"no generation": change(t, "claimGeneration", ""), "another generation": change(t, "claimGeneration", "8"),
		"another claim time": change(t, "claimedAt", `"2026-01-01T00:00:00.001Z"`), "another lease": change(t, "leaseExpiresAt", `"2031-01-01T00:00:00Z"`),
		"an unknown member more": change(t, "b", "1"), "an unknown member less": change(t, "z", ""), "an unknown member changed": change(t, "z", "[1,null]"),
		"an unknown member without its content": change(t, "a", "{}"), "an odd generation": change(t, "claimGeneration", `"7"`),
	} {
		if other := parse(text); base.Equal(other) || other.Equal(base) {
			t.Errorf("%s: equal", name)
		}
	}
	var none *Session
	if !none.Equal(nil) || none.Equal(base) || base.Equal(nil) {
		t.Error("no session equals a session, or not itself")
	}
	// An empty list or object is not missing, and only null members are.
	a, b := parse(change(t, "a", `null`)), parse(change(t, "a", ``))
	if !a.Equal(b) || !b.Equal(a) {
		t.Error("a null member and none are not equal")
	}
	if c := parse(change(t, "a", `{"y":null}`)); c.Equal(a) || !c.Equal(parse(change(t, "a", `{}`))) {
		t.Error("an object of null members is not an empty one")
	}
}

// Sessions come back from JSON and from their encoding, whatever they hold.
func TestSessionForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySession().Draw(t, "session")
		w := NewWriter(64)
		s.Write(w)
		r := NewReader(w.Bytes())
		got := ReadSession(r)
		if err := r.Done(); err != nil {
			t.Fatal(err)
		}
		if d := diff(&s, got); d != "" || !s.Equal(got) {
			t.Fatalf("decoded differs (-want +got):\n%s", d)
		}
		for _, id := range []*string{&s.WorkID, &s.ControllerID, &s.SessionID} {
			*id = rapid.StringMatching(`[!-~]([ -~]{0,20}[!-~])?`).Draw(t, "id")
		}
		if s.Generation != nil {
			*s.Generation %= maxSafe
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseSession(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := diff(&s, back); d != "" {
			t.Fatalf("%s differs (-want +got):\n%s", b, d)
		}
	})
}

func TestSessionReadsOnlyCanonicalExtra(t *testing.T) {
	for _, extra := range []string{`{}`, `[]`, `[1,2,3]`, `null`, `"text"`, `{"a": 1}`, `{"b":1,"a":2}`, `{"a":1.0}`, `{"a":1,"a":1}`, `{"a":1}x`, `{`, "{\"\xff\":1}"} {
		s := sampleSession()
		s.Extra = []byte(extra)
		w := NewWriter(64)
		s.Write(w)
		r := NewReader(w.Bytes())
		ReadSession(r)
		if r.Done() == nil {
			t.Errorf("extra %s is read", extra)
		}
	}
}

// Decoded values must not lie in the buffer they were read from: the server
// hands it out again.
func TestDecodedPayloadDoesNotShareTheBuffer(t *testing.T) {
	for _, p := range samples() {
		e := Encode(p)
		data := bytes.Clone(e.Data)
		e.Data = data
		got, err := Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = 0xff
		}
		if d := diff(p, got); d != "" {
			t.Errorf("%s changed with the buffer (-want +got):\n%s", e.Type, d)
		}
	}
}
