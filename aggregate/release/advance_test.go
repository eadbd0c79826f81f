package release_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestTheWholeWay(t *testing.T) {
	l := given(t)
	for i, phase := range release.Order() {
		l.after(1000).upTo(phase)
		want := int64(i + 1)
		if i >= slices.Index(release.Order(), release.CutoverCommitted) {
			want++ // the transaction
		}
		l.at(one, phase, want)
		if since := l.doc(one).PhaseSince; since == nil || *since != l.facts.Now {
			t.Errorf("%s since %v", phase, since)
		}
	}
	d := l.doc(one)
	if page := d.ReceiptPage(0, 100); page.Total != 1+4+5+1 {
		t.Errorf("%d receipts", page.Total)
	}
	if d.Incarnation != 1 {
		t.Errorf("incarnation %d", d.Incarnation)
	}
}

// From every phase to every phase: next, failed, rolled back from the attempt on.
func TestAllowedSteps(t *testing.T) {
	all := append(slices.Clone(release.Order()), release.RolledBack, release.Failed, "unknown", "")
	terminal := map[string]*ledger{
		release.KnownGood: given(t).upTo(release.KnownGood), release.Failed: given(t).upTo(release.Built).advanced(one, release.Failed),
		release.RolledBack: given(t).upTo(release.Soaking).advanced(one, release.RolledBack),
	}
	for i, from := range all[:12] {
		l := terminal[from]
		if l == nil {
			l = given(t).upTo(from)
		}
		for k, to := range all {
			pairs := []string{}
			if gates := gatesOf[to]; gates != "" {
				pairs = append(pairs, "receipts", gates)
			}
			if to == release.Built {
				pairs = append(pairs, "candidateRelease", candidate)
			}
			f := l.fork()
			if from == release.CutoverAttempting && to == release.CutoverCommitted {
				f.happened(release.VerbTransaction, f.record(one, transaction))
			}
			o := f.when(release.VerbAdvance, f.step(one, to, pairs...))
			switch {
			case release.Terminal(from):
				o.fails(events.CodeReleaseTerminal)
			case to == release.Failed, to == release.RolledBack && i >= 6, k == i+1 && k < 10:
				o.appends("release.advanced")
				f.at(one, to, f.doc(one).Revision())
			case to == release.RolledBack:
				o.fails(events.CodeReleaseRollbackBefore)
			default:
				o.fails(events.CodeReleaseTransition).says("next", quote(all[i+1])).says("phase", quote(from))
			}
		}
	}
}

// A body in which everything is wrong fails by one check after another, as they
// are put right.
func TestAdvanceChecksInOrder(t *testing.T) {
	l := given(t).received(two+".json", "x")
	body := `{"sessionId":"-","expectedRevision":"7","phase":5,"candidateRelease":{"releaseId":""},"receipts":{},"expectedPhase":7,"expectedIncarnation":-1,"reason":5}`
	set := func(pairs ...string) func() { return func() { body = with(body, pairs...) } }
	for _, c := range []struct {
		code  events.Code
		right func()
	}{
		{events.CodeReleaseIDInvalid, set("sessionId", quote(two))},
		{events.CodeReleaseInvalid, set("sessionId", quote(" "+one))},
		{events.CodeReleaseMissing, func() { l.received(one+".json", with(document, "revision", "9007199254740991", "receipts", `"none"`)) }},
		{events.CodeReleaseRevisionFenced, set("expectedRevision", "9007199254740991")},
		{events.CodeReleaseRevisionFenced, set("expectedPhase", `"built"`)},
		{events.CodeReleaseRevisionFenced, set("expectedPhase", `"source_frozen"`)},
		{events.CodeReleaseRevisionFenced, set("expectedIncarnation", "1")},
		{events.CodeReleaseRevisionFenced, set("expectedIncarnation", "2")},
		{events.CodeReleaseCandidateIdentity, func() {
			l.received(one+".json", with(document, "revision", "9007199254740991", "receipts", `"none"`, "phase", `"built"`, "candidateRelease", candidate))
			set("candidateRelease", with(candidate, "x", "1"), "expectedPhase", `"built"`, "expectedIncarnation", "3")()
		}},
		{events.CodeReleaseCandidateImmutable, set("candidateRelease", "null")},
		{events.CodeReleaseReceiptInvalid, set("receipts", `[{"id":"a","kind":"build","summary":"s"},null]`)},
		{events.CodeReleaseReceiptInvalid, set("receipts", `[{"id":"a","kind":"build","summary":"s"}]`)},
		{events.CodeReleaseTransition, set("phase", `"static_verified"`)},
		{events.CodeReleaseStaticGates, set("receipts", staticGates)},
		{events.CodeReleaseInvalid, func() {
			l.received(one+".json", with(document, "receipts", `"none"`, "phase", `"built"`, "candidateRelease", candidate))
			set("expectedRevision", "1", "expectedIncarnation", "4")()
		}},
		{events.CodeReleaseInvalid, func() {
			l.received(one+".json", with(document, "phase", `"built"`, "candidateRelease", candidate))
			set("expectedIncarnation", "5")()
		}},
		{events.CodeBadRequest, set("reason", `" why "`)},
	} {
		o := l.when(release.VerbAdvance, body)
		if events.CodeOf(o.err) != c.code {
			t.Fatalf("%s: got %v, want %s", body, o.err, c.code)
		}
		c.right()
	}
	o := l.when(release.VerbAdvance, body).appends("release.advanced")
	if e := o.Events[0].(events.ReleaseAdvanced); e.Reason != "why" || e.Cause != "" {
		t.Errorf("%+v", e)
	}
}

func TestFences(t *testing.T) {
	l := given(t).upTo(release.Built)
	failed := func(pairs ...string) string { return with(`{"sessionId":"release-0001","phase":"failed"}`, pairs...) }
	for _, pairs := range [][]string{
		{},
		{"expectedRevision", "null", "expectedPhase", "null"},
		{"expectedRevision", "1"},
		{"expectedRevision", "3"},
		{"expectedRevision", "2.5"},
		{"expectedRevision", `"2"`},
		{"expectedRevision", "9007199254740994"},
		{"expectedRevision", "2", "expectedPhase", `"source_frozen"`},
		{"expectedRevision", "1", "expectedPhase", `"built"`},
		{"expectedPhase", `"Built"`},
		{"expectedPhase", `" built"`},
		{"expectedPhase", "2"},
		{"expectedIncarnation", "1"}, // which session, not where it stands
		{"expectedRevision", "2", "expectedIncarnation", "2"},
		{"expectedRevision", "2", "expectedIncarnation", "0"},
		{"expectedRevision", "2", "expectedIncarnation", `"1"`},
		{"expectedRevision", "2", "expectedIncarnation", "-9223372036854775807"},
	} {
		l.when(release.VerbAdvance, failed(pairs...)).fails(events.CodeReleaseRevisionFenced).
			says("phase", `"built"`).says("revision", "2").says("incarnation", "1")
	}
	for _, pairs := range [][]string{
		{"expectedRevision", "2"},
		{"expectedRevision", "2.0"},
		{"expectedPhase", `"built"`},
		{"expectedRevision", "2", "expectedPhase", `"built"`, "expectedIncarnation", "1"},
	} {
		l.fork().when(release.VerbAdvance, failed(pairs...)).appends("release.advanced")
	}
	// A repeated advance, and one that lost a race, name where the session is now.
	l.advanced(one, release.Failed)
	l.when(release.VerbAdvance, failed("expectedRevision", "2")).fails(events.CodeReleaseRevisionFenced).says("phase", `"failed"`).says("revision", "3")
	l.when(release.VerbAdvance, failed("expectedRevision", "3")).fails(events.CodeReleaseTerminal).says("phase", `"failed"`)
}

func TestIncarnationsTellSessionsApart(t *testing.T) {
	l := given(t).upTo(release.CutoverAttempting)
	l.happened(release.VerbTransaction, l.record(one, transaction))
	text := asText(l.doc(one))
	// The same session again, after it was discarded: another incarnation.
	l.happened(release.VerbDiscardDocument, `{"name":"release-0001.json","reason":"r"}`).received(one+".json", text)
	if d := l.doc(one); d.Incarnation != uint64(len(l.log)) || asText(d) != text {
		t.Errorf("incarnation %d of %d, %s", d.Incarnation, len(l.log), asText(d))
	}
	for verb, body := range map[string]string{
		release.VerbAdvance: l.step(one, release.CutoverCommitted), release.VerbReceipts: evidence(one, soakProof),
		release.VerbTransaction: l.record(one, transaction), release.VerbEnd: `{"sessionId":"release-0001","reason":"r"}`,
	} {
		l.when(verb, with(body, "expectedIncarnation", "1")).fails(events.CodeReleaseRevisionFenced)
		if o := l.fork().when(verb, with(body, "expectedIncarnation", fmt.Sprint(l.doc(one).Incarnation))); o.err != nil {
			t.Errorf("%s: %v", verb, o.err)
		}
	}
}

func TestCandidate(t *testing.T) {
	l := given(t).upTo(release.SourceFrozen)
	for name, values := range map[string][]string{
		"releaseId": {"", "null", `""`, "7"}, "manifestPath": {"", `""`, "[]"}, "artifactIdentity": {"", `""`}, "manifestSha256": {"null", `""`},
		"treeSha256": {
			"", "null", `""`, `"00"`, quote(strings.Repeat("g", 64)), quote(strings.Repeat("a", 65)), quote(strings.Repeat("a", 63)),
			quote(strings.Repeat("a", 63) + " "), quote(strings.Repeat("é", 32)), "7",
		},
		"sourceCommit": {"", "null", `"ABC"`, `" abc"`, `"abd"`, "7"},
	} {
		for _, v := range values {
			for _, phase := range []string{release.Built, release.Failed, "unknown"} {
				l.when(release.VerbAdvance, l.step(one, phase, "candidateRelease", with(candidate, name, v))).
					fails(events.CodeReleaseCandidateIdentity, "candidateRelease."+name)
			}
		}
	}
	for _, v := range []string{"7", "[]", `"x"`, "false"} {
		l.when(release.VerbAdvance, l.step(one, release.Failed, "candidateRelease", v)).fails(events.CodeReleaseCandidateIdentity)
	}
	l.when(release.VerbAdvance, l.step(one, release.Built, "candidateRelease", "null")).fails(events.CodeReleaseCandidateRequired)
	l.advanced(one, release.Built, "candidateRelease", with(candidate, "n", "1.0", "o", `{"b":[],"a":null}`))

	// Afterwards only an equal one may be given: keys in any order, numbers by
	// value, null as missing.
	equal := with(candidate, "o", `{ "b" : [ ] }`, "n", "1", "z", "null")
	for _, other := range []string{with(equal, "n", "2"), with(equal, "o.a", "0"), candidate, with(equal, "z", "false"), with(equal, "manifestPath", `"/m/3"`)} {
		l.when(release.VerbAdvance, l.step(one, release.StaticVerified, "candidateRelease", other, "receipts", staticGates)).
			fails(events.CodeReleaseCandidateImmutable)
	}
	l.advanced(one, release.StaticVerified, "candidateRelease", equal, "receipts", staticGates).at(one, release.StaticVerified, 3)
}

// Only receipts of the candidate in force count.
func TestGatesBelongToTheirCandidate(t *testing.T) {
	built := func(l *ledger) *ledger { return l.advanced(one, release.Built, "candidateRelease", candidate) }
	verified := func(l *ledger, ok bool) {
		t.Helper()
		if o := l.when(release.VerbAdvance, l.step(one, release.StaticVerified)); ok {
			o.appends("release.advanced")
		} else {
			o.fails(events.CodeReleaseStaticGates)
		}
	}
	// Recorded before there was a candidate: it does not count for the later one.
	verified(built(given(t).upTo(release.SourceFrozen).happened(release.VerbReceipts, evidence(one, staticGates))), false)
	// Of the advance that brought the candidate, and after it: it counts.
	verified(given(t).upTo(release.SourceFrozen).advanced(one, release.Built, "candidateRelease", candidate, "receipts", staticGates), true)
	verified(built(given(t).upTo(release.SourceFrozen)).happened(release.VerbReceipts, evidence(one, staticGates)), true)

	// A received document: its receipts count for its candidate, or for the first
	// one given to it later; but not those recorded here in between.
	gates := strings.ReplaceAll(staticGates, `"summary"`, `"recordedAt":"2025-12-31T00:00:00.000Z","summary"`)
	adopted := func(pairs ...string) *ledger {
		return given(t).received(one+".json", with(with(document, "receipts", gates), pairs...))
	}
	verified(adopted("candidateRelease", candidate, "phase", `"built"`), true)
	verified(built(adopted()), true)
	verified(built(adopted("candidateRelease", "null")), true)
	verified(built(adopted("candidateRelease", candidate)), true)
	verified(built(adopted("candidateRelease", with(candidate, "releaseId", `"r-9"`))), false)
	verified(built(adopted("receipts", "[]").happened(release.VerbReceipts, evidence(one, staticGates))), false)
	l := adopted().happened(release.VerbReceipts, evidence(one, "["+gate("static_gate", "type", "failed")+"]"))
	l.happened(release.VerbReceipts, evidence(one, "["+gate("static_gate", "type", "")+"]"))
	verified(built(l.fork()), false) // revoked, and passed again for no candidate
	verified(built(l).happened(release.VerbReceipts, evidence(one, "["+gate("static_gate", "type", "")+"]")), true)
	// The second candidate of a received document inherits nothing. (It is still in
	// source_frozen only when it came with the first.)
	verified(built(adopted("candidateRelease", with(candidate, "x", "1"))), false)
	// Equal in other bytes is the same candidate.
	verified(built(adopted("candidateRelease", with(candidate, "x", "null"))), true)

	// In the later phases an adopted session needs no candidate; its evidence counts
	// until there is one.
	l = given(t).received(one+".json", with(document, "phase", `"candidate_booted"`)).happened(release.VerbReceipts, evidence(one, canaries))
	l.fork().when(release.VerbAdvance, l.step(one, release.CandidateVerified)).appends("release.advanced")
	l.when(release.VerbAdvance, l.step(one, release.CandidateVerified, "candidateRelease", candidate)).fails(events.CodeReleaseCanaries)
	l.when(release.VerbAdvance, l.step(one, release.CandidateVerified, "candidateRelease", candidate, "receipts", canaries)).appends("release.advanced")
}

func TestOutcomes(t *testing.T) {
	receipt := func(outcome string) string { return "[" + gate("static_gate", "type", outcome) + "]" }
	three := strings.Replace(staticGates, `{"id":"type","kind":"static_gate","summary":"ok"},`, "", 1)
	for _, c := range []struct {
		outcomes string
		counts   bool
	}{
		{"passed", true},
		{"", true},
		{"failed", false},
		{"inconclusive", false},
		{"passed failed", false},
		{"passed inconclusive", false},
		{"failed passed", true},
		{"inconclusive failed passed", true},
		{"passed failed passed inconclusive", false},
	} {
		l := given(t).upTo(release.Built).happened(release.VerbReceipts, evidence(one, three))
		for _, outcome := range strings.Split(c.outcomes, " ") {
			l.happened(release.VerbReceipts, evidence(one, receipt(outcome)))
		}
		o := l.fork().when(release.VerbAdvance, l.step(one, release.StaticVerified))
		if c.counts {
			o.appends("release.advanced")
			continue
		}
		o.fails(events.CodeReleaseStaticGates).says("missing", `[{"kind":"static_gate","id":"type"}]`)
		// The receipts of the same advance count, the latest of them.
		l.fork().when(release.VerbAdvance, l.step(one, release.StaticVerified, "receipts", receipt("passed"))).appends("release.advanced")
		l.when(release.VerbAdvance, l.step(one, release.StaticVerified, "receipts", "["+gate("static_gate", "type", "")+","+gate("static_gate", "type", "failed")+"]")).
			fails(events.CodeReleaseStaticGates)
	}
	// passed is not written, the others are; a received one of any other outcome
	// does not count.
	l := given(t).upTo(release.Built)
	for outcome, member := range map[string]string{"passed": "", "failed": `,"outcome":"failed"`, "inconclusive": `,"outcome":"inconclusive"`} {
		f := l.fork().happened(release.VerbReceipts, evidence(one, "["+gate("build", "b", outcome)+"]"))
		want := `{"id":"b","kind":"build","recordedAt":"2026-01-01T00:00:00.000Z","summary":"s"` + member + `}`
		if page := f.doc(one).ReceiptPage(1, 9); len(page.Receipts) != 1 || string(page.Receipts[0]) != want {
			t.Errorf("%s is stored as %s", outcome, asText(page))
		}
	}
	for outcome, counts := range map[string]bool{`"passed"`: true, "null": true, "": true, `"failed"`: false, `"Passed"`: false, "true": false, `""`: false} {
		l := given(t).received(one+".json", with(document, "receipts", "["+with(gate("static_gate", "type", ""), "outcome", outcome)+"]"))
		if got := slices.Contains(l.doc(one).Passed(), "static_gate type"); got != counts {
			t.Errorf("a received outcome %s counts: %v", outcome, got)
		}
	}
	// Kind and id both matter, exactly.
	for _, r := range []string{gate("build", "type", ""), gate("static_gate", "Type", ""), gate("static_gate", " type", "")} {
		f := l.fork().happened(release.VerbReceipts, evidence(one, "["+r+"]"))
		if passed := f.doc(one).Passed(); len(passed) != 0 {
			t.Errorf("%s counts as %v", r, passed)
		}
	}
}

func TestReceiptsAreTakenAsGiven(t *testing.T) {
	l := given(t).upTo(release.Built)
	for _, bad := range []string{
		`{}`, `"x"`, `7`, `[null]`, `[7]`, `[[]]`, `[{}]`,
		"[" + with(gate("build", "b", ""), "id", "") + "]", "[" + with(gate("build", "b", ""), "id", "7") + "]", "[" + gate("build", "", "") + "]",
		"[" + gate("build", " \t\n", "") + "]", "[" + with(gate("build", "b", ""), "kind", "") + "]", "[" + gate("Build", "b", "") + "]",
		"[" + gate(" build", "b", "") + "]", "[" + gate("other", "b", "") + "]", "[" + with(gate("build", "b", ""), "kind", "[]") + "]",
		"[" + with(gate("build", "b", ""), "summary", "") + "]", "[" + with(gate("build", "b", ""), "summary", "null") + "]",
		"[" + with(gate("build", "b", ""), "summary", "7") + "]", "[" + gate("build", "b", "ok") + "]", "[" + gate("build", "b", " passed") + "]",
		"[" + with(gate("build", "b", ""), "outcome", "true") + "]", "[" + gate("build", "b", "") + `,{"id":"a","id":"b","kind":"build","summary":"s"}]`,
	} {
		l.when(release.VerbReceipts, evidence(one, bad)).fails(events.CodeReleaseReceiptInvalid)
		l.when(release.VerbAdvance, l.step(one, release.Failed, "receipts", bad)).fails(events.CodeReleaseReceiptInvalid)
	}
	for _, none := range []string{"", "null", "[]"} {
		l.when(release.VerbReceipts, evidence(one, none)).fails(events.CodeReleaseReceiptInvalid, "receipts")
		l.fork().when(release.VerbAdvance, l.step(one, release.Failed, "receipts", none)).appends("release.advanced")
	}
	l.after(5).happened(release.VerbReceipts, evidence(one, `[{"recordedAt":"x","summary":" ","kind":"build","id":" b ","outcome":null,"more":1},{"id":" b ","kind":"build","summary":""}]`))
	if got, want := asText(l.doc(one).ReceiptPage(1, 9).Receipts), `[{"id":" b ","kind":"build","recordedAt":"2026-01-01T00:00:00.005Z","summary":" "},`+
		`{"id":" b ","kind":"build","recordedAt":"2026-01-01T00:00:00.005Z","summary":""}]`; got != want {
		t.Errorf("stored as %s", got)
	}
	l.at(one, release.Built, 3)
	// The fence is optional here.
	l.when(release.VerbReceipts, evidence(one, soakProof, "expectedRevision", "2")).fails(events.CodeReleaseRevisionFenced)
	l.when(release.VerbReceipts, evidence(one, soakProof, "expectedPhase", `"soaking"`)).fails(events.CodeReleaseRevisionFenced)
	l.when(release.VerbReceipts, evidence(one, soakProof, "expectedRevision", `"x"`)).fails(events.CodeReleaseRevisionFenced)
	l.happened(release.VerbReceipts, evidence(one, soakProof, "expectedRevision", "3")).at(one, release.Built, 4)
	// When nothing can follow any more, no evidence does.
	l.advanced(one, release.Failed).when(release.VerbReceipts, evidence(one, soakProof)).fails(events.CodeReleaseTerminal)
}

func TestReceiptsChecksInOrder(t *testing.T) {
	l := given(t).received(two+".json", "x")
	body := `{"sessionId":5,"receipts":7,"expectedRevision":9}`
	for _, c := range []struct {
		code  events.Code
		right func()
	}{
		{events.CodeReleaseIDInvalid, func() { body = with(body, "sessionId", quote(two)) }},
		{events.CodeReleaseInvalid, func() { body = with(body, "sessionId", quote(one)) }},
		{events.CodeReleaseMissing, func() { l.received(one+".json", with(document, "phase", `"failed"`, "receipts", "null")) }},
		{events.CodeReleaseRevisionFenced, func() { body = with(body, "expectedRevision", "1") }},
		{events.CodeReleaseReceiptInvalid, func() { body = with(body, "receipts", soakProof) }},
		{events.CodeReleaseTerminal, func() { l.received(one+".json", with(document, "receipts", "null")) }},
		{events.CodeReleaseInvalid, func() { l.received(one+".json", with(document, "receipts", "{}")) }},
		{events.CodeReleaseInvalid, func() {
			l.received(one+".json", with(document, "revision", "9007199254740991"))
			body = with(body, "expectedRevision", "")
		}},
		{events.CodeReleaseInvalid, func() { l.received(one+".json", document) }},
	} {
		l.when(release.VerbReceipts, body).fails(c.code)
		c.right()
	}
	l.when(release.VerbReceipts, body).appends("release.receipts-recorded")
}

func TestMinimumSoak(t *testing.T) {
	soak := func(l *ledger) *ledger { l.facts.MinimumSoakMs = 60_000; return l }
	accepted := func(l *ledger) *outcome {
		return l.fork().when(release.VerbAdvance, l.step(one, release.KnownGood, "receipts", soakProof))
	}
	l := soak(given(t).upTo(release.CutoverCommitted)).after(100_000).upTo(release.Soaking)
	until := quote(begin.Add(160_000).String())
	accepted(l).fails(events.CodeReleaseSoakGates).says("until", until)
	// Evidence does not begin it anew. The gate is named before the time.
	l.after(59_999).happened(release.VerbReceipts, evidence(one, "["+gate("build", "b", "")+"]"))
	accepted(l).fails(events.CodeReleaseSoakGates).says("until", until)
	l.fork().when(release.VerbAdvance, l.step(one, release.KnownGood)).fails(events.CodeReleaseSoakGates).says("missing", `[{"kind":"soak","id":"supervisor_continuation_proof"}]`)
	l.fork().when(release.VerbAdvance, l.step(one, release.RolledBack)).appends("release.advanced")
	accepted(l.after(1)).appends("release.advanced")

	// An adopted session soaks since its updatedAt; if that cannot be read, since the
	// next change.
	adopted := func(updatedAt string) *ledger {
		return soak(given(t)).received(one+".json", with(document, "phase", `"soaking"`, "candidateRelease", candidate, "transaction", transaction, "updatedAt", updatedAt))
	}
	accepted(adopted(`"2025-12-31T23:59:00Z"`)).appends("release.advanced")
	accepted(adopted(`"2025-12-31T23:59:00.001Z"`)).fails(events.CodeReleaseSoakGates)
	accepted(adopted(`"2026-01-01T00:59:00+01:00"`)).appends("release.advanced")
	accepted(adopted(`"2030-01-01T00:00:00Z"`)).fails(events.CodeReleaseSoakGates)
	for _, unknown := range []string{"", "null", `"soon"`, "7"} {
		l := adopted(unknown)
		accepted(l.after(1e12)).fails(events.CodeReleaseSoakGates)
		if waits := asText(l.doc(one).Explain(l.facts)); !strings.Contains(waits, "it is not known since when it soaks") {
			t.Errorf("explained as %s", waits)
		}
		l.happened(release.VerbReceipts, evidence(one, soakProof)).after(59_999)
		accepted(l).fails(events.CodeReleaseSoakGates)
		accepted(l.after(1)).appends("release.advanced")
	}
	// Without a minimum nothing is asked.
	l = adopted("")
	l.facts.MinimumSoakMs = 0
	accepted(l).appends("release.advanced")
}

// Homes are compared as they are, ports by value; both only here.
func TestCutoverEligibleComparesLanes(t *testing.T) {
	verified := func(stable, candidateLane string) *outcome {
		l := given(t).received(one+".json", with(document, "phase", `"candidate_verified"`, "candidateRelease", candidate, "stable", stable, "candidate", candidateLane))
		return l.when(release.VerbAdvance, l.step(one, release.CutoverEligible))
	}
	const lane = `{"controllerHome":"/srv/a","port":1}`
	for _, other := range []string{
		`{"controllerHome":"/srv/a","port":2}`, `{"controllerHome":"/srv/b","port":1}`, `{"controllerHome":"/srv/b","port":1.0}`,
		`{"controllerHome":"\/srv\/a","port":2}`,
	} {
		verified(lane, other).fails(events.CodeReleaseLaneCollision)
	}
	for _, other := range []string{`{"controllerHome":"/srv/a/","port":2}`, `{"controllerHome":"/srv/./a","port":"1"}`, `{"port":null}`, `null`, `7`} {
		verified(lane, other).appends("release.advanced")
	}
	verified("null", "null").fails(events.CodeReleaseLaneCollision)
	verified(`{"controllerHome":"/a"}`, `{"controllerHome":"/b"}`).fails(events.CodeReleaseLaneCollision)
}

func TestEnd(t *testing.T) {
	end := `{"sessionId":" release-0001 ","reason":" it hangs "}`
	for _, phase := range release.Order()[:9] {
		l := given(t).upTo(phase).after(1)
		o := l.when(release.VerbEnd, end).appends("release.advanced")
		if e := o.Events[0].(events.ReleaseAdvanced); e.From != phase || e.To != release.Failed || e.Cause != events.CauseOperator || e.Reason != "it hangs" {
			t.Errorf("%+v", e)
		}
		if d := l.doc(one); d.Phase() != release.Failed || *d.PhaseSince != l.facts.Now {
			t.Errorf("%s since %s", d.Phase(), d.PhaseSince)
		}
		l.when(release.VerbEnd, end).fails(events.CodeReleaseTerminal)
	}
	// One that cannot end by itself: advance refuses its candidate.
	l := given(t).received(one+".json", with(document, "phase", `"built"`, "candidateRelease", `"none"`, "receipts", "7"))
	l.when(release.VerbAdvance, l.step(one, release.Failed)).fails(events.CodeReleaseCandidateIdentity)
	l.when(release.VerbEnd, end).appends("release.advanced")

	l = given(t).received(one+".json", "x").received(two+".json", with(document, "sessionId", quote(two), "revision", "9007199254740991"))
	body := `{"sessionId":"x","reason":" "}`
	for _, c := range []struct {
		code  events.Code
		pairs []string
	}{
		{events.CodeReleaseIDInvalid, []string{"sessionId", quote("release-0009")}},
		{events.CodeReasonRequired, []string{"reason", "7"}},
		{events.CodeReasonRequired, []string{"reason", `"r"`}},
		{events.CodeReleaseMissing, []string{"sessionId", quote(one)}},
		{events.CodeReleaseInvalid, []string{"sessionId", quote(two), "expectedRevision", "1"}},
		{events.CodeReleaseRevisionFenced, []string{"expectedRevision", ""}},
		{events.CodeReleaseInvalid, nil}, // its revision cannot grow: it can be discarded
	} {
		l.when(release.VerbEnd, body).fails(c.code)
		body = with(body, c.pairs...)
	}
}

// The fold does not take what cannot follow.
func TestFoldRefuses(t *testing.T) {
	frozen, soaking := given(t).upTo(release.SourceFrozen), given(t).upTo(release.Soaking).happened(release.VerbPublish, `{"authority":{"revision":5,"active":{}}}`)
	legacy := given(t).received(one+".json", with(document, "semanticEpoch", "1")).received(two+".json", "x")
	for name, c := range map[string]struct {
		l *ledger
		e events.Payload
	}{
		"a session that is there":     {frozen, events.ReleaseOpened{SessionID: one, StableRelease: events.JSON(stableRelease)}},
		"another phase":               {frozen, events.ReleaseAdvanced{SessionID: one, From: release.Built, To: release.StaticVerified}},
		"to no phase":                 {frozen, events.ReleaseAdvanced{SessionID: one, From: release.SourceFrozen, To: "x"}},
		"no session":                  {frozen, events.ReleaseAdvanced{SessionID: two, To: release.Failed}},
		"committed without":           {frozen, events.ReleaseAdvanced{SessionID: one, From: release.SourceFrozen, To: release.CutoverCommitted}},
		"receipts of none":            {frozen, events.ReleaseReceiptsRecorded{SessionID: two, Receipts: events.JSON(`[]`)}},
		"a transaction of none":       {frozen, events.ReleaseTransactionRecorded{SessionID: two, Transaction: events.JSON(transaction)}},
		"an invalid transaction":      {frozen, events.ReleaseTransactionRecorded{SessionID: one, Transaction: events.JSON(`{}`)}},
		"a second transaction":        {soaking, events.ReleaseTransactionRecorded{SessionID: one, Transaction: events.JSON(transaction)}},
		"an unknown one discarded":    {frozen, events.ReleaseDocumentDiscarded{Name: two}},
		"a replacement of nothing":    {frozen, events.ReleaseDocumentReceived{Name: two, Replaced: true}},
		"a known one not replaced":    {frozen, events.ReleaseDocumentReceived{Name: one}},
		"an unknown one migrated":     {legacy, events.ReleaseMigrated{Document: "release-0003"}},
		"what is no object migrated":  {legacy, events.ReleaseMigrated{Document: two}},
		"a migration that is invalid": {legacy, events.ReleaseMigrated{Document: one, Transaction: events.JSON(`{}`)}},
		"an authority that stays":     {soaking, events.AuthorityPublished{Revision: 5, Authority: events.JSON(`{}`)}},
		"an event of a work":          {frozen, events.WorkStateSet{}},
		"a change of what is invalid": {legacy, events.ReleaseReceiptsRecorded{SessionID: two, Receipts: events.JSON(`[]`)}},
	} {
		before := release.Dump(c.l.state)
		if _, err := (release.Decider{}).Evolve(c.l.state, c.e); err == nil {
			t.Errorf("%s is folded", name)
		} else if now := release.Dump(c.l.state); now != before {
			t.Errorf("%s changed the ledger", name)
		}
	}
}

func TestRepeatedCommandsAreRecognised(t *testing.T) {
	l := given(t).upTo(release.Built)
	for range 70 {
		l.happened(release.VerbReceipts, evidence(one, "["+gate("build", "b", "")+"]"))
	}
	last := len(l.log)
	for position := 1; position <= last; position++ {
		if got := l.state.Applied(one, msgIDAt(position)); got != uint64(position) {
			t.Errorf("the command at %d of %d is known at %d", position, last, got)
		}
		// Its session is known as it was then, if that is not long ago.
		was, ok := l.state.Recollect(one, uint64(position))
		if want := position > last-16; ok != want {
			t.Errorf("the session at %d of %d is known: %v", position, last, ok)
		} else if d, err := was.Session(one); ok && (err != nil || d.Revision() != int64(position)) {
			t.Errorf("the session at %d is known as revision %d, %v", position, d.Revision(), err)
		}
	}
	// The ledger knows its latest commits, whatever they are about.
	for _, target := range []string{two, ""} {
		if got := l.state.Applied(target, msgIDAt(last)); got != uint64(last) {
			t.Errorf("about %q it is known at %d", target, got)
		}
	}
	if got := l.state.Applied(one, msgIDAt(last+1)); got != 0 {
		t.Errorf("a command that never came is known at %d", got)
	}
}

func TestFarTooManyCommandsAreForgotten(t *testing.T) {
	l := given(t).upTo(release.SourceFrozen)
	for range 1100 {
		l.happened(release.VerbReceipts, evidence(one, "["+gate("build", "b", "")+"]"))
	}
	last := len(l.log)
	for position, want := range map[int]bool{1: true, 2: false, last - 1024: false, last - 1023: true, last: true} {
		if got := l.state.Applied(one, msgIDAt(position)) != 0; got != want {
			t.Errorf("the command at %d of %d is known: %v", position, last, got)
		}
	}
}

func msgIDAt(position int) events.MsgID {
	return events.NewMsgID("forge.log.main.release", "p", fmt.Sprint(position))
}
