package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/legacy"
	"github.com/forge-es/forge-es/legacy/legacytest"
)

// fake is a service that remembers what it imported.
type fake struct {
	mu    sync.Mutex
	seen  map[string]bool // command ids, and bodies of commands without one
	known map[string]bool // works with an owner
	calls []legacy.Command

	// answer, if set, may answer instead.
	answer func(cmd legacy.Command) (legacy.Reply, error, bool)
}

func newFake() *fake { return &fake{seen: make(map[string]bool), known: make(map[string]bool)} }

func (f *fake) Send(ctx context.Context, cmd legacy.Command) (legacy.Reply, error) {
	if err := ctx.Err(); err != nil {
		return legacy.Reply{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, cmd)
	if f.answer != nil {
		if reply, err, ok := f.answer(cmd); ok {
			return reply, err
		}
	}
	key := string(cmd.Body)
	again := f.seen[key]
	f.seen[key] = true
	if cmd.Verb != "import" {
		if again {
			return legacy.Reply{Outcome: "unchanged"}, nil
		}
		return legacy.Reply{Outcome: "appended"}, nil
	}
	var b body
	if err := json.Unmarshal(cmd.Body, &b); err != nil {
		return legacy.Reply{}, err
	}
	var works []string
	if b.Store != nil {
		for _, raw := range b.Store.Sessions {
			var s struct{ WorkID string }
			if err := json.Unmarshal(raw, &s); err != nil {
				return legacy.Reply{}, err
			}
			works = append(works, strings.TrimSpace(s.WorkID))
		}
	}
	for _, r := range b.Records {
		works = append(works, r.WorkID)
	}
	type entry map[string]any
	entries := []entry{}
	for i, w := range works {
		outcome := "imported"
		if f.known[w] {
			outcome = "unchanged"
		}
		f.known[w] = true
		entries = append(entries, entry{"index": i, "workId": w, "outcome": outcome})
	}
	snapshot := "imported"
	if again {
		snapshot = "already-imported"
	}
	result, err := json.Marshal(map[string]any{"snapshot": snapshot, "entries": entries})
	return legacy.Reply{Outcome: "appended", Result: result}, err
}

func planOf(t *testing.T) *legacy.Plan {
	t.Helper()
	h := legacytest.New(t)
	g := legacytest.NewGen(9)
	s := g.Sessions(1200)
	h.Record("r1", s[:1100]...)
	h.Store("r2", s[1100:]...)
	h.Store("r1", s[0])
	h.Row(legacytest.Identity, "r1", "broken", "{")
	h.Retain("r1", s[0], "")
	for _, s := range s[:40] {
		h.Row(legacytest.Transport, "controller", s.SessionID, g.Transport(s))
	}
	h.Crash()
	return legacy.PlanSessions(read(t, h.Dir), nil)
}

func TestRun(t *testing.T) {
	plan := planOf(t)
	f := newFake()
	var steps []int
	report, err := legacy.Run(t.Context(), plan, f, func(done, total int) {
		if total != 1241 {
			t.Errorf("total %d, want 1241", total)
		}
		steps = append(steps, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[legacy.Outcome]int{"imported": 1200, "unchanged": 1, "set": 40, "dropped": 1, "ignored": 1}
	if diff := cmp.Diff(want, report.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if !report.Complete || report.DryRun || report.Ok() { // not ok: one is dropped
		t.Errorf("complete %v, dry run %v, ok %v", report.Complete, report.DryRun, report.Ok())
	}
	if len(report.Entries) != 1243 || report.Places[0].Snapshot != "imported" {
		t.Errorf("%d entries, snapshot %q", len(report.Entries), report.Places[0].Snapshot)
	}
	if len(steps) != plan.Len()+1 || steps[0] != 0 || steps[len(steps)-1] != 1241 {
		t.Errorf("progress %v", steps)
	}

	// The order: snapshots one after another, activity last.
	var order []string
	for i, c := range f.calls {
		var b body
		_ = json.Unmarshal(c.Body, &b)
		if line := c.Verb + " " + b.Source + " " + b.Scope; i == 0 || order[len(order)-1] != line {
			order = append(order, line)
		}
	}
	if diff := cmp.Diff([]string{"import record r1", "import file r2", "import retained r1", "set  "}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}

	// Again: the same commands, nothing new.
	first := len(f.calls)
	again, err := legacy.Run(t.Context(), plan, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	want = map[legacy.Outcome]int{"unchanged": 1241, "dropped": 1, "ignored": 1}
	if diff := cmp.Diff(want, again.Counts); diff != "" {
		t.Errorf("counts of the second run (-want +got):\n%s", diff)
	}
	if len(f.seen) != plan.Len() || len(f.calls) != 2*first {
		t.Errorf("%d commands in %d calls, want %d", len(f.seen), len(f.calls), plan.Len())
	}
	if again.Places[0].Snapshot != "already-imported" {
		t.Errorf("snapshot of the second run: %q", again.Places[0].Snapshot)
	}
	if plan.Report().Counts[legacy.OutcomeToSend] != 1241 {
		t.Error("a run has changed its plan")
	}
}

// TestRunReplies: what the service may answer to a chunk of three.
func TestRunReplies(t *testing.T) {
	plan := legacy.PlanSessions(sessionsOf(legacy.PlaceRecord, []int{1, 1, 1}), nil)
	for name, c := range map[string]struct {
		reply legacy.Reply
		err   error
		want  []string
	}{
		"each": {
			reply: legacy.Reply{Result: json.RawMessage(`{"snapshot":"imported","entries":[{"index":2,"outcome":"older"},{"index":0,"workId":"w0","outcome":"quarantined","reason":"higher generation"},{"index":1,"workId":"w1","outcome":"dropped","reason":"claimedAt"}]}`)},
			want:  []string{"quarantined: higher generation", "dropped: claimedAt", "older: "},
		},
		"ignored":          {reply: legacy.Reply{Result: json.RawMessage(`{"snapshot":"ignored"}`)}, want: []string{"ignored: the service ignores the snapshot: a record of the scope was imported", "", ""}},
		"already imported": {reply: legacy.Reply{Result: json.RawMessage(`{"snapshot":"already-imported","entries":[]}`)}, want: []string{"already-imported: ", "", ""}},
		"one is missing":   {reply: legacy.Reply{Result: json.RawMessage(`{"snapshot":"imported","entries":[{"index":0,"outcome":"imported"},{"index":2,"outcome":"imported"},{"index":3,"outcome":"imported"}]}`)}, want: []string{"imported: ", "unknown: the reply does not name it", "imported: "}},
		"no result":        {want: []string{"unknown: the reply cannot be read: unexpected end of JSON input", "", ""}},
		"refused":          {reply: legacy.Reply{Outcome: "refused", Result: json.RawMessage(`{"allowed":false,"reason":"why"}`)}, want: []string{"refused: why", "", ""}},
		"bad request":      {err: fmt.Errorf("send: %w", events.Errorf(events.CodeBadRequest, "no")), want: []string{"refused: FORGE_BAD_REQUEST: no", "", ""}},
		"poisoned":         {err: events.Errorf(events.CodePoisoned, "one"), want: []string{"refused: FORGE_POISONED: one", "", ""}},
		"too large":        {err: events.Errorf(events.CodeTooLarge, "big"), want: []string{"refused: FORGE_TOO_LARGE: big", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := legacy.Run(t.Context(), plan, legacy.SenderFunc(func(context.Context, legacy.Command) (legacy.Reply, error) {
				return c.reply, c.err
			}), nil)
			if err != nil || !report.Complete {
				t.Fatalf("Run: %v", err)
			}
			for i, want := range c.want {
				if want == "" {
					want = c.want[0]
				}
				e := report.Entries[i]
				if got := string(e.Outcome) + ": " + e.Reason; got != want {
					t.Errorf("entry %d: %q, want %q", i, got, want)
				}
			}
			if name == "one is missing" && len(report.Problems) != 1 {
				t.Errorf("problems %v, want one about entry 3", report.Problems)
			}
		})
	}
}

// TestRunStops: an error that the next command would meet too ends the run; the
// report says how far it came, and another run completes it.
func TestRunStops(t *testing.T) {
	plan := planOf(t)
	for _, broken := range []error{
		errors.New("no route"),
		events.Errorf(events.CodeUnavailable, "x"),
		events.Errorf(events.CodeForbidden, "x"),
		events.Errorf(events.CodeUnknownVerb, "x"),
		events.Errorf(events.CodeLogFull, "x"),
		events.Errorf(events.CodeBusy, "x"),
	} {
		for _, at := range []int{0, 1, 4, plan.Len() - 1} {
			f := newFake()
			f.answer = func(legacy.Command) (legacy.Reply, error, bool) {
				return legacy.Reply{}, broken, len(f.calls) == at+1
			}
			report, err := legacy.Run(t.Context(), plan, f, nil)
			if !errors.Is(err, broken) || !errors.Is(err, legacy.ErrLegacy) {
				t.Fatalf("stop at %d: %v", at, err)
			}
			if report.Complete || report.Ok() || report.Counts[legacy.OutcomeFailed] == 0 {
				t.Errorf("stop at %d: complete %v, counts %v", at, report.Complete, report.Counts)
			}
			if report.Counts[legacy.OutcomeToSend] > 0 {
				t.Errorf("stop at %d: an entry is still to-send", at)
			}
			f.answer = nil
			report, err = legacy.Run(t.Context(), plan, f, nil)
			if err != nil || !report.Complete || len(f.known) != 1200 {
				t.Errorf("the second run: %v, complete %v, %d works", err, report.Complete, len(f.known))
			}
		}
	}
}

func TestRunCancelled(t *testing.T) {
	plan := planOf(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake()
	f.answer = func(legacy.Command) (legacy.Reply, error, bool) {
		if len(f.calls) == 2 {
			cancel()
		}
		return legacy.Reply{}, nil, false
	}
	report, err := legacy.Run(ctx, plan, f, nil)
	if !errors.Is(err, context.Canceled) || report.Complete {
		t.Fatalf("Run: %v, complete %v", err, report.Complete)
	}
	if report.Counts[legacy.OutcomeImported] != 1000 || report.Counts[legacy.OutcomeNotSent] != 241 {
		t.Errorf("counts %v", report.Counts)
	}
}

func TestRunWorks(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, `{"workId":"w%d","state":"completed"}`+"\n", i)
	}
	w, err := legacy.ReadWorks(strings.NewReader(text.String()), "works")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.answer = func(cmd legacy.Command) (legacy.Reply, error, bool) {
		return legacy.Reply{}, events.Errorf(events.CodeIDInvalid, "no"), strings.Contains(string(cmd.Body), `"w7"`)
	}
	for _, outcome := range []legacy.Outcome{legacy.OutcomeSet, legacy.OutcomeUnchanged} {
		report, err := legacy.Run(t.Context(), legacy.PlanWorks(w, "moved"), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		if report.Counts[outcome] != 299 || report.Counts[legacy.OutcomeRefused] != 1 || report.Entries[7].Outcome != legacy.OutcomeRefused {
			t.Errorf("counts %v", report.Counts)
		}
	}
}
