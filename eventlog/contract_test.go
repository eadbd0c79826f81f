package eventlog_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if helper() {
		return
	}
	goleak.VerifyTestMain(m)
}

// The contract of the log is the same wherever it lies. Every test of the table
// runs on each topology, on an instance of its own.
func TestContract(t *testing.T) {
	for _, top := range []struct {
		name  string
		start func(testing.TB, bool) *logtest.Servers
		sync  bool
	}{
		{"R1", logtest.Single, false},
		{"R1-sync", logtest.Single, true},
		{"R3", logtest.Cluster, false},
		{"R3-sync", logtest.Cluster, true},
	} {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			s := &site{Servers: top.start(t, top.sync)}
			for _, c := range contract {
				if c.settled && top.sync {
					continue
				}
				t.Run(c.name, func(t *testing.T) { c.test(t, s) })
			}
		})
	}
}

// settled tests are about what a server has on its disk, or in its memory, already:
// when it came onto the disk makes no difference to them.
var contract = []struct {
	name    string
	test    func(*testing.T, *site)
	settled bool
}{
	{"append", testAppend, false},
	{"already-applied", testAlreadyApplied, false},
	{"duplicate-not-believed", testDuplicateNotBelieved, false},
	{"restored-without-message-ids", testRestored, false},
	{"race", testRace, false},
	{"codes", testCodes, false},
	{"lost-ack", testLostAck, false},
	{"lost-ack-restart", testLostAckRestart, false},
	{"cut-off", testCutOff, false},
	{"election", testElection, false},
	{"too-large", testTooLarge, false},
	{"log-full", testLogFull, false},
	{"clock-skew", testClockSkew, false},
	{"lossy-before", testLossyBefore, true},
	{"lossy-running", testLossyRunning, false},
	{"dropped-running", testDroppedRunning, false},
	{"replaced-running", testReplacedRunning, false},
	{"older-copy", testOlderCopy, true},
	{"load", testLoad, false},
	{"cold-loads", testColdLoads, false},
	{"write-version", testWriteVersion, false},
	{"poison", testPoison, false},
	{"chain", testChain, false},
	{"holes", testHoles, true},
	{"history", testHistory, false},
	{"tail", testTail, false},
	{"tail-restart", testTailRestart, false},
	{"tail-consumer-deleted", testTailConsumerDeleted, false},
	{"tail-refuses", testTailRefuses, false},
	{"tail-abandoned", testTailAbandoned, true},
}

// site is a topology under test.
type site struct {
	*logtest.Servers
	instances atomic.Int64
}

// config is that of a fresh log on the site, with short times.
func (s *site) config() eventlog.Config {
	return eventlog.Hurried(eventlog.Config{
		Instance: fmt.Sprintf("t%d", s.instances.Add(1)), Replicas: s.Replicas(), MaxBytes: 64 << 20,
		AppendTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond, CheckEvery: time.Hour,
	}, 500*time.Millisecond, 2*time.Second)
}

// open opens a fresh log.
func (s *site) open(t *testing.T, opts ...nats.Option) (*eventlog.Log, *nats.Conn) {
	t.Helper()
	nc := s.ForgeConn(t, opts...)
	l := logtest.Open(t, nc, s.config())
	verifyAtEnd(t, l)
	return l, nc
}

// verifyAtEnd checks the log once the test is over: every boundary is one chain.
func verifyAtEnd(t *testing.T, l *eventlog.Log) {
	t.Cleanup(func() {
		if t.Failed() || l.Err() != nil {
			return
		}
		verify(t, l)
	})
}

// verify reads the whole log, and checks that it is chains of commits.
func verify(t *testing.T, l *eventlog.Log) {
	t.Helper()
	heads := map[string]events.Head{}
	ids := map[string]uint64{}
	for _, r := range readAll(t, l) {
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			t.Fatalf("position %d: %v", r.Position, err)
		}
		if err := heads[r.Subject].Follows(r, c); err != nil {
			t.Fatalf("position %d on %s: %v", r.Position, r.Subject, err)
		}
		heads[r.Subject] = events.HeadAfter(r, c, events.MsgIDOf(r, c))
		key := r.Subject + " " + c.ID
		if ids[key] != 0 {
			t.Fatalf("command %s is at position %d and at %d", key, ids[key], r.Position)
		}
		ids[key] = r.Position
	}
}

// readAll reads the log up to its end now.
func readAll(t *testing.T, l *eventlog.Log) []events.Record {
	t.Helper()
	ctx := bounded(30 * time.Second)
	end, err := l.LastPosition(ctx)
	if err != nil {
		t.Fatalf("last position: %v", err)
	}
	var all []events.Record
	if end == 0 {
		return nil
	}
	err = l.Tail(ctx, 1, func(r events.Record) error {
		all = append(all, r)
		if r.Position >= end {
			return errDone
		}
		return nil
	})
	if err != errDone { //nolint:errorlint // it is given back as it is
		t.Fatalf("tail: %v", err)
	}
	return all
}

// js is the JetStream API as an operator has it.
func js(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	api, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// streamConfig is the configuration of a stream as it is now.
func streamConfig(t *testing.T, nc *nats.Conn, name string) jetstream.StreamConfig {
	t.Helper()
	stream, err := js(t, nc).Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("stream %s: %v", name, err)
	}
	cfg := stream.CachedInfo().Config
	for key := range cfg.Metadata {
		if strings.HasPrefix(key, "_nats.") {
			delete(cfg.Metadata, key)
		}
	}
	return cfg
}

// wantCode fails the test unless err has the code.
func wantCode(t *testing.T, err error, code events.Code) *events.Error {
	t.Helper()
	if events.CodeOf(err) != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return events.AsError(err)
}

// rounds is n, fewer in a short run.
func rounds(n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}
