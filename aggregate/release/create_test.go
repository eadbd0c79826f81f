package release_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestCreateAnswersTheSession(t *testing.T) {
	l := given(t)
	body := with(createBody, "sessionId", quote(" "+one+"\n"), "sourceRevision", `"\tab<c "`, "stable.x", `{ "b" : 1.50, "a" : null }`)
	l.when(release.VerbCreate, body).appends("release.opened").answers(
		`{"schemaVersion":1,"semanticEpoch":2,"sessionId":"release-0001","stable":{"controllerHome":"/srv/a","port":1,"x":{"b":1.50,"a":null}},` +
			`"stableRelease":` + stableRelease + `,"candidate":{"controllerHome":"/srv/b","port":2},"sourceRevision":"ab\u003cc","phase":"source_frozen",` +
			`"revision":1,"receipts":[{"id":"source:release-0001","kind":"source","recordedAt":"2026-01-01T00:00:00.000Z","summary":"source frozen at ab\u003cc"}],` +
			`"createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z"}`)
	if d := l.doc(one); d.Incarnation != 1 || d.PhaseSince == nil || *d.PhaseSince != begin {
		t.Errorf("incarnation %d, since %v", d.Incarnation, d.PhaseSince)
	}
}

// A body in which everything is wrong fails by one check after another, as they
// are put right.
func TestCreateChecksInOrder(t *testing.T) {
	l := given(t).upTo(release.Built).received("bad.json", "x")
	body := `{"sessionId":"short","stable":7,"stableRelease":[],"candidate":{"a":1,"a":2},"sourceRevision":5,"checkAuthority":"yes"}`
	for _, c := range []struct {
		code  events.Code
		field string
		right func()
	}{
		{events.CodeReleaseIDInvalid, "sessionId", func() { body = with(body, "sessionId", quote(one)) }},
		{events.CodeReleaseAlreadyExists, "", func() { body = with(body, "sessionId", quote("bad-but-known")); l.received("bad-but-known.json", "x") }},
		{events.CodeReleaseAlreadyExists, "", func() { body = with(body, "sessionId", quote(two)) }},
		{events.CodeReleaseInventory, "", func() {
			l.happened(release.VerbDiscardDocument, `{"name":"bad.json","reason":"r"}`).happened(release.VerbDiscardDocument, `{"name":"bad-but-known.json","reason":"r"}`)
		}},
		{events.CodeReleaseActiveExists, "", func() { l.advanced(one, release.Failed) }},
		{events.CodeReleaseLaneCollision, "controllerHome", func() { body = with(body, "stable", `{"controllerHome":"/a"}`) }},
		{events.CodeReleaseLaneCollision, "controllerHome", func() { body = with(body, "candidate", `{"controllerHome":"/b"}`) }},
		{events.CodeReleaseSourceRequired, "sourceRevision", func() { body = with(body, "sourceRevision", `" \t"`) }},
		{events.CodeReleaseSourceRequired, "sourceRevision", func() { body = with(body, "sourceRevision", `"x"`) }},
		{events.CodeReleaseStableIdentity, "stableRelease.authorityRevision", func() { body = with(body, "stableRelease", stableRelease) }},
		{events.CodeBadRequest, "checkAuthority", func() { body = with(body, "checkAuthority", "true") }},
		{events.CodeReleaseStableIdentity, "", func() { body = with(body, "checkAuthority", "false") }},
	} {
		var fields []string
		if c.field != "" {
			fields = append(fields, c.field)
		}
		l.when(release.VerbCreate, body).fails(c.code, fields...)
		c.right()
	}
	l.when(release.VerbCreate, body).appends("release.opened")
}

func TestCreateNeedsAStableRelease(t *testing.T) {
	for name, values := range map[string][]string{
		"authorityRevision":         {"", "null", "0", "-1", "1.5", `"1"`, "9007199254740992", "[1]", "true"},
		"workerProtocolVersion":     {"", "null", "0", `"1"`, "0.9"},
		"releaseId":                 {"", "null", `""`, "7", "{}"},
		"artifactIdentity":          {"", `""`, "null"},
		"manifestSha256":            {"", `""`, "false"},
		"releaseFencingTokenSha256": {"", `""`, "null", "1"},
	} {
		for _, v := range values {
			given(t).when(release.VerbCreate, with(createBody, "stableRelease."+name, v)).fails(events.CodeReleaseStableIdentity, "stableRelease."+name)
		}
	}
	// Empty is not blank, and an integer may be written in any way.
	for _, pairs := range [][]string{
		{"stableRelease.releaseId", `" "`},
		{"stableRelease.authorityRevision", "1.0"},
		{"stableRelease.authorityRevision", "9007199254740991"},
		{"stableRelease.workerProtocolVersion", "10e-1"},
	} {
		given(t).when(release.VerbCreate, with(createBody, pairs...)).appends("release.opened")
	}
}

func TestCreateComparesHomesLexically(t *testing.T) {
	for _, c := range []struct {
		a, b    string
		collide bool
	}{
		{`"/srv/a"`, `"/srv/a/"`, true},
		{`"/srv/a"`, `"/srv//a"`, true},
		{`"/srv/a"`, `"/srv/./a"`, true},
		{`"/srv/a"`, `"/srv/b/../a"`, true},
		{`"/srv/a"`, `"/../srv/a/."`, true},
		{`"srv/a"`, `"./srv/a"`, true},
		{`"/srv/a"`, `"srv/a"`, false},
		{`"/srv/a"`, `"/srv/A"`, false},
		{`"/srv/a"`, `"/srv/a "`, false},
		{`"/srv/a"`, `null`, true},
		{`null`, `null`, true},
		{`7`, `"/srv/a"`, true},
		{`""`, `"."`, true},
		{`""`, `"/srv/a"`, false},
	} {
		o := given(t).when(release.VerbCreate, with(createBody, "stable.controllerHome", c.a, "candidate.controllerHome", c.b, "candidate.port", "1"))
		if c.collide {
			o.fails(events.CodeReleaseLaneCollision)
		} else {
			o.appends("release.opened") // with equal ports, which are not compared here
		}
	}
	for _, lane := range []string{"", "null", "7", `"x"`, "[]"} {
		given(t).when(release.VerbCreate, with(createBody, "stable", lane)).fails(events.CodeReleaseLaneCollision)
		given(t).when(release.VerbCreate, with(createBody, "candidate", lane)).fails(events.CodeReleaseLaneCollision)
	}
}

// The stable release that the cutover of the first session made.
var afterCutover = with(stableRelease, "authorityRevision", "2", "releaseId", `"r-2"`, "artifactIdentity", `"sha256:a2"`, "manifestSha256", `"m2"`)

func successorBody(pairs ...string) string {
	return with(with(createBody, "sessionId", quote(two), "sourceRevision", `"def"`, "stableRelease", afterCutover), pairs...)
}

func TestRepairSuccessor(t *testing.T) {
	for _, phase := range release.Order() {
		o := given(t).upTo(phase).when(release.VerbCreate, successorBody())
		if phase == release.Soaking || phase == release.KnownGood {
			o.appends("release.opened")
		} else {
			o.fails(events.CodeReleaseActiveExists).says("active", `["release-0001"]`)
		}
	}
	soaking := given(t).upTo(release.Soaking)
	for name, body := range map[string]string{
		"the same source":         successorBody("sourceRevision", `" abc "`),
		"another stable release":  successorBody("stableRelease.releaseId", `"r-3"`),
		"another artifact":        successorBody("stableRelease.artifactIdentity", `"x"`),
		"another manifest":        successorBody("stableRelease.manifestSha256", `"x"`),
		"a later authority":       successorBody("stableRelease.authorityRevision", "3"),
		"the stable one before":   successorBody("stableRelease", stableRelease),
		"no stable release":       successorBody("stableRelease", ""),
		"a number as a text":      successorBody("stableRelease.authorityRevision", `"2"`),
		"a superseded one":        successorBody("stableRelease.authorityRevision", "3", "stableRelease.releaseId", `"r-9"`),
		"an artifact that is nil": successorBody("stableRelease.artifactIdentity", "null"),
	} {
		if o := soaking.fork().when(release.VerbCreate, body); events.CodeOf(o.err) != events.CodeReleaseActiveExists {
			t.Errorf("%s: %v", name, o.err)
		}
	}
	// Check 4 comes before 6: a blank source differs from that of the predecessor.
	soaking.fork().when(release.VerbCreate, successorBody("sourceRevision", `" "`)).fails(events.CodeReleaseSourceRequired)
	// A third one never, not even for exactly the right release.
	l := soaking.fork().happened(release.VerbCreate, successorBody())
	l.when(release.VerbCreate, successorBody("sessionId", quote("release-0003"), "sourceRevision", `"ghi"`)).
		fails(events.CodeReleaseActiveExists).says("active", `["release-0001","release-0002"]`)
	// Once the predecessor ended, the successor alone is active, and does not soak.
	l.advanced(one, release.RolledBack).when(release.VerbCreate, successorBody("sessionId", quote("release-0003"), "sourceRevision", `"ghi"`)).
		fails(events.CodeReleaseActiveExists).says("active", `["release-0002"]`)
}

// The stored source is compared as it is, the new one trimmed.
func TestRepairSuccessorOfAnAdoptedSession(t *testing.T) {
	soaking := with(document, "phase", `"soaking"`, "revision", "9", "candidateRelease", candidate, "transaction", transaction)
	for source, ok := range map[string]bool{`" def"`: true, `"def"`: false, `null`: true, `7`: true, `"abc"`: true} {
		o := given(t).received(one+".json", with(soaking, "sourceRevision", source)).when(release.VerbCreate, successorBody("sourceRevision", `" def "`))
		if ok {
			o.appends("release.opened")
		} else {
			o.fails(events.CodeReleaseActiveExists)
		}
	}
	// A missing source is no blank one.
	given(t).received(one+".json", with(soaking, "sourceRevision", "null")).
		when(release.VerbCreate, successorBody("sourceRevision", `""`)).fails(events.CodeReleaseSourceRequired)
}

// Awaiting and invalid documents alike keep a new session from beginning.
func TestCreateFailsClosed(t *testing.T) {
	legacy := with(document, "semanticEpoch", "", "phase", `"failed"`)
	l := given(t).received("a-first.json", "x").received(one+".json", legacy)
	l.when(release.VerbCreate, with(createBody, "sessionId", quote(two))).fails(events.CodeReleaseInventory).
		says("invalidSessionFiles", `["a-first.json","release-0001.json"]`)
	l.happened(release.VerbDiscardDocument, `{"name":"a-first.json","reason":"r"}`).happened(release.VerbMigrate, `{}`).
		when(release.VerbCreate, with(createBody, "sessionId", quote(two))).appends("release.opened")

	// A thousand broken ones are not all listed.
	l = given(t)
	for i := range 1000 {
		l.state = l.fold(l.state, []events.Payload{events.ReleaseDocumentReceived{Name: strings.Repeat("x", 200) + string(rune('a'+i%26)) + quote(string(rune(i))), Text: []byte("x")}})
	}
	o := l.when(release.VerbCreate, createBody).fails(events.CodeReleaseInventory)
	if size := len(asText(events.AsError(o.err).Details)) + len(o.err.Error()); size > 32<<10 {
		t.Errorf("the refusal has %d bytes", size)
	}
}

func TestCheckAuthority(t *testing.T) {
	authority := `{"revision":1,"active":` + published + `}`
	checked := with(createBody, "checkAuthority", "true")
	given(t).when(release.VerbCreate, checked).fails(events.CodeReleaseStableIdentity)
	l := given(t).happened(release.VerbPublish, `{"authority":`+authority+`}`)
	for _, pairs := range [][]string{
		{"stableRelease.authorityRevision", "2"},
		{"stableRelease.releaseId", `"x"`},
		{"stableRelease.artifactIdentity", `"x"`},
		{"stableRelease.manifestSha256", `"x"`},
		{"stableRelease.workerProtocolVersion", "2"},
	} {
		l.fork().when(release.VerbCreate, with(checked, pairs...)).fails(events.CodeReleaseStableIdentity)
		l.fork().when(release.VerbCreate, with(createBody, pairs...)).appends("release.opened")
		l.fork().when(release.VerbCreate, with(with(createBody, "checkAuthority", "null"), pairs...)).appends("release.opened")
	}
	l.when(release.VerbCreate, checked).appends("release.opened")
}

// What the log could not take again is refused by the check that owns it: an
// event with it could never be folded.
func TestNotStrictJSONIsRefused(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for _, odd := range []string{`{"a":1,"a":2}`, `[{"a":1,"a":1}]`, deep} {
		for member, code := range map[string]events.Code{
			"stable": events.CodeReleaseLaneCollision, "candidate": events.CodeReleaseLaneCollision, "stableRelease": events.CodeReleaseStableIdentity,
		} {
			given(t).when(release.VerbCreate, with(createBody, member+".x", odd)).fails(code)
		}
		l := given(t).upTo(release.SourceFrozen)
		l.when(release.VerbAdvance, l.step(one, release.Built, "candidateRelease", with(candidate, "x", odd))).fails(events.CodeReleaseCandidateIdentity)
		l = given(t).upTo(release.CutoverAttempting)
		l.when(release.VerbTransaction, l.record(one, with(transaction, "x", odd))).fails(events.CodeReleaseTxInvalid)
		given(t).when(release.VerbPublish, `{"authority":{"revision":1,"active":{"x":`+odd+`}}}`).fails(events.CodeBadRequest)
		given(t).when(release.VerbMigrate, `{"authority":{"revision":1,"active":{"x":`+odd+`}}}`).fails(events.CodeBadRequest)
		// Of a receipt only texts are taken.
		l = given(t).upTo(release.SourceFrozen)
		l.when(release.VerbReceipts, evidence(one, "["+with(gate("build", "b", ""), "x", odd)+"]")).appends("release.receipts-recorded")
	}
}

func TestParse(t *testing.T) {
	if _, err := release.Parse("release.unknown", nil); events.CodeOf(err) != events.CodeUnknownVerb {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(release.Order()[:2], []string{release.SourceFrozen, release.Built}) {
		t.Errorf("%v", release.Order())
	}
}
