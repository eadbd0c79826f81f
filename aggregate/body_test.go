package aggregate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

func parse(t *testing.T, text string) *aggregate.Body {
	t.Helper()
	b, err := aggregate.ParseBody([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return b
}

// A field is absent, well-formed or malformed, and never two of them.
func TestFields(t *testing.T) {
	b := parse(t, `{"text":" x ","empty":"","int":1e2,"big":1e30,"fraction":1.5,"true":true,"false":false,"object":{"a":1},"list":[1],"null":null,"doubled":{"a":1,"a":1}}`)
	for name, f := range map[string]struct {
		set, bad bool
		value    any
		got      aggregate.Field[any]
	}{
		"a text":                {true, false, " x ", plain(b.Text("text"))},
		"an empty text":         {true, false, "", plain(b.Text("empty"))},
		"no text":               {false, false, "", plain(b.Text("absent"))},
		"a null text":           {false, false, "", plain(b.Text("null"))},
		"a number as text":      {false, true, "", plain(b.Text("int"))},
		"an integer":            {true, false, int64(100), plain(b.Int("int"))},
		"a fraction":            {false, true, int64(0), plain(b.Int("fraction"))},
		"too large an integer":  {false, true, int64(0), plain(b.Int("big"))},
		"a null integer":        {false, false, int64(0), plain(b.Int("null"))},
		"a text as integer":     {false, true, int64(0), plain(b.Int("text"))},
		"a large duration":      {true, false, int64(1<<53 - 1), plain(b.Millis("big"))},
		"a fractional duration": {false, true, int64(0), plain(b.Millis("fraction"))},
		"true":                  {true, false, true, plain(b.Bool("true"))},
		"false":                 {true, false, false, plain(b.Bool("false"))},
		"a null boolean":        {false, false, false, plain(b.Bool("null"))},
		"a number as boolean":   {false, true, false, plain(b.Bool("int"))},
	} {
		if f.got.Set != f.set || f.got.Bad != f.bad || f.got.Value != f.value {
			t.Errorf("%s: got %+v", name, f.got)
		}
	}
	if o := b.Object("object"); !o.Set || o.Value.Int("a").Value != 1 {
		t.Errorf("an object: %+v", o)
	}
	for _, name := range []string{"list", "text", "doubled"} {
		if o := b.Object(name); o.Set || !o.Bad || o.Value != nil {
			t.Errorf("%s as an object: %+v", name, o)
		}
	}
	if o := b.Object("null"); o.Set || o.Bad {
		t.Errorf("null as an object: %+v", o)
	}
	if got := aggregate.Trimmed(b.Text("text")); got != "x" {
		t.Errorf("trimmed to %q", got)
	}
	if got := aggregate.Trimmed(b.Text("list")); got != "" {
		t.Errorf("a malformed text is %q", got)
	}
}

func plain[T any](f aggregate.Field[T]) aggregate.Field[any] {
	return aggregate.Field[any]{Value: f.Value, Set: f.Set, Bad: f.Bad}
}

// The first malformed field that was asked for is named, once the checks are
// over; those nobody asked for are ignored, and named, too.
func TestMalformedAndIgnored(t *testing.T) {
	b := parse(t, `{"z":7,"a":"x","b":true,"c":null,"d":[]}`)
	if b.Malformed() != nil {
		t.Error("malformed before anything was asked for")
	}
	b.Text("a")
	if b.Malformed() != nil {
		t.Error("malformed with a well-formed field")
	}
	b.Int("b")
	b.Text("z")
	err := b.Malformed()
	if events.CodeOf(err) != events.CodeBadRequest || events.AsError(err).Details["field"] != "b" {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(b.Ignored(), " "); got != "c d" {
		t.Errorf("ignored: %s", got)
	}
	var none *aggregate.Body
	if none.Malformed() != nil {
		t.Error("no body is malformed")
	}
}

func TestRaw(t *testing.T) {
	b := parse(t, "{\"a\" : [ 1.0 , {} ] ,\"n\":\tnull}")
	if raw, ok := b.Raw("a"); !ok || string(raw) != "[ 1.0 , {} ]" {
		t.Errorf("got %s, %t", raw, ok)
	}
	if raw, ok := b.Raw("n"); ok || string(raw) != "null" {
		t.Errorf("null is %s, %t", raw, ok)
	}
	if raw, ok := b.Raw("x"); ok || raw != nil {
		t.Errorf("absent is %s, %t", raw, ok)
	}
	f := aggregate.Decode(b, "a", func(raw json.RawMessage) (int, bool) { return 5, false })
	if f.Set || !f.Bad || f.Value != 0 {
		t.Errorf("a malformed field keeps a value: %+v", f)
	}
}

func TestWhatIsNoBody(t *testing.T) {
	for _, text := range []string{" ", "null", "7", `"x"`, "[]", "{", `{}{}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", "\ufeff{}"} {
		if b, err := aggregate.ParseBody([]byte(text)); b != nil || events.CodeOf(err) != events.CodeBadRequest || events.AsError(err).Details["field"] != "body" {
			t.Errorf("%q: %v, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "{}", " {} \n"} {
		b, err := aggregate.ParseBody([]byte(text))
		if err != nil || b.Text("x").Set || b.Ignored() != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
