package release_test

import (
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// authority is the one after the cutover of the session.
const authority = `{"revision":2,"committedAt":"2025-12-31T00:00:00Z","active":{"releaseId":"r-2","artifactIdentity":"sha256:a2","manifestSha256":"m2"},"previous":` + published + `}`

func migrate(pairs ...string) string { return with(`{"authority":`+authority+`}`, pairs...) }

// legacy is a document of an older form.
func legacy(phase string, pairs ...string) string {
	return with(with(document, "semanticEpoch", "", "phase", quote(phase), "candidateRelease", candidate), pairs...)
}

func TestMigratePassOneLooksAtAllDocumentsFirst(t *testing.T) {
	// The name is checked before the JSON of the same document; names come in the
	// byte order of the whole file name.
	l := given(t).received(" a.json", "x").received(one+".json", "x").received("release-0001-x.json", "null").received(two+".json", "[]")
	l.when(release.VerbMigrate, migrate()).fails(events.CodeReleaseIDInvalid).says("name", `" a.json"`)
	l.happened(release.VerbDiscardDocument, `{"name":" a.json","reason":"r"}`)
	l.when(release.VerbMigrate, migrate()).fails(events.CodeReleaseMigrationJSON).says("name", `"release-0001-x.json"`)
	l.happened(release.VerbDiscardDocument, `{"name":"release-0001-x.json","reason":"r"}`)
	l.when(release.VerbMigrate, migrate()).fails(events.CodeReleaseMigrationJSON).says("name", `"release-0001.json"`)
	l.happened(release.VerbDiscardDocument, `{"name":"release-0001.json","reason":"r"}`)
	l.when(release.VerbMigrate, migrate()).fails(events.CodeReleaseMigrationSchema).says("name", `"release-0002.json"`)
	for text, code := range map[string]events.Code{
		"null": events.CodeReleaseMigrationJSON, " null\n": events.CodeReleaseMigrationJSON, "": events.CodeReleaseMigrationJSON, "{": events.CodeReleaseMigrationJSON,
		"{} {}": events.CodeReleaseMigrationJSON, `{"a":1,"a":1}`: events.CodeReleaseMigrationJSON, "7": events.CodeReleaseMigrationSchema,
		`"x"`: events.CodeReleaseMigrationSchema, "false": events.CodeReleaseMigrationSchema, "{}": events.CodeReleaseMigrationSchema,
	} {
		given(t).received(one+".json", text).when(release.VerbMigrate, `{}`).fails(code)
	}
}

func TestMigrateForms(t *testing.T) {
	const (
		current    = ""
		converted  = events.MigratedConverted
		reconciled = events.MigratedReconciled
		historical = events.MigratedHistorical
	)
	none := `{"authority":null}`
	attempting := with(document, "phase", `"cutover_attempting"`, "candidateRelease", candidate, "revision", "7")
	unsupported := with(document, "createdAt", "")
	for name, c := range map[string]struct {
		text, body, outcome string
		code                events.Code
	}{
		// The present form.
		"current":                              {document, migrate(), current, ""},
		"current of any shape":                 {unsupported, migrate(), current, ""},
		"current but no session":               {with(document, "revision", "0"), migrate(), "", events.CodeReleaseInvalid},
		"an attempt that happened":             {attempting, migrate(), reconciled, ""},
		"an attempt, no authority":             {attempting, none, current, ""},
		"an attempt, an authority of a text":   {attempting, migrate("authority", `"x"`), current, ""},
		"an attempt, another active":           {attempting, migrate("authority.active.releaseId", `"x"`), current, ""},
		"an attempt, another artifact":         {attempting, migrate("authority.active.artifactIdentity", `"x"`), current, ""},
		"an attempt, another manifest":         {attempting, migrate("authority.active.manifestSha256", `"x"`), current, ""},
		"an attempt, a padded active":          {attempting, migrate("authority.active.releaseId", `" r-2"`), current, ""},
		"an attempt, no previous":              {attempting, migrate("authority.previous", "null"), current, ""},
		"an attempt, another previous":         {attempting, migrate("authority.previous.releaseId", `"x"`), current, ""},
		"an attempt, previous without backup":  {attempting, migrate("authority.previous.databaseBackup", ""), current, ""},
		"an attempt, no candidate":             {with(attempting, "candidateRelease", "null"), migrate(), current, ""},
		"an attempt, a transaction":            {with(attempting, "transaction", transaction), migrate(), current, ""},
		"an attempt, a bad backup":             {attempting, migrate("authority.previous.databaseBackup", "{}"), "", events.CodeReleaseInvalid},
		"an attempt, no time":                  {attempting, migrate("authority.committedAt", ""), "", events.CodeReleaseInvalid},
		"an attempt, an old revision":          {attempting, migrate("authority.revision", "1"), "", events.CodeReleaseInvalid},
		"an attempt, a revision of a text":     {attempting, migrate("authority.revision", `"2"`), "", events.CodeReleaseInvalid},
		"an attempt at the last revision":      {with(attempting, "revision", "9007199254740991"), migrate(), "", events.CodeReleaseInvalid},
		"an attempt, another worker protocol":  {attempting, migrate("authority.previous.workerProtocolVersion", "2"), "", events.CodeReleaseInvalid},
		"a later phase of the present form":    {with(attempting, "phase", `"known_good"`), migrate(), current, ""},
		"an attempt that is no session at all": {with(attempting, "sessionId", `"x"`), migrate(), "", events.CodeReleaseInvalid},
		// Older forms.
		"before the cutover":               {legacy(release.Built), migrate(), converted, ""},
		"epoch 1":                          {legacy(release.Built, "semanticEpoch", "1"), none, converted, ""},
		"schema 2":                         {legacy(release.Failed, "schemaVersion", "2"), none, converted, ""},
		"with a transaction":               {legacy(release.Soaking, "transaction", transaction), none, converted, ""},
		"with an invalid transaction":      {legacy(release.Soaking, "transaction", "{}"), migrate(), "", events.CodeReleaseInvalid},
		"revision 0":                       {legacy(release.Built, "revision", "0"), migrate(), "", events.CodeReleaseInvalid},
		"schema 2 with epoch 2":            {legacy(release.Built, "schemaVersion", "2", "semanticEpoch", "2"), migrate(), "", events.CodeReleaseMigrationSchema},
		"epoch 0":                          {legacy(release.Built, "semanticEpoch", "0"), migrate(), "", events.CodeReleaseMigrationSchema},
		"another id":                       {legacy(release.Built, "sessionId", `"release-0009"`), migrate(), "", events.CodeReleaseMigrationSchema},
		"unknown phase":                    {legacy("x"), migrate(), "", events.CodeReleaseMigrationSchema},
		"unreadable createdAt":             {legacy(release.Built, "createdAt", `"x"`), migrate(), "", events.CodeReleaseMigrationSchema},
		"unreadable updatedAt":             {legacy(release.Built, "updatedAt", "7"), migrate(), "", events.CodeReleaseMigrationSchema},
		"an old attempt":                   {legacy(release.CutoverAttempting), migrate(), converted, ""},
		"an old commit":                    {legacy(release.CutoverCommitted), migrate(), converted, ""},
		"an old soak":                      {legacy(release.Soaking), migrate(), converted, ""},
		"an old known good, active":        {legacy(release.KnownGood), migrate(), converted, ""},
		"an old known good":                {legacy(release.KnownGood), none, converted, ""},
		"an old rolled back":               {legacy(release.RolledBack), none, converted, ""},
		"an old attempt, no authority":     {legacy(release.CutoverAttempting), none, "", events.CodeReleaseMigrationAuthority},
		"an old commit, another active":    {legacy(release.CutoverCommitted), migrate("authority.active.releaseId", `"x"`), "", events.CodeReleaseMigrationAuthority},
		"an old soak, no authority":        {legacy(release.Soaking), none, "", events.CodeReleaseMigrationUnproven},
		"an old soak, no candidate":        {legacy(release.Soaking, "candidateRelease", ""), none, "", events.CodeReleaseMigrationAuthority},
		"an old soak, a blank candidate":   {legacy(release.Soaking, "candidateRelease.releaseId", `" "`), none, "", events.CodeReleaseMigrationAuthority},
		"an old soak, padded candidate":    {legacy(release.Soaking, "candidateRelease.releaseId", `" r-2 "`), migrate(), converted, ""},
		"an old soak, active, no previous": {legacy(release.Soaking), migrate("authority.previous", ""), "", events.CodeReleaseMigrationAuthority},
		"an old soak, padded previous":     {legacy(release.Soaking), migrate("authority.previous.releaseId", `" r-1"`), "", events.CodeReleaseMigrationAuthority},
		"an old soak, now previous": {
			legacy(release.Soaking), migrate("authority.active.releaseId", `"r-3"`, "authority.previous.releaseId", `" r-2"`, "authority.previous.artifactIdentity", `"sha256:a2"`, "authority.previous.manifestSha256", `"m2"`),
			historical, "",
		},
	} {
		l := given(t).received(one+".json", c.text).after(5)
		before := asText(l.doc(one))
		dry := l.fork().when(release.VerbMigrate, with(c.body, "dryRun", "true"))
		o := l.when(release.VerbMigrate, c.body)
		switch {
		case c.code != "":
			if events.CodeOf(o.err) != c.code || events.CodeOf(dry.err) != c.code {
				t.Errorf("%s: %v, want %s", name, o.err, c.code)
			}
			continue
		case o.err != nil || dry.err != nil || len(dry.Events) > 0:
			t.Errorf("%s: %v, %v", name, o.err, dry.err)
			continue
		case c.outcome == current:
			o.unchanged().answers(`{"migratedSessionIds":[],"currentSessionIds":["release-0001"],"inspected":1}`)
			if now := asText(l.doc(one)); now != before {
				t.Errorf("%s: %s", name, now)
			}
		default:
			o.appends("release.migrated").answers(`{"migratedSessionIds":["release-0001"],"currentSessionIds":[],"inspected":1}`)
			if e := o.Events[0].(events.ReleaseMigrated); e.Outcome != c.outcome {
				t.Errorf("%s: %s", name, asText(e))
			}
		}
		plan := dry.Result.(release.Migration).Plan
		if len(plan) != 1 || plan[0].SessionID != one || plan[0].To != l.doc(one).Phase() || c.outcome != "" && plan[0].Outcome != c.outcome {
			t.Errorf("%s: planned %s, became %s", name, asText(plan), l.doc(one).Phase())
		}
		// Running it again changes nothing.
		l.when(release.VerbMigrate, c.body).unchanged()
		d := l.doc(one)
		if revision := d.Revision(); c.outcome == reconciled && (revision != 8 || d.Text("updatedAt") != l.facts.Now.String()) ||
			c.outcome == converted && (revision != 1 || d.Text("updatedAt") != "2025-12-31T00:00:00.000Z") {
			t.Errorf("%s: revision %d, updated %s", name, revision, d.Text("updatedAt"))
		}
	}
}

func TestReconciledTransaction(t *testing.T) {
	l := given(t).received(one+".json", with(document, "phase", `"cutover_attempting"`, "candidateRelease", candidate)).
		happened(release.VerbMigrate, migrate("authority.revision", "2.0"))
	if got, want := asText(l.doc(one).Raw("transaction")), `{"schemaVersion":1,"operationId":"reconcile:release-0001:2","candidateReleaseId":"r-2","cutoverAuthorityRevision":2.0,`+
		`"startedAt":"2025-12-31T00:00:00Z","rollbackRelease":`+published+`}`; got != want {
		t.Errorf("%s", got)
	}
	// The same one may now be recorded again, and the cutover goes on.
	l.when(release.VerbTransaction, l.record(one, transaction)).unchanged()
	l.advanced(one, release.CutoverCommitted)
}

func TestHistoricalKnownGood(t *testing.T) {
	soaking := legacy(release.Soaking, "updatedAt", `"2025-12-31T01:00:00+01:00"`)
	user := func(id, createdAt string, pairs ...string) string {
		return with(with(document, "sessionId", quote(id), "phase", `"failed"`, "createdAt", quote(createdAt), "stableRelease", afterCutover), pairs...)
	}
	const word = "Legacy soaking state reconciled as known-good from exact durable release lineage: "
	for name, c := range map[string]struct {
		users []string // later ones, under the ids of release-0002, release-0003 …
		body  string
		proof string // "" for none
	}{
		"nobody":               {nil, `{}`, ""},
		"at the same instant":  {[]string{user(two, "2025-12-31T00:00:00.000Z")}, `{}`, "1 later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=release-0002"},
		"in another zone":      {[]string{user(two, "2025-12-30T22:00:00-02:00")}, `{}`, "1 later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=release-0002"},
		"a moment before":      {[]string{user(two, "2025-12-30T23:59:59.999Z")}, `{}`, ""},
		"two of three":         {[]string{user(two, "2025-12-01T00:00:00Z"), user("release-0003", "2026-12-01T00:00:00Z"), user("release-0004", "2026-06-01T00:00:00Z")}, `{}`, "2 later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=release-0003"},
		"a padded key":         {[]string{user(two, "2026-01-01T00:00:00Z", "stableRelease.releaseId", `" r-2 "`)}, `{}`, "1 later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=release-0002"},
		"of another release":   {[]string{user(two, "2026-01-01T00:00:00Z", "stableRelease.releaseId", `"r-3"`)}, `{}`, ""},
		"of unsupported shape": {[]string{user(two, "2026-01-01T00:00:00Z", "updatedAt", "")}, `{}`, ""},
		"the previous release": {nil, migrate("authority.active.releaseId", `"r-3"`, "authority.previous", with(`{}`, "releaseId", `"r-2"`, "artifactIdentity", `"sha256:a2"`, "manifestSha256", `" m2"`)), "current RuntimeReleaseAuthority.previous references Candidate B"},
		"users before previous": {
			[]string{user(two, "2026-01-01T00:00:00Z")},
			migrate("authority.active.releaseId", `"r-3"`, "authority.previous", with(`{}`, "releaseId", `"r-2"`, "artifactIdentity", `"sha256:a2"`, "manifestSha256", `"m2"`)),
			"1 later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=release-0002",
		},
		"itself": {nil, `{}`, ""},
	} {
		text := soaking
		if name == "itself" {
			text = with(soaking, "stableRelease", afterCutover, "createdAt", `"2026-01-01T00:00:00Z"`)
		}
		l := given(t).received(one+".json", text)
		for _, u := range c.users {
			id := strings.Trim(string(members(u)[2].Value), `"`)
			l.received(id+".json", u)
		}
		o := l.when(release.VerbMigrate, c.body)
		if c.proof == "" {
			o.fails(events.CodeReleaseMigrationUnproven)
			continue
		}
		o.appends("release.migrated")
		d := l.doc(one)
		want := `{"id":"migration:historical-known-good:release-0001","kind":"known_good","recordedAt":"2025-12-31T01:00:00+01:00","summary":"` + word + c.proof + `."}`
		if page := d.ReceiptPage(0, 9); d.Phase() != release.KnownGood || len(page.Receipts) != 1 || string(page.Receipts[0]) != want {
			t.Errorf("%s: %s %s", name, d.Phase(), asText(page))
		}
	}
	// The receipt is there already: it is not appended again, even where it could
	// not be.
	proof := user(two, "2026-01-01T00:00:00Z")
	there := `[{"id":"migration:historical-known-good:release-0001"}]`
	l := given(t).received(one+".json", with(soaking, "receipts", there)).received(two+".json", proof).happened(release.VerbMigrate, `{}`)
	if page := l.doc(one).ReceiptPage(0, 9); page.Total != 1 || l.doc(one).Phase() != release.KnownGood {
		t.Errorf("%s", asText(page))
	}
	for _, odd := range []string{"", "null", "{}", `"x"`} {
		given(t).received(one+".json", with(soaking, "receipts", odd)).received(two+".json", proof).when(release.VerbMigrate, `{}`).fails(events.CodeReleaseInvalid)
	}
}

// All or none, decided in order; the rollback release is on the log once.
func TestMigrateIsOneDecision(t *testing.T) {
	l := given(t)
	for _, id := range []string{"release-0003", two, one} {
		l.received(id+".json", with(legacy(release.Soaking), "sessionId", quote(id)))
	}
	l.received("release-0000.json", with(legacy(release.Built), "sessionId", `"release-0000"`)).received("release-0009.json", with(document, "sessionId", `"release-0009"`, "phase", `"failed"`))
	broken := l.fork().received("release-0008.json", with(legacy("x"), "sessionId", `"release-0008"`))
	before := release.Dump(broken.state)
	broken.when(release.VerbMigrate, migrate()).fails(events.CodeReleaseMigrationSchema)
	if release.Dump(broken.state) != before {
		t.Error("a failed migration changed something")
	}
	l.when(release.VerbMigrate, migrate("dryRun", "true")).unchanged().answers(`{"migratedSessionIds":["release-0000","release-0001","release-0002","release-0003"],` +
		`"currentSessionIds":["release-0009"],"inspected":5,"plan":[{"sessionId":"release-0000","outcome":"converted","from":"built","to":"built"},` +
		`{"sessionId":"release-0001","outcome":"converted","from":"soaking","to":"soaking"},{"sessionId":"release-0002","outcome":"converted","from":"soaking","to":"soaking"},` +
		`{"sessionId":"release-0003","outcome":"converted","from":"soaking","to":"soaking"},{"sessionId":"release-0009","outcome":"current","from":"failed","to":"failed"}]}`)
	o := l.when(release.VerbMigrate, migrate()).appends("release.migrated", "release.migrated", "release.migrated", "release.migrated")
	for i, p := range o.Events {
		if e := p.(events.ReleaseMigrated); (len(e.Previous) > 0) != (i == 1) {
			t.Errorf("event %d: previous %s", i, e.Previous)
		}
	}
	for _, id := range []string{one, two, "release-0003"} {
		if tx := string(l.doc(id).Raw("transaction")); !strings.Contains(tx, published) {
			t.Errorf("%s: %s", id, tx)
		}
	}
	l.when(release.VerbMigrate, `{"dryRun":"yes"}`).fails(events.CodeBadRequest, "dryRun")
	given(t).when(release.VerbMigrate, migrate()).unchanged().answers(`{"migratedSessionIds":[],"currentSessionIds":[],"inspected":0}`)

	// A later migration under another authority brings its own rollback release.
	l = given(t).received(one+".json", legacy(release.Soaking)).happened(release.VerbMigrate, migrate())
	l.received(two+".json", with(legacy(release.Soaking), "sessionId", quote(two))).happened(release.VerbMigrate, migrate("authority.previous.x", "1"))
	if tx := string(l.doc(two).Raw("transaction")); !strings.Contains(tx, `"x":1`) || strings.Contains(string(l.doc(one).Raw("transaction")), `"x":1`) {
		t.Errorf("%s", tx)
	}
}
