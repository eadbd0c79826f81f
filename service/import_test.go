package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
)

// stored is a claim as another system stored it, live for an hour.
func stored(work, controller string, generation any) fields {
	return fields{
		"schemaVersion": 1, "workId": work, "controllerId": controller, "controllerType": "agent", "sessionId": "s-" + controller,
		"claimGeneration": generation, "claimedAt": "2026-01-01T00:00:00.000Z", "leaseExpiresAt": "2026-01-01T01:00:00.000Z",
	}.with("claimGeneration", generation)
}

func snapshot(source, scope string, entries ...fields) fields {
	return fields{"source": source, "scope": scope, "store": fields{"schemaVersion": 1, "sessions": entries}}
}

func retainedRecords(list ...fields) fields { return fields{"source": "retained", "records": list} }

func importResult(t *testing.T, r *servicetest.Reply) service.ImportResult {
	t.Helper()
	var out service.ImportResult
	mustInto(t, r, &out)
	return out
}

func outcomes(r service.ImportResult) string {
	list := make([]string, len(r.Entries))
	for i, e := range r.Entries {
		list[i] = e.Outcome
	}
	return strings.Join(list, " ")
}

// TestImport: released, conflicting and generation-less claims; twice.
func TestImport(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		first := snapshot("record", "repo", stored("w1", "c", 3), stored("w2", "c", nil), stored("w3", "c", 1), stored("w3", "d", 2),
			stored("w4", "c", 1).with("claimedAt", "yesterday"), stored(" ", "c", 1))
		released := retainedRecords(fields{"record": fields{"schemaVersion": 1, "session": stored("w5", "c", 7), "releasedAt": "2026-01-01T00:10:00.000Z"}})

		r := op(t, s.Caller(0), session.VerbImport, first)
		wantOutcome(t, r, appended)
		if got := outcomes(importResult(t, r)); got != "imported imported imported quarantined dropped dropped" {
			t.Fatal(got)
		}
		wantOutcome(t, op(t, s.Caller(1), session.VerbImport, released), appended)

		if got := owner(t, query(t, s.Caller(1), "works.get", fields{"workId": "w2"})); got.Generation != nil {
			t.Errorf("w2 has generation %d", *got.Generation)
		}
		conflict := query(t, s.Caller(0), "works.get", fields{"workId": "w3"})
		want(t, conflict, events.CodeSessionIDCollision)
		if conflict.Details["current"] == nil || conflict.Details["imported"] == nil || conflict.Details["remedy"] == nil {
			t.Errorf("a quarantine without help: %v", conflict.Details)
		}
		want(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w3", "c")), events.CodeSessionIDCollision)
		if got := query(t, s.Caller(0), "works.get", fields{"workId": "w5"}); string(got.Result) != "null" {
			t.Errorf("a released claim is live: %s", got.Data)
		}

		// A released owner stays released, and its generation goes on.
		if o := owner(t, cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("w5", "d"))); o.Gen() != 8 {
			t.Errorf("generation %d after 7", o.Gen())
		}
		last := position(t, s)
		for i := range s.Callers {
			r = op(t, s.Caller(i), session.VerbImport, first)
			wantOutcome(t, r, unchanged)
			if got := importResult(t, r); got.Snapshot != session.SnapshotAlready || outcomes(got) != "unchanged unchanged unchanged quarantined dropped dropped" {
				t.Errorf("again: %s", r.Data)
			}
			if got := importResult(t, op(t, s.Caller(i), session.VerbImport, released)); outcomes(got) != "older" {
				t.Errorf("again: %v", got)
			}
			// A file of a scope whose record was taken over counts for nothing.
			r = op(t, s.Caller(i), session.VerbImport, snapshot("file", "repo", stored("w9", "c", 1)))
			wantOutcome(t, r, unchanged)
			if got := importResult(t, r); got.Snapshot != session.SnapshotIgnored {
				t.Errorf("the file: %s", r.Data)
			}
		}
		if position(t, s) != last {
			t.Error("importing again appended something")
		}
		if got := importResult(t, op(t, s.Caller(0), session.VerbImport, snapshot("file", "elsewhere", stored("w9", "c", 1)))); outcomes(got) != "imported" {
			t.Errorf("a file of another scope: %v", got)
		}

		// An operator lifts the quarantine, with a reason.
		want(t, op(t, s.Caller(0), session.VerbResolveImport, fields{"workId": "w3", "keep": "imported"}), events.CodeReasonRequired)
		r = op(t, s.Caller(1), session.VerbResolveImport, fields{"workId": "w3", "keep": "imported", "reason": "d is right"})
		if o := owner(t, r); o.ControllerID != "d" || o.Gen() != 2 {
			t.Errorf("resolved: %s", r.Data)
		}
		if got := owner(t, query(t, s.Caller(0), "works.get", fields{"workId": "w3"})); got.ControllerID != "d" {
			t.Errorf("after the quarantine: %s", got.Fence())
		}
	})
}

// TestImportRetried: an import whose answer was lost is repeated with its id, and
// answered as it was.
func TestImportRetried(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		body := snapshot("record", "", stored("w1", "c", 3), stored("w2", "c", 1), stored("w2", "d", 2))
		id := []string{service.HeaderCommandID, "import-1"}
		first := op(t, s.Caller(0), session.VerbImport, body, id...)
		wantOutcome(t, first, appended)
		last := position(t, s)
		for i := range s.Callers {
			again := op(t, s.Caller(i), session.VerbImport, body, id...)
			wantOutcome(t, again, already)
			if string(again.Result) != string(first.Result) || again.Position != first.Position {
				t.Errorf("first %s, then %s", first.Data, again.Data)
			}
			want(t, op(t, s.Caller(i), session.VerbImport, snapshot("record", "", stored("w1", "c", 3)), id...), events.CodeCommandIDReused)
		}
		if position(t, s) != last {
			t.Error("the repeated import appended something")
		}
	})
}

// TestImportHealed: the service ends between the start of an import and its
// entries. Importing again takes over what is missing.
func TestImportHealed(t *testing.T) {
	e := logtest.Embedded(t)
	const n = 300
	var entries []fields
	for i := range n {
		entries = append(entries, stored(fmt.Sprintf("w%d", i), "c", 2))
	}
	body := snapshot("record", "", entries...)
	wire := &logtest.Wire{}
	forge, app := logtest.ForgeConn(t, e, wire.InProcess(e.Server())), logtest.AppConn(t, e)
	embedded := func(cfg *eventlog.Config, o *service.Options) {
		cfg.Embedded, cfg.AppendTimeout = e, 5*time.Second
		o.CommandTimeout = time.Second
	}
	_, stop := servicetest.Run(t, events.DefaultInstance, forge, app, embedded)
	acks := 0
	wire.Lose(func(payload []byte) bool { // from the 100th commit on no answer comes
		if !logtest.IsAck(payload) {
			return false
		}
		acks++
		return acks > 100
	})
	nc := servicetest.Caller(t, e)
	want(t, op(t, nc, session.VerbImport, body, service.HeaderCommandID, "import"), events.CodeUnavailable)
	wire.Lose(nil)
	stop()

	again := servicetest.Serve(t, events.DefaultInstance, forge, app, embedded)
	r := op(t, nc, session.VerbImport, body, service.HeaderCommandID, "import")
	wantOutcome(t, r, already)
	taken := 0
	for _, entry := range importResult(t, r).Entries {
		if entry.Outcome == session.EntryImported && entry.Position > 0 {
			taken++
		}
	}
	if taken != n {
		t.Errorf("%d of %d claims were taken over", taken, n)
	}
	var list []json.RawMessage
	mustInto(t, query(t, nc, "claims.list", fields{"limit": 1000, "minPosition": r.Position}), &list)
	if len(list) != n {
		t.Errorf("%d of %d claims are live", len(list), n)
	}
	if p, err := again.Log.LastPosition(t.Context()); err != nil || p != n+1 {
		t.Errorf("the log ends at %d: %v", p, err)
	}
}

// TestImportLarge: a snapshot of almost as many bytes as a message may have, and
// one of too many claims.
func TestImportLarge(t *testing.T) {
	s := servicetest.SiteR1(t)
	var entries []fields
	for i := range 4000 {
		entries = append(entries, stored(fmt.Sprintf("work-%d", i), "c", 1))
	}
	body, err := json.Marshal(snapshot("record", "", entries...))
	if err != nil {
		t.Fatal(err)
	}
	if len(body) < 800_000 {
		t.Fatalf("only %d bytes", len(body))
	}
	r := op(t, s.Caller(0), session.VerbImport, body)
	wantOutcome(t, r, appended)
	if got := importResult(t, r); len(got.Entries) != len(entries) || got.Entries[len(entries)-1].Outcome != session.EntryImported {
		t.Errorf("%d entries", len(got.Entries))
	}
	last := position(t, s)
	if last != uint64(len(entries)+1) {
		t.Errorf("the log ends at %d", last)
	}
	r = op(t, s.Caller(0), session.VerbImport, []byte(`{"source":"file","scope":"x","store":{"sessions":[1`+strings.Repeat(",1", 200_000)+`]}}`))
	want(t, r, events.CodeTooLarge)
	if position(t, s) != last {
		t.Error("a snapshot that is too large was started")
	}
}
