package service_test

import (
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
	"github.com/nats-io/nats.go"
)

// targets are subjects that no caller may write to, by whatever way.
var targets = []string{
	"forge.log.main.work.w", "forge.log.main.work.new", "forge.log.main.release", "forge.log.main.import",
	"$KV.forge-activity-main.runtime", "$KV.forge-activity-main.session.s", "forge.feed.main", "forge.cmd.main.p-c.work.claim", "forge.op.main.operator.work.force-release",
	"$JS.API.STREAM.DELETE.FORGE_MAIN", "$JS.API.STREAM.PURGE.FORGE_MAIN",
}

// settled waits until what was sent has been worked on.
func settled(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	query(t, nc, "claims.mint", nil)
	time.Sleep(50 * time.Millisecond)
}

// untouched fails unless log and activity are as they were; it gives a function
// to be called at the end.
func untouched(t *testing.T, s *servicetest.Site) func() {
	t.Helper()
	log, activity := position(t, s), activityRevision(t, s)
	return func() {
		t.Helper()
		if p := position(t, s); p != log {
			t.Errorf("the log went from position %d to %d", log, p)
		}
		if n := activityRevision(t, s); n != activity {
			t.Errorf("the activity bucket went from %d to %d", activity, n)
		}
		if err := s.Log().Err(); err != nil {
			t.Errorf("the log: %v", err)
		}
	}
}

// attack sends everything that could be answered into a target.
func attack(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for _, to := range targets {
		for _, verb := range []string{"works.get", "works.history", "works.retained", "claims.list", "claims.list-full", "claims.mint", "works.no-such"} {
			if err := nc.PublishRequest(servicetest.Query(verb), to, []byte(`{"workId":"w"}`)); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{
			servicetest.Cmd("p-c", session.VerbClaim), servicetest.Cmd("p-c", "no.such"), servicetest.Op("work.get"), servicetest.Cmd("p-c", session.VerbForceRelease),
			"$SRV.INFO", "$SRV.PING.forge-es", "$SRV.STATS", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.FORGE_MAIN", "$JS.API.STREAM.LIST",
			"$JS.API.STREAM.MSG.GET.FORGE_MAIN", "$JS.API.DIRECT.GET.FORGE_MAIN", "$JS.API.CONSUMER.CREATE.FORGE_MAIN", "$JS.API.STREAM.INFO.KV_forge-activity-main",
		} {
			if err := nc.PublishRequest(subject, to, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled(t, nc)
}

// TestConfusedDeputy: a caller names the log as the place for answers, of the
// service and of JetStream.
func TestConfusedDeputy(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c")))
	check := untouched(t, s)
	attack(t, nc)
	check()
	owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c")))
}

// TestConfusedDeputyShared: where callers share the account of the log, the check
// of reply subjects is what keeps the service's own answers off it.
func TestConfusedDeputyShared(t *testing.T) {
	e := logtest.Embedded(t)
	forge := logtest.ForgeConn(t, e)
	n := servicetest.Serve(t, events.DefaultInstance, forge, forge, func(cfg *eventlog.Config, _ *service.Options) { cfg.Embedded = e })
	nc := logtest.ForgeConn(t, e)
	s := &servicetest.Site{Nodes: []*servicetest.Node{n}, Callers: []*nats.Conn{nc}, Clock: n.Clock}
	owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c")))
	check := untouched(t, s)
	for _, to := range targets[:7] {
		for _, verb := range []string{"works.get", "works.history", "claims.list", "claims.mint", "works.no-such"} {
			if err := nc.PublishRequest(servicetest.Query(verb), to, []byte(`{"workId":"w"}`)); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.PublishRequest(servicetest.Cmd("p-c", session.VerbClaim), to, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, nc)
	check()
}

// TestCallersAreNotTheService: what only the service may do is refused to
// callers, or has no effect.
func TestCallersAreNotTheService(t *testing.T) {
	s := servicetest.SiteR1(t)
	owner(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")))
	check := untouched(t, s)
	violations := make(chan string, 100)
	nc, err := nats.Connect(s.Embedded.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err.Error() }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	refusal := func(what string) {
		t.Helper()
		_ = nc.Flush()
		select {
		case text := <-violations:
			if !strings.Contains(strings.ToLower(text), "permissions violation") {
				t.Errorf("%s: %s", what, text)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s is not refused", what)
		}
	}
	for _, subject := range []string{"forge.cmd.>", "forge.op.>", "forge.query.>", "forge.cmd.main.*.work.claim", "forge.query.main.works.get"} {
		if _, err := nc.SubscribeSync(subject); err == nil {
			refusal("subscribing " + subject)
		}
	}
	for _, subject := range []string{
		"forge.feed.main", "$KV.forge-claims-main.w", "$KV.forge-releases-main.r", "$KV.forge-authority-main.authority",
		"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.FORGE_MAIN", "$JS.API.STREAM.DELETE.FORGE_MAIN", "$JS.API.STREAM.PURGE.FORGE_MAIN",
		"$JS.API.STREAM.MSG.DELETE.FORGE_MAIN", "$JS.API.STREAM.RESTORE.FORGE_MAIN",
	} {
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		refusal("publishing to " + subject)
	}
	// Another account: these reach nobody.
	for _, subject := range []string{"forge.log.main.work.w", "forge.log.main.release", "forge.log.main.import", "$KV.forge-activity-main.runtime"} {
		if _, err := nc.Request(subject, []byte("{}"), 200*time.Millisecond); err == nil {
			t.Errorf("publishing to %s is acknowledged", subject)
		}
	}
	settled(t, s.Caller(0))
	check()
}

// TestWithoutReply: a command without a reply subject is executed, a query
// without one is not even looked at.
func TestWithoutReply(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	if err := nc.Publish(servicetest.Cmd("c", session.VerbClaim), []byte(`{"workId":"w","controllerId":"c","controllerType":"t","sessionId":"s"}`)); err != nil {
		t.Fatal(err)
	}
	logtest.Eventually(t, 5*time.Second, "the work is claimed", func() bool {
		return string(query(t, nc, "works.get", fields{"workId": "w"}).Result) != "null"
	})
	for _, verb := range []string{"works.get", "claims.list", "claims.mint", "nothing.here"} {
		if err := nc.Publish(servicetest.Query(verb), []byte(`{"workId":"w"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Publish(servicetest.Cmd("c", "nothing.here"), nil); err != nil {
		t.Fatal(err)
	}
	// Answers to odd inboxes go nowhere else.
	for i, to := range []string{"_INBOX", "_INBOX.>", "_INBOX.*", "_R_", "_INBOX.a b"} {
		_ = nc.PublishRequest(servicetest.Query("works.get"), to, []byte(fmt.Sprintf(`{"workId":"w%d"}`, i)))
	}
	settled(t, nc)
	if p := position(t, s); p != 1 {
		t.Errorf("the log ends at %d", p)
	}
	if n := metric(t, s.Nodes[0], "forge_requests_dropped_total"); n != 3 {
		t.Errorf("%v requests were dropped", n)
	}
}
