package service_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"
)

// TestDrain: a service that stops answers every request that it took, takes no
// more, and is quick about it, also where others use its connection.
func TestDrain(t *testing.T) {
	e := logtest.Embedded(t)
	app := logtest.AppConn(t, e)
	_, stop := servicetest.Run(t, events.DefaultInstance, logtest.ForgeConn(t, e), app, func(cfg *eventlog.Config, _ *service.Options) { cfg.Embedded = e })
	if _, err := app.Request("nobody.there", nil, time.Second); err == nil {
		t.Fatal("somebody is there")
	}
	nc := servicetest.Caller(t, e)
	const n = 3000
	var answers, errors atomic.Int64
	inbox := nats.NewInbox()
	if _, err := nc.Subscribe(inbox+".*", func(m *nats.Msg) {
		if m.Header.Get("Status") == "503" { // sent after the endpoints were gone
			return
		}
		answers.Add(1)
		if m.Header.Get(micro.ErrorCodeHeader) != "" {
			errors.Add(1)
			t.Errorf("answered: %s", m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		body, err := json.Marshal(claimOf(fmt.Sprintf("w%d", i%500), "c"))
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(servicetest.Cmd("p-c", session.VerbClaim), fmt.Sprintf("%s.%d", inbox, i), body); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // they are at the service's door
		t.Fatal(err)
	}
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("stopping took %s", took)
	}
	logtest.Eventually(t, 5*time.Second, "every request is answered", func() bool { return answers.Load() == n })
	if r, err := nc.Request(servicetest.Query("claims.mint"), nil, time.Second); err == nil {
		t.Errorf("answered after its end: %s", r.Data)
	}
}

// TestNothingIsLeft: starting and stopping leaves no goroutine behind.
func TestNothingIsLeft(t *testing.T) {
	e := logtest.Embedded(t)
	forge, app, nc := logtest.ForgeConn(t, e), logtest.AppConn(t, e), servicetest.Caller(t, e)
	run := func() {
		_, stop := servicetest.Run(t, events.DefaultInstance, forge, app, func(cfg *eventlog.Config, _ *service.Options) { cfg.Embedded = e })
		for i := range 20 {
			wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, claimOf(fmt.Sprintf("w%d", i), "c")), appended)
		}
		query(t, nc, "claims.list", fields{"minPosition": 20})
		stop()
	}
	run() // connections make their own goroutines at the first use
	subs := app.NumSubscriptions()
	before := goleak.IgnoreCurrent()
	for range 3 {
		run()
	}
	goleak.VerifyNone(t, before,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"), // of the server, per block
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*consumer).loopAndGatherMsgs"))
	if n := app.NumSubscriptions(); n != subs {
		t.Errorf("%d subscriptions are left", n-subs)
	}
}

// TestEndpoints: the services framework shows every verb, once, with what it is
// for.
func TestEndpoints(t *testing.T) {
	s := servicetest.SiteR1(t, func(_ *eventlog.Config, o *service.Options) { o.Version = "1.2.3" })
	nc := s.Caller(0)
	var info micro.Info
	answer, err := nc.Request("$SRV.INFO."+service.ServiceName, nil, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		t.Fatal(err)
	}
	if info.Name != "forge-es" || info.Version != "1.2.3" || info.Description == "" || info.Metadata["instance"] != "main" || info.Metadata["log"] != s.Log().ID() {
		t.Errorf("it says: %+v", info)
	}
	byName, bySubject := map[string]bool{}, map[string]string{}
	for _, ep := range info.Endpoints {
		if byName[ep.Name] || bySubject[ep.Subject] != "" {
			t.Errorf("endpoint %s on %s twice", ep.Name, ep.Subject)
		}
		byName[ep.Name], bySubject[ep.Subject] = true, ep.QueueGroup
		if ep.Metadata["description"] == "" {
			t.Errorf("%s says nothing of itself", ep.Name)
		}
	}
	for _, verb := range []string{"work.claim", "work.resume", "work.bind", "work.renew", "work.release-with-authority", "work.terminalize", "activity.report", "activity.invalidate"} {
		if bySubject["forge.cmd.main.*."+verb] != service.ServiceName {
			t.Errorf("no command %s", verb)
		}
	}
	for _, verb := range []string{
		"work.release", "work.release-observed", "work.terminalize", "work.force-release", "work.set-state", "work.import", "work.resolve-import",
		"activity.set", "runtime.announce",
	} {
		if bySubject["forge.op.main.*."+verb] != service.ServiceName {
			t.Errorf("no operator verb %s", verb)
		}
	}
	for _, verb := range []string{
		"works.get", "works.retained", "works.blocks-recovery", "works.check-authority", "works.info", "works.history", "claims.list", "claims.list-full", "claims.mint",
	} {
		if bySubject["forge.query.main."+verb] != service.ServiceName {
			t.Errorf("no query %s", verb)
		}
	}
	for _, root := range []string{"cmd", "op", "query"} {
		if group := bySubject["forge."+root+".main.>"]; group == "" || group == service.ServiceName {
			t.Errorf("the catch-all of %s is in queue group %q", root, group)
		}
	}
	for _, what := range []string{"PING", "STATS"} {
		if _, err := nc.Request("$SRV."+what+"."+service.ServiceName, nil, 5*time.Second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOneAnswer: a known verb is answered by its endpoint alone, an unknown one by
// one catch-all, also with several services.
func TestOneAnswer(t *testing.T) {
	e := logtest.Embedded(t)
	for range 3 {
		servicetest.Serve(t, events.DefaultInstance, logtest.ForgeConn(t, e), logtest.AppConn(t, e))
	}
	nc := servicetest.Caller(t, e)
	for _, subject := range []string{
		servicetest.Cmd("p-c", session.VerbClaim), servicetest.Cmd("p-c", "no.such"), servicetest.Op(session.VerbClaim), servicetest.Query("works.get"), servicetest.Query("no"),
	} {
		for range 20 {
			inbox := nats.NewInbox()
			sub, err := nc.SubscribeSync(inbox)
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.PublishRequest(subject, inbox, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if _, err := sub.NextMsg(5 * time.Second); err != nil {
				t.Fatalf("%s: %v", subject, err)
			}
			if m, err := sub.NextMsg(5 * time.Millisecond); err == nil {
				t.Fatalf("%s: answered twice: %s", subject, m.Data)
			}
			_ = sub.Unsubscribe()
		}
	}
}
