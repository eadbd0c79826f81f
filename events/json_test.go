package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`null`: `null`, ` true `: `true`, `false`: `false`,
		`{ "b" : 1 , "a" : [ 1 , 2 ] }`:   `{"a":[1,2],"b":1}`,
		`{"é":1,"z":2,"a":{"y":1,"x":2}}`: `{"a":{"x":2,"y":1},"z":2,"é":1}`,
		`{}`:                              `{}`, `[]`: `[]`, `""`: `""`,
		`"\u0041\/\n\u0001\u2028"`: "\"A/\\n\\u0001\u2028\"",
		`"\"\\\t\r\b"`:             `"\"\\\t\r\u0008"`,
		"\"<>&\"":                  `"<>&"`,
		// Numbers by exact decimal value.
		`0`: `0`, `-0`: `0`, `0.000`: `0`, `0e5`: `0`, `-0E-7`: `0`,
		`1`: `1`, `1.0`: `1`, `1e0`: `1`, `10e-1`: `1`, `0.1e1`: `1`, `1E+0`: `1`,
		`100`: `100`, `1e2`: `100`, `-100.0`: `-100`,
		`1.5`: `1.5e0`, `15e-1`: `1.5e0`, `-0.015`: `-1.5e-2`,
		`9007199254740993`:                `9007199254740993`,
		`9007199254740993.0`:              `9007199254740993`,
		`123456789012345678901`:           `123456789012345678901`,
		`1234567890123456789012`:          `1.234567890123456789012e21`,
		`1000000000000000000000`:          `1e21`,
		`1e20`:                            `100000000000000000000`,
		`1e21`:                            `1e21`,
		`1e-400`:                          `1e-400`,
		`1e400`:                           `1e400`,
		`1e9223372036854775807`:           `1e9223372036854775807`,
		`1e9223372036854775806`:           `1e9223372036854775806`,
		`10e9223372036854775806`:          `1e9223372036854775807`,
		`123e9223372036854775807`:         `1.23e9223372036854775809`,
		`-1e-9223372036854775808`:         `-1e-9223372036854775808`,
		`1e999999999999999999999999999`:   `1e999999999999999999999999999`,
		`1.5e-99999999999999999999999999`: `1.5e-99999999999999999999999999`,
	} {
		got, err := CanonicalJSON([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
			continue
		}
		if again, err := CanonicalJSON(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the canonical form %s becomes %s, %v", in, got, again, err)
		}
	}
}

func TestCanonicalJSONRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "white space": " ", "a word": "x", "two values": "1 2", "a tail": "{} x", "a closing bracket behind": "1]",
		"a comma behind": "[1,]", "a comma in an object": `{"a":1,}`, "no comma": "[1 2]", "no colon": `{"a" 1}`, "a number key": `{1:2}`,
		"no key": `{:1}`, "two colons": `{"a"::1}`, "crossed brackets": `{"a":[1}`, "an open array": "[1", "an open object": `{"a":1`,
		"a doubled key": `{"a":1,"b":2,"a":1}`, "a key doubled by escapes": `{"a":1,"\u0061":1}`, "a doubled key deep inside": `[{"x":{"a":1,"a":1}}]`,
		"invalid UTF-8": "\"\xff\"", "an invalid key": "{\"\xff\":1}", "a mark before": "\ufeff1",
		"a leading zero": "01", "a plus": "+1", "a bare point": ".5", "a bare exponent": "1e", "hex": "0x1", "not a number": "NaN",
		"a control character": "\"\x01\"", "depth": strings.Repeat("[", maxJSONDepth+2) + strings.Repeat("]", maxJSONDepth+2),
	} {
		if got, err := CanonicalJSON([]byte(in)); !errors.Is(err, ErrJSON) {
			t.Errorf("%s: %q is accepted as %s, %v", name, in, got, err)
		}
	}
	deep := strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1)
	if _, err := CanonicalJSON([]byte(deep)); err != nil {
		t.Errorf("depth %d: %v", maxJSONDepth, err)
	}
}

// same compares two JSON texts value by value, numbers as exact fractions.
func sameJSON(a, b []byte) (bool, error) {
	read := func(text []byte) (v any, err error) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		return v, dec.Decode(&v)
	}
	x, err := read(a)
	if err != nil {
		return false, err
	}
	y, err := read(b)
	if err != nil {
		return false, err
	}
	return sameValue(x, y), nil
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return false
		}
		p, ok1 := new(big.Rat).SetString(string(x))
		q, ok2 := new(big.Rat).SetString(string(y))
		return ok1 && ok2 && p.Cmp(q) == 0
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, there := y[k]
			if !there || !sameValue(v, w) {
				return false
			}
		}
		return true
	default:
		return a == b
	}
}

// Forms are equal exactly when values are.
func TestCanonicalFormsAreEqualExactlyWhenValuesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := []byte(anyJSON(2).Draw(t, "a"))
		b := []byte(anyJSON(2).Draw(t, "b"))
		if rapid.Bool().Draw(t, "numbers only") {
			n := rapid.StringMatching(`-?[0-9](\.[0-9]{1,3})?(e-?[0-3])?`)
			a, b = []byte(n.Draw(t, "n")), []byte(n.Draw(t, "m"))
		}
		x, err := CanonicalJSON(a)
		if err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		y, err := CanonicalJSON(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		for _, p := range [][2][]byte{{a, x}, {b, y}} {
			if ok, err := sameJSON(p[0], p[1]); !ok {
				t.Fatalf("%s has the form %s of another value (%v)", p[0], p[1], err)
			}
		}
		equal, err := sameJSON(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if equal != bytes.Equal(x, y) {
			t.Fatalf("%s and %s: equal %t, forms %s and %s", a, b, equal, x, y)
		}
	})
}

func TestParseInteger(t *testing.T) {
	const most, least = maxSafe, -maxSafe
	for in, want := range map[string]struct {
		exact, clamped     int64
		isExact, isClamped bool
	}{
		`0`: {0, 0, true, true}, `-0`: {0, 0, true, true}, `0e99`: {0, 0, true, true}, `0.0`: {0, 0, true, true},
		`1`: {1, 1, true, true}, `1.0`: {1, 1, true, true}, `1e3`: {1000, 1000, true, true}, `-12.50e1`: {-125, -125, true, true},
		`9007199254740991`:       {most, most, true, true},
		`-9007199254740991`:      {least, least, true, true},
		`9007199254740991.0`:     {most, most, true, true},
		`9007199254740992`:       {0, most, false, true},
		`-9007199254740992`:      {0, least, false, true},
		`9223372036854775808`:    {0, most, false, true},
		`1e30`:                   {0, most, false, true},
		`-1e30`:                  {0, least, false, true},
		`1.5e30`:                 {0, most, false, true},
		`1e9223372036854775807`:  {0, most, false, true},
		`-1e9223372036854775807`: {0, least, false, true},
		`1e99999999999999999999`: {0, most, false, true},
		`1.5`:                    {}, `0.1`: {}, `1e-1`: {}, `1.23e1`: {}, `1e-9223372036854775808`: {}, `1e-99999999999999999999`: {},
		`12345678901234567890123.5`: {},
		`"1"`:                       {}, `null`: {}, `true`: {}, `[]`: {}, `{}`: {}, ``: {}, ` `: {}, `"`: {},
		` 7 `: {7, 7, true, true},
	} {
		if v, ok := ParseInteger([]byte(in)); ok != want.isExact || ok && v != want.exact {
			t.Errorf("ParseInteger(%s) = %d, %t", in, v, ok)
		}
		if v, ok := ParseIntegerClamped([]byte(in)); ok != want.isClamped || ok && v != want.clamped {
			t.Errorf("ParseIntegerClamped(%s) = %d, %t", in, v, ok)
		}
	}
}

// ParseInteger against exact fractions.
func TestParseIntegerAgreesWithFractions(t *testing.T) {
	limit := new(big.Rat).SetInt64(maxSafe)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		exact, _ := new(big.Rat).SetString(text)
		inside := new(big.Rat).Abs(exact).Cmp(limit) <= 0
		v, ok := ParseInteger([]byte(text))
		if ok != (exact.IsInt() && inside) || ok && exact.Cmp(new(big.Rat).SetInt64(v)) != 0 {
			t.Fatalf("ParseInteger(%s) = %d, %t", text, v, ok)
		}
		v, ok = ParseIntegerClamped([]byte(text))
		want := exact
		if !inside {
			want = new(big.Rat).SetInt64(maxSafe * int64(exact.Sign()))
		}
		if ok != exact.IsInt() || ok && want.Cmp(new(big.Rat).SetInt64(v)) != 0 {
			t.Fatalf("ParseIntegerClamped(%s) = %d, %t", text, v, ok)
		}
	})
}

func TestObjectMembers(t *testing.T) {
	got, err := ObjectMembers([]byte(" {\"b\" : 1 , \"a\":\t{\"x\":1,\"x\":2}\n,\"\\u0063\": null } \n"))
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, m := range got {
		text = append(text, m.Key+"="+string(m.Value))
	}
	if want := `b=1 a={"x":1,"x":2} c=null`; strings.Join(text, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(text, " "), want)
	}
	for _, in := range []string{
		``, ` `, `null`, `1`, `"x"`, `[]`, `[{}]`, `{`, `{}{}`, `{} x`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a"}`, `{"a":}`, `{1:1}`, `{"a":1]`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", `{"a":01}`, `{"a":NaN}`,
	} {
		if got, err := ObjectMembers([]byte(in)); !errors.Is(err, ErrJSON) {
			t.Errorf("%s is accepted: %v, %v", in, got, err)
		}
	}
}

// A large object must not take quadratic time: whoever may send a body could
// otherwise stop a worker with one.
func TestObjectMembersOfManyKeys(t *testing.T) {
	var b strings.Builder
	const n = 60_000
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	doubled := b.String() + `"k59999":0}`
	b.WriteString(`"last":0}`)
	began := time.Now()
	members, err := ObjectMembers([]byte(b.String()))
	if err != nil || len(members) != n+1 {
		t.Fatalf("%d members, %v", len(members), err)
	}
	if _, err := ObjectMembers([]byte(doubled)); !errors.Is(err, ErrJSON) {
		t.Errorf("a doubled key among many: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("two objects of %d members took %v", n, took)
	}
}

// Half of a surrogate pair is no text: all halves would become one character.
func TestLoneSurrogates(t *testing.T) {
	for text, ok := range map[string]bool{
		`"\ud83d\ude00"`: true, `"x\\ud800"`: true, `"\\\ud83d\ude00"`: true, `"\u0041\ud83d\ude00\n"`: true,
		`"\ud800"`: false, `"\udc00"`: false, `"\ud800\ud800"`: false, `"\ud83dx\ude00"`: false, `"\\\ud800"`: false, `{"\uDFFF":1}`: false, `["a","\uD800"]`: false,
	} {
		if _, err := CanonicalJSON([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ObjectMembers([]byte(`{"workId":"\ud800"}`)); !errors.Is(err, ErrJSON) {
		t.Errorf("an object: %v", err)
	}
}
