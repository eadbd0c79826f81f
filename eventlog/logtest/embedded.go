package logtest

import (
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/nats-io/nats.go"
)

// Option changes how a test server is run.
type Option func(*eventlog.EmbeddedConfig)

// SyncAlways has the server fsync before every acknowledgement, as in operation.
// Without it tests are faster.
func SyncAlways(cfg *eventlog.EmbeddedConfig) { cfg.SyncOff = false }

// DataDir keeps the data in a directory of the caller's.
func DataDir(dir string) Option { return func(cfg *eventlog.EmbeddedConfig) { cfg.DataDir = dir } }

// Instance sets the instance whose views are protected.
func Instance(name string) Option {
	return func(cfg *eventlog.EmbeddedConfig) { cfg.Instance = name }
}

// Embedded runs a server in this process, on a free port of the loopback, until
// the test ends; by default without fsync, in a directory of the test.
func Embedded(t testing.TB, opts ...Option) *eventlog.Embedded {
	t.Helper()
	cfg := eventlog.EmbeddedConfig{Listen: "127.0.0.1:-1", SyncOff: true}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	e, err := eventlog.StartEmbedded(cfg)
	if err != nil {
		t.Fatalf("start embedded server: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(); err != nil {
			t.Errorf("shut down embedded server: %v", err)
		}
	})
	return e
}

// ForgeConn connects to the account of the log until the test ends.
func ForgeConn(t testing.TB, e *eventlog.Embedded, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return closing(t)(e.ForgeConn(opts...))
}

// AppConn connects to the account of the callers, as the service, until the test
// ends.
func AppConn(t testing.TB, e *eventlog.Embedded, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return closing(t)(e.AppConn(opts...))
}

func closing(t testing.TB) func(*nats.Conn, error) *nats.Conn {
	return func(nc *nats.Conn, err error) *nats.Conn {
		t.Helper()
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}

// Open opens a log until the test ends.
func Open(t testing.TB, nc *nats.Conn, cfg eventlog.Config) *eventlog.Log {
	t.Helper()
	l, err := eventlog.Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

// OpenEmbedded is Embedded, ForgeConn and Open in one: a fresh log.
func OpenEmbedded(t testing.TB, opts ...Option) (*eventlog.Embedded, *eventlog.Log) {
	t.Helper()
	e := Embedded(t, opts...)
	return e, Open(t, ForgeConn(t, e), eventlog.Config{Embedded: e, MaxBytes: 1 << 30})
}

// Eventually fails the test when a condition does not come true in time.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
