// Package conformance runs the behaviour vectors of testdata/conformance against
// a system. A Trace is a list of Steps against one fresh System; Run compares
// every answer and prints how many traces passed, failed and were skipped. The
// rules of comparison are those of FORMAT.md beside the vectors.
package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/events"
)

// Trace is one vector file.
type Trace struct {
	Name   string `json:"name"`
	System string `json:"system"`
	Title  string `json:"title"`
	View   string `json:"view"`
	Steps  []Step `json:"steps"`
}

// Step is one operation of a trace.
type Step struct {
	At             time.Time       `json:"at"`
	Op             string          `json:"op"`
	Input          json.RawMessage `json:"input"`
	Expect         *Answer         `json:"expect"`
	ExpectRedesign *Answer         `json:"expectRedesign"`
	Quirk          string          `json:"quirk"`
}

// Answer is what a step answers: a result, or an error code.
type Answer struct {
	OK    json.RawMessage `json:"ok,omitempty"`
	Error string          `json:"error,omitempty"`
}

// UnmarshalJSON keeps a null result apart from none.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if code, ok := m["error"]; ok {
		return json.Unmarshal(code, &a.Error)
	}
	a.OK = m["ok"]
	return nil
}

// System answers steps. It is fresh for every trace.
type System interface {
	// Do runs an operation at a virtual time.
	Do(at time.Time, op string, input json.RawMessage) Answer
}

// dirVariable overrides the directory that holds session/ and release/.
const dirVariable = "CONFORMANCE_DIR"

// onlyVariable restricts a run to the traces whose name holds its text, for
// working on one.
const onlyVariable = "CONFORMANCE_TRACE"

// Run runs all traces of one system ("session" or "release"). fallback is the
// directory of the vectors seen from the test. fresh makes the system of a trace,
// done gives it back.
func Run(t *testing.T, system, fallback string, fresh func() (s System, done func())) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		dir = fallback
	} else if !filepath.IsAbs(dir) {
		dir = fromModuleRoot(t, dir)
	}
	var files []string
	err := filepath.WalkDir(filepath.Join(dir, system), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors below %s: %v", filepath.Join(dir, system), err)
	}
	slices.Sort(files)
	var passed, failed, skipped int
	for _, file := range files {
		tr := load(t, file)
		if !strings.Contains(tr.Name, os.Getenv(onlyVariable)) {
			continue
		}
		compared, err := runTrace(tr, fresh)
		switch {
		case err != nil:
			t.Errorf("%s: %v", tr.Name, err)
			failed++
		case compared == 0 && len(tr.Steps) > 0 && tr.Steps[0].Quirk != "":
			skipped++
		default:
			passed++
		}
	}
	t.Logf("%s traces: %d passed, %d failed, %d skipped", system, passed, failed, skipped)
	if passed == 0 {
		t.Error("no trace passed")
	}
}

// fromModuleRoot resolves a directory as the caller of "go test" sees it: tests
// run in their package's folder.
func fromModuleRoot(t *testing.T, dir string) string {
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return filepath.Join(at, dir)
		}
		up := filepath.Dir(at)
		if up == at {
			t.Fatalf("%s=%s: no such directory here or at the module's root", dirVariable, dir)
		}
		at = up
	}
}

func load(t *testing.T, file string) Trace {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tr Trace
	if err := json.Unmarshal(b, &tr); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tr
}

// runTrace runs the steps up to the first that is tagged as a quirk, and gives
// how many answers were compared.
func runTrace(tr Trace, fresh func() (System, func())) (compared int, err error) {
	s, done := fresh()
	defer done()
	for i, step := range tr.Steps {
		if step.Quirk != "" {
			return compared, nil
		}
		input := step.Input
		if len(input) == 0 {
			input = json.RawMessage("{}")
		}
		got := s.Do(step.At, step.Op, input)
		want := cmp.Or(step.ExpectRedesign, step.Expect)
		switch {
		case want != nil:
			err = compare(step.Op, *want, got.seenAs(tr.View, step.Op))
			compared++
		case got.Error != "": // env.* always succeeds
			err = errors.New(got.Error)
		}
		if err != nil {
			return compared, fmt.Errorf("step %d at %s: %s %s\n%w", i, step.At.Format(time.RFC3339Nano), step.Op, input, err)
		}
	}
	return compared, nil
}

func compare(op string, want, got Answer) error {
	if want.Error != "" || got.Error != "" {
		if want.Error != got.Error {
			return fmt.Errorf("want error %q %s\n got error %q %s", want.Error, want.OK, got.Error, got.OK)
		}
		return nil
	}
	w, err := decode(want.OK)
	if err != nil {
		return err
	}
	g, err := decode(got.OK)
	if err != nil {
		return fmt.Errorf("answer is no JSON: %w: %s", err, got.OK)
	}
	if op == "list" {
		w, g = byWork(w), byWork(g)
	}
	if !reflect.DeepEqual(w, g) {
		return fmt.Errorf("want %s\n got %s", want.OK, got.OK)
	}
	return nil
}

// seenAs shortens the release sessions of an answer, if the trace has a summary
// view: those of commands, and of lists.
func (a Answer) seenAs(view, op string) Answer {
	if view != "summary" || a.OK == nil {
		return a
	}
	v, err := decode(a.OK)
	if err != nil {
		return a
	}
	switch op {
	case "create", "advance", "recordTransaction":
		v = summary(v)
	case "list", "listComplete":
		list, _ := v.(map[string]any)
		sessions, _ := list["sessions"].([]any)
		for i := range sessions {
			sessions[i] = summary(sessions[i])
		}
	default:
		return a
	}
	a.OK, _ = json.Marshal(v)
	return a
}

func summary(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v
	}
	inner := func(member, name string) any {
		m, _ := s[member].(map[string]any)
		return m[name]
	}
	receipts, _ := s["receipts"].([]any)
	return map[string]any{
		"sessionId": s["sessionId"], "phase": s["phase"], "revision": s["revision"], "updatedAt": s["updatedAt"], "receipts": len(receipts),
		"candidate": inner("candidateRelease", "releaseId"), "transaction": inner("transaction", "operationId"),
	}
}

// decode reads one JSON value with its numbers as they are: in the canonical form
// equal numbers are the same text, and no digit is lost.
func decode(b json.RawMessage) (v any, err error) {
	canon, err := events.CanonicalJSON(b)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(canon))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// byWork sorts a list of sessions: its order does not count.
func byWork(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(workID(a), workID(b)) })
	return list
}

func workID(v any) string {
	m, _ := v.(map[string]any)
	id, _ := m["workId"].(string)
	return id
}
