package streams

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// releaseDays are the scripts about releases.
var releaseDays = []day{
	{version: "v2", name: "release-known-good", play: toKnownGood, title: "A release goes all the way to known good; the next one begins beside the live release."},
	{version: "v2", name: "release-rolled-back", play: rolledBack, title: "Two releases are rolled back: one while it is cut over, one while it soaks."},
	{version: "v2", name: "release-failures", play: failures, title: "A release fails in each phase, one after another."},
	{version: "v2", name: "release-repair-successor", play: repairSuccessor, title: "A repair begins beside the soaking release that it repairs; a third one does not."},
	{version: "v2", name: "release-evidence", play: evidence, title: "Receipts arrive one by one: passed, failed, inconclusive, for one candidate and then for another."},
	{version: "v2", name: "release-migrate-v1", play: migrateV1, title: "Documents without an epoch are taken over and migrated: converted, rebuilt, proven by a successor."},
	{version: "v2", name: "release-migrate-transitional", play: migrateTransitional, title: "Documents of the transitional form are taken over and migrated, with and without a transaction of their own."},
	{version: "v2", name: "release-reconcile", play: reconcile, title: "A cutover that happened and was not recorded is reconciled with the release authority."},
	{version: "v2", name: "release-documents", play: documents, title: "Documents that are no sessions: named, replaced, discarded; an operator ends a session that cannot end by itself."},
	{version: "v2", name: "release-authority", play: authorities, title: "Which release is live is published again and again; a session is created only beside the live one."},
	{version: "v2", name: "release-retries", play: releaseRetries, title: "The commands of a release come again, at once, many commits later, and after a restart."},
}

// candidate is a release that is made of a source.
func releaseCandidate(id, source string) object {
	return object{
		"releaseId": id, "manifestPath": "/srv/releases/" + id + ".json", "artifactIdentity": "sha256:" + hexOf(64, "artifact", id),
		"manifestSha256": hexOf(64, "manifest", id), "treeSha256": hexOf(64, "tree", id), "sourceCommit": source,
	}
}

// live is a release as the stable one of a session.
func live(revision int, id string) object {
	return object{
		"authorityRevision": revision, "releaseId": id, "artifactIdentity": "sha256:" + hexOf(64, "artifact", id), "manifestSha256": hexOf(64, "manifest", id),
		"workerProtocolVersion": 3, "releaseFencingTokenSha256": hexOf(64, "fence", id, fmt.Sprint(revision)),
	}
}

// published is a release as the authority names it.
func published(id string) object {
	return object{
		"releaseId": id, "artifactIdentity": "sha256:" + hexOf(64, "artifact", id), "manifestPath": "/srv/releases/" + id + ".json",
		"manifestSha256": hexOf(64, "manifest", id), "workerProtocolVersion": 3, "publishedAt": "2026-03-01T12:00:00.000Z",
		"databaseBackup": object{"path": "/srv/backups/" + id + ".sqlite", "schemaVersion": 12, "createdAt": "2026-03-01T11:59:00.000Z", "recordCount": 4821},
	}
}

func lane(kind string, port int) object {
	return object{"schemaVersion": 1, "kind": kind, "controllerHome": "/srv/" + kind, "serviceLabel": "forge-" + kind, "port": port, "authTokenFile": "/srv/" + kind + "/token"}
}

// opens is the body of release.create.
func opens(id, source string, stable object) object {
	return object{"sessionId": id, "sourceRevision": source, "stableRelease": stable, "stable": lane("stable", 7001), "candidate": lane("candidate", 7002)}
}

func gatesOf(phase string) []object {
	var list []object
	for _, g := range release.Gates[phase] {
		list = append(list, object{"kind": g.Kind, "id": g.ID, "summary": g.ID + " is fine"})
	}
	return list
}

func cutoverOf(id string, revision int, candidate, rollback string) object {
	return object{
		"schemaVersion": 1, "operationId": "cutover-" + id, "candidateReleaseId": candidate, "cutoverAuthorityRevision": revision,
		"rollbackRelease": published(rollback), "startedAt": "2026-03-02T10:00:00.000Z",
	}
}

// goes moves a session on by one minute a step, with all that the steps need.
func (s sender) goes(id, source string, revision int, candidate, rollback string, phases ...string) {
	s.Helper()
	for _, phase := range phases {
		s.after(time.Minute)
		body := object{"sessionId": id, "phase": phase, "expectedPhase": before(phase)}
		switch phase {
		case release.Built:
			body["candidateRelease"] = releaseCandidate(candidate, source)
			body["receipts"] = []object{{"kind": "build", "id": "build", "summary": "built from " + source}}
		case release.CutoverCommitted:
			s.appended(release.VerbTransaction, object{"sessionId": id, "expectedRevision": 7, "transaction": cutoverOf(id, revision, candidate, rollback)})
			body["receipts"] = []object{{"kind": "cutover", "id": "cutover", "summary": "candidate is live"}}
		}
		if gates := gatesOf(phase); gates != nil {
			body["receipts"] = gates
		}
		s.appended(release.VerbAdvance, body)
	}
}

var way = []string{
	release.SourceFrozen, release.Built, release.StaticVerified, release.CandidateBooted, release.CandidateVerified, release.CutoverEligible,
	release.CutoverAttempting, release.CutoverCommitted, release.Soaking, release.KnownGood,
}

func before(phase string) string {
	for i, p := range way {
		if p == phase && i > 0 {
			return way[i-1]
		}
	}
	return ""
}

// until are the steps to a phase, without the first.
func until(phase string) []string {
	for i, p := range way {
		if p == phase {
			return way[1 : i+1]
		}
	}
	return nil
}

func toKnownGood(p *player) {
	r := p.as("release-coordinator")
	p.at("09:00:00")
	r.appended(release.VerbCreate, opens("release-1740906000000-aa01", "rev-100", live(4, "A")))
	r.fails(events.CodeReleaseActiveExists, release.VerbCreate, opens("release-1740906000001-aa02", "rev-101", live(4, "A")))
	r.fails(events.CodeReleaseTransition, release.VerbAdvance, object{"sessionId": "release-1740906000000-aa01", "expectedRevision": 1, "phase": release.StaticVerified})
	r.goes("release-1740906000000-aa01", "rev-100", 5, "B", "A", until(release.Soaking)...)
	r.fails(events.CodeReleaseSoakGates, release.VerbAdvance, object{"sessionId": "release-1740906000000-aa01", "expectedPhase": release.Soaking, "phase": release.KnownGood})
	r.goes("release-1740906000000-aa01", "rev-100", 5, "B", "A", release.KnownGood)
	p.at("13:00:00")
	r.appended(release.VerbCreate, opens("release-1740920400000-aa03", "rev-102", live(5, "B")))
}

func rolledBack(p *player) {
	r := p.as("release-coordinator")
	p.at("09:00:00")
	r.appended(release.VerbCreate, opens("release-rollback-1", "rev-1", live(4, "A")))
	r.fails(events.CodeReleaseRollbackBefore, release.VerbAdvance, object{"sessionId": "release-rollback-1", "expectedRevision": 1, "phase": release.RolledBack})
	r.goes("release-rollback-1", "rev-1", 5, "B", "A", until(release.CutoverAttempting)...)
	p.after(time.Minute)
	r.appended(release.VerbAdvance, object{"sessionId": "release-rollback-1", "expectedPhase": release.CutoverAttempting, "phase": release.RolledBack, "receipts": []object{{"kind": "rollback", "id": "rollback", "summary": "the candidate did not answer"}}})
	p.at("11:00:00")
	r.appended(release.VerbCreate, opens("release-rollback-2", "rev-2", live(4, "A")))
	r.goes("release-rollback-2", "rev-2", 6, "C", "A", until(release.Soaking)...)
	r.appended(release.VerbAdvance, object{"sessionId": "release-rollback-2", "expectedPhase": release.Soaking, "phase": release.RolledBack, "receipts": []object{{"kind": "rollback", "id": "rollback", "summary": "errors doubled"}}})
}

func failures(p *player) {
	r := p.as("release-coordinator")
	p.at("08:00:00")
	for i, phase := range way[:len(way)-1] {
		id := fmt.Sprintf("release-fails-%d", i)
		source := fmt.Sprintf("rev-%d", i)
		r.appended(release.VerbCreate, opens(id, source, live(4, "A")))
		r.goes(id, source, 5+i, "B"+fmt.Sprint(i), "A", until(phase)...)
		p.after(time.Minute)
		r.appended(release.VerbAdvance, object{"sessionId": id, "expectedPhase": phase, "phase": release.Failed, "receipts": []object{{"kind": "build", "id": "build_failed", "summary": "failed in " + phase}}})
		r.fails(events.CodeReleaseTerminal, release.VerbAdvance, object{"sessionId": id, "expectedPhase": release.Failed, "phase": release.Failed})
	}
}

func repairSuccessor(p *player) {
	r := p.as("release-coordinator")
	p.at("09:00:00")
	r.appended(release.VerbCreate, opens("release-soaks", "rev-1", live(4, "A")))
	r.goes("release-soaks", "rev-1", 5, "B", "A", until(release.Soaking)...)
	r.fails(events.CodeReleaseActiveExists, release.VerbCreate, opens("release-other", "rev-2", live(5, "X")))
	r.fails(events.CodeReleaseActiveExists, release.VerbCreate, opens("release-same-source", "rev-1", live(5, "B")))
	r.appended(release.VerbCreate, opens("release-repairs", "rev-2", live(5, "B")))
	r.fails(events.CodeReleaseActiveExists, release.VerbCreate, opens("release-third", "rev-3", live(5, "B")))
	r.goes("release-repairs", "rev-2", 6, "C", "B", until(release.StaticVerified)...)
	r.goes("release-soaks", "rev-1", 5, "B", "A", release.KnownGood)
	r.goes("release-repairs", "rev-2", 6, "C", "B", release.CandidateBooted)
}

func evidence(p *player) {
	r := p.as("release-coordinator")
	runner := p.as("ci-runner")
	p.at("09:00:00")
	const id = "release-evidence"
	r.appended(release.VerbCreate, opens(id, "rev-1", live(4, "A")))
	one := func(kind, name, outcome string) object {
		receipt := object{"kind": kind, "id": name, "summary": outcome, "ignored": true}
		if outcome != "" {
			receipt["outcome"] = outcome
		}
		return object{"sessionId": id, "receipts": []object{receipt}}
	}
	// Before there is a candidate nothing counts for it.
	for _, g := range release.Gates[release.StaticVerified] {
		runner.appended(release.VerbReceipts, one(g.Kind, g.ID, ""))
	}
	r.goes(id, "rev-1", 5, "B", "A", release.Built)
	advance := object{"sessionId": id, "expectedPhase": release.Built, "phase": release.StaticVerified}
	r.fails(events.CodeReleaseStaticGates, release.VerbAdvance, advance)
	for _, g := range release.Gates[release.StaticVerified] {
		p.after(time.Second)
		runner.appended(release.VerbReceipts, one(g.Kind, g.ID, "passed"))
	}
	runner.appended(release.VerbReceipts, one("static_gate", "bootstrap", "failed"))
	r.fails(events.CodeReleaseStaticGates, release.VerbAdvance, advance)
	runner.appended(release.VerbReceipts, one("static_gate", "bootstrap", "inconclusive"))
	r.fails(events.CodeReleaseStaticGates, release.VerbAdvance, advance)
	runner.fails(events.CodeReleaseReceiptInvalid, release.VerbReceipts, one("static_gate", "bootstrap", "perhaps"))
	runner.fails(events.CodeReleaseReceiptInvalid, release.VerbReceipts, one("opinion", "bootstrap", ""))
	runner.appended(release.VerbReceipts, one("static_gate", "bootstrap", ""))
	r.appended(release.VerbAdvance, advance)
}

// stored is a document of an older form.
func storedRelease(id, phase string, pairs ...any) object {
	o := object{
		"schemaVersion": 1, "sessionId": id, "stable": lane("stable", 7001), "stableRelease": live(4, "A"), "candidate": lane("candidate", 7002),
		"candidateRelease": releaseCandidate("B", "rev-1"), "sourceRevision": "rev-1", "phase": phase, "revision": 6,
		"receipts":  []object{{"id": "source:" + id, "kind": "source", "recordedAt": "2026-02-01T08:00:00.000Z", "summary": "source frozen at rev-1"}},
		"createdAt": "2026-02-01T08:00:00.000Z", "updatedAt": "2026-02-01T09:00:00.000Z", "operatorNote": "kept as it is",
	}
	return with(o, pairs...)
}

func (s sender) receives(name string, document any) {
	s.Helper()
	text, ok := document.(string)
	if !ok {
		b, err := json.Marshal(document)
		if err != nil {
			s.Fatal(err)
		}
		text = string(b)
	}
	s.appended(release.VerbReceiveDocument, object{"name": name + ".json", "text": text})
}

func releaseAuthority(revision int, active, previous string) object {
	return object{"schemaVersion": 2, "status": "committed", "revision": revision, "active": published(active), "previous": published(previous), "operationId": "op", "committedAt": "2026-02-01T10:00:00.000Z"}
}

func migrateV1(p *player) {
	o := p.operator("ops")
	p.at("09:00:00")
	o.receives("session-built", storedRelease("session-built", release.Built))
	o.receives("session-committed", storedRelease("session-committed", release.CutoverCommitted))
	o.receives("session-failed", storedRelease("session-failed", release.Failed, "semanticEpoch", 1))
	o.receives("session-historical", storedRelease("session-historical", release.Soaking, "candidateRelease", releaseCandidate("Z", "rev-1")))
	o.receives("session-successor", storedRelease("session-successor", release.RolledBack, "stableRelease", live(5, "Z"), "createdAt", "2026-02-02T08:00:00.000Z"))
	p.as("release-coordinator").fails(events.CodeReleaseInventory, release.VerbCreate, opens("session-new", "rev-2", live(5, "B")))
	o.fails(events.CodeReleaseMigrationAuthority, release.VerbMigrate, object{})
	o.unchanged(release.VerbMigrate, object{"authority": releaseAuthority(5, "B", "A"), "dryRun": true})
	o.appended(release.VerbMigrate, object{"authority": releaseAuthority(5, "B", "A")})
	o.unchanged(release.VerbMigrate, object{"authority": releaseAuthority(5, "B", "A")})
}

func migrateTransitional(p *player) {
	o := p.operator("ops")
	p.at("09:00:00")
	own := cutoverOf("own", 5, "B", "A")
	o.receives("session-own-transaction", storedRelease("session-own-transaction", release.KnownGood, "schemaVersion", 2, "transaction", own))
	o.receives("session-known-good", storedRelease("session-known-good", release.KnownGood, "schemaVersion", 2))
	o.receives("session-eligible", storedRelease("session-eligible", release.CutoverEligible, "schemaVersion", 2))
	o.appended(release.VerbMigrate, object{})
	p.after(time.Minute)
	r := p.as("release-coordinator")
	r.appended(release.VerbAdvance, object{"sessionId": "session-eligible", "expectedRevision": 6, "phase": release.CutoverAttempting})
	r.appended(release.VerbAdvance, object{"sessionId": "session-eligible", "expectedRevision": 7, "phase": release.Failed})
}

func reconcile(p *player) {
	r, o := p.as("release-coordinator"), p.operator("ops")
	p.at("09:00:00")
	r.appended(release.VerbCreate, opens("release-interrupted", "rev-1", live(4, "A")))
	r.goes("release-interrupted", "rev-1", 5, "B", "A", until(release.CutoverAttempting)...)
	p.at("10:00:00")
	o.unchanged(release.VerbMigrate, object{"authority": releaseAuthority(5, "X", "A")})
	o.appended(release.VerbMigrate, object{"authority": releaseAuthority(5, "B", "A")})
	r.appended(release.VerbAdvance, object{"sessionId": "release-interrupted", "expectedRevision": 8, "phase": release.CutoverCommitted})
	r.appended(release.VerbAdvance, object{"sessionId": "release-interrupted", "expectedRevision": 9, "phase": release.Soaking})
}

func documents(p *player) {
	o, r := p.operator("ops"), p.as("release-coordinator")
	p.at("09:00:00")
	o.receives("session-current", storedRelease("session-current", release.StaticVerified, "semanticEpoch", 2))
	o.receives("not json", "{ this is no JSON")
	o.receives("session-null", "null")
	o.receives("session-doubled", `{"schemaVersion":1,"schemaVersion":1}`)
	o.appended(release.VerbReceiveDocument, object{"name": "session-bytes.json", "textBase64": "//79"})
	o.unchanged(release.VerbReceiveDocument, object{"name": "readme.txt", "text": "no document"})
	o.unchanged(release.VerbReceiveDocument, object{"name": "session-null.json", "text": "null"})
	o.fails(events.CodeReleaseAlreadyExists, release.VerbReceiveDocument, object{"name": "session-null.json", "text": "{}"})
	o.fails(events.CodeReasonRequired, release.VerbReceiveDocument, object{"name": "session-null.json", "text": "{}", "replace": true})
	r.fails(events.CodeReleaseInventory, release.VerbCreate, opens("session-new", "rev-9", live(4, "A")))
	fixed, err := json.Marshal(storedRelease("session-null", release.Failed, "semanticEpoch", 2))
	if err != nil {
		p.Fatal(err)
	}
	o.appended(release.VerbReceiveDocument, object{"name": "session-null.json", "text": string(fixed), "replace": true, "reason": "taken from the backup"})
	for _, name := range []string{"not json", "session-doubled", "session-bytes"} {
		o.appended(release.VerbDiscardDocument, object{"name": name + ".json", "reason": "nothing can be made of it"})
	}
	o.unchanged(release.VerbDiscardDocument, object{"name": "session-bytes.json", "reason": "again"})
	o.fails(events.CodeReasonRequired, release.VerbEnd, object{"sessionId": "session-current"})
	o.appended(release.VerbEnd, object{"sessionId": "session-current", "reason": "its machine is gone"})
	r.appended(release.VerbCreate, opens("session-new", "rev-9", live(4, "A")))
}

func authorities(p *player) {
	o, r := p.operator("ops"), p.as("release-coordinator")
	p.at("09:00:00")
	const token = "token-xxxxxxxx"
	stable := with(live(4, "A"), "releaseFencingTokenSha256", events.HashOf([]byte(token)).String())
	check := with(opens("release-checked", "rev-1", stable), "checkAuthority", true)
	r.fails(events.CodeReleaseStableIdentity, release.VerbCreate, check)
	first := with(releaseAuthority(4, "A", "Z"), "fencingToken", token)
	o.appended(release.VerbPublish, object{"authority": first, "expectedRevision": 0})
	o.unchanged(release.VerbPublish, object{"authority": first})
	o.fails(events.CodeVersionConflict, release.VerbPublish, object{"authority": with(first, "operationId", "other")})
	o.fails(events.CodeVersionConflict, release.VerbPublish, object{"authority": releaseAuthority(5, "B", "A"), "expectedRevision": 3})
	r.appended(release.VerbCreate, check)
	p.at("12:00:00")
	o.appended(release.VerbPublish, object{"authority": releaseAuthority(5, "B", "A"), "expectedRevision": 4})
}

func releaseRetries(p *player) {
	r := p.as("release-coordinator")
	p.at("09:00:00")
	const id = "release-retries"
	create := opens(id, "rev-1", live(4, "A"))
	again := func(name string) sender { return r.header("Forge-Command-Id", name) }
	again("create").appended(release.VerbCreate, create)
	again("create").already(release.VerbCreate, create)
	built := object{"sessionId": id, "expectedRevision": 1, "phase": release.Built, "candidateRelease": releaseCandidate("B", "rev-1")}
	again("build").appended(release.VerbAdvance, built)
	for i := range 20 {
		p.after(time.Second)
		r.appended(release.VerbReceipts, object{"sessionId": id, "receipts": []object{{"kind": "build", "id": fmt.Sprintf("log-%d", i), "summary": ""}}})
	}
	p.after(time.Hour)
	again("build").already(release.VerbAdvance, built)
	p.restart()
	again("create").already(release.VerbCreate, create)
	again("build").fails(events.CodeCommandIDReused, release.VerbAdvance, with(built, "phase", release.Failed))
	r.fails(events.CodeReleaseRevisionFenced, release.VerbAdvance, built)
}
