package streams

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
)

// The controllers of all days.
var (
	mira = controller{id: "chatgpt-main", kind: "chatgpt", principal: "user-mira", instance: runtime("one")}
	jon  = controller{id: "codex-2", kind: "codex", principal: "user-jon", instance: runtime("one")}
	ada  = controller{id: "claude-web", kind: "claude", principal: "user-ada", instance: "controller-4211-" + hexOf(12, "ada")}
)

const minute = time.Minute

// days are all scripts. A recorded one is never changed: what it left is frozen.
// A new one gets a new name, and the newest version that is not frozen.
var days = slices.Concat(claimDays, releaseDays)

// claimDays are the scripts about claims.
var claimDays = []day{
	{version: "v1", name: "day-of-claims", play: dayOfClaims, title: "Three controllers share three works for a day: capabilities, rotating transport sessions, renewals, contention, finished works."},
	{version: "v1", name: "recovery", play: recovery, title: "Silent owners are replaced under the grace of their transport session, and protected while it lasts."},
	{version: "v1", name: "lapse-and-return", play: lapseAndReturn, title: "Leases end: one owner comes back to its generation, another finds the work taken."},
	{version: "v1", name: "release-and-reclaim", play: releaseAndReclaim, title: "A work goes from A to B and back to A: authorities of the first epoch stay dead."},
	{version: "v1", name: "terminalization", play: terminalization, title: "Works end under the fence of their owners, without an owner, and together with the claim; one is opened again."},
	{version: "v1", name: "import-record-file-retained", play: importAll, title: "Claims of another system are taken over from file, record and retained identities, and go on from there."},
	{version: "v1", name: "quarantine-and-resolve", play: quarantine, title: "Imported claims contradict what is known; an operator keeps one, then another."},
	{version: "v1", name: "runtime-change", play: runtimeChange, title: "Controllers come back under another runtime, announced or not; bind keeps the capability, resume drops it."},
	{version: "v1", name: "odd-ids", play: oddIDs, title: "Ids with spaces, wildcards, dots, other scripts, and more bytes than a subject token shows."},
	{version: "v1", name: "force-release-and-set-state", play: force, title: "An operator overrides: ends claims live and expired, sets, forgets and reopens works, always with a reason."},
	{version: "v1", name: "expired-chain", play: expiredChain, title: "Short leases end one after another on one work; its chain is longer than what a commit remembers."},
	{version: "v1", name: "idempotent-retries", play: retries, title: "The same commands come again, at once, later, and after restarts; only the first of each is on the log."},
}

func dayOfClaims(p *player) {
	operator := p.operator("ops")
	mira, jon, ada := mira, jon, ada
	p.at("07:45:00")
	for _, work := range []string{"work-auth-refactor", "work-login-bug", "work-docs"} {
		operator.appended("work.set-state", object{"workId": work, "state": "open", "reason": "planned for the sprint"})
	}
	p.at("08:00:00")
	capability := digestOf("mira", "auth")
	p.as(mira.principal).header("Forge-Correlation-Id", "thread-8841").appended("work.resume", mira.claim("work-auth-refactor", "authorityDigest", capability))
	p.as(mira.principal).appended("activity.report", object{"sessionId": mira.session(), "principalId": mira.principal, "activeWorkId": "work-auth-refactor"})
	p.as(jon.principal).fails(events.CodeAlreadyClaimed, "work.claim", jon.claim("work-auth-refactor"))
	p.at("08:03:12")
	p.as(jon.principal).appended("work.claim", jon.claim("work-login-bug", "authorityDigest", digestOf("jon", "login"), "actor", "codex exec"))
	p.as(jon.principal).unchanged("work.bind", jon.claim("work-login-bug"))
	// Transport sessions rotate; the owner stays.
	for i := range 6 {
		p.at(fmt.Sprintf("%02d:%02d:30", 8+(10+14*i)/60, (10+14*i)%60))
		mira = mira.rotated()
		p.as(mira.principal).header("Forge-Correlation-Id", "thread-8841").appended("work.bind", mira.claim("work-auth-refactor", "currentRuntimeInstanceId", mira.instance))
		p.as(mira.principal).unchanged("work.bind", mira.claim("work-auth-refactor", "authorityDigest", capability))
		p.as(jon.principal).appended("work.renew", jon.shows("work-login-bug", 1, "leaseMs", 1_800_000))
	}
	p.at("09:41:00")
	p.as(ada.principal).appended("work.resume", ada.claim("work-docs", "expectedClaimGeneration", 0, "leaseMs", 900_000))
	p.as(jon.principal).appended("work.terminalize", jon.shows("work-login-bug", 1, "state", "completed"))
	p.after(2 * time.Second)
	p.as(jon.principal).appended("work.release-with-authority", jon.shows("work-login-bug", 1, "actor", "codex exec"))
	p.as(jon.principal).refused("work.renew", jon.shows("work-login-bug", 1))
	p.as(ada.principal).fails(events.CodeClaimTerminal, "work.claim", ada.claim("work-login-bug"))
	p.at("09:52:00")
	p.as(ada.principal).appended("work.claim", ada.claim("work-docs", "expectedClaimGeneration", 1, "authorityDigest", digestOf("ada", "docs")))
	p.as(jon.principal).fails(events.CodeClaimGenerationMismatch, "work.claim", jon.claim("work-docs", "expectedClaimGeneration", 0))
	p.at("10:15:00")
	p.as(mira.principal).appended("work.terminalize", mira.shows("work-auth-refactor", 1, "state", "completed", "release", true))
	p.at("10:20:00")
	p.as(ada.principal).appended("work.release-with-authority", ada.shows("work-docs", 1))
	p.as(jon.principal).appended("work.bind", jon.claim("work-docs", "allowClaimIfMissing", true))
}

func recovery(p *player) {
	p.at("09:00:00")
	p.as(mira.principal).appended("work.resume", mira.claim("work-index", "authorityDigest", digestOf("mira", "index")))
	p.as(mira.principal).appended("activity.report", object{"sessionId": mira.session(), "principalId": mira.principal, "activeWorkId": "work-index"})
	p.at("09:03:00")
	p.as(mira.principal).appended("activity.report", object{"sessionId": mira.session(), "principalId": mira.principal, "activeWorkId": "work-index"})
	takeover := jon.claim("work-index", "allowStaleRecovery", true, "expectedClaimGeneration", 1)
	p.at("09:07:59")
	p.as(jon.principal).fails(events.CodePrincipalMismatch, "work.resume", takeover)
	p.at("09:08:00")
	p.as(jon.principal).fails(events.CodePrincipalMismatch, "work.resume", jon.claim("work-index", "allowStaleRecovery", true))
	p.as(jon.principal).appended("work.resume", takeover)
	p.as(mira.principal).refused("work.renew", mira.shows("work-index", 1))

	// An ended transport session protects for the grace, too.
	p.at("09:20:00")
	p.as(jon.principal).appended("activity.report", object{"sessionId": jon.session(), "principalId": jon.principal, "activeWorkId": "work-index"})
	p.as(jon.principal).appended("activity.invalidate", object{"sessionId": jon.session(), "principalId": jon.principal})
	p.at("09:24:00")
	p.as(ada.principal).fails(events.CodePrincipalMismatch, "work.resume", ada.claim("work-index", "allowStaleRecovery", true, "expectedClaimGeneration", 2))
	p.at("09:25:00")
	p.as(ada.principal).appended("work.resume", ada.claim("work-index", "allowStaleRecovery", true, "expectedClaimGeneration", 2))

	// An owner that is busy elsewhere protects nothing.
	p.at("09:26:00")
	p.operator("ops").appended("activity.set", object{"sessionId": ada.session(), "session": object{
		"principalId": ada.principal, "activeWorkId": "work-other", "updatedAt": "2026-03-02T09:26:00.000Z", "lastValidatedAt": "2026-03-02T09:26:00.000Z",
	}})
	p.as(mira.principal).appended("work.resume", mira.claim("work-index", "allowStaleRecovery", true, "expectedClaimGeneration", 3))

	// An owner without a principal is who its transport session says.
	p.at("10:00:00")
	nameless := jon
	p.as(jon.id).appended("work.claim", with(nameless.claim("work-cache"), "principalId", nil))
	p.as(ada.principal).fails(events.CodePrincipalMismatch, "work.resume", ada.claim("work-cache"))
	p.operator("ops").appended("activity.set", object{"sessionId": jon.session(), "session": object{"principalId": jon.principal}})
	p.at("10:01:00")
	p.as(jon.principal).appended("work.resume", jon.claim("work-cache"))
}

func lapseAndReturn(p *player) {
	p.at("08:00:00")
	p.as(mira.principal).appended("work.claim", mira.claim("work-report", "authorityDigest", digestOf("mira", "report"), "leaseMs", 600_000))
	p.as(jon.principal).appended("work.claim", jon.claim("work-export", "authorityDigest", digestOf("jon", "export"), "leaseMs", 600_000))
	p.at("08:09:59")
	p.as(ada.principal).fails(events.CodeAlreadyClaimed, "work.claim", ada.claim("work-export"))
	p.at("08:10:00")
	p.as(jon.principal).refused("work.renew", jon.shows("work-export", 1))
	p.as(ada.principal).appended("work.claim", ada.claim("work-export", "expectedClaimGeneration", 0))
	p.as(jon.principal).fails(events.CodeAlreadyClaimed, "work.claim", jon.claim("work-export"))
	// Hours later, and under another transport session: still generation 1.
	p.at("13:30:00")
	p.as(mira.principal).fails(events.CodeOwnerRequired, "work.bind", mira.rotated().claim("work-report"))
	p.as(mira.principal).appended("work.resume", mira.rotated().claim("work-report"))
	p.at("13:31:00")
	p.as(mira.principal).appended("work.renew", mira.shows("work-report", 1, "leaseMs", 1_000))
	p.after(time.Second)
	p.as(jon.principal).appended("work.resume", jon.claim("work-report", "leaseMs", 1))
	p.after(time.Second)
	p.as(mira.principal).appended("work.resume", mira.claim("work-report"))
	p.at("15:00:00")
	p.operator("ops").appended("work.release", object{"workId": "work-export", "controllerId": ada.id}) // expired, and still held
	p.as(ada.principal).appended("work.claim", ada.claim("work-export"))
}

func releaseAndReclaim(p *player) {
	generation := 0
	p.at("09:00:00")
	for round := range 4 {
		for _, c := range []controller{mira, jon} {
			generation++
			p.as(c.principal).appended("work.claim", c.claim("work-aba", "authorityDigest", digestOf(c.id, fmt.Sprint(round))))
			p.after(3 * minute)
			if generation > 2 {
				p.as(c.principal).refused("work.renew", c.shows("work-aba", generation-2)) // an epoch of its own, but an old one
			}
			p.as(c.principal).appended("work.renew", c.shows("work-aba", generation))
			p.after(3 * minute)
			p.as(c.principal).appended("work.release-with-authority", c.shows("work-aba", generation))
			p.as(c.principal).refused("work.release-with-authority", c.shows("work-aba", generation))
			p.after(minute)
		}
	}
	// The same controller, twice in a row: its release ended its generation, too.
	for range 2 {
		generation++
		p.as(ada.principal).appended("work.resume", ada.claim("work-aba"))
		p.after(minute)
		p.operator("ops").appended("work.release-observed", object{"workId": "work-aba", "owner": with(ada.stored("work-aba", generation, "2026-03-02T10:00:00Z"))})
	}
}

func terminalization(p *player) {
	operator := p.operator("ops")
	p.at("09:00:00")
	p.as(mira.principal).appended("work.claim", mira.claim("work-a"))
	p.as(jon.principal).appended("work.claim", jon.claim("work-b", "leaseMs", 60_000))
	p.at("09:00:30")
	operator.refused("work.terminalize", object{"workId": "work-a", "state": "completed"})
	p.as(mira.principal).refused("work.terminalize", mira.shows("work-a", 2, "state", "completed"))
	p.as(mira.principal).appended("work.terminalize", mira.shows("work-a", 1, "state", "completed"))
	p.as(mira.principal).unchanged("work.terminalize", mira.shows("work-a", 1, "state", "completed"))
	p.as(mira.principal).fails(events.CodeClaimTerminal, "work.renew", mira.shows("work-a", 1))
	p.as(mira.principal).unchanged("work.bind", mira.claim("work-a"))
	p.as(mira.principal).fails(events.CodeClaimTerminal, "work.bind", mira.rotated().claim("work-a"))
	p.as(mira.principal).appended("work.release-with-authority", mira.shows("work-a", 1))
	p.at("09:02:00")
	p.as(jon.principal).refused("work.terminalize", jon.shows("work-b", 1, "state", "failed", "release", true)) // its lease ended
	operator.appended("work.terminalize", object{"workId": "work-b", "state": "cancelled", "release": true, "actor": "maintenance"})
	p.at("09:10:00")
	operator.appended("work.terminalize", object{"workId": "work-never-claimed", "state": "cancelled"})
	operator.unchanged("work.terminalize", object{"workId": "work-never-claimed", "state": "cancelled"})
	p.at("11:00:00")
	operator.appended("work.set-state", object{"workId": "work-a", "state": "open", "reason": "the fix was not complete"})
	p.as(jon.principal).appended("work.claim", jon.claim("work-a", "authorityDigest", digestOf("jon", "a")))
	p.after(20 * minute)
	p.as(jon.principal).appended("work.terminalize", jon.shows("work-a", 2, "state", "completed", "release", true))
	p.as(jon.principal).refused("work.terminalize", jon.shows("work-a", 2, "state", "completed", "release", true))
}

// importAll takes over one new work per snapshot: entries of several works are
// taken over side by side, in any order.
func importAll(p *player) {
	operator := p.operator("importer")
	site := mira.stored("work-site", 4, "2026-03-02T07:30:00Z", "authorityDigest", digestOf("mira", "site"))
	api := jon.stored("work-api", 1, "2026-03-02T07:40:00Z", "principalId", " user-jon ", "lastSeen", object{"host": "build-3", "load": 0.25}, "tags", []any{"hot", nil})
	p.at("08:00:00")
	operator.imported("imported", snapshot("file", "repo-site", site), "imported")
	operator.imported("already-imported", snapshot("file", "repo-site", site), "unchanged")
	operator.imported("imported", snapshot("file", "repo-site", site, api), "unchanged", "imported")
	p.at("08:01:00")
	bare := with(ada.stored("work-docs", 0, "2026-03-01T10:00:00Z"), "claimGeneration", nil, "controllerInstanceId", nil, "leaseExpiresAt", "2026-03-09T10:00:00.000Z")
	unreadable := with(ada.stored("work-broken", 1, "2026-03-01T10:00:00Z"), "claimedAt", "yesterday")
	older := mira.stored("work-site", 3, "2026-03-02T07:59:00Z")
	operator.imported("imported", snapshot("record", "repo-site", site, unreadable, bare, older), "unchanged", "dropped", "imported", "older")
	operator.imported("ignored", snapshot("file", "repo-site", ada.stored("work-late", 1, "2026-03-02T08:00:30Z")))
	operator.imported("imported", snapshot("record", "repo-empty"))
	operator.imported("imported", snapshot("file", "repo-other", ada.stored("work-other", 2, "2026-03-01T08:00:00Z")), "imported")
	p.at("08:02:00")
	retained := func(session object, pairs ...any) object {
		record := with(object{"schemaVersion": 1, "session": session, "retainedAt": "2026-03-01T22:00:00.000Z"}, pairs...)
		return object{"source": "retained", "scope": "repo-site", "records": []any{object{"workId": session["workId"], "record": record}}}
	}
	operator.imported("imported", retained(jon.stored("work-known", 6, "2026-02-20T08:00:00Z")), "imported")
	operator.imported("imported", retained(jon.stored("work-left", 2, "2026-02-21T08:00:00Z"), "releasedAt", "2026-02-21T08:30:00.000Z"), "imported")
	operator.imported("imported", retained(site), "unchanged")

	// And they go on from there.
	p.at("08:10:00")
	p.as(mira.principal).appended("work.bind", mira.rotated().claim("work-site"))
	p.as(mira.principal).appended("work.renew", mira.shows("work-site", 4))
	p.as(jon.principal).unchanged("work.bind", jon.claim("work-api"))
	p.as(jon.principal).appended("work.renew", jon.shows("work-api", 1, "leaseMs", 60_000)) // what is unknown lives on …
	p.at("08:20:00")
	p.as(jon.principal).appended("work.resume", jon.claim("work-api")) // … until the next claim
	p.as(ada.principal).fails(events.CodeInstanceMismatch, "work.claim", ada.claim("work-docs"))
	p.as(ada.principal).appended("work.resume", ada.claim("work-docs"))
	p.as(ada.principal).appended("work.claim", ada.claim("work-known"))
	p.as(jon.principal).appended("work.claim", jon.claim("work-left"))
	p.as(ada.principal).appended("work.claim", ada.claim("work-other"))
	operator.imported("already-imported", snapshot("file", "repo-other", ada.stored("work-other", 2, "2026-03-01T08:00:00Z")), "older")
}

func quarantine(p *player) {
	operator := p.operator("ops")
	p.at("08:00:00")
	p.as(mira.principal).appended("work.claim", mira.claim("work-q1", "authorityDigest", digestOf("mira", "q1")))
	p.as(mira.principal).appended("work.claim", mira.claim("work-q2"))
	p.at("08:05:00")
	stranger := jon.stored("work-q1", 3, "2026-03-02T07:00:00Z")
	operator.imported("imported", snapshot("record", "repo-q", stranger), "quarantined")
	p.as(mira.principal).fails(events.CodeSessionIDCollision, "work.renew", mira.shows("work-q1", 1))
	p.as(jon.principal).fails(events.CodeSessionIDCollision, "work.claim", jon.claim("work-q1"))
	operator.fails(events.CodeSessionIDCollision, "work.force-release", object{"workId": "work-q1", "reason": "try"})
	operator.appended("work.set-state", object{"workId": "work-q1", "state": "open", "reason": "it is known"})
	// A newer contradiction takes the place of the older one; the older one again changes nothing.
	operator.imported("imported", snapshot("record", "repo-q", stranger, jon.stored("work-q1", 7, "2026-03-02T08:04:00Z")), "quarantined", "quarantined")
	operator.imported("already-imported", snapshot("record", "repo-q", stranger), "quarantined")
	p.at("08:10:00")
	operator.fails(events.CodeReasonRequired, "work.resolve-import", object{"workId": "work-q1", "keep": "current"})
	operator.appended("work.resolve-import", object{"workId": "work-q1", "keep": "current", "reason": "the snapshot is of a dead machine"})
	operator.unchanged("work.resolve-import", object{"workId": "work-q1", "keep": "imported", "reason": "too late"})
	p.as(mira.principal).refused("work.renew", mira.shows("work-q1", 1))
	p.as(mira.principal).appended("work.renew", mira.shows("work-q1", 7))

	// The same generation, claimed later elsewhere: the operator believes it.
	p.at("08:20:00")
	operator.imported("imported", snapshot("record", "repo-q", jon.stored("work-q2", 1, "2026-03-02T08:15:00Z", "authorityDigest", digestOf("jon", "q2"))), "quarantined")
	operator.appended("work.resolve-import", object{"workId": "work-q2", "keep": "imported", "reason": "jon moved it by hand"})
	p.as(mira.principal).refused("work.renew", mira.shows("work-q2", 1))
	p.as(jon.principal).appended("work.renew", jon.shows("work-q2", 1))

	// A release does not keep an imported claim from contradicting.
	p.at("08:30:00")
	p.as(jon.principal).appended("work.release-with-authority", jon.shows("work-q2", 1))
	operator.imported("imported", snapshot("record", "repo-q", jon.stored("work-q2", 1, "2026-03-02T08:19:00Z")), "older")
	retained := object{"schemaVersion": 1, "session": ada.stored("work-q2", 2, "2026-03-02T08:00:00Z"), "retainedAt": "2026-03-02T08:00:00.000Z"}
	operator.imported("imported", object{"source": "retained", "records": []any{object{"record": retained}}}, "quarantined")
	operator.appended("work.resolve-import", object{"workId": "work-q2", "keep": "imported", "reason": "ada was there last"})
	p.as(jon.principal).appended("work.claim", jon.claim("work-q2"))
}

func runtimeChange(p *player) {
	one, two, three := runtime("one"), runtime("two"), "controller-990-"+hexOf(12, "three")
	p.at("08:00:00")
	p.as(mira.principal).appended("work.resume", mira.claim("work-deploy", "authorityDigest", digestOf("mira", "deploy")))
	// Nothing is announced: the caller's word counts.
	p.at("08:30:00")
	p.as(mira.principal).fails(events.CodeInstanceMismatch, "work.bind", mira.under(two).claim("work-deploy"))
	p.as(mira.principal).fails(events.CodeInstanceMismatch, "work.bind", mira.under(two).claim("work-deploy", "currentRuntimeInstanceId", one))
	p.as(mira.principal).appended("work.bind", mira.under(two).claim("work-deploy", "currentRuntimeInstanceId", two))
	p.as(mira.principal).refused("work.renew", mira.shows("work-deploy", 1))
	p.as(mira.principal).appended("work.renew", mira.under(two).shows("work-deploy", 2))
	// A runtime is announced: only that one counts.
	p.at("08:45:00")
	p.operator("gateway").appended("runtime.announce", object{"controllerInstanceId": one})
	p.operator("gateway").unchanged("runtime.announce", object{"controllerInstanceId": one})
	p.as(mira.principal).fails(events.CodeInstanceMismatch, "work.bind", mira.under(three).claim("work-deploy", "currentRuntimeInstanceId", three))
	p.as(mira.principal).appended("work.bind", mira.rotated().claim("work-deploy", "currentRuntimeInstanceId", one))
	// A plain resume moves to any runtime, and leaves the capability behind.
	p.at("09:00:00")
	p.as(mira.principal).appended("work.resume", mira.under(three).claim("work-deploy"))
	p.as(mira.principal).appended("work.resume", mira.under(three).claim("work-deploy", "authorityDigest", digestOf("mira", "deploy", "again")))
	p.as(mira.principal).appended("work.bind", mira.under(three).rotated().claim("work-deploy"))
	p.at("09:10:00")
	p.as(mira.principal).appended("work.terminalize", mira.under(three).shows("work-deploy", 4, "state", "completed", "release", true))
}

func oddIDs(p *player) {
	works := []string{
		"plain_Work-1", "two words", "a.b.c", "*", ">", "work.*.>", "$JS.API", "=d29yaw", "übergröße", "作業-42", "работа", "عمل", "🚧", "e\u0301 and é",
		"a/b\\c", `quo"te`, strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("long name ", 20) + "end", strings.Repeat("é", 256),
	}
	p.at("08:00:00")
	for i, work := range works {
		c := controller{id: "controller " + string([]rune(work)[:1]), kind: "human", principal: "Zoë " + fmt.Sprint(i%3), instance: "host/" + fmt.Sprint(i)}
		p.as(c.principal).appended("work.claim", c.claim("  "+work+"\t"))
		p.after(time.Second)
		p.as(c.principal).appended("work.renew", c.shows(work, 1))
		p.after(time.Second)
	}
	long := controller{id: strings.Repeat("controller ", 30), kind: "", principal: strings.Repeat("ō", 200), instance: strings.Repeat("i", 512)}
	p.as(long.principal).appended("work.resume", long.claim(works[0], "allowStaleRecovery", true, "expectedClaimGeneration", 0, "workId", "of a long name"))
	p.as(long.principal).appended("work.release-with-authority", long.shows("of a long name", 1))
	// An operator of whom only the hashed token is told.
	hashed := p.operator(events.Token(strings.Repeat("operator ", 10)))
	hashed.appended("work.set-state", object{"workId": works[1], "state": "erledigt ✓", "reason": "größer als \"gedacht\" <&>"})
	hashed.appended("work.force-release", object{"workId": works[len(works)-1], "reason": strings.Repeat("because ", 100)})
	p.as("Zoë 1").fails(events.CodeIDInvalid, "work.claim", jon.claim(strings.Repeat("x", 513), "principalId", "Zoë 1"))
	p.as("Zoë 1").fails(events.CodeIDInvalid, "work.claim", jon.claim("a\x00b", "principalId", "Zoë 1"))
	p.as("Zoë 1").fails(events.CodeCallerMismatch, "work.claim", jon.claim("w"))
}

func force(p *player) {
	operator := p.operator("ops")
	p.at("09:00:00")
	p.as(mira.principal).appended("work.claim", mira.claim("work-stuck", "authorityDigest", digestOf("mira", "stuck")))
	operator.fails(events.CodeReasonRequired, "work.force-release", object{"workId": "work-stuck"})
	operator.unchanged("work.release", object{"workId": "work-stuck", "controllerId": jon.id})
	operator.refused("work.release-observed", object{"workId": "work-stuck", "owner": mira.stored("work-stuck", 9, "2026-03-02T09:00:00Z")})
	p.as("ops").fails(events.CodeForbidden, "work.force-release", object{"workId": "work-stuck", "reason": "on the wrong root"})
	p.at("09:05:00")
	operator.header("Forge-Causation-Id", "ticket-771").appended("work.force-release", object{"workId": "work-stuck", "reason": "the process hangs", "actor": "on call"})
	operator.unchanged("work.force-release", object{"workId": "work-stuck", "reason": "once more"})
	p.as(mira.principal).refused("work.renew", mira.shows("work-stuck", 1))
	p.as(mira.principal).appended("work.claim", mira.claim("work-stuck", "leaseMs", 60_000))
	p.at("10:00:00")
	operator.appended("work.force-release", object{"workId": "work-stuck", "reason": "its lease ended an hour ago"})
	p.as(jon.principal).appended("work.claim", jon.claim("work-stuck"))
	operator.appended("work.release", object{"workId": "work-stuck", "controllerId": jon.id})

	p.at("11:00:00")
	for i, state := range []any{"open", "completed", "cancelled", nil, "failed", "open"} {
		operator.appended("work.set-state", object{"workId": "work-moody", "state": state, "reason": fmt.Sprintf("change of mind no. %d", i+1)})
		operator.unchanged("work.set-state", object{"workId": "work-moody", "state": state, "reason": "again"})
		p.after(minute)
	}
	p.as(ada.principal).appended("work.claim", ada.claim("work-moody"))
	// The operator looks at no claim: the work ends under its owner.
	operator.appended("work.set-state", object{"workId": "work-moody", "state": "cancelled", "reason": "the customer left"})
	p.as(ada.principal).fails(events.CodeClaimTerminal, "work.renew", ada.shows("work-moody", 1))
	operator.appended("work.set-state", object{"workId": "work-moody", "state": nil, "reason": "forget it"})
	p.as(ada.principal).appended("work.renew", ada.shows("work-moody", 1))
}

func expiredChain(p *player) {
	p.at("08:00:00")
	team := []controller{mira, jon, ada}
	for i := range 24 {
		c := team[i%3]
		p.as(c.principal).appended("work.claim", c.claim("work-relay", "leaseMs", 1_000, "expectedClaimGeneration", 0))
		p.after(999 * time.Millisecond)
		p.as(team[(i+1)%3].principal).fails(events.CodeAlreadyClaimed, "work.claim", team[(i+1)%3].claim("work-relay"))
		p.after(time.Millisecond)
		if i%5 == 4 {
			p.as(c.principal).appended("work.claim", c.claim("work-relay", "leaseMs", 1_000)) // back in time: the same generation
			p.after(time.Hour)
		}
	}
	p.restart()
	p.as(ada.principal).appended("work.resume", ada.claim("work-relay"))
}

func retries(p *player) {
	again := func(s sender, id string) sender { return s.header("Forge-Command-Id", id) }
	claim := mira.claim("work-once", "authorityDigest", digestOf("mira", "once"))
	p.at("08:00:00")
	first := again(p.as(mira.principal), "01K0FIRST")
	first.appended("work.claim", claim)
	first.already("work.claim", claim)
	first.fails(events.CodeCommandIDReused, "work.claim", mira.claim("work-once"))
	p.restart()
	first.already("work.claim", claim)
	// The id belongs to the work and the caller.
	first.appended("work.claim", mira.claim("work-twice"))
	again(p.as(jon.principal), "01K0FIRST").fails(events.CodeAlreadyClaimed, "work.claim", jon.claim("work-once"))

	renew := mira.shows("work-once", 1, "leaseMs", 120_000)
	p.at("08:01:00")
	second := again(p.as(mira.principal), "01K0SECOND")
	second.appended("work.renew", renew)
	for i := range 6 {
		p.after(10 * time.Second)
		p.as(mira.principal).appended("work.renew", mira.shows("work-once", 1, "actor", fmt.Sprint(i)))
		second.already("work.renew", renew)
		first.already("work.claim", claim)
	}
	p.restart()
	p.at("08:05:00") // later than ids are promised to be known, but among the last eight commits
	second.already("work.renew", renew)
	p.as(mira.principal).header("Forge-Expected-Version", "7").fails(events.CodeVersionConflict, "work.renew", renew)
	p.as(mira.principal).header("Forge-Expected-Version", "8").appended("work.renew", renew)
	release := mira.shows("work-once", 1)
	third := again(p.as(mira.principal), "01K0THIRD")
	third.appended("work.release-with-authority", release)
	third.already("work.release-with-authority", release)
	p.as(mira.principal).refused("work.release-with-authority", release)
	operator := again(p.operator("ops"), "01K0FIRST")
	state := object{"workId": "work-once", "state": "completed", "reason": "done"}
	operator.appended("work.set-state", state)
	operator.already("work.set-state", state)
	// An import comes again as a whole.
	snap := snapshot("file", "repo-once", ada.stored("work-import", 2, "2026-03-02T07:00:00Z"))
	importer := again(p.operator("ops"), "01K0IMPORT")
	importer.imported("imported", snap, "imported")
	importer.already("work.import", snap)
}
