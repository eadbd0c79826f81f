package legacy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/forge-es/forge-es/legacy"
	"github.com/forge-es/forge-es/legacy/legacytest"
)

// body is any body of an import, for reading.
type body struct {
	Source string
	Scope  string
	Store  *struct {
		SchemaVersion int
		UpdatedAt     string
		Sessions      []json.RawMessage
	}
	Records []struct {
		WorkID string
		Record json.RawMessage
	}
}

// checkCommands checks that every command keeps the limits, and that ids are
// distinct.
func checkCommands(t interface {
	Helper()
	Errorf(string, ...any)
}, p *legacy.Plan,
) (entries int) {
	t.Helper()
	commands := 0
	for c := range p.Commands() {
		commands++
		if len(c.Body) > legacy.MaxBody || !json.Valid(c.Body) {
			t.Errorf("command %s: %d bytes, valid %v", c.Verb, len(c.Body), json.Valid(c.Body))
		}
		n := 1
		if c.Verb == "import" {
			var b body
			if err := json.Unmarshal(c.Body, &b); err != nil {
				t.Errorf("%v", err)
			}
			n = len(b.Records)
			if b.Store != nil {
				n = len(b.Store.Sessions)
			}
		}
		if n > legacy.MaxEntries {
			t.Errorf("command %s holds %d entries", c.Verb, n)
		}
		entries += n
	}
	if commands != p.Len() || entries != p.Entries() {
		t.Errorf("%d commands with %d entries, the plan says %d with %d", commands, entries, p.Len(), p.Entries())
	}
	return entries
}

func TestPlanBodies(t *testing.T) {
	h := legacytest.New(t)
	g := legacytest.NewGen(5)
	a, b := g.Session("a"), g.Session("b")
	h.Row(legacytest.Claims, "r1", "index", `{"schemaVersion":1,"sessions":[`+a.JSON()+`,7,`+b.JSON()+`]}`)
	h.Record("r2")
	h.Retain("r1", a, "2026-02-01T00:00:00.000Z")
	h.Row(legacytest.Transport, "controller", "t1", `{"principalId":"p","updatedAt":"2026-01-01T00:00:00.000Z"}`)
	h.Store("r3", b)
	h.Store("r2", a)
	h.Close()
	works, err := legacy.ReadWorks(strings.NewReader(`{"workId":"a","state":"open"}`), "works")
	if err != nil {
		t.Fatal(err)
	}
	plan := legacy.PlanSessions(read(t, h.Dir), works)
	checkCommands(t, plan)

	compact := func(s string) string {
		var v json.RawMessage = []byte(s)
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var got []string
	for c := range plan.Commands() {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.Root, c.Aggregate, c.Verb, c.Body))
	}
	want := []string{
		`op work import {"source":"record","scope":"r1","store":{"schemaVersion":1,"sessions":[` + compact(a.JSON()) + `,` + compact(b.JSON()) + `]}}`,
		`op work import {"source":"record","scope":"r2","store":{"schemaVersion":1,"updatedAt":"2026-01-01T00:00:00.000Z","sessions":[]}}`,
		`op work import {"source":"file","scope":"r3","store":{"schemaVersion":1,"updatedAt":"2026-01-01T00:00:00.000Z","sessions":[` + compact(b.JSON()) + `]}}`,
		`op work import {"source":"retained","scope":"r1","records":[{"workId":"a","record":` + compact(legacytest.Retained(a, "2026-02-01T00:00:00.000Z")) + `}]}`,
		`op activity set {"sessionId":"t1","session":{"principalId":"p","updatedAt":"2026-01-01T00:00:00.000Z"},"keepNewer":true}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	wantReport := `{"schemaVersion":1,"kind":"sessions","from":"HOME","dryRun":true,"complete":false,"commands":5,` +
		`"counts":{"dropped":1,"ignored":1,"to-send":5},"places":[` +
		`{"place":"record","scope":"r1","location":"control-plane.sqlite controller_session_claim_store/r1/index","entries":3,"dropped":1,"commands":1},` +
		`{"place":"record","scope":"r2","location":"control-plane.sqlite controller_session_claim_store/r2/index","entries":0,"dropped":0,"commands":1},` +
		`{"place":"file","scope":"r2","location":"repositories/r2/controller-sessions.json","entries":1,"dropped":0,"commands":0,"ignored":"a record of the same scope exists"},` +
		`{"place":"file","scope":"r3","location":"repositories/r3/controller-sessions.json","entries":1,"dropped":0,"commands":1},` +
		`{"place":"retained","scope":"r1","location":"control-plane.sqlite controller_session_identity/r1","entries":1,"dropped":0,"commands":1},` +
		`{"place":"activity","scope":"controller","location":"control-plane.sqlite execution_session/controller","entries":1,"dropped":0,"commands":1}],` +
		`"entries":[` +
		`{"place":"record","scope":"r1","index":0,"workId":"a","outcome":"to-send"},` +
		`{"place":"record","scope":"r1","index":1,"outcome":"dropped","reason":"not a JSON object"},` +
		`{"place":"record","scope":"r1","index":2,"workId":"b","outcome":"to-send"},` +
		`{"place":"file","scope":"r2","index":0,"workId":"a","outcome":"ignored","reason":"a record of the same scope exists"},` +
		`{"place":"file","scope":"r3","index":0,"workId":"b","outcome":"to-send"},` +
		`{"place":"retained","scope":"r1","index":0,"key":"a","workId":"a","outcome":"to-send"},` +
		`{"place":"activity","scope":"controller","index":0,"key":"t1","outcome":"to-send"}],` +
		`"problems":[],"missing":[],` +
		`"works":{"named":2,"countAsOpen":1,"text":"1 work appears in claims without a known state; it counts as open"}}`
	report := plan.Report()
	report.From = "HOME"
	out, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantReport, string(out)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// sessionsOf makes a group from sizes: each entry is a session of about so many
// bytes.
func sessionsOf(place legacy.Place, sizes []int) *legacy.Sessions {
	g := &legacy.Group{Place: place, Scope: "scope"}
	for i, size := range sizes {
		id := fmt.Sprintf("w%d", i)
		raw := fmt.Sprintf(`{"workId":%q,"x":%q}`, id, strings.Repeat("x", size))
		g.Entries = append(g.Entries, legacy.Entry{Index: i, Key: id, WorkID: id, Raw: json.RawMessage(raw)})
	}
	return &legacy.Sessions{Groups: []*legacy.Group{g}}
}

func TestPlanLimits(t *testing.T) {
	count := func(p *legacy.Plan) string { return fmt.Sprintf("%d commands, %d entries", p.Len(), p.Entries()) }
	for _, place := range []legacy.Place{legacy.PlaceRecord, legacy.PlaceFile, legacy.PlaceRetained} {
		for n, want := range map[int]int{1: 1, legacy.MaxEntries: 1, legacy.MaxEntries + 1: 2, 2 * legacy.MaxEntries: 2} {
			p := legacy.PlanSessions(sessionsOf(place, make([]int, n)), nil)
			checkCommands(t, p)
			if p.Len() != want || p.Entries() != n {
				t.Errorf("%s, %d entries: %s", place, n, count(p))
			}
		}
		// Around the largest entry there can be; beyond it, it is dropped by name.
		largest := 0
		for size := legacy.MaxBody; ; size-- {
			if largest = size; legacy.PlanSessions(sessionsOf(place, []int{size}), nil).Entries() == 1 {
				break
			}
		}
		p := legacy.PlanSessions(sessionsOf(place, []int{largest, largest + 1, 5}), nil)
		checkCommands(t, p)
		r := p.Report()
		if p.Len() != 2 || r.Entries[1].Outcome != legacy.OutcomeDropped || !strings.Contains(r.Entries[1].Reason, "the most is 409600") {
			t.Errorf("%s: %s, the second %+v", place, count(p), r.Entries[1])
		}
		for c := range p.Commands() {
			if len(c.Body) < legacy.MaxBody-1 { // a comma is always reckoned with
				t.Errorf("%s: the largest entry makes %d bytes", place, len(c.Body))
			}
			break
		}
	}
	for place, want := range map[legacy.Place]int{legacy.PlaceRecord: 1, legacy.PlaceFile: 1, legacy.PlaceRetained: 0, legacy.PlaceActivity: 0} {
		if p := legacy.PlanSessions(sessionsOf(place, nil), nil); p.Len() != want {
			t.Errorf("empty %s: %s, want %d commands", place, count(p), want)
		}
	}
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.SampledFrom([]legacy.Place{legacy.PlaceRecord, legacy.PlaceFile, legacy.PlaceRetained, legacy.PlaceActivity}).Draw(t, "place")
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 2000), rapid.IntRange(0, 200_000)), 0, 60).Draw(t, "sizes")
		s := sessionsOf(place, sizes)
		p := legacy.PlanSessions(s, nil)
		if n := checkCommands(t, p); n != len(sizes) {
			t.Errorf("%d of %d entries are sent", n, len(sizes))
		}
		// Put together, the commands hold every entry once, in order.
		var got []string
		for c := range p.Commands() {
			var b body
			if err := json.Unmarshal(c.Body, &b); err != nil {
				t.Fatal(err)
			}
			if b.Store != nil {
				for _, raw := range b.Store.Sessions {
					got = append(got, string(raw))
				}
			}
			for _, r := range b.Records {
				got = append(got, string(r.Record))
			}
			if place == legacy.PlaceActivity {
				var a struct{ Session json.RawMessage }
				if err := json.Unmarshal(c.Body, &a); err != nil {
					t.Fatal(err)
				}
				got = append(got, string(a.Session))
			}
		}
		for i, e := range s.Groups[0].Entries {
			if i >= len(got) || got[i] != string(e.Raw) {
				t.Fatalf("entry %d is not sent as found", i)
			}
		}
	})
}
