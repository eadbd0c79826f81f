package service_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// lossy is a site whose services lose acknowledgements on a wire.
type lossy struct {
	*servicetest.Site
	wire *logtest.Wire
	// restart stops services and servers, and runs them again on the same data.
	restart func()
}

// window is how long the servers of these tests remember message ids.
const window = 300 * time.Millisecond

func impatient(cfg *eventlog.Config, _ *service.Options) {
	cfg.AppendTimeout, cfg.ReadTimeout, cfg.DuplicateWindow = 300*time.Millisecond, 300*time.Millisecond, window
}

func lossySites(t *testing.T, change servicetest.Config, test func(t *testing.T, s *lossy)) {
	t.Run("R1", func(t *testing.T) {
		dir := t.TempDir()
		s := &lossy{Site: &servicetest.Site{Clock: servicetest.NewClock(servicetest.Start)}, wire: &logtest.Wire{}}
		var stop func()
		start := func() {
			e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1", SyncOff: true})
			if err != nil {
				t.Fatal(err)
			}
			forge, err := e.ForgeConn(s.wire.InProcess(e.Server()))
			if err != nil {
				t.Fatal(err)
			}
			app, err := e.AppConn()
			if err != nil {
				t.Fatal(err)
			}
			n, end := servicetest.Run(t, events.DefaultInstance, forge, app, func(cfg *eventlog.Config, o *service.Options) {
				cfg.Embedded, o.Clock = e, s.Clock
				change(cfg, o)
			})
			caller := servicetest.CallerOf(t, e.ClientURL())
			s.Nodes, s.Callers, s.Embedded = []*servicetest.Node{n}, []*nats.Conn{caller}, e
			stop = func() {
				end()
				caller.Close()
				forge.Close()
				app.Close()
				if err := e.Shutdown(); err != nil {
					t.Error(err)
				}
			}
		}
		start()
		t.Cleanup(func() { stop() })
		s.restart = func() { stop(); start() }
		test(t, s)
	})
	t.Run("R3", func(t *testing.T) {
		s := &lossy{Site: &servicetest.Site{Clock: servicetest.NewClock(servicetest.Start), Servers: logtest.Cluster(t, false)}, wire: &logtest.Wire{}}
		var forge, app []*nats.Conn
		for range 2 {
			own := logtest.Single(t, false)
			forge, app = append(forge, s.Servers.ForgeConn(t, s.wire.TCP())), append(app, own.AppConn(t))
			s.Callers = append(s.Callers, servicetest.CallerOf(t, own.URL()))
		}
		var stops []func()
		start := func() {
			s.Nodes, stops = nil, nil
			for i := range forge {
				n, end := servicetest.Run(t, events.DefaultInstance, forge[i], app[i], func(cfg *eventlog.Config, o *service.Options) {
					cfg.Replicas, o.Clock = 3, s.Clock
					change(cfg, o)
				})
				s.Nodes, stops = append(s.Nodes, n), append(stops, end)
			}
		}
		stop := func() {
			for _, end := range stops {
				end()
			}
		}
		start()
		t.Cleanup(func() { stop() })
		s.restart = func() {
			stop()
			for i := range s.Servers.Len() {
				s.Servers.Restart(i)
			}
			start()
		}
		test(t, s)
	})
}

// sameAnswer fails unless an answer is the first one again.
func sameAnswer(t *testing.T, first, again *servicetest.Reply) {
	t.Helper()
	wantOutcome(t, again, already)
	if again.Position != first.Position || again.Version != first.Version || again.CommandID != first.CommandID || !bytes.Equal(again.Result, first.Result) {
		t.Fatalf("the first answer was %s, now it is %s", first.Data, again.Data)
	}
}

// TestLostAcknowledgement: the answer to an append is lost. The command is applied
// once, whatever the service or the caller does then.
func TestLostAcknowledgement(t *testing.T) {
	lossySites(t, impatient, func(t *testing.T, s *lossy) {
		claim := func(work, id string) *servicetest.Reply {
			return cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf(work, "c"), service.HeaderCommandID, id)
		}

		// The service asks again by itself.
		s.wire.LoseAcks(1)
		first := claim("w1", "first")
		s.wire.Lose(nil)
		wantOutcome(t, first, appended)
		if s.wire.Lost() == 0 {
			t.Fatal("no answer was lost")
		}

		sameAnswer(t, first, claim("w1", "first"))
		s.Clock.Advance(time.Second)
		for i := range s.Callers {
			sameAnswer(t, first, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w1", "c"), service.HeaderCommandID, "first"))
		}
		time.Sleep(2 * window)
		sameAnswer(t, first, claim("w1", "first"))
		s.restart()
		for i := range s.Callers {
			sameAnswer(t, first, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w1", "c"), service.HeaderCommandID, "first"))
		}

		// Eight more commits, and it is still known.
		for i := range events.RecentCommits - 1 {
			wantOutcome(t, claim("w1", fmt.Sprintf("more-%d", i)), appended)
		}
		time.Sleep(2 * window)
		sameAnswer(t, first, claim("w1", "first"))
		last := position(t, s.Site)
		sameAnswer(t, first, claim("w1", "first"))
		if position(t, s.Site) != last {
			t.Error("a repeated command was appended")
		}
	})
}

// TestLostAcknowledgementBeyondRecent: more than eight commits later, an id is
// known as long as the server remembers it: two minutes.
func TestLostAcknowledgementBeyondRecent(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		id := []string{service.HeaderCommandID, "first"}
		first := cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c"), id...)
		for range 2 * events.RecentCommits {
			wantOutcome(t, cmd(t, s.Caller(1), "c", session.VerbClaim, claimOf("w", "c")), appended)
		}
		for i := range s.Callers { // it would append
			sameAnswer(t, first, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c"), id...))
		}
		allowed, _ := fenceOf(t, cmd(t, s.Caller(0), "c", session.VerbReleaseWithAuthority, shown("w", "c", 1)))
		if !allowed {
			t.Fatal("not released")
		}
		cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("w", "d"))
		s.Clock.Advance(minute)
		last := position(t, s)
		for i := range s.Callers { // it would be refused
			sameAnswer(t, first, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c"), id...))
			want(t, cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c").with("leaseMs", 5000), id...), events.CodeCommandIDReused)
		}
		if position(t, s) != last {
			t.Error("a repeated command was appended")
		}
	})
}

// TestLostReply: the answer to the caller is lost; what the service keeps in
// memory differs, the caller asks another node, every verb is asked again.
func TestLostReply(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		for i, step := range []struct {
			verb string
			body fields
		}{
			{session.VerbClaim, claimOf("w", "c")},
			{session.VerbResume, claimOf("w", "c").with("controllerInstanceId", "i2")},
			{session.VerbBind, claimOf("w", "c").with("controllerInstanceId", "i2", "sessionId", "other")},
			{session.VerbRenew, fields{"workId": "w", "authority": authorityOf("c", 2).with("controllerInstanceId", "i2"), "leaseMs": 60000}},
			{"op " + session.VerbReleaseObserved, fields{"workId": "w", "owner": authorityOf("c", 2).with("controllerInstanceId", "i2")}},
			{session.VerbClaim, claimOf("w", "c")},
			{session.VerbReleaseWithAuthority, shown("w", "c", 3)},
			{session.VerbClaim, claimOf("w", "c")},
			{"op " + session.VerbRelease, fields{"workId": "w", "controllerId": "c"}},
			{session.VerbClaim, claimOf("w", "c")},
			{"op " + session.VerbForceRelease, fields{"workId": "w", "reason": "test"}},
			{session.VerbClaim, claimOf("w", "c")},
			{session.VerbTerminalize, shown("w", "c", 6).with("state", "done", "release", true)},
			{"op " + session.VerbTerminalize, fields{"workId": "w", "state": "failed"}},
			{"op " + session.VerbSetState, fields{"workId": "w", "state": "open", "reason": "test"}},
			{"op " + session.VerbSetState, fields{"workId": "w", "state": nil, "reason": "test"}},
		} {
			id := []string{service.HeaderCommandID, fmt.Sprintf("step-%d", i)}
			ask := func(node int) *servicetest.Reply {
				if verb, operator := bytes.CutPrefix([]byte(step.verb), []byte("op ")); operator {
					return op(t, s.Caller(node), string(verb), step.body, id...)
				}
				return cmd(t, s.Caller(node), "c", step.verb, step.body, id...)
			}
			s.Clock.Advance(time.Second)
			first := ask(i)
			wantOutcome(t, first, appended)
			s.Clock.Advance(time.Second)
			for node := range s.Callers {
				sameAnswer(t, first, ask(node))
			}
		}
	})
}

// TestReusedCommandID: an id stands for one request on one work.
func TestReusedCommandID(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		id := []string{service.HeaderCommandID, "one"}
		first := cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w1", "c"), id...)
		last := position(t, s)
		for i := range s.Callers {
			// The same request in another spelling.
			sameAnswer(t, first, cmd(t, s.Caller(i), "c", session.VerbClaim,
				[]byte(`{ "controllerInstanceId":"i-c", "principalId":"p-c", "sessionId":"s-c","controllerType":"agent","controllerId":"c","workId":"w1"}`), id...))
			for name, r := range map[string]*servicetest.Reply{
				"another body":  cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w1", "c").with("leaseMs", 5000), id...),
				"another verb":  cmd(t, s.Caller(i), "c", session.VerbResume, claimOf("w1", "c"), id...),
				"would refuse":  cmd(t, s.Caller(i), "c", session.VerbReleaseWithAuthority, shown("w1", "c", 7), id...),
				"nothing to do": cmd(t, s.Caller(i), "c", session.VerbBind, claimOf("w1", "c"), id...),
			} {
				if r.Code != events.CodeCommandIDReused {
					t.Errorf("%s: %s", name, r.Data)
				}
			}
		}
		if position(t, s) != last {
			t.Error("a reused id appended something")
		}
		// Elsewhere the id is free.
		wantOutcome(t, cmd(t, s.Caller(1), "c", session.VerbClaim, claimOf("w2", "c"), id...), appended)
		wantOutcome(t, op(t, s.Caller(1), session.VerbSetState, fields{"workId": "w1", "state": "open", "reason": "test"}, id...), appended)
		// Another principal has ids of its own.
		want(t, cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("w1", "d"), id...), events.CodeAlreadyClaimed)
		// Only what was appended is remembered: a refused one is decided again.
		want(t, cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("w2", "d"), service.HeaderCommandID, "again"), events.CodeAlreadyClaimed)
		op(t, s.Caller(0), session.VerbForceRelease, fields{"workId": "w2", "reason": "test"})
		wantOutcome(t, cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("w2", "d"), service.HeaderCommandID, "again"), appended)
	})
}
