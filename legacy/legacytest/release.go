package legacytest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Places of what a home knows about releases.
const (
	ReleaseFolder = "recovery/state/release-sessions"
	AuthorityFile = "runtime/releases/authority.json"
)

// Form is a form of release documents.
type Form string

// The forms, by schema and epoch.
const (
	Current      Form = "current"      // schema 1, epoch 2
	Legacy       Form = "legacy"       // schema 1 without epoch
	Transitional Form = "transitional" // schema 2 without epoch
)

// phases of a release that succeeds, in order.
var phases = []string{
	"source_frozen", "built", "static_verified", "candidate_booted", "candidate_verified", "cutover_eligible", "cutover_attempting",
	"cutover_committed", "soaking", "known_good",
}

// gates are the receipts that a phase needs.
var gates = map[string][][2]string{
	"static_verified": {
		{"static_gate", "type"}, {"static_gate", "runtime_architecture"}, {"static_gate", "architecture_sync"}, {"static_gate", "bootstrap"},
	},
	"candidate_verified": {
		{"candidate_canary", "recovery"},
		{"candidate_canary", "mcp"},
		{"candidate_canary", "scheduler"},
		{"candidate_canary", "supervisor"},
		{"candidate_canary", "controller"},
	},
	"known_good": {{"soak", "supervisor_continuation_proof"}},
}

// Release says what to write into a release document.
type Release struct {
	ID, Phase string
	Form      Form // "": Current

	// Stable and Candidate name releases, of which everything else follows.
	// Default: "rel-a" and "rel-b". A session in source_frozen has no candidate.
	Stable, Candidate string

	StableRevision int64 // authority revision of the stable release; 0: 1

	// Transaction: also older forms have one, from cutover_committed on; those of
	// the current form have it in any case.
	Transaction bool

	Minute int64 // of its beginning, after the start of 2026
}

// digest is a digest that follows from texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write([]byte(t + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func fencingToken(release string) string { return "fence_" + digest("fence", release)[:32] }

// Published is the published release of a name.
func Published(name string) map[string]any {
	return map[string]any{
		"releaseId": name, "artifactIdentity": "sha256:" + digest("artifact", name), "manifestPath": "/srv/forge/releases/" + name + "/manifest.json",
		"manifestSha256": digest("manifest", name), "workerProtocolVersion": 3, "publishedAt": stamp(1000),
		"databaseBackup": map[string]any{
			"path": "/srv/forge/backups/" + name + ".sqlite", "schemaVersion": 7, "createdAt": stamp(900), "auditEventCount": 1200, "recordCount": 340,
		},
	}
}

// Authority is a release authority as JSON text; previous "" means none.
func Authority(revision int64, active, previous string) string {
	a := map[string]any{
		"schemaVersion": 2, "status": "committed", "revision": revision, "fencingToken": fencingToken(active),
		"active": Published(active), "operationId": "cutover-" + active, "committedAt": stamp(2000),
	}
	if previous != "" {
		a["previous"] = Published(previous)
	}
	return text(a)
}

// StableRelease is the stable release of a session: the published release of a name
// at a revision of the authority.
func StableRelease(name string, revision int64) map[string]any {
	p, token := Published(name), sha256.Sum256([]byte(fencingToken(name)))
	return map[string]any{
		"authorityRevision": revision, "releaseId": name, "artifactIdentity": p["artifactIdentity"], "manifestSha256": p["manifestSha256"],
		"workerProtocolVersion": p["workerProtocolVersion"], "releaseFencingTokenSha256": hex.EncodeToString(token[:]),
	}
}

// Candidate is the candidate release of a name, built from a source.
func Candidate(name, source string) map[string]any {
	p := Published(name)
	return map[string]any{
		"releaseId": name, "manifestPath": p["manifestPath"], "artifactIdentity": p["artifactIdentity"], "manifestSha256": p["manifestSha256"],
		"treeSha256": digest("tree", name), "sourceCommit": source, "sourceRepositoryId": "repo-1",
	}
}

// Source is the source revision of a release.
func Source(name string) string { return digest("source", name)[:40] }

// JSON is the document as JSON text, with fields that are nobody's business.
func (r Release) JSON() string {
	if r.Stable == "" {
		r.Stable = "rel-a"
	}
	if r.Candidate == "" {
		r.Candidate = "rel-b"
	}
	r.StableRevision = max(r.StableRevision, 1)
	at := func(step int) string { return stamp((r.Minute + int64(step)) * 60_000) }
	source := Source(r.Candidate)
	way := phases[:slices.Index(phases, r.Phase)+1]
	switch r.Phase {
	case "failed":
		way = phases[:2]
	case "rolled_back":
		way = phases[:7]
	}
	receipts := []map[string]any{{"id": "source:" + r.ID, "kind": "source", "recordedAt": at(0), "summary": "source frozen at " + source}}
	for i, phase := range way {
		for _, g := range gates[phase] {
			receipts = append(receipts, map[string]any{"id": g[1], "kind": g[0], "recordedAt": at(i), "summary": g[1] + " passed"})
		}
	}
	doc := map[string]any{
		"schemaVersion": 1, "semanticEpoch": 2, "sessionId": r.ID, "phase": r.Phase, "revision": len(way), "sourceRevision": source,
		"stable":        map[string]any{"schemaVersion": 1, "kind": "stable", "controllerHome": "/srv/forge/stable", "serviceLabel": "forge-stable", "port": 8787, "authTokenFile": "/srv/forge/stable/token"},
		"stableRelease": StableRelease(r.Stable, r.StableRevision),
		"candidate": map[string]any{
			"schemaVersion": 1, "kind": "candidate", "controllerHome": "/srv/forge/candidate", "serviceLabel": "forge-candidate", "port": 8788,
			"authTokenFile": "/srv/forge/candidate/token", "sessionId": r.ID, "databaseSnapshotPath": "/srv/forge/candidate/snapshot.sqlite",
			"sourceStableControllerHome": "/srv/forge/stable", "createdAt": at(0),
		},
		"receipts": receipts, "createdAt": at(0), "updatedAt": at(len(way) - 1), "coordinator": map[string]any{"pid": 4711, "attempt": 1.5},
	}
	switch r.Form {
	case Legacy:
		delete(doc, "semanticEpoch")
	case Transitional:
		delete(doc, "semanticEpoch")
		doc["schemaVersion"] = 2
	}
	if len(way) > 1 {
		doc["candidateRelease"] = Candidate(r.Candidate, source)
	}
	committed := slices.Contains(way, "cutover_committed")
	if committed && (r.Transaction || r.Form == "" || r.Form == Current) {
		doc["transaction"] = Transaction(r.Stable, r.Candidate, r.StableRevision+1)
	}
	return text(doc)
}

// Transaction is the cutover transaction from a stable release to a candidate.
func Transaction(stable, candidate string, revision int64) map[string]any {
	return map[string]any{
		"schemaVersion": 1, "operationId": "cutover-" + candidate, "candidateReleaseId": candidate, "cutoverAuthorityRevision": revision,
		"rollbackRelease": Published(stable), "startedAt": stamp(1500),
	}
}

// Broken are documents that are no sessions, each in another way, by file name.
func Broken() map[string]string {
	changed := func(id, name string, v any) string {
		var doc map[string]any
		if err := json.Unmarshal([]byte(Release{ID: id, Phase: "known_good"}.JSON()), &doc); err != nil {
			panic(err)
		}
		doc[name] = v
		return text(doc)
	}
	return map[string]string{
		"broken-json.json":      `{"schemaVersion": 1, "sessionId": "broken-json", "phase": `,
		"broken-null.json":      "null\n",
		"broken-array.json":     "[]",
		"broken-empty.json":     "",
		"broken-twice.json":     `{"schemaVersion": 1, "schemaVersion": 1}`,
		"broken-latin1.json":    `{"schemaVersion": 1, "summary": "caf` + "\xe9" + `"}`,
		"broken-phase.json":     changed("broken-phase", "phase", "half_done"),
		"broken-other-id.json":  changed("release-somebody-else", "sourceRevision", "x"),
		"broken-revision.json":  changed("broken-revision", "revision", 0),
		"id.json":               Release{ID: "id", Phase: "known_good"}.JSON(), // too short for an id
		" broken-padded .json":  Release{ID: "broken-padded", Phase: "known_good"}.JSON(),
		"broken-committed.json": changed("broken-committed", "transaction", nil),
	}
}

// Document writes a release document under a file name.
func (h *Home) Document(name, content string) {
	h.tb.Helper()
	h.File(ReleaseFolder+"/"+name, content)
}

// Release writes a release document under its id.
func (h *Home) Release(r Release) {
	h.tb.Helper()
	h.Document(r.ID+".json", r.JSON())
}

// Authority writes the release authority.
func (h *Home) Authority(content string) {
	h.tb.Helper()
	h.File(AuthorityFile, content)
}
