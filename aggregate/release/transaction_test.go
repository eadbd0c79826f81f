package release_test

import (
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestTransactionIsRecordedOnce(t *testing.T) {
	l := given(t).upTo(release.CutoverAttempting)
	body := l.record(one, with(transaction, "x", `{ "b" : 1.0 }`))
	l.when(release.VerbTransaction, body).appends("release.transaction-recorded")
	l.at(one, release.CutoverAttempting, 8)
	if got, want := string(l.doc(one).Raw("transaction")), with(transaction, "x", `{ "b" : 1.0 }`); got != want {
		t.Errorf("stored as %s", got)
	}
	// The same one, whatever the revision; operationId and startedAt do not count.
	// Times are compared as instants.
	for _, pairs := range [][]string{
		{},
		{"operationId", `"op-2"`, "startedAt", `"2027-01-01T00:00:00Z"`},
		{"operationId", "", "startedAt", "", "x", ""},
		{"rollbackRelease.publishedAt", `"2025-12-01T01:00:00.000+01:00"`},
		{"rollbackRelease.databaseBackup.createdAt", `"2025-11-30T23:30:00-00:30"`},
		{"rollbackRelease.databaseBackup.recordCount", "null"},
		{"rollbackRelease.databaseBackup.auditEventCount", "5.0"},
		{"schemaVersion", "1.0", "cutoverAuthorityRevision", "20e-1"},
		{"y", "1", "rollbackRelease.y", "1", "rollbackRelease.databaseBackup.y", "1"},
	} {
		for _, revision := range []string{"7", "8", "1", "", "null", `"x"`} {
			o := l.when(release.VerbTransaction, with(body, "expectedRevision", revision, "transaction", with(transaction, pairs...)))
			if revision == `"x"` {
				o.fails(events.CodeBadRequest) // no rule looked at it
				continue
			}
			o.unchanged().answers(asText(l.doc(one)))
		}
	}
	// Another one never replaces it, whatever the revision and its validity.
	for _, other := range []string{
		with(transaction, "schemaVersion", "2"), with(transaction, "candidateReleaseId", `"r-3"`), with(transaction, "cutoverAuthorityRevision", "3"),
		with(transaction, "rollbackRelease.releaseId", `"x"`), with(transaction, "rollbackRelease.artifactIdentity", `"x"`),
		with(transaction, "rollbackRelease.manifestPath", `"/x"`), with(transaction, "rollbackRelease.manifestSha256", `"x"`),
		with(transaction, "rollbackRelease.workerProtocolVersion", "2"), with(transaction, "rollbackRelease.publishedAt", `"2025-12-01T00:00:00.001Z"`),
		with(transaction, "rollbackRelease.publishedAt", `"soon"`), with(transaction, "rollbackRelease.databaseBackup", ""),
		with(transaction, "rollbackRelease.databaseBackup.path", `"/x"`), with(transaction, "rollbackRelease.databaseBackup.schemaVersion", "4"),
		with(transaction, "rollbackRelease.databaseBackup.createdAt", `"2025-12-02T00:00:00Z"`), with(transaction, "rollbackRelease.databaseBackup.auditEventCount", "6"),
		with(transaction, "rollbackRelease.databaseBackup.auditEventCount", ""), with(transaction, "rollbackRelease.databaseBackup.recordCount", "0"),
		with(transaction, "rollbackRelease", "null"), "7", "{}", "null", "",
	} {
		for _, revision := range []string{"7", "8", ""} {
			l.when(release.VerbTransaction, with(body, "expectedRevision", revision, "transaction", other)).fails(events.CodeReleaseTxConflict)
		}
	}
	l.at(one, release.CutoverAttempting, 8)
	// After the attempt it is too late for either.
	l.advanced(one, release.CutoverCommitted)
	l.when(release.VerbTransaction, body).fails(events.CodeReleaseTxAttempting).says("phase", `"cutover_committed"`)
}

func TestTransactionChecksInOrder(t *testing.T) {
	l := given(t).received(two+".json", "x")
	body := `{"sessionId":"","transaction":{},"expectedRevision":"7","expectedPhase":"cutover_attempting","expectedIncarnation":9}`
	for _, c := range []struct {
		code  events.Code
		right func()
	}{
		{events.CodeReleaseIDInvalid, func() { body = with(body, "sessionId", quote(two)) }},
		{events.CodeReleaseInvalid, func() { body = with(body, "sessionId", quote(one)) }},
		{events.CodeReleaseMissing, func() {
			l.happened(release.VerbDiscardDocument, `{"name":"release-0002.json","reason":"r"}`).upTo(release.Built)
		}},
		{events.CodeReleaseRevisionFenced, func() { body = with(body, "expectedIncarnation", "3") }},
		{events.CodeReleaseTxAttempting, func() { l.upTo(release.CutoverAttempting) }},
		{events.CodeReleaseRevisionFenced, func() { body = with(body, "expectedRevision", "") }},
		{events.CodeReleaseRevisionFenced, func() { body = with(body, "expectedRevision", "7", "expectedPhase", `"built"`) }},
		{events.CodeReleaseRevisionFenced, func() { body = with(body, "expectedPhase", "null") }},
		{events.CodeReleaseTxInvalid, func() { body = with(body, "transaction", "null") }},
		{events.CodeReleaseTxInvalid, func() {
			body = with(body, "transaction", transaction, "expectedRevision", "9007199254740991", "expectedIncarnation", "")
			at := with(document, "phase", `"cutover_attempting"`, "candidateRelease", candidate, "revision", "9007199254740991")
			l.received(one+".json", at)
		}},
		{events.CodeReleaseInvalid, func() {
			l.received(one+".json", with(document, "phase", `"cutover_attempting"`, "candidateRelease", candidate, "revision", "6"))
			body = with(body, "expectedRevision", "6")
		}},
	} {
		o := l.when(release.VerbTransaction, body)
		if events.CodeOf(o.err) != c.code {
			t.Fatalf("%s: got %v, want %s", body, o.err, c.code)
		}
		c.right()
	}
	l.when(release.VerbTransaction, body).appends("release.transaction-recorded")
}

// A transaction is valid for its session, or it is refused; a document that has
// another one cannot be read.
func TestValidTransaction(t *testing.T) {
	l := given(t).upTo(release.CutoverAttempting)
	for name, values := range map[string][]string{
		"schemaVersion":                                {"", "null", "2", `"1"`, "1.5"},
		"operationId":                                  {"", "null", `""`, `" \t"`, "7"},
		"candidateReleaseId":                           {"", "null", `"r-3"`, `" r-2"`, "7"},
		"cutoverAuthorityRevision":                     {"", "null", "1", "0", "1.5", `"2"`, "9007199254740992"},
		"startedAt":                                    {"", "null", `""`, `"soon"`, `"2026-01-01"`, "7"},
		"rollbackRelease":                              {"", "null", "[]", `"x"`},
		"rollbackRelease.releaseId":                    {"", `"r-2"`},
		"rollbackRelease.artifactIdentity":             {"", `"x"`, "null"},
		"rollbackRelease.manifestSha256":               {"", `"x"`},
		"rollbackRelease.workerProtocolVersion":        {"", "2", `"1"`},
		"rollbackRelease.manifestPath":                 {"", "null", `" "`, "7"},
		"rollbackRelease.publishedAt":                  {"", `"x"`, "0"},
		"rollbackRelease.databaseBackup":               {"", "null", "[]", "{}"},
		"rollbackRelease.databaseBackup.path":          {"", `"b/1"`, `"/b/../1"`, `"/b/./1"`, `"/b//1"`, `"/b/1/"`, `"/b/."`, "7", `""`, `" /b"`},
		"rollbackRelease.databaseBackup.schemaVersion": {"", "0", "-1", "1.5", `"3"`},
		"rollbackRelease.databaseBackup.createdAt":     {"", `"x"`},
	} {
		for _, v := range values {
			tx := with(transaction, name, v)
			l.when(release.VerbTransaction, l.record(one, tx)).fails(events.CodeReleaseTxInvalid)
			for _, phase := range []string{release.SourceFrozen, release.CutoverAttempting, release.Soaking, release.Failed} {
				text := with(document, "phase", quote(phase), "candidateRelease", candidate, "transaction", tx)
				f := given(t).received(one+".json", text)
				if f.doc(one).Why() == nil {
					t.Errorf("%s = %s in %s is read", name, v, phase)
				}
			}
		}
	}
	for _, odd := range []string{"7", "[]", `""`, "false"} {
		l.when(release.VerbTransaction, l.record(one, odd)).fails(events.CodeReleaseTxInvalid)
		if f := given(t).received(one+".json", with(document, "candidateRelease", candidate, "transaction", odd)); f.doc(one).Why() == nil {
			t.Errorf("transaction %s is read", odd)
		}
	}
	for _, pairs := range [][]string{
		{"cutoverAuthorityRevision", "9007199254740991"},
		{"schemaVersion", "1.0"},
		{"startedAt", `"2026-01-01T00:00:00.123456+05:45"`},
		{"rollbackRelease.databaseBackup.auditEventCount", `"many"`},
	} {
		l.fork().when(release.VerbTransaction, l.record(one, with(transaction, pairs...))).appends("release.transaction-recorded")
	}
	// None is valid, unless there must have been one.
	for _, phase := range append(release.Order(), release.RolledBack, release.Failed) {
		for _, none := range []string{"", "null"} {
			f := given(t).received(one+".json", with(document, "phase", quote(phase), "candidateRelease", candidate, "transaction", none))
			if want := phase != release.CutoverCommitted && phase != release.Soaking; (f.doc(one).Why() == nil) != want {
				t.Errorf("in %s without transaction: %v", phase, f.doc(one).Why())
			}
		}
		f := given(t).received(one+".json", with(document, "phase", quote(phase), "candidateRelease", candidate, "transaction", transaction))
		if f.doc(one).Why() != nil {
			t.Errorf("in %s with a transaction: %v", phase, f.doc(one).Why())
		}
	}
}

// An adopted session that has a transaction before its time: another candidate
// would make it unreadable.
func TestAdvanceNeverLeavesAnInvalidSession(t *testing.T) {
	l := given(t).received(one+".json", with(document, "candidateRelease", candidate, "transaction", transaction))
	l.when(release.VerbAdvance, l.step(one, release.Built, "candidateRelease", with(candidate, "releaseId", `"r-3"`))).fails(events.CodeReleaseInvalid)
	l.when(release.VerbAdvance, l.step(one, release.Failed, "candidateRelease", with(candidate, "releaseId", `"r-3"`))).fails(events.CodeReleaseInvalid)
	l.advanced(one, release.Built, "candidateRelease", with(candidate, "manifestPath", `"/m/3"`)).at(one, release.Built, 2)
	given(t).upTo(release.CutoverAttempting).when(release.VerbAdvance, l.step(one, release.CutoverCommitted, "expectedRevision", "7")).fails(events.CodeReleaseTxRequired)
}
