package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// stableRelease is what a session is created beside.
func stableRelease(revision int64, id string) fields {
	return fields{
		"authorityRevision": revision, "releaseId": id, "artifactIdentity": "sha256:" + id, "manifestSha256": "manifest-" + id,
		"workerProtocolVersion": 1, "releaseFencingTokenSha256": strings.Repeat("ab", 32),
	}
}

// releaseOfID begins a session.
func releaseOfID(id string) fields {
	return fields{
		"sessionId": id, "sourceRevision": "rev-" + id, "stableRelease": stableRelease(1, "A"),
		"stable": fields{"controllerHome": "/srv/stable", "port": 7001}, "candidate": fields{"controllerHome": "/srv/candidate", "port": 7002},
	}
}

func candidateOf(id string) fields {
	return fields{
		"releaseId": "B-" + id, "manifestPath": "/srv/B.json", "artifactIdentity": "sha256:B-" + id, "manifestSha256": "manifest-B",
		"treeSha256": strings.Repeat("0a", 32), "sourceCommit": "rev-" + id,
	}
}

func receiptsOf(phase string) []fields {
	var list []fields
	for _, g := range release.Gates[phase] {
		list = append(list, fields{"kind": g.Kind, "id": g.ID, "summary": "ok"})
	}
	return list
}

func transactionOf(id string) fields {
	return fields{
		"schemaVersion": 1, "operationId": "op-" + id, "candidateReleaseId": "B-" + id, "cutoverAuthorityRevision": 2, "startedAt": "2026-01-01T00:00:00.000Z",
		"rollbackRelease": fields{
			"releaseId": "A", "artifactIdentity": "sha256:A", "manifestSha256": "manifest-A", "workerProtocolVersion": 1, "manifestPath": "/srv/A.json",
			"publishedAt":    "2025-12-01T00:00:00.000Z",
			"databaseBackup": fields{"path": "/srv/backup.sqlite", "schemaVersion": 3, "createdAt": "2025-12-31T00:00:00.000Z"},
		},
	}
}

// rel sends a command of a releaser.
func rel(t testing.TB, nc *nats.Conn, verb string, body any, headers ...string) *servicetest.Reply {
	t.Helper()
	return servicetest.MustAsk(t, nc, servicetest.Cmd("releaser", verb), body, headers...)
}

// releaseState is a release session, as far as tests look at it.
type releaseState struct {
	SessionID, Phase string
	Revision         int64
	Receipts         []json.RawMessage
}

func stateOf(t testing.TB, r *servicetest.Reply) releaseState {
	t.Helper()
	if r.Code != "" {
		t.Fatalf("%s: %s", r.Code, r.Data)
	}
	var s releaseState
	if err := json.Unmarshal(r.Result, &s); err != nil {
		t.Fatalf("%v: %s", err, r.Data)
	}
	return s
}

// steps takes a session from where it was created to a phase, and gives the last
// reply.
func steps(t testing.TB, nc *nats.Conn, id, until string) (last *servicetest.Reply) {
	t.Helper()
	for _, phase := range []string{
		release.Built, release.StaticVerified, release.CandidateBooted, release.CandidateVerified, release.CutoverEligible, release.CutoverAttempting,
		release.CutoverCommitted, release.Soaking, release.KnownGood,
	} {
		now := stateOf(t, query(t, nc, "releases.get", fields{"sessionId": id}))
		body := fields{"sessionId": id, "expectedRevision": now.Revision, "phase": phase, "receipts": receiptsOf(phase)}
		if phase == release.Built {
			body["candidateRelease"] = candidateOf(id)
		}
		if phase == release.CutoverCommitted {
			r := stateOf(t, rel(t, nc, release.VerbTransaction, fields{"sessionId": id, "expectedRevision": now.Revision, "transaction": transactionOf(id)}))
			body["expectedRevision"] = r.Revision
		}
		last = rel(t, nc, release.VerbAdvance, body)
		if got := stateOf(t, last); got.Phase != phase {
			t.Fatalf("%s is in %s, want %s", id, got.Phase, phase)
		}
		if phase == until {
			return last
		}
	}
	return last
}

// TestReleaseToKnownGood: the whole way, and the next release begins beside the
// live one.
func TestReleaseToKnownGood(t *testing.T) {
	Sites := servicetest.Sites
	Sites(t, func(t *testing.T, s *servicetest.Site) {
		nc := s.Caller(0)
		created := rel(t, nc, release.VerbCreate, releaseOfID("release-1"))
		if got := stateOf(t, created); got.Phase != release.SourceFrozen || got.Revision != 1 {
			t.Fatalf("created: %s", created.Data)
		}
		want(t, rel(t, nc, release.VerbCreate, releaseOfID("release-2")), events.CodeReleaseActiveExists)
		steps(t, nc, "release-1", release.KnownGood)
		want(t, rel(t, nc, release.VerbAdvance, fields{"sessionId": "release-1", "expectedPhase": release.KnownGood, "phase": release.Failed}), events.CodeReleaseTerminal)
		stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID("release-2")))
	})
}

// TestReleaseCreators: of a hundred parallel creates of different sessions exactly
// one becomes active; also while the active one ends.
func TestReleaseCreators(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		active := ""
		for round := range rounds(2, 4, 40) {
			var mu sync.Mutex
			var won []string
			var all sync.WaitGroup
			if active != "" { // it ends while others begin
				all.Go(func() {
					r, err := servicetest.Ask(s.Caller(0), servicetest.Op(release.VerbEnd), fields{"sessionId": active, "reason": "the next one"})
					if err != nil || r.Code != "" {
						t.Errorf("end %s: %v %+v", active, err, r)
					}
				})
			}
			for i := range 100 {
				id := fmt.Sprintf("release-%d-%d", round, i)
				all.Go(func() {
					r, err := servicetest.Ask(s.Caller(i), servicetest.Cmd("releaser", release.VerbCreate), releaseOfID(id))
					switch {
					case err != nil:
						t.Error(err)
					case r.Code == "":
						mu.Lock()
						won = append(won, id)
						mu.Unlock()
					case r.Code != events.CodeReleaseActiveExists && r.Code != events.CodeContention:
						t.Errorf("%s: %s", id, r.Data)
					}
				})
			}
			all.Wait()
			if len(won) > 1 || round == 0 && len(won) != 1 {
				t.Fatalf("round %d: %d became active: %v", round, len(won), won)
			}
			if len(won) == 1 {
				active = won[0]
			} else { // all came before the end
				active = fmt.Sprintf("release-%d-again", round)
				stateOf(t, rel(t, s.Caller(0), release.VerbCreate, releaseOfID(active)))
			}
		}
	})
}

// TestReleaseAdvanceRepeated: a repeated command has the first answer, also after
// a restart and many later commits; with a new id it is refused, and told where the
// session stands.
func TestReleaseAdvanceRepeated(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		nc := s.Caller(0)
		create := func() *servicetest.Reply {
			return rel(t, nc, release.VerbCreate, releaseOfID("release-1"), service.HeaderCommandID, "create-1")
		}
		first := create()
		built := fields{"sessionId": "release-1", "expectedRevision": 1, "phase": release.Built, "candidateRelease": candidateOf("release-1")}
		advance := func(id string) *servicetest.Reply {
			return rel(t, nc, release.VerbAdvance, built, service.HeaderCommandID, id)
		}
		second := advance("advance-1")
		for i := range 30 {
			stateOf(t, rel(t, s.Caller(i), release.VerbReceipts, fields{"sessionId": "release-1", "receipts": []fields{{"kind": "build", "id": fmt.Sprint(i), "summary": ""}}}))
			if i%10 != 0 {
				continue
			}
			for _, again := range []struct {
				name  string
				was   *servicetest.Reply
				reply *servicetest.Reply
			}{{"create", first, create()}, {"advance", second, advance("advance-1")}} {
				if r := again.reply; r.Outcome != service.OutcomeAlreadyApplied || r.Position != again.was.Position || string(r.Result) != string(again.was.Result) {
					t.Fatalf("%s again, %d commits later: %s\nfirst: %s", again.name, i+1, r.Data, again.was.Data)
				}
			}
		}
		r := advance("advance-2")
		want(t, r, events.CodeReleaseRevisionFenced)
		if r.Details["phase"] != release.Built || r.Details["revision"] != float64(32) {
			t.Errorf("refused: %s", r.Data)
		}
		reused := rel(t, nc, release.VerbAdvance, fields{"sessionId": "release-1", "expectedRevision": 1, "phase": release.Failed}, service.HeaderCommandID, "advance-1")
		want(t, reused, events.CodeCommandIDReused)
	})
}

// TestReleaseReceiptFlood: ten thousand receipts are all kept, paged, and commands
// and replies stay within bounds.
func TestReleaseReceiptFlood(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID("release-1")))
	total := rounds(2000, 10_000, 10_000)
	const each = 100
	for n := 0; n < total; n += each {
		list := make([]fields, each)
		for i := range list {
			list[i] = fields{"kind": "build", "id": fmt.Sprintf("flood-%d", n+i), "summary": strings.Repeat("x", 50)}
		}
		r := rel(t, nc, release.VerbReceipts, fields{"sessionId": "release-1", "receipts": list})
		if r.Code != "" {
			t.Fatal(string(r.Data))
		}
		if len(r.Data) > 512<<10 {
			t.Fatalf("a reply of %d bytes", len(r.Data))
		}
	}
	seen := map[string]bool{}
	for from := 0; ; {
		r := query(t, nc, "releases.receipts", fields{"sessionId": "release-1", "from": from, "limit": 1000})
		var page release.ReceiptPage
		if err := json.Unmarshal(r.Result, &page); err != nil || len(page.Receipts) == 0 {
			t.Fatalf("%v: %.300s", err, r.Data)
		}
		for _, raw := range page.Receipts {
			var receipt struct{ ID string }
			if err := json.Unmarshal(raw, &receipt); err != nil {
				t.Fatal(err)
			}
			seen[receipt.ID] = true
		}
		if from += len(page.Receipts); from >= page.Total {
			break
		}
	}
	if len(seen) != total+1 {
		t.Fatalf("%d receipts, want %d", len(seen), total+1)
	}
	get := query(t, nc, "releases.get", fields{"sessionId": "release-1"})
	var body struct{ ReceiptsOmitted int }
	if err := json.Unmarshal(get.Data, &body); err != nil {
		t.Fatal(err)
	}
	if kept := len(stateOf(t, get).Receipts); kept+body.ReceiptsOmitted != total+1 || body.ReceiptsOmitted == 0 && total == 10_000 {
		t.Errorf("%d receipts and %d omitted", kept, body.ReceiptsOmitted)
	}
	steps(t, nc, "release-1", release.StaticVerified)
}

// TestReleaseTooLarge: what does not fit is refused before anything is sent.
func TestReleaseTooLarge(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	want(t, op(t, nc, release.VerbReceiveDocument, fields{"name": "release-1.json", "text": strings.Repeat("x", 513<<10)}), events.CodeTooLarge)
	stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID("release-1")))
	before, _ := s.Log().LastPosition(t.Context())
	big := []fields{{"kind": "build", "id": "big", "summary": strings.Repeat("x", 800<<10)}}
	want(t, rel(t, nc, release.VerbReceipts, fields{"sessionId": "release-1", "receipts": big}), events.CodeTooLarge)
	if after, _ := s.Log().LastPosition(t.Context()); after != before {
		t.Errorf("something was appended at %d", after)
	}
	stateOf(t, rel(t, nc, release.VerbReceipts, fields{"sessionId": "release-1", "receipts": []fields{{"kind": "build", "id": "small", "summary": ""}}}))
}

// TestReleaseAfterRestart: a new process folds the ledger to what it was.
func TestReleaseAfterRestart(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	for i := range 20 {
		id := fmt.Sprintf("release-%d", i)
		stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID(id)))
		steps(t, nc, id, release.StaticVerified)
		stateOf(t, op(t, nc, release.VerbEnd, fields{"sessionId": id, "reason": "enough"}))
	}
	op(t, nc, release.VerbPublish, fields{"authority": fields{"revision": 4, "active": fields{"releaseId": "A"}, "fencingToken": "secret-token"}})
	before := query(t, nc, "releases.list-complete", nil)
	if err := s.Nodes[0].Stop(); err != nil {
		t.Fatal(err)
	}
	again := servicetest.On(t, s.Embedded, events.DefaultInstance, func(_ *eventlog.Config, opts *service.Options) { opts.Clock = s.Clock })
	_ = again
	after := query(t, nc, "releases.list-complete", nil)
	if string(after.Result) != string(before.Result) {
		t.Errorf("the ledger differs after a restart\nbefore %.500s\nafter  %.500s", before.Result, after.Result)
	}
	info := query(t, nc, "authority.info", nil)
	if strings.Contains(string(info.Data), "secret-token") || !strings.Contains(string(info.Data), "fencingTokenSha256") {
		t.Errorf("authority: %s", info.Data)
	}
}

// TestReleaseIndependentOfClaims: a poisoned ledger does not stop claims, and says
// where it is poisoned.
func TestReleaseIndependentOfClaims(t *testing.T) {
	s := servicetest.SiteR1(t)
	s.Nodes[0].Unchecked = "its ledger is poisoned"
	nc := s.Caller(0)
	stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID("release-1")))
	if err := s.Nodes[0].Forge.Publish(events.ReleaseSubject(events.DefaultInstance), []byte("no commit")); err != nil {
		t.Fatal(err)
	}
	if err := s.Nodes[0].Forge.Flush(); err != nil {
		t.Fatal(err)
	}
	r := rel(t, nc, release.VerbReceipts, fields{"sessionId": "release-1", "receipts": []fields{{"kind": "build", "id": "x", "summary": ""}}})
	want(t, r, events.CodePoisoned)
	if r.Details["position"] != float64(2) {
		t.Errorf("where: %s", r.Data)
	}
	if got := owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"))); got == nil || got.ControllerID != "c" {
		t.Errorf("claim: %+v", got)
	}
}

// TestReleaseReadsNothingStale: two nodes; what one did, the other never denies.
func TestReleaseReadsNothingStale(t *testing.T) {
	s := servicetest.SiteR3(t, 2)
	for i := range rounds(20, 100, 1000) {
		id := fmt.Sprintf("release-%d", i)
		a, b := s.Caller(i), s.Caller(i+1)
		stateOf(t, rel(t, a, release.VerbCreate, releaseOfID(id)))
		want(t, rel(t, b, release.VerbCreate, releaseOfID(id)), events.CodeReleaseAlreadyExists)
		if got := stateOf(t, query(t, b, "releases.get", fields{"sessionId": id})); got.Phase != release.SourceFrozen {
			t.Fatalf("round %d: %+v", i, got)
		}
		stateOf(t, rel(t, b, release.VerbAdvance, fields{"sessionId": id, "expectedRevision": 1, "phase": release.Failed}))
		want(t, rel(t, a, release.VerbAdvance, fields{"sessionId": id, "expectedRevision": 2, "phase": release.Failed}), events.CodeReleaseTerminal)
	}
}

// TestReleaseMinimumSoak: a release cannot become known good before it soaked.
func TestReleaseMinimumSoak(t *testing.T) {
	s := servicetest.SiteR1(t, func(_ *eventlog.Config, opts *service.Options) { opts.MinimumSoak = time.Hour })
	nc := s.Caller(0)
	stateOf(t, rel(t, nc, release.VerbCreate, releaseOfID("release-1")))
	steps(t, nc, "release-1", release.Soaking)
	good := fields{"sessionId": "release-1", "expectedPhase": release.Soaking, "phase": release.KnownGood, "receipts": receiptsOf(release.KnownGood)}
	r := rel(t, nc, release.VerbAdvance, good)
	want(t, r, events.CodeReleaseSoakGates)
	if r.Details["until"] == nil {
		t.Errorf("refused: %s", r.Data)
	}
	s.Clock.Advance(time.Hour)
	stateOf(t, rel(t, nc, release.VerbAdvance, good))
}
