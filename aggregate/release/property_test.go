package release_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// life follows one ledger through random commands.
type life struct {
	*ledger
	// received are the sessions that came from elsewhere, or were replaced: several
	// of them may be active, and they may be unreadable.
	received map[string]bool
	happened map[string]int
}

var lifeIDs = []string{one, two, "release-0003"}

// step sends one command: mostly what a coordinator would send, sometimes a
// little wrong.
func (h *life) step(t *rapid.T) {
	h.t = t
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "value") }
	h.after(rapid.SampledFrom([]int64{0, 0, 1, 60_000}).Draw(t, "time goes by"))
	h.facts.MinimumSoakMs = rapid.SampledFrom([]int64{0, 0, 0, 1000}).Draw(t, "soak")
	id := pick(lifeIDs...)
	if here := h.state.ActiveFirst(1<<30, 1<<30).Sessions; len(here) > 0 && rapid.IntRange(0, 3).Draw(t, "known") > 0 {
		id = here[0].Name
	}
	d := h.state.Find(id)
	body := with(`{}`, "sessionId", quote(id))
	if d != nil {
		body = with(body, "expectedRevision", fmt.Sprint(d.Revision()))
	}
	verb := pick(release.VerbCreate, release.VerbAdvance, release.VerbAdvance, release.VerbAdvance, release.VerbAdvance, release.VerbAdvance, release.VerbReceipts,
		release.VerbTransaction, release.VerbReceiveDocument, release.VerbDiscardDocument, release.VerbEnd, release.VerbMigrate, release.VerbPublish)
	if d != nil && d.Phase() == release.CutoverAttempting && d.Raw("transaction") == nil && rapid.Bool().Draw(t, "record") {
		verb = release.VerbTransaction
	}
	odd := func() bool { return rapid.IntRange(0, 7).Draw(t, "odd") == 0 }
	if (verb == release.VerbReceiveDocument || verb == release.VerbDiscardDocument || verb == release.VerbEnd) && rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
		verb = release.VerbAdvance
	}
	if d != nil && d.Phase() == release.Soaking && rapid.IntRange(0, 2).Draw(t, "successor") == 0 {
		verb, id = release.VerbCreate, pick(lifeIDs...)
	}
	if files := h.state.ListComplete().InvalidSessionFiles; len(files) > 0 && rapid.IntRange(0, 2).Draw(t, "tidy") == 0 {
		verb, id = pick(release.VerbMigrate, release.VerbDiscardDocument), strings.TrimSuffix(files[0], ".json")
	}
	switch verb {
	case release.VerbCreate:
		source := quote("source of " + id)
		body = with(createBody, "sessionId", quote(id), "sourceRevision", source)
		if rapid.Bool().Draw(t, "repair") {
			body = with(successorBody(), "sessionId", quote(id), "sourceRevision", source)
		}
	case release.VerbAdvance:
		phase := release.SourceFrozen
		if d != nil {
			if i := slices.Index(release.Order(), d.Phase()); i >= 0 && i < 9 {
				phase = release.Order()[i+1]
			}
		}
		if odd() {
			phase = pick(append(release.Order(), release.RolledBack, release.Failed, "x")...)
		}
		body = with(body, "phase", quote(phase))
		if gates := gatesOf[phase]; gates != "" && !odd() {
			body = with(body, "receipts", gates)
		}
		if d != nil && (d.Raw("candidateRelease") == nil || odd()) {
			c := with(candidate, "sourceCommit", quote(d.Text("sourceRevision")))
			if odd() {
				c = with(c, pick("releaseId", "manifestPath", "x"), pick(`""`, `"other"`))
			}
			body = with(body, "candidateRelease", c)
		}
	case release.VerbReceipts:
		kind := pick("static_gate", "candidate_canary", "soak", "build")
		body = with(body, "receipts", "["+gate(kind, pick("type", "recovery", "supervisor_continuation_proof", "b"), pick("", "failed", "inconclusive"))+"]")
	case release.VerbTransaction:
		body = with(body, "transaction", transaction)
		if odd() {
			body = with(body, pick("transaction.candidateReleaseId", "transaction.cutoverAuthorityRevision", "transaction.operationId", "transaction.rollbackRelease.manifestPath"), pick("3", `"r-3"`, "null", `"/m/9"`))
		}
	case release.VerbReceiveDocument:
		text := with(document, "sessionId", quote(id), "sourceRevision", quote("source of "+id), "phase", quote(pick(append(release.Order(), release.Failed)...)),
			"semanticEpoch", pick("2", "2", "", "1"), "revision", pick("1", "4", "4", "9007199254740990"), "candidateRelease", pick("", with(candidate, "sourceCommit", quote("source of "+id))),
			"transaction", pick("", "", transaction), "receipts", pick("[]", staticGates, "null", "7"))
		if odd() {
			text = pick("", "null", "x", `{"a":1,"a":2}`)
		}
		body = with(`{}`, "name", quote(id+".json"), "text", quote(text), "replace", pick("true", ""), "reason", `"r"`)
	case release.VerbDiscardDocument:
		body = with(`{"reason":"r"}`, "name", quote(id+".json"))
	case release.VerbEnd:
		body = with(body, "reason", pick(`"r"`, `"r"`, ""))
	case release.VerbMigrate:
		body = pick(`{}`, migrate(), migrate("dryRun", "true"))
	case release.VerbPublish:
		body = with(`{"authority":`+authority+`}`, "authority.revision", fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "revision")))
	}
	if verb == release.VerbAdvance || verb == release.VerbReceipts || verb == release.VerbTransaction {
		if odd() {
			body = with(body, pick("expectedRevision", "expectedPhase", "expectedIncarnation"), pick("1", "null", `"built"`, "7"))
		}
	}
	before := h.state
	o := h.when(verb, body)
	h.rules(t, verb, before, o)
}

// rules are those that span commands.
func (h *life) rules(t *rapid.T, verb string, before release.Ledger, o *outcome) {
	t.Helper()
	if o.err != nil || len(o.Events) == 0 {
		if release.Dump(before) != release.Dump(h.state) {
			t.Fatalf("%s: %v, and the ledger changed", verb, o.err)
		}
		h.happened["refused"]++
		return
	}
	h.happened[verb]++
	for _, p := range o.Events {
		switch e := p.(type) {
		case events.ReleaseDocumentReceived:
			h.received[e.Name] = true
		case events.ReleaseOpened:
			delete(h.received, e.SessionID)
		case events.ReleaseAdvanced:
			allowedStep(t, e)
			h.happened["to "+e.To]++
		}
	}
	var active []*release.Document
	for _, id := range lifeIDs {
		d, was := h.state.Find(id), before.Find(id)
		if d == nil {
			continue
		}
		// What was begun here stays readable, and what could be read.
		if d.Why() != nil && !h.received[id] {
			t.Fatalf("%s leaves %s unreadable: %v", verb, id, d.Why())
		}
		if d.Why() == nil && !release.Terminal(d.Phase()) {
			active = append(active, d)
		}
		if was == nil || verb == release.VerbReceiveDocument {
			continue
		}
		if was.Why() == nil && d.Why() != nil {
			t.Fatalf("%s makes %s unreadable: %v", verb, id, d.Why())
		}
		if tx := was.Raw("transaction"); tx != nil && string(tx) != string(d.Raw("transaction")) {
			t.Fatalf("%s replaces the transaction of %s", verb, id)
		}
		// Receipts are never dropped or changed.
		old := was.ReceiptPage(0, 1000).Receipts
		if now := d.ReceiptPage(0, 1000).Receipts; len(now) < len(old) || asText(now[:len(old)]) != asText(old) {
			t.Fatalf("%s loses receipts of %s", verb, id)
		}
		if d.Phase() != release.SourceFrozen && was.Phase() == d.Phase() && was.Raw("candidateRelease") != nil &&
			!events.EqualJSON(was.Raw("candidateRelease"), d.Raw("candidateRelease")) {
			t.Fatalf("%s replaces the candidate of %s", verb, id)
		}
		changed := asText(was) != asText(d)
		if grown := d.Revision() - was.Revision(); was.Why() == nil && changed && grown != 1 || !changed && grown != 0 {
			t.Fatalf("%s: %s goes from revision %d to %d", verb, id, was.Revision(), d.Revision())
		}
		if was.Incarnation != d.Incarnation {
			t.Fatalf("%s: %s is another incarnation", verb, id)
		}
	}
	if verb == release.VerbCreate && len(active) > 1 {
		h.happened["beside a soaking predecessor"]++
		if len(active) != 2 || !slices.ContainsFunc(active, func(d *release.Document) bool { return d.Phase() == release.Soaking }) {
			t.Fatalf("%d active sessions after a create", len(active))
		}
	}
	// Without received ones there are two at most, and then one was the other's
	// predecessor.
	if len(active) > 1 && !slices.ContainsFunc(active, func(d *release.Document) bool { return h.received[d.Name] }) {
		if len(active) > 2 {
			t.Fatalf("%d active sessions", len(active))
		}
		if !slices.ContainsFunc(active, func(d *release.Document) bool { return d.Phase() == release.Soaking }) {
			t.Fatalf("two active sessions, none of which soaks: %s, %s", asText(active[0]), asText(active[1]))
		}
	}
	seen := h.state.ListComplete()
	if len(seen.Sessions)+len(seen.InvalidSessionFiles) != h.state.Len() {
		t.Fatalf("%d documents, listed %s", h.state.Len(), asText(seen))
	}
}

func allowedStep(t *rapid.T, e events.ReleaseAdvanced) {
	t.Helper()
	order := release.Order()
	i := slices.Index(order, e.From)
	switch {
	case release.Terminal(e.From) || i < 0:
	case e.To == release.Failed, e.To == release.RolledBack && i >= 6, i < 9 && e.To == order[i+1]:
		return
	}
	t.Fatalf("from %s to %s", e.From, e.To)
}

// Random commands on few sessions. The general checks of a scenario hold for each;
// here are those of a whole life. rapid prints the seed of a failure and takes it
// with -rapid.seed.
func TestRandomLives(t *testing.T) {
	happened := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		h := &life{ledger: given(t), received: map[string]bool{}, happened: happened}
		if rapid.IntRange(0, 2).Draw(t, "under way") == 0 {
			h.upTo(rapid.SampledFrom(release.Order()[6:]).Draw(t, "from"))
		}
		for range rapid.IntRange(5, 90).Draw(t, "commands") {
			h.step(t)
		}
		// Folding the log from nothing gives the ledger that was carried along.
		s := release.Decider{}.Initial("main")
		for i, list := range h.log {
			s = h.fold(s, list).Placed(uint64(i+1), msgIDAt(i+1))
		}
		if again, now := release.Dump(s), release.Dump(h.state); again != now {
			t.Fatalf("the fold gives another ledger:\n%s\n%s", again, now)
		}
	})
	var all []string
	for what, n := range happened {
		all = append(all, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(all)
	t.Log(strings.Join(all, ", "))
	for _, what := range []string{
		release.VerbCreate, release.VerbReceipts, release.VerbTransaction, release.VerbReceiveDocument, release.VerbDiscardDocument, release.VerbEnd,
		release.VerbPublish, "to " + release.CutoverCommitted, "to " + release.Soaking, "to " + release.Failed,
		"beside a soaking predecessor", "refused",
	} {
		if !t.Failed() && happened[what] == 0 {
			t.Errorf("never %s: the lives do not try the rules", what)
		}
	}
}
