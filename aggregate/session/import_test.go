package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// importedSession is the owner of claimBody as another system stored it.
const importedSession = `{"schemaVersion":1,"workId":"w1","controllerId":"c1","controllerType":"codex","sessionId":"s1","principalId":"p1",` +
	`"controllerInstanceId":"i1","claimGeneration":1,"claimedAt":"2026-01-01T00:00:00.000Z","leaseExpiresAt":"2026-01-01T01:00:00.000Z"}`

// snapshot is the body of an import of sessions from a record.
func snapshot(sessions ...string) string { return snapshotOf(events.SourceRecord, "", sessions...) }

func snapshotOf(source, scope string, sessions ...string) string {
	return `{"source":` + quote(source) + `,"scope":` + quote(scope) + `,"store":{"schemaVersion":1,"sessions":[` + strings.Join(sessions, ",") + `]}}`
}

// retainedRecord is the body of an import of one retained identity.
func retainedRecord(session, releasedAt string) string {
	record := with(`{"schemaVersion":1,"session":`+session+`}`, "releasedAt", releasedAt)
	return `{"workId":"w1","record":` + record + `}`
}

// entry is the one entry of an import.
func (w *work) entry(body string) *outcome {
	w.t.Helper()
	list := w.entries(body)
	if len(list) != 1 {
		w.t.Fatalf("%s has %d entries", body, len(list))
	}
	return w.do(list[0])
}

func TestImportStandings(t *testing.T) {
	for name, c := range map[string]struct{ body, standing string }{
		"record":                 {snapshot(importedSession), events.StandingHeld},
		"file":                   {snapshotOf("file", "r", importedSession), events.StandingHeld},
		"retained":               {retainedRecord(importedSession, ""), events.StandingIdentity},
		"retained, null release": {retainedRecord(importedSession, "null"), events.StandingIdentity},
		"retained, blank":        {retainedRecord(importedSession, `" "`), events.StandingIdentity},
		"retained, released":     {retainedRecord(importedSession, `"2026-01-01T00:30:00Z"`), events.StandingReleased},
		"retained, padded":       {retainedRecord(importedSession, `" 2026-01-01T00:30:00Z "`), events.StandingReleased},
		"retained, a list":       {`{"source":"retained","records":[{"workId":"w9","record":{"session":` + importedSession + `}}]}`, events.StandingIdentity},
	} {
		w := given(t)
		w.entry(c.body).appends("claim.imported").answers(`"imported"`)
		if w.state.Standing != c.standing || asText(w.owner()) != importedSession {
			t.Errorf("%s: %s %s", name, w.state.Standing, asText(w.owner()))
		}
		if live := w.state.Live(begin); (live != nil) != (c.standing == events.StandingHeld) {
			t.Errorf("%s: live %v", name, live)
		}
		// The next claims of the same owner and of another one.
		next := w.state
		switch c.standing {
		case events.StandingReleased:
			w.when(session.VerbClaim, claimBody).grants(2, events.CauseAfterRelease)
		default:
			w.when(session.VerbClaim, claimBody).renews(1)
		}
		w.state = next
		w.after(hour).when(session.VerbClaim, otherBody).appends("claim.granted")
		if w.owner().Gen() != 2 {
			t.Errorf("%s: another owner has generation %d", name, w.owner().Gen())
		}
		// Only what is held can be released.
		w.state = next
		o := w.when(session.VerbRelease, claimBody)
		if c.standing == events.StandingHeld {
			o.appends("claim.released")
		} else {
			o.unchanged()
			w.when(session.VerbForceRelease, `{"workId":"w1","reason":"r"}`).unchanged().answers("null")
		}
	}
}

// The table of specification 1.3, against owners in every standing.
func TestImportAgainstAKnownOwner(t *testing.T) {
	at := func(generation int, claimed string) string {
		return with(importedSession, "controllerId", `"c9"`, "claimGeneration", fmt.Sprint(generation), "claimedAt", quote(claimed))
	}
	const before, same, later = "2025-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"
	standings := map[string]func() *work{
		"held": func() *work { return given(t).imported(snapshot(with(importedSession, "claimGeneration", "5"))) },
		"identity": func() *work {
			return given(t).imported(retainedRecord(with(importedSession, "claimGeneration", "5"), ""))
		},
		"released": func() *work {
			return given(t).imported(snapshot(with(importedSession, "claimGeneration", "5"))).happened(session.VerbRelease, claimBody)
		},
		"lapsed": func() *work {
			return given(t).imported(snapshot(with(importedSession, "claimGeneration", "5"))).after(2 * hour)
		},
	}
	for standing, owner := range standings {
		for name, c := range map[string]struct {
			session string
			outcome string
		}{
			"equal":                   {with(importedSession, "claimGeneration", "5"), "unchanged"},
			"equal in another form":   {with(importedSession, "claimGeneration", "5.0", "workId", `" w1"`, "claimedAt", `"2026-01-01T01:00:00+01:00"`), "unchanged"},
			"equal but a null member": {with(importedSession, "claimGeneration", "5", "x", "null"), "unchanged"},
			"older generation":        {at(4, later), "older"},
			"no generation":           {with(at(4, later), "claimGeneration", ""), "older"},
			"a negative generation":   {at(-7, later), "older"},
			"the same, before":        {at(5, before), "older"},
			"the same millisecond":    {at(5, same), "older"},
			"the same, later":         {at(5, later), "quarantined"},
			"higher, before":          {at(6, before), "quarantined"},
			"higher, later":           {at(6, later), "quarantined"},
			"one member more":         {with(importedSession, "claimGeneration", "5", "x", "1"), "older"},
		} {
			for _, body := range []string{snapshot(c.session), retainedRecord(c.session, ""), retainedRecord(c.session, `"2026-01-01T00:30:00Z"`)} {
				w := owner()
				was := asText(w.owner())
				o := w.entry(body)
				o.answers(quote(c.outcome))
				if c.outcome == "quarantined" {
					o.appends("claim.import-conflicted")
				} else {
					o.unchanged()
				}
				if asText(w.owner()) != was {
					t.Errorf("%s owner, %s: it became %s", standing, name, asText(w.owner()))
				}
				// Once more: the same answer, and nothing to append.
				w.entry(body).unchanged().answers(quote(c.outcome))
			}
		}
	}
}

// Scenario 11: importing twice, with released, conflicting and generation-less
// entries.
func TestScenarioImportTwice(t *testing.T) {
	none := with(importedSession, "claimGeneration", "", "controllerInstanceId", "")
	w := given(t).imported(snapshot(none))
	if w.owner().Gen() != 0 || w.owner().Generation != nil {
		t.Errorf("the generation became %d", w.owner().Gen())
	}
	w.when(session.VerbReleaseWithAuthority, under(w.owner())).refused(session.ReasonStaleAuthority, "live") // no generation matches none
	w.when(session.VerbReleaseWithAuthority, under(w.owner(), "authority", with(asText(w.owner()), "claimGeneration", ""))).refused(session.ReasonStaleAuthority, "live")
	w.entry(snapshot(none)).unchanged()
	w.happened(session.VerbRelease, claimBody)
	w.entry(snapshot(none)).unchanged().answers(`"unchanged"`)
	if w.state.Standing != events.StandingReleased {
		t.Errorf("it is %s again", w.state.Standing)
	}
	w.when(session.VerbClaim, otherBody).grants(1, events.CauseAfterRelease)
	w.entry(snapshot(none)).unchanged().answers(`"older"`)
}

// Every command and query on a quarantined work, and what comes before.
func TestQuarantine(t *testing.T) {
	w := given(t).happened(session.VerbClaim, claimBody)
	w.entry(snapshot(with(importedSession, "claimGeneration", "3", "controllerId", `"c3"`))).appends("claim.import-conflicted")
	for _, c := range [][2]string{
		{session.VerbClaim, claimBody},
		{session.VerbResume, claimBody},
		{session.VerbBind, claimBody},
		{session.VerbRelease, claimBody},
		{session.VerbRenew, underBody},
		{session.VerbReleaseWithAuthority, underBody},
		{session.VerbReleaseObserved, `{"workId":"w1","owner":` + importedSession + `}`},
		{session.VerbTerminalize, `{"workId":"w1","state":"done"}`},
		{session.VerbTerminalize, with(underBody, "state", `"done"`)},
		{session.VerbForceRelease, `{"workId":"w1","reason":"r"}`},
	} {
		o := w.when(c[0], c[1])
		o.fails(events.CodeSessionIDCollision)
		if e := events.AsError(o.err); e.Details["current"] != "c1 generation 1" || e.Details["imported"] != "c3 generation 3" {
			t.Errorf("%s: the details are %v", c[0], e.Details)
		}
	}
	if _, err := session.Get(w.state, begin); events.CodeOf(err) != events.CodeSessionIDCollision {
		t.Errorf("get: %v", err)
	}
	if _, err := session.Retained(w.state); events.CodeOf(err) != events.CodeSessionIDCollision {
		t.Errorf("retained: %v", err)
	}
	if _, err := blocks(w, "", ""); events.CodeOf(err) != events.CodeSessionIDCollision {
		t.Errorf("blocks-recovery: %v", err)
	}
	if _, err := check(w, `{}`); events.CodeOf(err) != events.CodeSessionIDCollision {
		t.Errorf("check-authority: %v", err)
	}
	// Before it: the checks listed before.
	w.when(session.VerbReleaseObserved, `{"workId":"w1","owner":{"x":1}}`).refused(session.ReasonStaleAuthority, `{"x":1}`)
	w.when(session.VerbResume, with(claimBody, "principalId", "")).fails(events.CodeResumeAuthorityRequired)
	w.when(session.VerbForceRelease, `{"workId":"w1"}`).fails(events.CodeReasonRequired)
	// The state of the work is not the claim's business.
	w.when(session.VerbSetState, `{"workId":"w1","state":"done","reason":"r"}`).appends("work.state-set")
	w.when(session.VerbClaim, claimBody).fails(events.CodeClaimTerminal)
	// No later import lifts it; a still newer one is remembered instead.
	w.entry(snapshot(importedSession)).unchanged()
	w.entry(snapshot(with(importedSession, "claimGeneration", "2", "controllerId", `"c2"`))).unchanged().answers(`"quarantined"`)
	w.entry(snapshot(with(importedSession, "claimGeneration", "7", "controllerId", `"c7"`))).appends("claim.import-conflicted")
	w.when(session.VerbRenew, underBody).fails(events.CodeSessionIDCollision)
	w.when(session.VerbResolveImport, `{"workId":"w1","keep":"imported","reason":"r"}`).appends("claim.import-resolved")
	if w.owner().ControllerID != "c7" || w.owner().Gen() != 7 {
		t.Errorf("resolved to %s", asText(w.owner()))
	}
}

func TestResolveImport(t *testing.T) {
	resolve := func(keep string) string { return `{"workId":" w1 ","keep":` + quote(keep) + `,"reason":" because "}` }
	conflict := func(generation int, releasedAt string) *work {
		w := given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", `"d"`))
		theirs := with(importedSession, "controllerId", `"c9"`, "claimGeneration", fmt.Sprint(generation), "claimedAt", `"2026-01-01T00:00:01Z"`)
		if releasedAt != "" {
			w.entry(retainedRecord(theirs, releasedAt)).appends("claim.import-conflicted")
		} else {
			w.entry(snapshot(theirs)).appends("claim.import-conflicted")
		}
		return w
	}
	// The generation afterwards is the greater of both.
	w := conflict(7, "")
	w.when(session.VerbResolveImport, resolve("current")).appends("claim.import-resolved")
	if w.owner().ControllerID != "c1" || w.owner().Gen() != 7 || w.owner().Digest() != "d" || w.state.Standing != events.StandingHeld {
		t.Errorf("kept %s %s", w.state.Standing, asText(w.owner()))
	}
	if e := w.log[len(w.log)-1].(events.ClaimImportResolved); e.Reason != "because" || e.Keep != "current" {
		t.Errorf("recorded %+v", e)
	}
	// The old authority is stale now, and the next owner advances beyond both.
	w.when(session.VerbRenew, underBody).refused(session.ReasonStaleAuthority, "live")
	w.after(hour).when(session.VerbClaim, otherBody).grants(8, events.CauseAfterLapse)

	w = conflict(7, "")
	w.when(session.VerbResolveImport, resolve(" imported ")).appends("claim.import-resolved")
	if w.owner().ControllerID != "c9" || w.owner().Gen() != 7 || w.state.Standing != events.StandingHeld {
		t.Errorf("kept %s %s", w.state.Standing, asText(w.owner()))
	}
	w = conflict(1, "")
	w.when(session.VerbResolveImport, resolve("imported")).appends("claim.import-resolved")
	if w.owner().ControllerID != "c9" || w.owner().Gen() != 1 {
		t.Errorf("kept %s", asText(w.owner()))
	}
	w.entry(snapshot(asText(w.owner()))).unchanged().answers(`"unchanged"`)

	// A released claim stays released, on either side.
	w = conflict(7, `"2026-01-01T00:30:00Z"`)
	w.when(session.VerbResolveImport, resolve("imported")).appends("claim.import-resolved")
	if w.state.Standing != events.StandingReleased || w.state.Live(begin) != nil {
		t.Errorf("the imported claim is %s", w.state.Standing)
	}
	w.when(session.VerbClaim, with(claimBody, "controllerId", `"c9"`)).grants(8, events.CauseAfterRelease)
	w = given(t).happened(session.VerbClaim, claimBody).happened(session.VerbRelease, claimBody)
	w.entry(snapshot(with(importedSession, "claimGeneration", "4", "controllerId", `"c9"`))).appends("claim.import-conflicted")
	w.when(session.VerbResolveImport, resolve("current")).appends("claim.import-resolved")
	if w.state.Standing != events.StandingReleased {
		t.Errorf("the released claim is %s", w.state.Standing)
	}
	w.when(session.VerbClaim, claimBody).grants(5, events.CauseAfterRelease)

	// Both without a generation: there is none afterwards.
	w = given(t).imported(snapshot(with(importedSession, "claimGeneration", "")))
	w.entry(snapshot(with(importedSession, "claimGeneration", "", "claimedAt", `"2026-01-01T00:00:01Z"`))).appends("claim.import-conflicted")
	w.when(session.VerbResolveImport, resolve("imported")).appends("claim.import-resolved")
	if w.owner().Generation != nil || w.owner().ClaimedAt != begin+1000 {
		t.Errorf("kept %s", asText(w.owner()))
	}

	// Nothing to resolve: unchanged, with the owner as the answer.
	given(t).when(session.VerbResolveImport, resolve("current")).unchanged().answers("null")
	w = given(t).happened(session.VerbClaim, claimBody)
	w.when(session.VerbResolveImport, resolve("imported")).unchanged().answers(asText(w.owner()))

	// What it needs, in order.
	w = conflict(7, "")
	w.when(session.VerbResolveImport, `{"keep":"x"}`).fails(events.CodeIDInvalid, "workId")
	w.when(session.VerbResolveImport, `{"workId":"w1","keep":"x"}`).fails(events.CodeReasonRequired, "reason")
	w.when(session.VerbResolveImport, `{"workId":"w1","keep":"x","reason":" "}`).fails(events.CodeReasonRequired, "reason")
	w.when(session.VerbResolveImport, `{"workId":"w1","keep":"x","reason":"r"}`).fails(events.CodeBadRequest, "keep")
	w.when(session.VerbResolveImport, `{"workId":"w1","reason":"r"}`).fails(events.CodeBadRequest, "keep")
	w.when(session.VerbResolveImport, `{"workId":"w1","keep":["current"],"reason":"r"}`).fails(events.CodeBadRequest, "keep")
}

// An entry that cannot be a fact is dropped alone, by name.
func TestDroppedEntries(t *testing.T) {
	for name, c := range map[string]struct {
		session, workID string
		code            events.Code
	}{
		"a blank work":           {with(importedSession, "workId", `" "`), "", events.CodeBadRequest},
		"a work that is no text": {with(importedSession, "workId", `7`), "", events.CodeBadRequest},
		"a blank controller":     {with(importedSession, "controllerId", `""`), "w1", events.CodeBadRequest},
		"no session":             {with(importedSession, "sessionId", ``), "w1", events.CodeBadRequest},
		"an unreadable time":     {with(importedSession, "claimedAt", `"soon"`), "w1", events.CodeBadRequest},
		"a time beyond 9999":     {with(importedSession, "leaseExpiresAt", `"9999-12-31T23:59:59-01:00"`), "w1", events.CodeBadRequest},
		"a time that is null":    {with(importedSession, "leaseExpiresAt", `null`), "w1", events.CodeBadRequest},
		"a long id":              {with(importedSession, "controllerId", quote(strings.Repeat("x", 513))), "w1", events.CodeIDInvalid},
		"a control character":    {with(importedSession, "workId", `"a\u0000"`), "a\x00", events.CodeIDInvalid},
		"a doubled member":       {strings.TrimSuffix(importedSession, "}") + `,"controllerId":"c2"}`, "w1", events.CodeBadRequest},
		"another schema":         {with(importedSession, "schemaVersion", "2"), "w1", events.CodeBadRequest},
		"no object":              {`"w1"`, "", events.CodeBadRequest},
		"null":                   {`null`, "", events.CodeBadRequest},
		"much that is unknown":   {with(importedSession, "x", quote(strings.Repeat("x", events.MaxExtra))), "w1", events.CodeTooLarge},
	} {
		s, err := session.ParseSnapshot(parseBody(t, snapshot(importedSession, c.session, with(importedSession, "workId", `"w2"`))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Entries) != 3 || s.Entries[0].Dropped != nil || s.Entries[2].Dropped != nil {
			t.Errorf("%s: others are dropped: %+v", name, s.Entries)
			continue
		}
		e := s.Entries[1]
		if events.CodeOf(e.Dropped) != c.code || e.WorkID != c.workID || e.Session != nil {
			t.Errorf("%s: dropped %v as work %q", name, e.Dropped, e.WorkID)
		}
	}
	for name, c := range map[string]struct{ record, field string }{
		"no session":             {`{"workId":"w1"}`, "record"},
		"a null record":          {`{"workId":"w1","record":null}`, "record"},
		"no session in it":       {`{"workId":"w1","record":{}}`, "session"},
		"a null session":         {`{"workId":"w1","record":{"session":null}}`, "session"},
		"an unreadable release":  {`{"workId":"w1","record":{"session":` + importedSession + `,"releasedAt":"soon"}}`, "releasedAt"},
		"a release of no text":   {`{"workId":"w1","record":{"session":` + importedSession + `,"releasedAt":7}}`, "releasedAt"},
		"another schema":         {`{"workId":"w1","record":{"schemaVersion":2,"session":` + importedSession + `}}`, "schemaVersion"},
		"an unreadable claim":    {`{"workId":"w1","record":{"session":` + with(importedSession, "claimedAt", `"x"`) + `}}`, "claimedAt"},
		"a release beyond years": {`{"workId":"w1","record":{"session":` + importedSession + `,"releasedAt":"9999-12-31T23:59:59-01:00"}}`, "releasedAt"},
	} {
		s, err := session.ParseSnapshot(parseBody(t, `{"source":"retained","records":[`+c.record+`]}`))
		if err != nil || len(s.Entries) != 1 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e := s.Entries[0]; e.Dropped == nil || events.AsError(e.Dropped).Details["field"] != c.field || e.WorkID != "w1" {
			t.Errorf("%s: dropped %v as work %q", name, e.Dropped, e.WorkID)
		}
	}
	for _, record := range []string{`7`, `null`, `"x"`, `[]`} {
		s, err := session.ParseSnapshot(parseBody(t, `{"source":"retained","records":[`+record+`]}`))
		if err != nil || len(s.Entries) != 1 || s.Entries[0].Dropped == nil {
			t.Errorf("record %s: %v", record, err)
		}
	}
}

func TestWhatIsNoSnapshot(t *testing.T) {
	for _, c := range []struct{ body, field string }{
		{`{}`, "source"},
		{`{"source":"x"}`, "source"},
		{`{"source":"RECORD"}`, "source"},
		{`{"source":7,"store":{"sessions":[]}}`, "source"},
		{`{"source":"record"}`, "store"},
		{`{"source":"record","store":null}`, "store"},
		{`{"source":"record","store":[]}`, "store"},
		{`{"source":"record","store":{}}`, "store.sessions"},
		{`{"source":"record","store":{"sessions":null}}`, "store.sessions"},
		{`{"source":"record","store":{"sessions":{}}}`, "store.sessions"},
		{`{"source":"record","store":{"schemaVersion":2,"sessions":[]}}`, "store.schemaVersion"},
		{`{"source":"record","store":{"schemaVersion":"1","sessions":[]}}`, "store.schemaVersion"},
		{`{"source":"file","scope":7,"store":{"sessions":[]}}`, "scope"},
		{`{"source":"file","scope":"a\nb","store":{"sessions":[]}}`, "scope"},
		{`{"source":"retained"}`, "records"},
		{`{"source":"retained","records":{}}`, "records"},
		{`{"source":"retained","records":null}`, "records"},
		{`{"source":"record","store":{"sessions":[],"sessions":[]}}`, "store"},
		{`{"record":7}`, "record"},
		{`{"source":"file","scope":` + quote(strings.Repeat("x", 513)) + `,"x":1}`, "scope"},
	} {
		s, err := session.ParseSnapshot(parseBody(t, c.body))
		if s != nil || err == nil || events.AsError(err).Details["field"] != c.field {
			t.Errorf("%s: got %v, want field %s", c.body, err, c.field)
		}
		if code := events.CodeOf(err); code != events.CodeBadRequest && code != events.CodeIDInvalid {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}

// imports is the other boundary, in memory.
type imports struct {
	t     *testing.T
	state session.ImportState
}

func (i *imports) take(body string) any {
	i.t.Helper()
	s, err := session.ParseSnapshot(parseBody(i.t, body))
	if err != nil {
		i.t.Fatal(err)
	}
	d, err := session.Imports{}.Decide(i.state, s, session.Facts{Now: begin})
	if err != nil || d.Refused {
		i.t.Fatalf("%v %v", err, d)
	}
	if started := len(d.Events) == 1; started != (d.Result == session.SnapshotImported) {
		i.t.Errorf("%v with %d events", d.Result, len(d.Events))
	}
	i.state = commit(i.t, session.Imports{}, "main", i.state, d.Events)
	return d.Result
}

func TestSnapshots(t *testing.T) {
	a, b := importedSession, with(importedSession, "workId", `"w2"`)
	for name, steps := range map[string][][2]string{
		"a record once": {
			{snapshot(a), "imported"},
			{snapshot(a), "already-imported"},
			{snapshot(with(a, "claimGeneration", "1.0")), "already-imported"}, // the same content
			{snapshot(a, b), "imported"},
			{snapshot(a), "already-imported"},
			{snapshot(), "imported"},
			{snapshot(), "already-imported"},
		},
		"a file before a record, not after": {
			{snapshotOf("file", "r", a), "imported"},
			{snapshotOf("file", "r", a, b), "imported"},
			{snapshotOf("record", "r", b), "imported"},
			{snapshotOf("file", "r", a), "ignored"},
			{snapshotOf("file", "r", b), "ignored"},
			{snapshotOf("record", "r", a), "imported"},
		},
		"an empty record silences the files of its scope": {
			{snapshotOf("record", "r"), "imported"},
			{snapshotOf("file", "r", a), "ignored"},
			{snapshotOf("file", " r ", a), "ignored"},
			{snapshotOf("file", "q", a), "imported"},
			{snapshotOf("record", "q", a), "imported"},
			{snapshotOf("file", "q", a, b), "ignored"},
		},
		"a record of a repository does not silence the file of the instance": {
			{snapshotOf("record", "r", a), "imported"},
			{snapshotOf("file", "", a), "imported"},
			{snapshotOf("record", "", a), "imported"},
			{snapshotOf("file", "", a), "ignored"},
		},
		"one content in two places": {
			{snapshotOf("record", "r", a), "imported"},
			{snapshotOf("record", "q", a), "imported"},
			{snapshotOf("file", "p", a), "imported"},
		},
		"retained identities are never silenced": {
			{snapshotOf("record", "", a), "imported"},
			{retainedRecord(a, ""), "imported"},
			{retainedRecord(a, ""), "already-imported"},
			{retainedRecord(a, `"2026-01-01T00:00:00Z"`), "imported"},
			{`{"source":"retained","scope":"r","records":[]}`, "imported"},
		},
		"a dropped entry is no obstacle": {
			{snapshot(a, `{"workId":"w3","workId":"w4"}`), "imported"},
			{snapshot(a, `{"workId":"w3","workId":"w4"}`), "already-imported"},
			{snapshot(a, `{"workId":"w3","workId":"w5"}`), "imported"},
		},
	} {
		i := &imports{t: t}
		for n, step := range steps {
			if got := i.take(step[0]); got != step[1] {
				t.Errorf("%s, step %d: got %v, want %s", name, n, got, step[1])
			}
		}
	}
}

func TestManySnapshotsAreBounded(t *testing.T) {
	i := &imports{t: t}
	for n := range 200 {
		i.take(snapshotOf("file", fmt.Sprint(n), importedSession))
	}
	if len(i.state.Last) != 64 || len(i.state.Records) != 0 {
		t.Errorf("%d snapshots and %d records are remembered", len(i.state.Last), len(i.state.Records))
	}
	if got := i.take(snapshotOf("file", "199", importedSession)); got != session.SnapshotAlready {
		t.Errorf("the latest is %v", got)
	}
	if got := i.take(snapshotOf("file", "0", importedSession)); got != session.SnapshotImported {
		t.Errorf("a forgotten one is %v", got)
	}
}

func TestImportsBoundary(t *testing.T) {
	d := session.Imports{}
	if d.Kind() != events.KindImport || d.Rules() != session.RulesVersion {
		t.Errorf("%s, rules %d", d.Kind(), d.Rules())
	}
	if _, err := d.Evolve(d.Initial("main"), events.WorkStateSet{}); err == nil {
		t.Error("an event of a work is folded")
	}
	carried := d.EncodeState(session.ImportState{Records: []string{"", "r"}, Last: []events.Hash{events.HashOf(nil)}})
	carried.V++
	if _, ok, err := d.DecodeState("main", carried); ok || err != nil {
		t.Errorf("an unknown state version: %t, %v", ok, err)
	}
	carried.V--
	for n := range carried.Data {
		if _, _, err := d.DecodeState("main", events.State{V: carried.V, Data: carried.Data[:n]}); err == nil {
			t.Errorf("a state cut at %d is read", n)
		}
	}
}

// An operator's decision against an imported claim stands when the same claim is
// imported again; another one is judged anew.
func TestRejectedImportStaysRejected(t *testing.T) {
	entry := func(generation int64, at events.Time) *session.Entry {
		return &session.Entry{Source: events.SourceRecord, Standing: events.StandingHeld, Session: &events.Session{
			WorkID: "w1", ControllerID: "c", ControllerType: "codex", SessionID: "s", Generation: &generation, ClaimedAt: at, LeaseExpiresAt: at + 1000,
		}}
	}
	var d session.Decider
	state := d.Initial("w1")
	take := func(c session.Command, now events.Time, want string) {
		t.Helper()
		decision, err := d.Decide(state, c, session.Facts{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if outcome, ok := decision.Result.(string); ok && outcome != want {
			t.Fatalf("outcome %s, want %s", outcome, want)
		}
		if state, err = aggregate.Evolve(d, state, decision.Events); err != nil {
			t.Fatal(err)
		}
		carried, ok, err := d.DecodeState("w1", d.EncodeState(state))
		if err != nil || !ok {
			t.Fatal(err)
		}
		state = carried
	}
	take(entry(1, 1000), 1, session.EntryImported)
	take(entry(2, 5000), 2, session.EntryQuarantined)
	body, err := aggregate.ParseBody([]byte(`{"workId":"w1","keep":"current","reason":"seen"}`))
	if err != nil {
		t.Fatal(err)
	}
	resolve, err := session.Parse(session.VerbResolveImport, body)
	if err != nil {
		t.Fatal(err)
	}
	take(resolve, 3, "")
	take(entry(2, 5000), 4, session.EntryOlder)
	take(entry(2, 6000), 5, session.EntryQuarantined)
}
