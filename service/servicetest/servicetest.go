// Package servicetest runs the service for tests: on an embedded server, with a
// clock that the test sets.
package servicetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/vmihailenco/msgpack/v5"
)

// Clock is a clock that the test sets. It is for concurrent use.
type Clock struct {
	mu    sync.Mutex
	now   events.Time
	doubt error
}

// NewClock stands at a time.
func NewClock(now time.Time) *Clock { return &Clock{now: events.TimeOf(now)} }

// Now is where the clock stands.
func (c *Clock) Now() events.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Trusted is what Doubt set.
func (c *Clock) Trusted() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt
}

// Set moves the clock, also back.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = events.TimeOf(now)
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d.Milliseconds())
}

// Doubt makes the clock untrusted, or with nil trusted again.
func (c *Clock) Doubt(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = err
}

// Start is where the clocks of tests stand at first.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Node is a running service and what it stands on.
type Node struct {
	*service.Service
	Log   *eventlog.Log
	Forge *nats.Conn // in the account of the log
	App   *nats.Conn // the service's connection in the account of the callers
	Clock *Clock

	// Unchecked, if set before the node stops, says why its log is not checked
	// then: the test breaks it on purpose.
	Unchecked string
}

// Config changes how a node is made.
type Config func(log *eventlog.Config, opts *service.Options)

// Serve runs a service of an instance on given connections until the test ends.
func Serve(t testing.TB, instance string, forge, app *nats.Conn, change ...Config) *Node {
	t.Helper()
	n, stop := Run(t, instance, forge, app, change...)
	t.Cleanup(stop)
	return n
}

// Run is Serve for a test that stops the service itself. Stopping leaves the
// connections open. It ends with CheckLog, unless the node is Unchecked.
func Run(t testing.TB, instance string, forge, app *nats.Conn, change ...Config) (*Node, func()) {
	t.Helper()
	n := &Node{Forge: forge, App: app, Clock: NewClock(Start)}
	cfg := eventlog.Config{Instance: instance, Replicas: 1, MaxBytes: 1 << 30}
	cfg.LeaderTime = func() time.Time { return n.Clock.Now().Std() }
	opts := service.Options{Forge: forge, App: app, Clock: n.Clock}
	for _, c := range change {
		c(&cfg, &opts)
	}
	if c, ok := opts.Clock.(*Clock); ok {
		n.Clock = c
	}
	opts.Replicas = cfg.Replicas
	var err error
	if n.Log, err = eventlog.Open(t.Context(), forge, cfg); err != nil {
		t.Fatal(err)
	}
	opts.Log = n.Log
	if n.Service, err = service.Start(context.WithoutCancel(t.Context()), opts); err != nil {
		t.Fatal(err)
	}
	return n, sync.OnceFunc(func() {
		if err := n.Stop(); err != nil && !app.IsClosed() {
			t.Errorf("stop: %v", err)
		}
		if n.Unchecked == "" {
			CheckLog(t, n.Log)
		}
		n.Log.Close()
	})
}

// Embedded runs a service of the instance main on an embedded server of its own.
// Callers connect to the server.
func Embedded(t testing.TB, change ...Config) (*Node, *eventlog.Embedded) {
	t.Helper()
	e := logtest.Embedded(t)
	return On(t, e, events.DefaultInstance, change...), e
}

// On runs a service of an instance on an embedded server.
func On(t testing.TB, e *eventlog.Embedded, instance string, change ...Config) *Node {
	t.Helper()
	embedded := func(cfg *eventlog.Config, _ *service.Options) { cfg.Embedded = e }
	return Serve(t, instance, logtest.ForgeConn(t, e), logtest.AppConn(t, e), append([]Config{embedded}, change...)...)
}

// Caller is a connection as callers have it.
func Caller(t testing.TB, e *eventlog.Embedded) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(e.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Reply is what came back.
type Reply struct {
	Code   events.Code // of an error, else ""
	Number int         // of an error, else 0
	Header nats.Header
	Data   []byte

	Result    json.RawMessage `json:"result"`
	Position  uint64          `json:"position"`
	Version   uint64          `json:"version"`
	CommandID string          `json:"commandId"`
	Outcome   string          `json:"outcome"`
	Message   string          `json:"message"`
	Details   map[string]any  `json:"details"`
	Truncated bool            `json:"truncated"`
	Cursor    string          `json:"cursor"`
	AsOf      string          `json:"asOf"`
}

// Patience is how long Ask waits.
const Patience = 20 * time.Second

// Ask sends a request and takes its reply apart. headers are pairs.
func Ask(nc *nats.Conn, subject string, body any, headers ...string) (*Reply, error) {
	data, raw := body.([]byte)
	if !raw {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	m := nats.NewMsg(subject)
	m.Data = data
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	answer, err := nc.RequestMsg(m, Patience)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	r, text := &Reply{Header: answer.Header, Data: answer.Data}, answer.Data
	if answer.Header.Get(service.HeaderContentType) == service.ContentMsgpack {
		var v any
		if err := msgpack.Unmarshal(answer.Data, &v); err != nil {
			return nil, fmt.Errorf("%s: %w", subject, err)
		}
		if text, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("%s: %w", subject, err)
		}
	}
	if number := answer.Header.Get(micro.ErrorCodeHeader); number != "" {
		if r.Number, err = strconv.Atoi(number); err != nil {
			return nil, err
		}
		var body struct {
			Code events.Code `json:"code"`
		}
		if err := json.Unmarshal(text, &body); err != nil {
			return nil, err
		}
		r.Code = body.Code
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", subject, err, text)
	}
	return r, nil
}

// MustAsk is Ask in a test.
func MustAsk(t testing.TB, nc *nats.Conn, subject string, body any, headers ...string) *Reply {
	t.Helper()
	r, err := Ask(nc, subject, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
