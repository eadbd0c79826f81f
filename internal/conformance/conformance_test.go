package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// parrot answers the steps in turn, and remembers what it was asked.
type parrot struct {
	answers []Answer
	asked   []string
	at      []time.Time
}

func (p *parrot) Do(at time.Time, op string, input json.RawMessage) Answer {
	p.asked, p.at = append(p.asked, op+string(input)), append(p.at, at)
	if len(p.answers) == 0 {
		return Answer{OK: json.RawMessage("null")}
	}
	a := p.answers[0]
	p.answers = p.answers[1:]
	return a
}

func trace(t *testing.T, steps string) Trace {
	t.Helper()
	var tr Trace
	if err := json.Unmarshal([]byte(`{"name":"x","steps":`+steps+`}`), &tr); err != nil {
		t.Fatalf("%s: %v", steps, err)
	}
	return tr
}

func run(t *testing.T, steps string, answers ...Answer) (*parrot, int, error) {
	t.Helper()
	p := &parrot{answers: answers}
	closed := 0
	n, err := runTrace(trace(t, steps), func() (System, func()) { return p, func() { closed++ } })
	if closed != 1 {
		t.Errorf("the system was given back %d times", closed)
	}
	return p, n, err
}

func ok(text string) Answer { return Answer{OK: json.RawMessage(text)} }

// A runner that lets a wrong answer pass is worth nothing.
func TestComparisonBites(t *testing.T) {
	step := func(op, expect string) string {
		return `[{"at":"2026-01-01T00:00:00.000Z","op":"` + op + `","input":{},"expect":` + expect + `}]`
	}
	for name, c := range map[string]struct {
		op, expect string
		got        Answer
		same       bool
	}{
		"equal":                               {"get", `{"ok":{"a":1,"b":[1,2]}}`, ok(`{"b":[1,2],"a":1.0}`), true},
		"null":                                {"get", `{"ok":null}`, ok(`null`), true},
		"nothing for null":                    {"get", `{"ok":null}`, Answer{}, false},
		"null for a session":                  {"get", `{"ok":{"a":1}}`, ok(`null`), false},
		"a session for null":                  {"get", `{"ok":null}`, ok(`{"a":1}`), false},
		"another number":                      {"get", `{"ok":{"a":1}}`, ok(`{"a":2}`), false},
		"a neighbour beyond 2^53":             {"get", `{"ok":{"a":9007199254740993}}`, ok(`{"a":9007199254740992}`), false},
		"a text for a number":                 {"get", `{"ok":{"a":1}}`, ok(`{"a":"1"}`), false},
		"a missing member":                    {"get", `{"ok":{"a":1,"b":2}}`, ok(`{"a":1}`), false},
		"a member more":                       {"get", `{"ok":{"a":1}}`, ok(`{"a":1,"b":2}`), false},
		"null is not absent":                  {"get", `{"ok":{"a":1}}`, ok(`{"a":1,"b":null}`), false},
		"another order in an array":           {"get", `{"ok":[1,2]}`, ok(`[2,1]`), false},
		"the error":                           {"claim", `{"error":"X","message":"X: y"}`, Answer{Error: "X"}, true},
		"another error":                       {"claim", `{"error":"X"}`, Answer{Error: "Y"}, false},
		"a result for an error":               {"claim", `{"error":"X"}`, ok(`null`), false},
		"an error for a result":               {"claim", `{"ok":null}`, Answer{Error: "X"}, false},
		"no JSON":                             {"get", `{"ok":1}`, ok(`1 2`), false},
		"a list in any order":                 {"list", `{"ok":[{"workId":"a","x":1},{"workId":"b"}]}`, ok(`[{"workId":"b"},{"workId":"a","x":1}]`), true},
		"a list with another element":         {"list", `{"ok":[{"workId":"a","x":1}]}`, ok(`[{"workId":"a","x":2}]`), false},
		"a list with an element more":         {"list", `{"ok":[{"workId":"a"}]}`, ok(`[{"workId":"a"},{"workId":"a"}]`), false},
		"an empty list":                       {"list", `{"ok":[]}`, ok(`[]`), true},
		"null for an empty list":              {"list", `{"ok":[]}`, ok(`null`), false},
		"the order of a list of list is kept": {"listComplete", `{"ok":[{"workId":"a"},{"workId":"b"}]}`, ok(`[{"workId":"b"},{"workId":"a"}]`), false},
	} {
		_, n, err := run(t, step(c.op, c.expect), c.got)
		if (err == nil) != c.same || n != 1 {
			t.Errorf("%s: compared %d, %v", name, n, err)
		}
	}
}

func TestTracesAreRunAsWritten(t *testing.T) {
	p, n, err := run(t, `[
		{"at":"2026-01-01T00:00:00.000Z","op":"env.work","input":{"workId":"w"}},
		{"at":"2026-01-01T00:00:01.500Z","op":"get","expect":{"ok":1},"expectRedesign":{"error":"X"},"divergence":"d"},
		{"at":"2026-01-01T00:00:02.000Z","op":"get","input":{},"expect":{"ok":2}},
		{"at":"2026-01-01T00:00:03.000Z","op":"get","input":{},"expect":{"ok":3},"quirk":"unreadable-time"},
		{"at":"2026-01-01T00:00:04.000Z","op":"get","input":{},"expect":{"ok":4}}]`, ok("null"), Answer{Error: "X"}, ok("2"))
	if err != nil || n != 2 {
		t.Errorf("compared %d, %v", n, err)
	}
	if got := strings.Join(p.asked, " "); got != `env.work{"workId":"w"} get{} get{}` {
		t.Errorf("asked %s", got)
	}
	if got := p.at[1].Format(time.RFC3339Nano); got != "2026-01-01T00:00:01.5Z" {
		t.Errorf("asked at %s", got)
	}
	// env.* always succeeds; and a failure says where.
	_, _, err = run(t, `[{"at":"2026-01-01T00:00:00Z","op":"env.work","input":{}}]`, Answer{Error: "X"})
	if err == nil {
		t.Error("an env step may fail")
	}
	_, _, err = run(t, `[{"at":"2026-01-01T00:00:00Z","op":"env.work"},{"at":"2026-01-01T00:00:00Z","op":"get","expect":{"ok":1}}]`, ok("null"), ok("2"))
	if err == nil || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("got %v", err)
	}
}

func TestDirectoryOfTheVectors(t *testing.T) {
	if got := fromModuleRoot(t, "."); got != "." {
		t.Errorf("a directory that is here became %s", got)
	}
	got := fromModuleRoot(t, filepath.Join("testdata", "conformance"))
	if _, err := os.Stat(filepath.Join(got, "session")); err != nil {
		t.Errorf("%s: %v", got, err)
	}
}
