package legacy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/legacy"
)

func TestReadWorks(t *testing.T) {
	text := strings.Join([]string{
		`{"workId":"w1","state":"open"}`,
		``,
		` {"state":"completed", "workId":" w2 ", "more":1} ` + "\r",
		`{"workId":"w3","state":null}`,
		`{"workId":"w1","state":"cancelled"}`,
		`{"workId":"w4"}`,
		`{"workId":"","state":"open"}`,
		`{"workId":"w4","state":5}`,
		`{"workId":"w4","state":" "}`,
		`["w4"]`,
		`{"workId":"w4","state":"open"`,
		`{"workId":"w4","workId":"w5","state":"open"}`,
		"{\"workId\":\"\xff\",\"state\":\"open\"}",
		`{"workId":"` + strings.Repeat("x", 70_000) + `","state":"open"}`,
		`{"workId":"w1","state":"failed"}`,
		`{"workId":"w5","state":"open"}`, // no end of line
	}, "\n")
	w, err := legacy.ReadWorks(strings.NewReader(text), "works.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range w.Entries {
		got = append(got, fmt.Sprintf("%d %s %s %s", e.Index, e.WorkID, e.Raw, e.Note))
	}
	for _, p := range w.Problems {
		got = append(got, p.Location+": "+p.Reason)
	}
	want := []string{
		`15 w1 "failed" replaces line 1, 5; "failed" is a contract status of the old system, whose works are still open; here it is taken as a terminal state`,
		`3 w2 "completed" `,
		`4 w3 null `,
		`16 w5 "open" `,
		"line 6: state is missing; null says unknown",
		"line 7: workId is missing, blank or no text",
		"line 8: state is neither a text nor null",
		"line 9: state is neither a text nor null",
		"line 10: not a JSON object",
		"line 11: invalid JSON: unexpected end of JSON input",
		`line 12: duplicate key "workId"`,
		"line 13: not UTF-8",
		"line 14: longer than 65536 bytes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("works (-want +got):\n%s", diff)
	}

	plan := legacy.PlanWorks(w, "")
	var bodies []string
	for c := range plan.Commands() {
		if c.Root != "op" || c.Aggregate != "work" || c.Verb != "set-state" {
			t.Errorf("command %s %s %s", c.Root, c.Aggregate, c.Verb)
		}
		bodies = append(bodies, string(c.Body))
	}
	wantBodies := []string{
		`{"workId":"w1","state":"failed","reason":"import of work states"}`,
		`{"workId":"w2","state":"completed","reason":"import of work states"}`,
		`{"workId":"w3","state":null,"reason":"import of work states"}`,
		`{"workId":"w5","state":"open","reason":"import of work states"}`,
	}
	if diff := cmp.Diff(wantBodies, bodies); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
	if r := plan.Report(); r.Ok() || len(r.Problems) != 9 {
		t.Errorf("the report of a plan with bad lines is ok, or lacks them: %+v", r)
	}
}

func TestReadWorksError(t *testing.T) {
	broken := errors.New("broken disk")
	_, err := legacy.ReadWorks(iotest.ErrReader(broken), "works.jsonl")
	if !errors.Is(err, broken) || !errors.Is(err, legacy.ErrLegacy) {
		t.Errorf("ReadWorks: %v, want the reader's error", err)
	}
	if w, err := legacy.ReadWorks(strings.NewReader(""), "none"); err != nil || len(w.Entries)+len(w.Problems) > 0 {
		t.Errorf("an empty file: %v, %v", w, err)
	}
}
