package release_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestReceivedDocumentsHaveForms(t *testing.T) {
	for name, c := range map[string]struct{ file, text, form string }{
		"current":                 {one + ".json", document, release.FormCurrent},
		"current in other bytes":  {one + ".json", " " + with(document, "schemaVersion", "1.0", "semanticEpoch", "2e0") + "\n", release.FormCurrent},
		"without epoch":           {one + ".json", with(document, "semanticEpoch", ""), release.FormAwaiting},
		"epoch null":              {one + ".json", with(document, "semanticEpoch", "null"), release.FormAwaiting},
		"epoch 1":                 {one + ".json", with(document, "semanticEpoch", "1"), release.FormAwaiting},
		"schema 2":                {one + ".json", with(document, "schemaVersion", "2", "semanticEpoch", ""), release.FormAwaiting},
		"schema 2 with an epoch":  {one + ".json", with(document, "schemaVersion", "2"), release.FormInvalid},
		"schema 3":                {one + ".json", with(document, "schemaVersion", "3", "semanticEpoch", ""), release.FormInvalid},
		"epoch 3":                 {one + ".json", with(document, "semanticEpoch", "3"), release.FormInvalid},
		"epoch of a text":         {one + ".json", with(document, "semanticEpoch", `"2"`), release.FormInvalid},
		"no schema":               {one + ".json", with(document, "schemaVersion", ""), release.FormInvalid},
		"another id":              {two + ".json", document, release.FormInvalid},
		"a padded name":           {" " + one + ".json", document, release.FormInvalid},
		"a padded name and id":    {" " + one + ".json", with(document, "sessionId", quote(" "+one)), release.FormInvalid},
		"a padded id":             {one + ".json", with(document, "sessionId", quote(one+" ")), release.FormInvalid},
		"a short name":            {"short.json", with(document, "sessionId", `"short"`), release.FormInvalid},
		"a short name, old":       {"short.json", with(document, "sessionId", `"short"`, "semanticEpoch", ""), release.FormInvalid},
		"an unknown phase":        {one + ".json", with(document, "phase", `"x"`), release.FormInvalid},
		"no phase":                {one + ".json", with(document, "phase", "null"), release.FormInvalid},
		"revision 0":              {one + ".json", with(document, "revision", "0"), release.FormInvalid},
		"revision of a text":      {one + ".json", with(document, "revision", `"1"`), release.FormInvalid},
		"a large revision":        {one + ".json", with(document, "revision", "9007199254740992"), release.FormInvalid},
		"the largest revision":    {one + ".json", with(document, "revision", "9007199254740991"), release.FormCurrent},
		"nothing else is checked": {one + ".json", `{"schemaVersion":1,"semanticEpoch":2,"sessionId":"release-0001","phase":"built","revision":1}`, release.FormCurrent},
		"odd members":             {one + ".json", with(document, "stable", "7", "receipts", "{}", "candidateRelease", "[]", "createdAt", `"x"`), release.FormCurrent},
		"an old one, unreadable":  {one + ".json", with(document, "semanticEpoch", "", "createdAt", `"x"`), release.FormInvalid},
		"a duplicate key":         {one + ".json", strings.TrimSuffix(document, "}") + `,"revision":2}`, release.FormInvalid},
		"one deep inside":         {one + ".json", with(document, "x", `{"y":[{"a":1,"a":1}]}`), release.FormInvalid},
		"two values":              {one + ".json", document + "{}", release.FormInvalid},
		"half of one":             {one + ".json", document[:100], release.FormInvalid},
		"null":                    {one + ".json", "null", release.FormInvalid},
		"a list":                  {one + ".json", "[]", release.FormInvalid},
		"nothing":                 {one + ".json", "", release.FormInvalid},
		"without a name":          {".json", document, release.FormInvalid},
	} {
		l := given(t)
		o := l.when(release.VerbReceiveDocument, with(`{}`, "name", quote(c.file), "text", quote(c.text))).appends("release.document-received")
		got, ok := o.Result.(release.DocumentReceived)
		if !ok || got.Form != c.form || got.Name != c.file || (got.Why != "") != (c.form == release.FormInvalid) && c.form != release.FormAwaiting {
			t.Errorf("%s: %s", name, asText(o.Result))
		}
		list := l.state.ListComplete()
		if listed := len(list.Sessions) == 1; listed != (c.form == release.FormCurrent) || list.Inspected != 1 || len(list.Sessions)+len(list.InvalidSessionFiles) != 1 {
			t.Errorf("%s: %s", name, asText(list))
		}
		id := strings.TrimSuffix(c.file, ".json")
		if _, err := l.state.Session(id); (err == nil) != (c.form == release.FormCurrent) || err != nil && events.CodeOf(err) != events.CodeReleaseInvalid {
			t.Errorf("%s: %v", name, err)
		}
		// The event keeps what was received, byte by byte.
		if e := o.Events[0].(events.ReleaseDocumentReceived); string(e.Text) != c.text {
			t.Errorf("%s: kept as %q", name, e.Text)
		}
	}
}

func TestReceiveDocumentChecksInOrder(t *testing.T) {
	l := given(t).received(one+".json", document)
	big := quote(strings.Repeat(" ", release.MaxDocument+1))
	body := `{"replace":true,"reason":" "}`
	for _, c := range []struct {
		code  events.Code
		field string
		pairs []string
	}{
		{events.CodeBadRequest, "name", []string{"name", "7"}},
		{events.CodeBadRequest, "name", []string{"name", `""`}},
		{events.CodeBadRequest, "name", []string{"name", quote(strings.Repeat("x", 508) + ".json")}},
		{events.CodeIDInvalid, "name", []string{"name", quote(one + ".json")}},
		{events.CodeBadRequest, "text", []string{"text", "7"}},
		{events.CodeBadRequest, "text", []string{"text", "", "textBase64", `"?"`}},
		{events.CodeBadRequest, "textBase64", []string{"textBase64", "", "text", big}},
		{events.CodeTooLarge, "text", []string{"text", `"x"`}},
		{events.CodeReasonRequired, "reason", []string{"reason", "7"}},
		{events.CodeReasonRequired, "reason", []string{"reason", "", "replace", "1"}},
		{events.CodeReleaseAlreadyExists, "", []string{"text", quote(document)}},
		{events.CodeBadRequest, "replace", []string{"replace", "false"}},
	} {
		var fields []string
		if c.field != "" {
			fields = []string{c.field}
		}
		l.when(release.VerbReceiveDocument, body).fails(c.code, fields...)
		body = with(body, c.pairs...)
	}
	l.when(release.VerbReceiveDocument, body).unchanged()
}

func TestReceiveDocumentReplacesOnlyWithAReason(t *testing.T) {
	l := given(t).received(one+".json", document)
	name := quote(one + ".json")
	same := " " + with(document, "revision", "1.0") + "\n"
	// The same content, as JSON: nothing happens, replace or not.
	for _, body := range []string{with(`{}`, "name", name, "text", quote(same)), with(`{"replace":true,"reason":"r"}`, "name", name, "json", same)} {
		l.when(release.VerbReceiveDocument, body).unchanged().answers(`{"name":"release-0001.json","form":"current"}`)
	}
	other := with(`{}`, "name", name, "text", quote(with(document, "x", "1")))
	l.when(release.VerbReceiveDocument, other).fails(events.CodeReleaseAlreadyExists).says("name", name)
	o := l.when(release.VerbReceiveDocument, with(other, "replace", "true", "reason", `" it is newer "`)).appends("release.document-received")
	if e := o.Events[0].(events.ReleaseDocumentReceived); !e.Replaced || e.Reason != "it is newer" {
		t.Errorf("%+v", e)
	}
	if d := l.doc(one); d.Incarnation != 2 {
		t.Errorf("incarnation %d", d.Incarnation)
	}
	// One that was changed here is another one. What is no JSON is compared by bytes.
	l = given(t).upTo(release.Built)
	l.when(release.VerbReceiveDocument, with(other, "text", quote(asText(l.doc(one))))).unchanged()
	l.when(release.VerbReceiveDocument, with(other, "text", quote(document))).fails(events.CodeReleaseAlreadyExists)
	l = given(t).received("x.json", "{")
	l.when(release.VerbReceiveDocument, `{"name":"x.json","text":"{"}`).unchanged()
	l.when(release.VerbReceiveDocument, `{"name":"x.json","text":" {"}`).fails(events.CodeReleaseAlreadyExists)
	// Replacing what is not there is no replacing.
	o = given(t).when(release.VerbReceiveDocument, with(other, "replace", "true", "reason", `"r"`)).appends("release.document-received")
	if o.Events[0].(events.ReleaseDocumentReceived).Replaced {
		t.Error("it replaced nothing")
	}
}

func TestReceiveDocumentInAllTransports(t *testing.T) {
	raw := []byte{'{', 0xff, 0, '}'}
	o := given(t).when(release.VerbReceiveDocument, `{"name":"a.json","textBase64":`+quote(base64.StdEncoding.EncodeToString(raw))+`}`).appends("release.document-received")
	if e := o.Events[0].(events.ReleaseDocumentReceived); string(e.Text) != string(raw) {
		t.Errorf("%q", e.Text)
	}
	for body, want := range map[string]string{
		`{"name":"a.json","json":null}`:                         "null",
		`{"name":"a.json","json":{ "a" : 1.0 }}`:                `{ "a" : 1.0 }`,
		`{"name":"a.json","json":{"a":1,"a":2}}`:                `{"a":1,"a":2}`, // data, though invalid
		`{"name":"a.json","text":"","textBase64":"eA=="}`:       "",
		`{"name":"a.json","textBase64":""}`:                     "",
		`{"name":"a.json","text":null,"textBase64":"eA=="}`:     "x",
		`{"name":"a.json","text":"t","json":7,"textBase64":""}`: "t",
	} {
		o := given(t).when(release.VerbReceiveDocument, body).appends("release.document-received")
		if len(o.Events) == 1 && string(o.Events[0].(events.ReleaseDocumentReceived).Text) != want {
			t.Errorf("%s: %q", body, o.Events[0].(events.ReleaseDocumentReceived).Text)
		}
	}
	given(t).when(release.VerbReceiveDocument, `{"name":"a.json"}`).fails(events.CodeBadRequest, "text")
	// The largest one, and a name that is no document's.
	given(t).when(release.VerbReceiveDocument, `{"name":"a.json","text":`+quote(strings.Repeat("x", release.MaxDocument))+`}`).appends("release.document-received")
	for _, name := range []string{"a", "a.JSON", "a.json ", "a.json.bak", "json"} {
		l := given(t)
		l.when(release.VerbReceiveDocument, `{"name":`+quote(name)+`}`).unchanged().answers(`{"name":` + quote(name) + `}`)
		l.when(release.VerbDiscardDocument, `{"name":`+quote(name)+`,"reason":"r"}`).unchanged().answers("null")
	}
}

func TestDiscardDocument(t *testing.T) {
	l := given(t).upTo(release.Built).received(" odd.json", "x")
	l.when(release.VerbDiscardDocument, `{"reason":"r"}`).fails(events.CodeBadRequest, "name")
	l.when(release.VerbDiscardDocument, `{"name":"release-0001.json","reason":" "}`).fails(events.CodeReasonRequired, "reason")
	l.when(release.VerbDiscardDocument, `{"name":"unknown.json"}`).fails(events.CodeReasonRequired)
	l.when(release.VerbDiscardDocument, `{"name":"unknown.json","reason":"r"}`).unchanged().answers("null")
	l.when(release.VerbDiscardDocument, `{"name":"odd.json","reason":"r"}`).unchanged() // names are not trimmed
	l.when(release.VerbDiscardDocument, `{"name":" odd.json","reason":" r "}`).appends("release.document-discarded").answers("null")
	o := l.when(release.VerbDiscardDocument, `{"name":"release-0001.json","reason":"r"}`).appends("release.document-discarded")
	if e := o.Events[0].(events.ReleaseDocumentDiscarded); e.Name != one || e.Reason != "r" {
		t.Errorf("%+v", e)
	}
	if l.state.Len() != 0 {
		t.Errorf("%d are left", l.state.Len())
	}
	l.when(release.VerbCreate, createBody).appends("release.opened")
}

// What others wrote is carried: members keep their place and their bytes, what is
// written here is patched in its place, new members go last in the order of the
// specification.
func TestMembersKeepTheirPlaceAndBytes(t *testing.T) {
	text := "{\n  \"zz\": { \"b\" : [ 1.50 ], \"a\" : null },\n  \"updatedAt\": \"2025-12-31T01:00:00+01:00\",\n  \"phase\": \"source_frozen\", \"big\": 12345678901234567890123," +
		"\n  \"receipts\": [ { \"id\" : \"x\" , \"n\" : 1e2 }, null ],\n  \"revision\": 41.0,\n  \"sessionId\": \"release-0001\",\n  \"schemaVersion\": 1," +
		"\n  \"stable\": null,\n  \"semanticEpoch\": 2, \"\\u00e9\": \"\\u00e9\\/\",\n  \"sourceRevision\": \"abc\",\n  \"stableRelease\": " + stableRelease + "}"
	l := given(t).received(one+".json", text)
	l.advanced(one, release.Built, "candidateRelease", "{ "+strings.TrimPrefix(candidate, "{"))
	got, err := l.doc(one).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"zz":{ "b" : [ 1.50 ], "a" : null },"updatedAt":"2026-01-01T00:00:00.000Z","phase":"built","big":12345678901234567890123,` +
		`"receipts":[{ "id" : "x" , "n" : 1e2 },null],"revision":42,"sessionId":"release-0001","schemaVersion":1,"stable":null,"semanticEpoch":2,` +
		`"é":"\u00e9\/","sourceRevision":"abc","stableRelease":` + stableRelease + `,"candidateRelease":{ ` + strings.TrimPrefix(candidate, "{") + `}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A null member is missing in every rule, and has a place.
	l = given(t).received(one+".json", `{"transaction":null,"receipts":[],"candidateRelease":null,"x":null,`+strings.TrimPrefix(with(document, "receipts", "", "updatedAt", ""), "{"))
	for range 6 {
		l.onward(one)
	}
	l.happened(release.VerbTransaction, l.record(one, transaction))
	var names []string
	for _, m := range members(asText(l.doc(one))) {
		names = append(names, m.Key)
	}
	if got, want := strings.Join(names, " "), "transaction receipts candidateRelease x schemaVersion semanticEpoch sessionId stable stableRelease candidate "+
		"sourceRevision phase revision createdAt updatedAt"; got != want {
		t.Errorf("members %s", got)
	}
	// Migration: an epoch, a transaction and a receipt.
	old := with(document, "semanticEpoch", "", "phase", `"soaking"`, "candidateRelease", candidate, "x", "[ 1.0 ]")
	l = given(t).received(one+".json", old).happened(release.VerbMigrate, `{"authority":`+authority+`}`)
	got, _ = l.doc(one).MarshalJSON()
	if want := strings.TrimSuffix(old, "}") + `,"semanticEpoch":2,"transaction":{"schemaVersion":1,"operationId":"migration:release-0001:2",` +
		`"candidateReleaseId":"r-2","cutoverAuthorityRevision":2,"startedAt":"2025-12-31T00:00:00.000Z","rollbackRelease":` + published + `}}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
