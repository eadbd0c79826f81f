package release_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// apply decides a command and folds it, as the service does, without the checks
// of a scenario: those look at the whole ledger each time.
func (l *ledger) apply(c release.Command) {
	l.t.Helper()
	var list []events.Payload
	l.state, list = l.next(c)
	l.log = append(l.log, list)
}

// next is the ledger after a command.
func (l *ledger) next(c release.Command) (release.Ledger, []events.Payload) {
	l.t.Helper()
	d, err := release.Decider{}.Decide(l.state, c, l.facts)
	if err != nil {
		l.t.Fatalf("%s: %v", c.Verb(), err)
	}
	return l.fold(l.state, d.Events).Placed(uint64(len(l.log)+1), msgIDAt(len(l.log)+1)), d.Events
}

func command(t failer, verb, body string) release.Command {
	t.Helper()
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	c, err := release.Parse(verb, b)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// 10,000 receipts on one session, each in a command of its own: all are kept in
// order, the gates stay provable, and the later ones cost no more than the
// earlier ones.
func TestReceiptFlood(t *testing.T) {
	const flood = 10_000
	l := given(t).upTo(release.Built)
	// The gates come first, so that a limit on receipts would lose them.
	l.happened(release.VerbReceipts, evidence(one, staticGates))
	record := func(i int) {
		l.apply(command(t, release.VerbReceipts, evidence(one, "["+gate("build", fmt.Sprintf("b-%05d", i), "")+"]")))
	}
	for i := range flood {
		record(i)
	}
	d := l.doc(one)
	if total := d.ReceiptPage(0, 1).Total; total != flood+5 {
		t.Fatalf("%d receipts", total)
	}
	for from := 5; from < flood+5; from += 100 {
		for i, r := range d.ReceiptPage(from, 100).Receipts {
			if want := fmt.Sprintf(`{"id":"b-%05d",`, from-5+i); !strings.HasPrefix(string(r), want) {
				t.Fatalf("receipt %d is %s", from+i, r)
			}
		}
	}
	if x := d.Explain(l.facts); len(x.Done) != 4 || len(x.Waits) != 0 {
		t.Errorf("%+v", x)
	}
	// The bytes that a command allocates do not grow with what is there.
	late := bytesPerRun(func() { l.next(command(t, release.VerbReceipts, evidence(one, soakProof))) })
	fresh := given(t).upTo(release.Built)
	early := bytesPerRun(func() { fresh.next(command(t, release.VerbReceipts, evidence(one, soakProof))) })
	t.Logf("bytes of a command: %d beside 1 receipt, %d beside %d", early, late, flood+5)
	if late > early+64<<10 {
		t.Errorf("a command takes %d bytes beside %d receipts, %d beside one: it copies all", late, flood+5, early)
	}
	l.apply(command(t, release.VerbAdvance, l.step(one, release.StaticVerified)))
	if d := l.doc(one); d.Phase() != release.StaticVerified || d.Revision() != flood+4 {
		t.Errorf("in %s at revision %d", d.Phase(), d.Revision())
	}
	// As one document it is read again with all of them.
	text, err := l.doc(one).MarshalJSON()
	if err != nil || len(text) != l.doc(one).Size() {
		t.Fatal(len(text), err)
	}
	again := given(t)
	again.state = again.fold(again.state, []events.Payload{events.ReleaseDocumentReceived{Name: one, Text: text}})
	if got := again.doc(one); got.ReceiptPage(0, 1).Total != flood+5 || len(got.Passed()) != 4 {
		t.Errorf("%d receipts, passed %v", got.ReceiptPage(0, 1).Total, got.Passed())
	}
}

// bytesPerRun is what a function allocates, on average of some runs.
func bytesPerRun(run func()) int64 {
	const runs = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		run()
	}
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) / runs
}

// Two sessions made of the same one do not write into each other's receipts.
func TestForksShareNoReceipts(t *testing.T) {
	for _, n := range []int{0, 1, 254, 255, 256, 257, 511, 512, 600, 800, 1100} {
		l := given(t).received(one+".json", many(n, "phase", `"built"`, "candidateRelease", candidate))
		for k := range 3 {
			l.happened(release.VerbReceipts, evidence(one, "["+gate("build", fmt.Sprintf("common-%d", k), "")+"]"))
		}
		a, b := l.fork(), l.fork()
		for range 300 {
			a.apply(command(t, release.VerbReceipts, evidence(one, "["+gate("build", "a", "")+"]")))
			b.apply(command(t, release.VerbReceipts, evidence(one, "["+gate("build", "b", "")+","+gate("build", "b", "")+"]")))
		}
		for name, f := range map[string]*ledger{"a": a, "b": b} {
			page := f.doc(one).ReceiptPage(n+3, 10_000)
			if want := map[string]int{"a": 300, "b": 600}[name]; len(page.Receipts) != want {
				t.Fatalf("%s beside %d: %d receipts", name, n, len(page.Receipts))
			}
			for _, r := range page.Receipts {
				if !strings.HasPrefix(string(r), `{"id":"`+name+`"`) {
					t.Fatalf("%s beside %d has %s", name, n, r)
				}
			}
		}
		if total := l.doc(one).ReceiptPage(0, 1).Total; total != n+3 {
			t.Errorf("%d receipts in the one before", total)
		}
	}
}

// A thousand finished sessions cost a command a copy of the list of documents,
// not a look into them.
func TestManyFinishedSessions(t *testing.T) {
	bytes := func(n int) int64 {
		l := given(t)
		for i := range n {
			id := fmt.Sprintf("finished-%05d", i)
			text := with(document, "sessionId", quote(id), "phase", `"failed"`)
			l.state = l.fold(l.state, []events.Payload{events.ReleaseDocumentReceived{Name: id, Text: []byte(text)}})
		}
		l.state = l.state.Placed(1, events.MsgID{})
		return bytesPerRun(func() { l.next(command(t, release.VerbCreate, createBody)) })
	}
	few, lots := bytes(10), bytes(1000)
	t.Logf("bytes of a create: %d beside 10 sessions, %d beside 1000", few, lots)
	if most := few + 1000*64; lots > most {
		t.Errorf("a create takes %d bytes beside 1000 finished sessions, %d beside 10", lots, few)
	}
}
