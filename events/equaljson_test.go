package events

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEqualJSON(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":2}`, `{ "b" : 2, "a" : 1 }`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"a":1,"b":1}`, false},
		{`{"a":1}`, `{"A":1}`, false},
		// A null member is a missing one, at any depth; a null in a list is not.
		{`{"a":1,"b":null}`, `{"a":1}`, true},
		{`{"a":null}`, `{"b":null}`, true},
		{`{"a":null}`, `{}`, true},
		{`{"a":{"b":null,"c":[{"d":null}]}}`, `{"a":{"c":[{}]}}`, true},
		{`{"a":{}}`, `{}`, false},
		{`{"a":[]}`, `{}`, false},
		{`{"a":false}`, `{}`, false},
		{`{"a":""}`, `{"a":null}`, false},
		{`{"a":0}`, `{"a":null}`, false},
		{`[null]`, `[]`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1,2]`, `[1,2,3]`, false},
		{`[]`, `{}`, false},
		{``, `null`, true},
		{``, ``, true},
		{`null`, ` null `, true},
		{``, `{}`, false},
		{``, `false`, false},
		{``, `""`, false},
		// Numbers by exact value.
		{`1`, `1.0`, true},
		{`1`, `10e-1`, true},
		{`-0`, `0.0`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`9007199254740993`, `9007199254740993.0`, true},
		{`0.1`, `0.10000000000000000001`, false},
		{`1e400`, `10e399`, true},
		{`1e400`, `1e401`, false},
		{`1`, `"1"`, false},
		{`1`, `true`, false},
		{`"\u00e9\/"`, `"é/"`, true},
		{`"e"`, `"E"`, false},
		// What is no strict JSON equals only itself.
		{`{"a":1,"a":2}`, `{"a":2}`, false},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`, true},
		{`{"x":{"a":1,"a":1}}`, `{"x":{"a":1}}`, false},
		{`{"a":1} x`, `{"a":1}`, false},
		{`1 2`, `1`, false},
		{`{`, `{`, true},
		{`{`, `[`, false},
		{`{`, `null`, false},
		{"\"\xff\"", "\"\xfe\"", false},
		{"\"\xff\"", `"\ufffd"`, false},
		{strings.Repeat("[", 70) + strings.Repeat("]", 70), strings.Repeat("[", 70) + " " + strings.Repeat("]", 70), false},
	} {
		if got := EqualJSON([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
		if got := EqualJSON([]byte(c.b), []byte(c.a)); got != c.want {
			t.Errorf("%s and %s, the other way round: %v", c.a, c.b, got)
		}
	}
	if !EqualJSON(nil, json.RawMessage("null")) || EqualJSON(nil, json.RawMessage("0")) {
		t.Error("nothing is not null")
	}
}

// The canonical form is another way to the same answer, except for null members.
func TestEqualJSONAgreesWithTheCanonicalForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyJSON(3).Draw(t, "a")
		canon, err := CanonicalJSON([]byte(a))
		if err != nil {
			t.Fatal(err)
		}
		if !EqualJSON([]byte(a), canon) || !EqualJSON(canon, []byte(a)) {
			t.Fatalf("%s does not equal its canonical form %s", a, canon)
		}
		b := anyJSON(3).Draw(t, "b")
		other, err := CanonicalJSON([]byte(b))
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Equal(nullsDropped(t, canon), nullsDropped(t, other)); EqualJSON([]byte(a), []byte(b)) != want {
			t.Fatalf("%s and %s: want %v", canon, other, want)
		}
	})
}

// nullsDropped drops the null members of a canonical value.
func nullsDropped(t interface{ Fatal(...any) }, canon []byte) []byte {
	var drop func(v any) any
	drop = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for key, w := range v {
				if w == nil {
					delete(v, key)
				} else {
					v[key] = drop(w)
				}
			}
		case []any:
			for i, w := range v {
				v[i] = drop(w)
			}
		}
		return v
	}
	dec := json.NewDecoder(bytes.NewReader(canon))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(drop(v))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzEqualJSON: it is an equivalence, finer than that of values without their
// null members, and never panics.
func FuzzEqualJSON(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":null}`), []byte(`{"a":1.0}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2}`))
	f.Add([]byte(`[{"a":null}]`), []byte(`[{}]`))
	f.Add([]byte(`null`), []byte(``))
	f.Add([]byte(`1e400`), []byte(`10e399`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !EqualJSON(a, a) || !EqualJSON(b, b) {
			t.Fatal("a value does not equal itself")
		}
		equal := EqualJSON(a, b)
		if equal != EqualJSON(b, a) {
			t.Fatal("it depends on the order")
		}
		ca, errA := CanonicalJSON(a)
		cb, errB := CanonicalJSON(b)
		if errA != nil || errB != nil {
			if nothing := len(a) == 0 || len(b) == 0; equal && !bytes.Equal(a, b) && !nothing {
				t.Fatalf("what is no strict JSON equals something else: %v, %v", errA, errB)
			}
			return
		}
		if !EqualJSON(a, ca) {
			t.Fatalf("%q does not equal %q", a, ca)
		}
		if want := bytes.Equal(nullsDropped(t, ca), nullsDropped(t, cb)); equal != want {
			t.Fatalf("%q and %q: %v, want %v", ca, cb, equal, want)
		}
	})
}

// Events take only what folding can read again: strict JSON of the kind that
// belongs there.
func TestReleaseEventsReadOnlyTheirKindOfJSON(t *testing.T) {
	for name, p := range map[string]func(v string) Payload{
		"stable":        func(v string) Payload { return ReleaseOpened{Stable: JSON(v), StableRelease: JSON(`{}`)} },
		"stableRelease": func(v string) Payload { return ReleaseOpened{StableRelease: JSON(v)} },
		"candidate":     func(v string) Payload { return ReleaseOpened{Candidate: JSON(v), StableRelease: JSON(`{}`)} },
		"candidateRelease": func(v string) Payload {
			return ReleaseAdvanced{CandidateRelease: JSON(v)}
		},
		"receipts of an advance": func(v string) Payload { return ReleaseAdvanced{Receipts: JSON(v)} },
		"receipts":               func(v string) Payload { return ReleaseReceiptsRecorded{Receipts: JSON(v)} },
		"transaction":            func(v string) Payload { return ReleaseTransactionRecorded{Transaction: JSON(v)} },
		"rebuilt transaction": func(v string) Payload {
			return ReleaseMigrated{Outcome: MigratedConverted, Transaction: JSON(v)}
		},
		"previous":  func(v string) Payload { return ReleaseMigrated{Outcome: MigratedConverted, Previous: JSON(v)} },
		"receipt":   func(v string) Payload { return ReleaseMigrated{Outcome: MigratedConverted, Receipt: JSON(v)} },
		"authority": func(v string) Payload { return AuthorityPublished{Authority: JSON(v)} },
	} {
		good, other := `{"a":[1]}`, `[{"a":1}]`
		if strings.HasPrefix(name, "receipts") {
			good, other = other, good
		}
		if _, err := Decode(Encode(p(good))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, bad := range []string{other, `null`, `1`, `"{}"`, `{"a":1,"a":2}`, `[{"a":{"b":1,"b":2}}]`, `{`, `{}x`, "{\"\xff\":1}"} {
			if got, err := Decode(Encode(p(bad))); err == nil {
				t.Errorf("%s: %s is read as %+v", name, bad, got)
			}
		}
	}
	// A migration has one of three outcomes.
	if _, err := Decode(Encode(ReleaseMigrated{Outcome: "current"})); err == nil {
		t.Error("an unknown outcome is read")
	}
}

func TestJSONOfNothingIsNull(t *testing.T) {
	b, err := json.Marshal(ReleaseTransactionRecorded{})
	if err != nil || !strings.Contains(string(b), `"transaction":null`) {
		t.Errorf("%s, %v", b, err)
	}
	var j JSON
	if err := json.Unmarshal([]byte(`null`), &j); err != nil || j != nil {
		t.Errorf("%s, %v", j, err)
	}
}
