package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go/jetstream"
)

// page is the status of a page of a node.
func page(n *servicetest.Node, path string) int {
	w := httptest.NewRecorder()
	n.HTTP().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

// TestPoisonCommit: a commit that cannot be used stops its work, which the list leaves out by name,
// with its position; nothing else.
func TestPoisonCommit(t *testing.T) {
	text := func(name, value string) events.Raw {
		w := events.NewWriter(64)
		w.Object()
		w.Text(name, value)
		w.End()
		return events.Raw(w.Bytes())
	}
	commit := func(change func(c *events.Commit)) func(t *testing.T, n *servicetest.Node) []byte {
		return func(_ *testing.T, n *servicetest.Node) []byte {
			c := logtest.WorkChain(n.Log, "bad").Commit("poison", 0)
			set := events.WorkStateSet{State: "open", How: events.SetByOperator, Reason: "r"}
			state := session.Decider{}.EncodeState(session.State{WorkID: "bad", Work: "open"})
			c.At = events.TimeOf(servicetest.Start)
			c.Events, c.State = []events.Event{events.Encode(set)}, &state
			change(c)
			return c.Encode()
		}
	}
	for name, payload := range map[string]func(t *testing.T, n *servicetest.Node) []byte{
		"no commit": func(*testing.T, *servicetest.Node) []byte { return []byte("hello") },
		"nothing":   func(*testing.T, *servicetest.Node) []byte { return nil },
		"trailing bytes": func(t *testing.T, n *servicetest.Node) []byte {
			return append(commit(func(*events.Commit) {})(t, n), 0)
		},
		"an unknown event, a known state": commit(func(c *events.Commit) { c.Events[0].Type = "work.renamed" }),
		"an unknown event, no state":      commit(func(c *events.Commit) { c.Events[0].Type, c.State = "work.renamed", nil }),
		"an unknown event version":        commit(func(c *events.Commit) { c.Events[0].V = 99 }),
		"a renamed field":                 commit(func(c *events.Commit) { c.Events[0].Data = text("status", "open") }),
		"a state that is none":            commit(func(c *events.Commit) { c.State.Data = text("colour", "blue") }),
		"held by nobody":                  commit(func(c *events.Commit) { c.State.Data = text("standing", "held") }),
		"of another work":                 commit(func(c *events.Commit) { c.AggregateID = "other" }),
		"of another log":                  commit(func(c *events.Commit) { c.Log = "another" }),
		"a future envelope":               commit(func(c *events.Commit) { c.V = 2 }),
	} {
		t.Run(name, func(t *testing.T) {
			e := logtest.Embedded(t)
			n := servicetest.On(t, e, events.DefaultInstance)
			n.Unchecked = "a commit of it is poisoned"
			nc := servicetest.Caller(t, e)
			cmd(t, nc, "c", session.VerbClaim, claimOf("good", "c"))
			query(t, nc, "claims.list", fields{"minPosition": 1})
			ack, err := n.Forge.Request(events.WorkSubject("main", "bad"), payload(t, n), 5*time.Second)
			if err != nil || !bytes.Contains(ack.Data, []byte(`"seq":2`)) {
				t.Fatalf("%v: %s", err, ack.Data)
			}
			poisoned := func(r *servicetest.Reply) {
				t.Helper()
				want(t, r, events.CodePoisoned)
				if r.Details["position"] != 2.0 || r.Details["subject"] != events.WorkSubject("main", "bad") {
					t.Errorf("it names %v", r.Details)
				}
			}
			check := func() {
				t.Helper()
				poisoned(cmd(t, nc, "c", session.VerbClaim, claimOf("bad", "c")))
				poisoned(op(t, nc, session.VerbSetState, fields{"workId": "bad", "state": "done", "reason": "r"}))
				poisoned(query(t, nc, "works.get", fields{"workId": "bad"}))
				wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, claimOf("good", "c")), appended)
				wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, claimOf("new", "c")), appended)
				if o := owner(t, query(t, nc, "works.get", fields{"workId": "good"})); o.ControllerID != "c" {
					t.Errorf("the good work is owned by %s", o.Fence())
				}
			}
			check()
			// The list leaves that work out, by name; the others are in it.
			list := query(t, nc, "claims.list", fields{"minPosition": 4})
			var told struct {
				Result     []struct{ WorkID string }
				Unreadable []string
			}
			if err := json.Unmarshal(list.Data, &told); err != nil {
				t.Fatal(err)
			}
			if len(told.Result) != 2 || len(told.Unreadable) != 1 || told.Unreadable[0] != events.WorkSubject("main", "bad") {
				t.Errorf("the list: %s", list.Data)
			}
			if ready := n.Ready(); !ready.Ready || !strings.Contains(strings.Join(ready.Warnings, " "), events.WorkSubject("main", "bad")) {
				t.Errorf("ready %v: %v", ready.Ready, ready.Warnings)
			}
			if err := n.Stop(); err != nil {
				t.Fatal(err)
			}
			servicetest.On(t, e, events.DefaultInstance).Unchecked = n.Unchecked
			check()
		})
	}
}

// TestLogUnsafeWhileRunning: a setting that loses history stops appending; what
// is read goes on; readyz names it; put back, all is well.
func TestLogUnsafeWhileRunning(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		owner(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")))
		js, err := jetstream.New(s.Nodes[0].Forge)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), "FORGE_MAIN")
		if err != nil {
			t.Fatal(err)
		}
		set := func(age time.Duration) {
			t.Helper()
			cfg := stream.CachedInfo().Config
			cfg.MaxAge = age
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			logtest.Eventually(t, 10*time.Second, "every node has noticed", func() bool {
				for _, n := range s.Nodes {
					if n.Ready().Ready != (age == 0) {
						return false
					}
				}
				return true
			})
		}
		set(time.Hour)
		last := position(t, s)
		for i, n := range s.Nodes {
			r := cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c"))
			want(t, r, events.CodeLogUnsafe)
			if !strings.Contains(fmt.Sprint(r.Details["setting"]), "age") || r.Details["remedy"] == nil {
				t.Errorf("it names %v", r.Details)
			}
			if got := owner(t, query(t, s.Caller(i), "works.get", fields{"workId": "w"})); got == nil {
				t.Error("reading stopped, too")
			}
			if page(n, "/readyz") != http.StatusServiceUnavailable || page(n, "/healthz") != http.StatusOK {
				t.Errorf("readyz %d, healthz %d", page(n, "/readyz"), page(n, "/healthz"))
			}
			if v := metric(t, n, "forge_log_writable"); v != 0 {
				t.Errorf("forge_log_writable is %v", v)
			}
		}
		if position(t, s) != last {
			t.Error("something was appended")
		}
		set(0)
		for i := range s.Nodes {
			wantOutcome(t, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c")), appended)
		}
	})
}

// TestBusy: beyond what the service takes, callers are told so at once.
func TestBusy(t *testing.T) {
	e := logtest.Embedded(t)
	wire := &logtest.Wire{}
	const most = 4
	n := servicetest.Serve(t, events.DefaultInstance, logtest.ForgeConn(t, e, wire.InProcess(e.Server())), logtest.AppConn(t, e), func(cfg *eventlog.Config, o *service.Options) {
		cfg.Embedded, cfg.AppendTimeout, o.MaxPending = e, 700*time.Millisecond, most
	})
	nc := servicetest.Caller(t, e)
	wire.LoseAcks(most)
	replies := make(chan *servicetest.Reply, most)
	for i := range most {
		go func() {
			r, _ := servicetest.Ask(nc, servicetest.Cmd("p-c", session.VerbClaim), claimOf(fmt.Sprintf("w%d", i), "c"))
			replies <- r
		}()
	}
	logtest.Eventually(t, 5*time.Second, "the service is full", func() bool { return metric(t, n, "forge_requests_pending") == most })
	begin := time.Now()
	for _, r := range []*servicetest.Reply{cmd(t, nc, "c", session.VerbClaim, claimOf("v", "c")), query(t, nc, "works.get", fields{"workId": "v"})} {
		want(t, r, events.CodeBusy)
		if ms, _ := r.Details["retryAfterMs"].(float64); ms <= 0 {
			t.Errorf("it says nothing of when: %v", r.Details)
		}
	}
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("being told so took %s", took)
	}
	for range most {
		if r := <-replies; r == nil || r.Outcome != appended {
			t.Errorf("what was taken: %v", r)
		}
	}
	wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, claimOf("v", "c")), appended)
}

// TestContention: whenever the service has read a work, somebody else changes
// it. It gives up after a while, typed, and nothing of the command is there.
func TestContention(t *testing.T) {
	servers := logtest.Single(t, false)
	wire := &logtest.Wire{}
	serve := func(own *logtest.Servers, tcp ...*logtest.Wire) *servicetest.Node {
		forge := servers.ForgeConn(t)
		if len(tcp) > 0 {
			forge = servers.ForgeConn(t, tcp[0].TCP())
		}
		return servicetest.Serve(t, events.DefaultInstance, forge, own.AppConn(t), func(cfg *eventlog.Config, _ *service.Options) { cfg.Replicas = 1 })
	}
	mine, others := logtest.Single(t, false), logtest.Single(t, false)
	serve(others)
	n := serve(mine, wire)
	nc, rival := servicetest.CallerOf(t, mine.URL()), servicetest.CallerOf(t, others.URL())
	cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"))
	changes := 0
	change := func() {
		changes++
		state := []any{nil, "open"}[changes%2]
		if r, err := servicetest.Ask(rival, servicetest.Op(session.VerbSetState), fields{"workId": "w", "state": state, "reason": "r"}); err != nil || r.Outcome != appended {
			t.Errorf("the rival: %v %v", r, err)
		}
	}
	change()
	wire.Lose(func(payload []byte) bool {
		if bytes.Contains(payload, []byte("stream_msg_get_response")) {
			change()
		}
		return false
	})
	begin := time.Now()
	r := cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"), service.HeaderCommandID, "starved")
	wire.Lose(nil)
	want(t, r, events.CodeContention)
	if r.Details["subject"] != events.WorkSubject("main", "w") || changes > 200 || time.Since(begin) > 10*time.Second {
		t.Errorf("after %d changes and %s: %s", changes, time.Since(begin), r.Data)
	}
	r = cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"), service.HeaderCommandID, "starved")
	wantOutcome(t, r, appended)
	if last, err := n.Log.LastPosition(t.Context()); err != nil || last != uint64(changes)+2 {
		t.Errorf("the log ends at %d after %d changes: %v", last, changes, err)
	}
}

// TestMetrics: the names that dashboards and alerts rely on, and what they count.
func TestMetrics(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc, n := s.Caller(0), s.Nodes[0]
	cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"))
	cmd(t, nc, "d", session.VerbClaim, claimOf("w", "d"))
	cmd(t, nc, "c", session.VerbBind, claimOf("w", "c"))
	cmd(t, nc, "d", session.VerbRenew, shown("w", "d", 1))
	cmd(t, nc, "c", "no.such", nil)
	query(t, nc, "claims.list", fields{"minPosition": 1})
	text := string(scrape(t, n, "/metrics"))
	for _, line := range []string{
		`forge_requests_total{instance_name="main",outcome="appended",root="forge.cmd",verb="work.claim"} 1`,
		`forge_requests_total{instance_name="main",outcome="WORK_ALREADY_CLAIMED",root="forge.cmd",verb="work.claim"} 1`,
		`forge_requests_total{instance_name="main",outcome="unchanged",root="forge.cmd",verb="work.bind"} 1`,
		`forge_requests_total{instance_name="main",outcome="refused",root="forge.cmd",verb="work.renew"} 1`,
		`forge_requests_total{instance_name="main",outcome="answered",root="forge.query",verb="claims.list"} 1`,
		`forge_requests_unknown_total{instance_name="main"} 1`, `forge_requests_dropped_total{instance_name="main"} 0`,
		`forge_log_position{instance_name="main"} 1`, `forge_log_writable{instance_name="main"} 1`, `forge_ready{instance_name="main"} 1`,
		`forge_projection_position{instance_name="main"} 1`, `forge_claims_held{instance_name="main"} 1`, `forge_works_cached{instance_name="main"} 1`,
		`forge_leader_clock_offset_seconds{`, `forge_request_seconds_bucket{`, `forge_requests_pending{`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("not there: %s", line)
		}
	}
	if page(n, "/healthz") != http.StatusOK || page(n, "/readyz") != http.StatusOK || page(n, "/") != http.StatusNotFound {
		t.Errorf("healthz %d, readyz %d, / %d", page(n, "/healthz"), page(n, "/readyz"), page(n, "/"))
	}
	var ready service.Ready
	if err := json.Unmarshal(scrape(t, n, "/readyz"), &ready); err != nil || !ready.Ready || ready.Instance != "main" || len(ready.Projections) != 1 {
		t.Errorf("readyz: %+v, %v", ready, err)
	}
}

// TestViews: a list waits for a position, or says that it is behind.
func TestViews(t *testing.T) {
	s := servicetest.SiteR3(t, 2, func(_ *eventlog.Config, o *service.Options) { o.ViewTimeout = 300 * time.Millisecond })
	for round := range 50 {
		work := fmt.Sprintf("w%02d", round)
		r := cmd(t, s.Caller(round), "c", session.VerbClaim, claimOf(work, "c"))
		var list []events.Session
		mustInto(t, query(t, s.Caller(round+1), "claims.list", fields{"minPosition": r.Position, "limit": 1000}), &list)
		if len(list) != round+1 || list[round].WorkID != work {
			t.Fatalf("round %d: %d claims", round, len(list))
		}
	}
	r := query(t, s.Caller(0), "claims.list", fields{"minPosition": 1 << 40})
	want(t, r, events.CodeViewBehind)
	if r.Details["position"] == nil || r.Details["minPosition"] == nil {
		t.Errorf("it names %v", r.Details)
	}
	// Pages, and no digests, cover everything once.
	seen, cursor := map[string]bool{}, ""
	for {
		r := query(t, s.Caller(0), "claims.list", fields{"limit": 7, "cursor": cursor, "minPosition": 50})
		var list []events.Session
		mustInto(t, r, &list)
		for _, o := range list {
			if seen[o.WorkID] {
				t.Errorf("%s is on two pages", o.WorkID)
			}
			seen[o.WorkID] = true
		}
		if !r.Truncated {
			break
		}
		cursor = r.Cursor
	}
	if len(seen) != 50 {
		t.Errorf("%d claims on all pages", len(seen))
	}
}
