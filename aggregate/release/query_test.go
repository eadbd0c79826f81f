package release_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestExplainEachPhase(t *testing.T) {
	codes := func(x release.Explanation) (list []events.Code) {
		for _, w := range x.Waits {
			if w.Text == "" || w.Remedy == "" {
				t.Errorf("%s: %+v", x.Phase, w)
			}
			list = append(list, w.Code)
		}
		return list
	}
	gates := func(code events.Code, n int) (list []events.Code) {
		for range n {
			list = append(list, code)
		}
		return list
	}
	waits := map[string][]events.Code{
		release.SourceFrozen: {events.CodeReleaseCandidateRequired}, release.Built: gates(events.CodeReleaseStaticGates, 4),
		release.CandidateBooted: gates(events.CodeReleaseCanaries, 5), release.CutoverAttempting: {events.CodeReleaseTxRequired},
		release.Soaking: gates(events.CodeReleaseSoakGates, 2),
	}
	l := given(t)
	l.facts.MinimumSoakMs = 1000
	order := release.Order()
	for i, phase := range order {
		l.after(1000).upTo(phase)
		x := l.doc(one).Explain(l.facts)
		next := ""
		if i+1 < len(order) {
			next = order[i+1]
		}
		if x.SessionID != one || x.Phase != phase || x.Revision != l.doc(one).Revision() || x.Next != next || x.Since != l.facts.Now.String() {
			t.Errorf("%s: %+v", phase, x)
		}
		if got := codes(x); !slices.Equal(got, waits[phase]) {
			t.Errorf("%s waits for %v, want %v", phase, got, waits[phase])
		}
		if len(x.Missing) != len(release.Gates[next]) || len(x.Done) != 0 {
			t.Errorf("%s: done %v, missing %v", phase, x.Done, x.Missing)
		}
		if x.CanFail == (phase == release.KnownGood) || x.CanRollBack != (i >= 6 && i < 9) {
			t.Errorf("%s: fail %v, roll back %v", phase, x.CanFail, x.CanRollBack)
		}
		// What it waits for is exactly what an advance is refused for.
		if next != "" {
			o := l.fork().when(release.VerbAdvance, l.step(one, next))
			if want := waits[phase]; len(want) == 0 && o.err != nil || len(want) > 0 && events.CodeOf(o.err) != want[0] {
				t.Errorf("%s: advance says %v", phase, o.err)
			}
		}
		if text := asText(x); strings.Contains(text, "null") {
			t.Errorf("%s: %s", phase, text)
		}
	}
	for _, end := range []string{release.Failed, release.RolledBack} {
		l := given(t).upTo(release.Soaking).advanced(one, end)
		if x := l.doc(one).Explain(l.facts); x.Next != "" || x.CanFail || x.CanRollBack || len(x.Waits) != 0 {
			t.Errorf("%s: %+v", end, x)
		}
	}
	// Gates that are done, and revoked again.
	l = given(t).upTo(release.Built).happened(release.VerbReceipts, evidence(one, staticGates)).happened(release.VerbReceipts, evidence(one, "["+gate("static_gate", "bootstrap", "failed")+"]"))
	if x := l.doc(one).Explain(l.facts); len(x.Done) != 3 || len(x.Missing) != 1 || x.Missing[0].ID != "bootstrap" || len(x.Waits) != 1 {
		t.Errorf("%+v", x)
	}
	l.happened(release.VerbReceipts, evidence(one, "["+gate("static_gate", "bootstrap", "")+"]"))
	if x := l.doc(one).Explain(l.facts); len(x.Done) != 4 || len(x.Waits) != 0 {
		t.Errorf("%+v", x)
	}
	// Adopted sessions can be stuck.
	l = given(t).received(one+".json", with(document, "phase", `"candidate_verified"`, "candidateRelease", `{"releaseId":"r"}`, "candidate.port", "1", "updatedAt", "null"))
	if x := l.doc(one).Explain(l.facts); !slices.Equal(codes(x), []events.Code{events.CodeReleaseCandidateIdentity, events.CodeReleaseLaneCollision}) || x.Since != "" {
		t.Errorf("%+v", x)
	}
	l.received(one+".json", with(document, "candidateRelease", `"x"`))
	if x := l.doc(one).Explain(l.facts); !slices.Equal(codes(x), []events.Code{events.CodeReleaseCandidateIdentity}) || x.Waits[0].Remedy != "give another candidateRelease with the advance" {
		t.Errorf("%+v", x)
	}
}

// inventory is a ledger of many sessions: every third active, every fifth invalid.
func inventory(t *testing.T, n int) *ledger {
	l := given(t)
	for i := range n {
		id := fmt.Sprintf("release-%04d", i)
		text := with(document, "sessionId", quote(id), "phase", `"failed"`)
		switch {
		case i%5 == 0:
			text = "x"
		case i%3 == 0:
			text = with(text, "phase", `"built"`)
		}
		// Without the checks of a scenario, which take quadratic time.
		l.state = l.fold(l.state, []events.Payload{events.ReleaseDocumentReceived{Name: id, Text: []byte(text)}})
	}
	return l
}

func ids(list []*release.Document) (names []string) {
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names
}

func TestList(t *testing.T) {
	l := given(t)
	if got := asText(l.state.ListComplete()); got != `{"sessions":[],"invalidSessionFiles":[],"inspected":0,"truncated":false}` {
		t.Errorf("%s", got)
	}
	// The byte order of the whole file name.
	for _, name := range []string{"release-0001", "release-0001-x", "release-00010", "release-0001_x", "RELEASE-0001", "release-0001.x"} {
		l.received(name+".json", with(document, "sessionId", quote(name), "phase", `"failed"`))
	}
	list := l.state.ListComplete()
	if got, want := strings.Join(ids(list.Sessions), " "), "RELEASE-0001 release-0001-x release-0001 release-00010 release-0001_x"; got != want {
		t.Errorf("order %s", got)
	}
	if !slices.Equal(list.InvalidSessionFiles, []string{"release-0001.x.json"}) || list.Inspected != 6 || list.Truncated {
		t.Errorf("%s", asText(list))
	}
	l = inventory(t, 530)
	for _, c := range []struct {
		most      float64
		inspected int
	}{
		{math.NaN(), 512},
		{0, 1},
		{-5, 1},
		{0.9, 1},
		{1, 1},
		{2.9, 2},
		{529, 529},
		{530, 530},
		{1e300, 530},
		{math.Inf(1), 530},
		{math.Inf(-1), 1},
	} {
		list := l.state.List(c.most)
		if list.Inspected != c.inspected || list.Truncated != (c.inspected < 530) || len(list.Sessions)+len(list.InvalidSessionFiles) != c.inspected {
			t.Errorf("%v: %d, %v", c.most, list.Inspected, list.Truncated)
		}
	}
}

func TestActiveFirst(t *testing.T) {
	l := inventory(t, 30)
	list := l.state.ListComplete()
	before := slices.Clone(list.Sessions)
	sorted := l.state.ActiveFirst(1<<30, 1<<30)
	if !slices.Equal(list.Sessions, before) {
		t.Error("sorting changed the list it was made of")
	}
	split := slices.IndexFunc(sorted.Sessions, func(d *release.Document) bool { return release.Terminal(d.Phase()) })
	if split != 8 || len(sorted.Sessions) != 24 || !slices.IsSorted(ids(sorted.Sessions[:split])) || !slices.IsSorted(ids(sorted.Sessions[split:])) ||
		slices.ContainsFunc(sorted.Sessions[split:], func(d *release.Document) bool { return !release.Terminal(d.Phase()) }) {
		t.Errorf("%v", ids(sorted.Sessions))
	}
}

// A page names the invalid documents that lie before its end, in its own order,
// and no more of them than fit.
func TestPagesNameInvalidDocuments(t *testing.T) {
	l := inventory(t, 60)
	whole := l.state.ActiveFirst(1<<30, 1<<30)
	page := l.state.ActiveFirst(1<<30, 20_000)
	if !page.Truncated || len(page.Sessions) < 17 || len(page.Sessions) >= len(whole.Sessions) || page.Cursor != "" {
		t.Fatalf("%d of %d sessions, cursor %q", len(page.Sessions), len(whole.Sessions), page.Cursor)
	}
	// The last one is a finished session; the invalid ones before it are named.
	last := page.Sessions[len(page.Sessions)-1].Name + ".json"
	var want []string
	for _, name := range whole.InvalidSessionFiles {
		if name < last {
			want = append(want, name)
		}
	}
	if !slices.Equal(page.InvalidSessionFiles, want) || page.Inspected != len(page.Sessions)+len(want) {
		t.Errorf("named %v, want %v", page.InvalidSessionFiles, want)
	}
	// Only active ones: no invalid one was looked at.
	if page := l.state.ActiveFirst(1<<30, 3000); len(page.InvalidSessionFiles) != 0 || page.Inspected != len(page.Sessions) {
		t.Errorf("%d inspected, named %v", page.Inspected, page.InvalidSessionFiles)
	}

	// Names alone can be too much for one page.
	l = given(t)
	for i := range 300 {
		name := fmt.Sprintf("%03d%s", i, strings.Repeat("x", 200))
		l.state = l.fold(l.state, []events.Payload{events.ReleaseDocumentReceived{Name: name, Text: []byte("x")}})
	}
	seen, rest := 0, l.state
	for n := 0; ; n++ {
		page := rest.Page(math.Inf(1), 10_000)
		if size := len(asText(page.InvalidSessionFiles)); size > 10_000 || len(page.InvalidSessionFiles) == 0 {
			t.Fatalf("a page of %d bytes", size)
		}
		if seen += len(page.InvalidSessionFiles); page.Cursor == "" {
			if seen != 300 || page.Truncated {
				t.Errorf("%d named, truncated %v", seen, page.Truncated)
			}
			break
		}
		if rest = rest.After(page.Cursor); n > 300 {
			t.Fatal("no end")
		}
	}
	if page := l.state.Page(1, 0); len(page.InvalidSessionFiles) != 1 || page.Cursor != page.InvalidSessionFiles[0] {
		t.Errorf("%v", page)
	}
}

// Pages of any size together are the whole list, invalid documents named once.
func TestPages(t *testing.T) {
	l := inventory(t, 60)
	whole := l.state.ListComplete()
	for _, bytes := range []int{3_000, 10_000, 1 << 20} {
		for _, most := range []float64{1, 7, 1000} {
			var sessions, invalid []string
			for cursor, rounds := "", 0; ; rounds++ {
				p := l.state.After(cursor).Page(most, bytes)
				sessions, invalid = append(sessions, ids(p.Sessions)...), append(invalid, p.InvalidSessionFiles...)
				if p.Truncated != (p.Cursor != "") {
					t.Fatalf("truncated %v, cursor %q", p.Truncated, p.Cursor)
				}
				if cursor = p.Cursor; cursor == "" {
					break
				}
				if rounds > 200 {
					t.Fatal("it does not end")
				}
			}
			if !slices.Equal(sessions, ids(whole.Sessions)) || !slices.Equal(invalid, whole.InvalidSessionFiles) {
				t.Errorf("%d bytes, %v documents: %v and %v", bytes, most, sessions, invalid)
			}
		}
	}
}

// many gives a session n receipts of about 100 bytes, in one document.
func many(n int, pairs ...string) string {
	var list []string
	for i := range n {
		list = append(list, with(gate("build", fmt.Sprintf("b-%06d", i), ""), "recordedAt", `"2025-12-31T00:00:00.000Z"`))
	}
	return with(document, append([]string{"receipts", "[" + strings.Join(list, ",") + "]"}, pairs...)...)
}

func TestReceiptPage(t *testing.T) {
	l := given(t).received(one+".json", many(600))
	d := l.doc(one)
	for _, c := range []struct{ from, limit, wantFrom, n int }{
		{0, 10, 0, 10},
		{-5, 3, 0, 3},
		{250, 20, 250, 20},
		{255, 1, 255, 1},
		{256, 1, 256, 1},
		{590, 100, 590, 10},
		{600, 5, 600, 0},
		{9999, 5, 600, 0},
		{5, 0, 5, 1},
		{5, -1, 5, 1},
		{0, math.MaxInt, 0, 600},
		{math.MaxInt, math.MaxInt, 600, 0},
		{300, math.MaxInt, 300, 300},
		{math.MinInt, 1, 0, 1},
	} {
		page := d.ReceiptPage(c.from, c.limit)
		if page.SessionID != one || page.From != c.wantFrom || page.Total != 600 || len(page.Receipts) != c.n || page.Receipts == nil {
			t.Errorf("%d, %d: from %d, %d receipts", c.from, c.limit, page.From, len(page.Receipts))
		}
		for i, r := range page.Receipts {
			if !strings.Contains(string(r), fmt.Sprintf(`"b-%06d"`, page.From+i)) {
				t.Fatalf("%d, %d: receipt %d is %s", c.from, c.limit, i, r)
			}
		}
	}
	page := d.ReceiptPage(0, 2)
	page.Receipts[0] = json.RawMessage("changed")
	if string(d.ReceiptPage(0, 1).Receipts[0]) == "changed" {
		t.Error("a page shares the list of the ledger")
	}
}

func TestShortened(t *testing.T) {
	l := given(t).received(one+".json", many(600)).received(two+".json", with(document, "sessionId", quote(two), "receipts", `"`+strings.Repeat("x", 500)+`"`)).
		received("release-0003.json", "x")
	d := l.doc(one)
	size := func(d *release.Document) int {
		b, err := d.MarshalJSON()
		if err != nil || d.Size() != len(b) {
			t.Errorf("%s: %d bytes computed, %d there, %v", d.Name, d.Size(), len(b), err)
		}
		return len(b)
	}
	whole := size(d)
	for _, most := range []int{whole, whole + 1, whole - 1, whole / 2, 2000, 10, 0, -1} {
		short, omitted := d.Shortened(most)
		if (omitted == 0) != (most >= whole) {
			t.Errorf("most %d: %d omitted", most, omitted)
		}
		if n := size(short); n > most && omitted < 600 || most >= 2000 && most < whole && most-n > 200 {
			t.Errorf("most %d: %d bytes, %d omitted", most, n, omitted)
		}
		page := short.ReceiptPage(0, 1)
		if page.Total+omitted != 600 || page.Total > 0 && !strings.Contains(string(page.Receipts[0]), fmt.Sprintf(`"b-%06d"`, omitted)) {
			t.Errorf("most %d: %d omitted, %s", most, omitted, asText(page))
		}
		if short.Phase() != d.Phase() || short.Incarnation != d.Incarnation || d.ReceiptPage(0, 1).Total != 600 {
			t.Errorf("most %d: another session", most)
		}
	}
	for _, name := range []string{two, "release-0003"} {
		if short, omitted := l.doc(name).Shortened(10); omitted != 0 || short != nil && size(short) != l.doc(name).Size() {
			t.Errorf("%s: %d omitted", name, omitted)
		}
	}
}

// A session that is too large without its receipts still says where it stands.
func TestReduced(t *testing.T) {
	l := given(t).received(one+".json", with(many(20), "opaque", quote(strings.Repeat("x", 5000))))
	d := l.doc(one)
	short, omitted := d.Reduced(1000)
	var got map[string]any
	if err := json.Unmarshal([]byte(asText(short)), &got); err != nil {
		t.Fatal(err)
	}
	if omitted != 20 || got["sessionId"] != one || got["phase"] == nil || got["revision"] == nil || got["membersOmitted"] != true || got["opaque"] != nil || got["receipts"] != nil {
		t.Errorf("%d omitted, %v", omitted, got)
	}
	if whole, omitted := d.Reduced(1 << 20); omitted != 0 || asText(whole) != asText(d) {
		t.Errorf("it was reduced without need: %d omitted", omitted)
	}
	list, _, _ := l.state.ListComplete().Fit(1000)
	if len(list.Sessions) != 1 || list.Sessions[0].Size() > 1000 {
		t.Errorf("a list with it: %s", asText(list))
	}
}

// What would not fit into a reply is refused before it is decided.
func TestTooLargeToAnswer(t *testing.T) {
	l := given(t)
	for name, c := range map[string]struct{ verb, body string }{
		"a lane":       {release.VerbCreate, with(createBody, "sessionId", quote(two), "stable", `{"controllerHome":"/a","pad":`+quote(strings.Repeat("x", 300<<10))+`}`)},
		"an authority": {release.VerbPublish, `{"authority":{"revision":1,"active":{"releaseId":"A","pad":` + quote(strings.Repeat("x", 300<<10)) + `}}}`},
	} {
		body, err := aggregate.ParseBody([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		command, err := release.Parse(c.verb, body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (release.Decider{}).Decide(l.state, command, l.facts); events.CodeOf(err) != events.CodeTooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFit(t *testing.T) {
	l := given(t)
	for i, n := range []int{0, 500, 3, 2000, 1, 0, 0} {
		id := fmt.Sprintf("release-%04d", i)
		l.received(id+".json", many(n, "sessionId", quote(id), "phase", `"failed"`))
	}
	list := l.state.ListComplete()
	kept := release.Dump(l.state)
	total := func(list release.List) (n int) {
		for _, d := range list.Sessions {
			n += d.Size() + 1
		}
		return n
	}
	for _, most := range []int{1 << 20, total(list), total(list) - 1, 100_000, 20_000, 15_000, 6000, 2000, 500, 0} {
		fit, omitted, all := list.Fit(most)
		if n := total(fit); n > most && len(fit.Sessions) > 1 { // it keeps one in any case
			t.Errorf("most %d: %d bytes", most, n)
		}
		if all != (len(fit.Sessions) == len(list.Sessions)) || fit.Truncated == all || fit.Inspected != list.Inspected {
			t.Errorf("most %d: %d of %d sessions, all %v, truncated %v", most, len(fit.Sessions), len(list.Sessions), all, fit.Truncated)
		}
		if most >= total(list) != (omitted == 0 && all) {
			t.Errorf("most %d: %d omitted, all %v", most, omitted, all)
		}
		if !slices.Equal(ids(fit.Sessions), ids(list.Sessions[:len(fit.Sessions)])) || most >= 20_000 && !all {
			t.Errorf("most %d: %v", most, ids(fit.Sessions))
		}
	}
	if fit, omitted, all := (release.List{}).Fit(0); omitted != 0 || !all || len(fit.Sessions) != 0 {
		t.Error("an empty list does not fit")
	}
	if release.Dump(l.state) != kept || len(list.Sessions) != 7 {
		t.Error("fitting changed the ledger")
	}
}

func ask(t *testing.T, l *ledger, name, body string) (bool, error) {
	t.Helper()
	b, err := aggregate.ParseBody([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return release.Predicate(l.state, name, b)
}

func TestPredicates(t *testing.T) {
	l := given(t).upTo(release.Soaking).received(two+".json", "x")
	stored := with(`{"sessionId":"release-0001"}`, "stableRelease", afterCutover)
	for _, c := range []struct {
		name, body string
		want       bool
	}{
		{"isTerminal", stored, false},
		{"candidateIsRetired", stored, true},
		{"isSoakingPredecessorOfStable", stored, true},
		{"isSoakingSupersededByStableAuthority", stored, false},
		{"isSoakingSupersededByStableAuthority", with(stored, "stableRelease.authorityRevision", "3"), false}, // the same release, later
		{"isSoakingSupersededByStableAuthority", with(stored, "stableRelease.authorityRevision", "3", "stableRelease.releaseId", `"r-3"`), true},
		{"isSoakingSupersededByStableAuthority", with(stored, "stableRelease.authorityRevision", "2", "stableRelease.releaseId", `"r-3"`), false},
		{"isSoakingSupersededByStableAuthority", with(stored, "stableRelease.authorityRevision", `"3"`, "stableRelease.releaseId", `"r-3"`), false},
		{"isSoakingSupersededByStableAuthority", with(stored, "stableRelease", "null"), false},
		{"isTerminal", `{"session":{"phase":"failed"}}`, true},
		{"isTerminal", `{"session":{"phase":"soaking"},"sessionId":"release-0001"}`, false},
		{"isTerminal", `{"session":{}}`, false},
		{"isTerminal", `{"session":7}`, false},
		{"isTerminal", `{"session":null,"sessionId":" release-0001"}`, false},
		{"candidateIsRetired", `{"session":{"phase":"soaking"}}`, true},
		{"candidateIsRetired", `{"session":{"phase":"rolled_back"}}`, true},
		{"candidateIsRetired", `{"session":{"phase":"cutover_committed"}}`, false},
		{"isSoakingPredecessorOfStable", `{"session":{"phase":"soaking"},"stableRelease":{}}`, false},
		{"isSoakingPredecessorOfStable", with(`{}`, "session", with(document, "phase", `"known_good"`, "candidateRelease", candidate, "transaction", transaction), "stableRelease", afterCutover), false},
		{"isSoakingPredecessorOfStable", with(`{}`, "session", with(document, "phase", `"soaking"`, "candidateRelease", candidate, "transaction", transaction), "stableRelease", afterCutover), true},
		{"isSoakingPredecessorOfStable", with(`{}`, "session", with(document, "phase", `"soaking"`, "candidateRelease", candidate, "transaction", "null"), "stableRelease", afterCutover), false},
	} {
		if got, err := ask(t, l, c.name, c.body); err != nil || got != c.want {
			t.Errorf("%s of %s: %v, %v", c.name, c.body, got, err)
		}
	}
	for body, code := range map[string]events.Code{
		`{"sessionId":"x"}`: events.CodeReleaseIDInvalid, `{"sessionId":"release-0002"}`: events.CodeReleaseInvalid, `{"sessionId":"release-0009"}`: events.CodeReleaseMissing,
		`{}`: events.CodeReleaseIDInvalid,
	} {
		if _, err := ask(t, l, "isTerminal", body); events.CodeOf(err) != code {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := ask(t, l, "isEternal", `{"session":{}}`); events.CodeOf(err) != events.CodeBadRequest {
		t.Errorf("%v", err)
	}
}

// The superseded session is still active.
func TestSupersededSoakingIsActive(t *testing.T) {
	l := given(t).upTo(release.Soaking)
	l.when(release.VerbCreate, successorBody("stableRelease.authorityRevision", "7", "stableRelease.releaseId", `"r-7"`)).fails(events.CodeReleaseActiveExists)
}

// The digest of a ledger tells apart what decides otherwise.
func TestEncodedLedgers(t *testing.T) {
	seen := map[string]string{}
	l := given(t)
	note := func(what string, l *ledger) {
		t.Helper()
		state := release.Decider{}.EncodeState(l.state)
		if other, ok := seen[string(state.Data)]; ok {
			t.Errorf("%s is encoded as %s", what, other)
		}
		seen[string(state.Data)] = what
		if again := (release.Decider{}).EncodeState(l.state); string(again.Data) != string(state.Data) {
			t.Errorf("%s has two encodings", what)
		}
	}
	note("nothing", l)
	note("frozen", l.fork().upTo(release.SourceFrozen))
	note("built", l.fork().upTo(release.Built))
	note("built later", l.fork().after(1).upTo(release.Built))
	note("an authority", l.fork().happened(release.VerbPublish, `{"authority":`+authority+`}`))
	note("invalid", l.fork().received(one+".json", "x"))
	gates := with(document, "receipts", staticGates)
	note("adopted", l.fork().received(one+".json", gates))
	note("adopted again", l.fork().received("x.json", "").happened(release.VerbDiscardDocument, `{"name":"x.json","reason":"r"}`).received(one+".json", gates))
	if d := (release.Decider{}); d.Kind() != events.KindRelease || d.Rules() != release.RulesVersion || d.Carries() {
		t.Error("another decider")
	}
	if _, known, err := (release.Decider{}).DecodeState("main", events.State{}); known || err != nil {
		t.Errorf("%v, %v", known, err)
	}
}
