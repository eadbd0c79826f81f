package servicetest

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/nats-io/nats.go"
)

// Site is one log with the services that serve it. They share a clock.
type Site struct {
	Nodes   []*Node
	Callers []*nats.Conn // each leads to the node of the same place, and to no other
	Clock   *Clock

	Embedded *eventlog.Embedded // of SiteR1, else nil
	Servers  *logtest.Servers   // of SiteR3, else nil
}

// SiteR1 is one service on an embedded server.
func SiteR1(t testing.TB, change ...Config) *Site {
	t.Helper()
	n, e := Embedded(t, change...)
	return &Site{Nodes: []*Node{n}, Callers: []*nats.Conn{Caller(t, e)}, Clock: n.Clock, Embedded: e}
}

// SiteR3 is a log on a cluster of three, and a number of services. Each has a
// server of its own for its callers, so that a caller can choose the service.
func SiteR3(t testing.TB, services int, change ...Config) *Site {
	t.Helper()
	s := &Site{Clock: NewClock(Start), Servers: logtest.Cluster(t, false)}
	for range services {
		own := logtest.Single(t, false)
		shared := func(cfg *eventlog.Config, opts *service.Options) { cfg.Replicas, opts.Clock = 3, s.Clock }
		s.Nodes = append(s.Nodes, Serve(t, events.DefaultInstance, s.Servers.ForgeConn(t), own.AppConn(t), append([]Config{shared}, change...)...))
		s.Callers = append(s.Callers, CallerOf(t, own.URL()))
	}
	return s
}

// Sites runs a test on both kinds of site.
func Sites(t *testing.T, test func(t *testing.T, s *Site)) {
	t.Run("R1", func(t *testing.T) { test(t, SiteR1(t)) })
	t.Run("R3", func(t *testing.T) { test(t, SiteR3(t, 3)) })
}

// Caller is a connection to the i-th service; i may be beyond the number of them.
func (s *Site) Caller(i int) *nats.Conn { return s.Callers[i%len(s.Callers)] }

// Log is the log as the first service has it open.
func (s *Site) Log() *eventlog.Log { return s.Nodes[0].Log }

// CallerOf is a connection as callers have it, to any server.
func CallerOf(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Cmd, Op and Query are subjects of the instance main.
func Cmd(principal, verb string) string {
	return strings.Join([]string{service.RootCommand, events.DefaultInstance, events.Token(principal), verb}, ".")
}

// Op is the subject of an operator verb.
func Op(verb string) string {
	return strings.Join([]string{service.RootOperator, events.DefaultInstance, "operator", verb}, ".")
}

// Query is the subject of a query.
func Query(verb string) string {
	return strings.Join([]string{service.RootQuery, events.DefaultInstance, verb}, ".")
}
