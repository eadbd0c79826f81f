package release_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// FuzzDocument: whatever is received is kept, listed once, and decided about
// without a panic; what is read can be written as JSON that is received as the
// same document. The general checks of a scenario hold throughout.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		document, legacy(release.Soaking), with(document, "phase", `"cutover_attempting"`, "candidateRelease", candidate), many(3),
		with(document, "receipts", `[null,7,{"id":"type","kind":"static_gate","outcome":null}]`), "null", "[]", "", `{"a":1,"a":1}`,
		with(document, "candidateRelease", `7`, "transaction", `"x"`), `{"\ud800":1,"\ud801":2}`, "{\"\xff\":1}", " " + document + "\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l := given(t)
		receive := with(`{"replace":true,"reason":"r"}`, "name", quote(one+".json"), "textBase64", quote(base64.StdEncoding.EncodeToString(text)))
		l.when(release.VerbReceiveDocument, receive).appends("release.document-received")
		d := l.doc(one)
		list := l.state.ListComplete()
		if len(list.Sessions)+len(list.InvalidSessionFiles) != 1 {
			t.Fatalf("listed %s", asText(list))
		}
		body := with(`{"expectedPhase":`+quote(d.Phase())+`}`, "sessionId", quote(one), "receipts", staticGates, "reason", `"r"`)
		for _, phase := range slices.Concat(release.Order(), []string{release.RolledBack, release.Failed}) {
			l.fork().when(release.VerbAdvance, with(body, "phase", quote(phase)))
		}
		for _, verb := range []string{release.VerbReceipts, release.VerbEnd} {
			l.fork().when(verb, body)
		}
		l.fork().when(release.VerbTransaction, with(body, "expectedRevision", "1", "transaction", transaction))
		l.fork().when(release.VerbMigrate, migrate())
		l.fork().when(release.VerbCreate, successorBody())
		if d.Why() != nil {
			return
		}
		for _, predicate := range []string{"isTerminal", "candidateIsRetired", "isSoakingPredecessorOfStable", "isSoakingSupersededByStableAuthority"} {
			if _, err := ask(t, l, predicate, with(`{"sessionId":"release-0001"}`, "stableRelease", afterCutover)); err != nil {
				t.Fatal(err)
			}
		}
		if x := d.Explain(l.facts); !json.Valid([]byte(asText(x))) {
			t.Fatalf("explained as %s", asText(x))
		}
		again, err := d.MarshalJSON()
		if err != nil || len(again) != d.Size() || !events.EqualJSON(again, text) {
			t.Fatalf("%q is written as %q, %d bytes computed, %v", text, again, d.Size(), err)
		}
		l.when(release.VerbReceiveDocument, with(receive, "textBase64", quote(base64.StdEncoding.EncodeToString(again)))).unchanged()
		if _, omitted := d.Shortened(0); omitted != d.ReceiptPage(0, 1).Total {
			t.Fatalf("%d omitted", omitted)
		}
	})
}
