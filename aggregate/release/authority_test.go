package release_test

import (
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

func TestPublishAuthority(t *testing.T) {
	l := given(t)
	if got := l.state.AuthorityInfo(); got != nil {
		t.Errorf("%v is published", got)
	}
	publish := func(pairs ...string) string {
		return with(`{"authority":{"z":1,"revision":5,"active":{"releaseId":"r-2"}}}`, pairs...)
	}
	for _, c := range []struct {
		body, field string
	}{
		{`{}`, "authority"},
		{`{"authority":null}`, "authority"},
		{`{"authority":[]}`, "authority"},
		{publish("authority.revision", ""), "authority.revision"},
		{publish("authority.revision", "0"), "authority.revision"},
		{publish("authority.revision", "1.5"), "authority.revision"},
		{publish("authority.revision", `"5"`), "authority.revision"},
		{publish("authority.revision", "9007199254740992"), "authority.revision"},
		{publish("authority.active", "null"), "authority.active"},
		{publish("authority.active", `"r"`), "authority.active"},
	} {
		l.when(release.VerbPublish, c.body).fails(events.CodeBadRequest, c.field)
	}
	for _, expected := range []string{"5", "1", "-1", `"0"`, "0.5"} {
		l.when(release.VerbPublish, publish("expectedRevision", expected)).fails(events.CodeVersionConflict).says("revision", "0")
	}
	l.when(release.VerbPublish, publish("expectedRevision", "0")).appends("authority.published").
		answers(`{"revision":5,"authority":{"z":1,"revision":5,"active":{"releaseId":"r-2"}}}`)
	// Equal content is unchanged; another one needs a higher revision.
	for _, same := range []string{publish(), publish("authority.revision", "5.0"), publish("authority.x", "null"), publish("expectedRevision", "5")} {
		l.when(release.VerbPublish, same).unchanged()
	}
	for _, other := range []string{publish("authority.z", "2"), publish("authority.revision", "4"), publish("authority.x", "1", "expectedRevision", "5")} {
		l.when(release.VerbPublish, other).fails(events.CodeVersionConflict).says("revision", "5")
	}
	l.when(release.VerbPublish, publish("authority.revision", "6", "expectedRevision", "4")).fails(events.CodeVersionConflict).says("revision", "5")
	l.when(release.VerbPublish, publish("authority.revision", "9", "expectedRevision", "5")).appends("authority.published")
	if l.state.AuthorityRevision != 9 || asText(l.state.AuthorityInfo()) != `{"revision":9,"authority":{"z":1,"revision":9,"active":{"releaseId":"r-2"}}}` {
		t.Errorf("%s", asText(l.state.AuthorityInfo()))
	}
}

// A fencing token opens doors: the log keeps its digest only.
func TestFencingTokenIsKeptOnlyAsItsDigest(t *testing.T) {
	const secret = "token-of-the-authority"
	digest := events.HashOf([]byte(secret)).String()
	for _, token := range []string{quote(secret), `{"v":"` + secret + `"}`, `["` + secret + `"]`} {
		body := `{"authority":{"fencingToken":` + token + `,"revision":5,"fencingTokenSha256":"other","active":{}}}`
		l := given(t)
		o := l.when(release.VerbPublish, body).appends("authority.published")
		for where, text := range map[string]string{"answer": asText(o.Result), "event": asText(o.Events), "ledger": release.Dump(l.state)} {
			if strings.Contains(text, secret) || strings.Contains(text, "other") || !strings.Contains(text, "fencingTokenSha256") {
				t.Errorf("%s of %s: %s", where, token, text)
			}
		}
		if token == quote(secret) && !strings.Contains(asText(o.Result), `"fencingTokenSha256":"`+digest+`"`) {
			t.Errorf("%s", asText(o.Result))
		}
		l.when(release.VerbPublish, body).unchanged() // the same token has the same digest
		l.when(release.VerbPublish, strings.Replace(body, secret, "another", 1)).fails(events.CodeVersionConflict)
	}
	// One that is only there as a digest stays.
	o := given(t).when(release.VerbPublish, `{"authority":{"fencingTokenSha256":"d","revision":5,"active":{}}}`)
	if !strings.Contains(asText(o.Result), `"fencingTokenSha256":"d"`) {
		t.Errorf("%s", asText(o.Result))
	}
}
