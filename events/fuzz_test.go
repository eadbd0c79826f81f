package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// FuzzDecodeCommit: whatever is accepted encodes as the same bytes, and the
// library reads it, too, and sees the same envelope.
func FuzzDecodeCommit(f *testing.F) {
	f.Add(sampleCommit().Encode())
	f.Add([]byte{0x80})
	f.Add([]byte{})
	for _, p := range samples() {
		c := sampleCommit()
		c.Events = append(c.Events, Encode(p))
		f.Add(c.Encode())
		c.State, c.Recent, c.Correlation, c.Actor = nil, nil, "", Actor{Principal: "p"}
		c.Version, c.Prev, c.PrevHash = 1, 0, Hash{}
		f.Add(c.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommit(b)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if again := c.Encode(); !bytes.Equal(again, b) {
			t.Fatalf("encodes as other bytes\n%x\n%x", b, again)
		}
		var generic map[string]any
		if err := msgpack.Unmarshal(b, &generic); err != nil {
			t.Fatalf("the library does not read it: %v", err)
		}
		if generic["id"] != c.ID || generic["kind"] != c.Kind || generic["aggregateId"] != c.AggregateID || generic["log"] != c.Log {
			t.Fatalf("the library sees another commit: %v", generic)
		}
		list, _ := generic["events"].([]any)
		if len(list) != len(c.Events) {
			t.Fatalf("the library sees %d events, we %d", len(list), len(c.Events))
		}
		for i, e := range c.Events {
			if list[i].(map[string]any)["type"] != e.Type {
				t.Fatalf("the library sees event %d as %v", i, list[i])
			}
			p, err := Decode(e)
			if err != nil {
				if !errors.Is(err, ErrEncoding) && !errors.Is(err, ErrUnknownEvent) {
					t.Fatalf("an error of another kind: %v", err)
				}
				continue
			}
			if again := Encode(p); !bytes.Equal(again.Data, e.Data) || again.Type != e.Type {
				t.Fatalf("%s encodes as other bytes\n%x\n%x", e.Type, e.Data, again.Data)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("%s has no JSON: %v", e.Type, err)
			}
		}
	})
}

// FuzzCanonicalJSON: what is accepted is JSON, has the same value, and its form
// is its own form. Valid JSON is refused only for the documented reasons.
func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{
		`{"b":1.50,"a":[null,true,"\u00e9\n",-0.0,1e400]}`, `1e9223372036854775807`, `-1.5e-9223372036854775809`, `{"a":1,"a":2}`, `[1,]`,
		`"\ud800"`, `12345678901234567890123`, `{"":{"":[]}}`, ` 1 `, `{"a":1} x`, strings.Repeat("[", 66) + strings.Repeat("]", 66),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ParseInteger(text) // must not panic on any text
		ParseIntegerClamped(text)
		members, err := ObjectMembers(text)
		canon, canonErr := CanonicalJSON(text)
		if err == nil && !json.Valid(text) {
			t.Fatalf("members of what is no JSON: %v", members)
		}
		if canonErr != nil {
			if !errors.Is(canonErr, ErrJSON) {
				t.Fatalf("an error of another kind: %v", canonErr)
			}
			why := canonErr.Error()
			if json.Valid(text) && utf8.Valid(text) && !strings.Contains(why, "duplicate key") && !strings.Contains(why, "nests deeper") && !strings.Contains(why, "surrogate") {
				t.Fatalf("valid JSON is refused: %v", canonErr)
			}
			return
		}
		if !json.Valid(text) || !json.Valid(canon) {
			t.Fatalf("%q is no JSON, or its form %q is not", text, canon)
		}
		if again, err := CanonicalJSON(canon); err != nil || !bytes.Equal(again, canon) {
			t.Fatalf("the form of the form %q is %q, %v", canon, again, err)
		}
		if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) != (err == nil) {
			t.Fatalf("an object has no members, or another value has: %v", err)
		}
		if longExponent(text) {
			return // its fraction would fill the memory
		}
		if same, err := sameJSON(text, canon); !same {
			t.Fatalf("%q has the form %q of another value (%v)", text, canon, err)
		}
	})
}

func longExponent(text []byte) bool {
	for _, part := range bytes.FieldsFunc(text, func(r rune) bool { return r == 'e' || r == 'E' }) {
		digits := 0
		for _, c := range bytes.TrimLeft(part, "+-0") {
			if c < '0' || c > '9' {
				break
			}
			digits++
		}
		if digits > 3 {
			return true
		}
	}
	return false
}

// FuzzToken: different ids have different tokens, none of which is a wildcard.
func FuzzToken(f *testing.F) {
	for _, id := range oddIDs {
		f.Add(id, Token(id))
	}
	f.Fuzz(func(t *testing.T, id, other string) {
		checkToken(t, id)
		checkToken(t, other)
		if (Token(id) == Token(other)) != (id == other) {
			t.Fatalf("%q and %q have the tokens %s and %s", id, other, Token(id), Token(other))
		}
		if shown, ok := ParseToken(other); ok && Token(shown) != other {
			t.Fatalf("%q shows %q, whose token is %q", other, shown, Token(shown))
		}
	})
}

// FuzzParseSession: what is accepted can be written to the log, read again, and
// shown as JSON that is the same session.
func FuzzParseSession(f *testing.F) {
	f.Add([]byte(sampleSessionJSON))
	f.Add([]byte(`{"workId":"w","controllerId":"c","controllerType":"","sessionId":"s","claimedAt":"9999-12-31T23:59:59-23:59","leaseExpiresAt":"0000-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"workId":"w","controllerId":"c","controllerType":"t","sessionId":"s","claimedAt":"2026-01-01T00:00:00Z","leaseExpiresAt":"2026-01-01T00:00:00Z","claimGeneration":1e9223372036854775807,"principalId":null,"x":{"y":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSession(text)
		if err != nil {
			if code := CodeOf(err); code != CodeBadRequest && code != CodeIDInvalid && code != CodeTooLarge {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		w := NewWriter(64)
		s.Write(w)
		r := NewReader(w.Bytes())
		got := ReadSession(r)
		if err := r.Done(); err != nil {
			t.Fatalf("it cannot be read from the log: %v", err)
		}
		if d := diff(s, got); d != "" || !s.Equal(got) {
			t.Fatalf("another session comes from the log:\n%s", d)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseSession(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if d := diff(s, back); d != "" {
			t.Fatalf("another session is shown:\n%s", d)
		}
		for _, id := range []string{s.WorkID, s.ControllerID, s.SessionID} {
			if id == "" || strings.TrimSpace(id) != id {
				t.Fatalf("id %q", id)
			}
		}
	})
}

// FuzzObjectMembers holds the scanner against encoding/json: the same members, in
// order, with the same bytes.
func FuzzObjectMembers(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1,"b":[1,{"c":"}"}],"d\"e":"\\"}`, ` { "a" : { } , "b" : null , "c" : -1.5e3 } `, `{"a":"\u0041","a\u0041":true}`, `[]`, `"x"`, `{"a":1}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ObjectMembers(text)
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		for i := 0; dec.More(); i++ {
			key, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				t.Fatal(err)
			}
			if i >= len(got) || got[i].Key != key || !bytes.Equal(got[i].Value, value) {
				t.Fatalf("member %d of %q is %q: %q, got %+v", i, text, key, value, got)
			}
			var want string
			wantOK := json.Unmarshal(value, &want) == nil && value[0] == '"'
			if v, ok := DecodeText(value); ok != wantOK || ok && v != want {
				t.Fatalf("text of %q is %q %v, want %q %v", value, v, ok, want, wantOK)
			}
		}
	})
}
