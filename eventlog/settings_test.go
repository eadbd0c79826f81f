package eventlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// change makes one setting of a stream wrong.
type change struct {
	setting string // as the error must name it
	make    func(*jetstream.StreamConfig)
	running bool // it can be made on a stream that exists
	back    bool // and undone, without a loss
}

var changes = []change{
	{"max_msgs_per_subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1000 }, true, true},
	{"max_age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, true, true},
	{"max_msgs", func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 << 20 }, true, true},
	{"discard", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, true, true},
	{"max_bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }, true, true},
	{"max_msg_size", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4096 }, true, true},
	{"compression", func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }, true, true},
	{"republish", func(c *jetstream.StreamConfig) {
		c.RePublish = &jetstream.RePublish{Source: ">", Destination: "copy.>"}
	}, true, true},
	{"subject_transform", func(c *jetstream.StreamConfig) {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "forge.>", Destination: "forge.>"}
	}, true, true},
	{"allow_direct", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, true, true},
	{"allow_atomic", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, true, true},
	{"duplicate_window", func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, true, true},
	{"consumer_limits", func(c *jetstream.StreamConfig) { c.ConsumerLimits.MaxAckPending = 5 }, true, true},
	{"metadata.forge.log", func(c *jetstream.StreamConfig) { delete(c.Metadata, eventlog.MetaLog) }, true, true},
	{"metadata.forge.write-version", func(c *jetstream.StreamConfig) { c.Metadata[eventlog.MetaWriteVersion] = "x" }, true, true},
	{"subjects", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, c.Subjects[1]+".more") }, true, true},
	{"allow_msg_ttl", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, true, false},
	{"allow_batched", func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true }, true, true},
	{"allow_rollup_hdrs", func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false }, false, false},
	{"deny_purge", func(c *jetstream.StreamConfig) { c.DenyPurge = false }, false, false},
	{"deny_delete", func(c *jetstream.StreamConfig) { c.DenyDelete = false }, false, false},
	{"retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, false, false},
	{"storage", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, false, false},
	{"max_consumers", func(c *jetstream.StreamConfig) { c.MaxConsumers = 10 }, false, false},
	{"no_ack", func(c *jetstream.StreamConfig) { c.NoAck = true }, false, false},
	{"first_seq", func(c *jetstream.StreamConfig) { c.FirstSeq = 100 }, false, false},
	{"sources", func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "ELSEWHERE"}} }, false, false},
	{"allow_msg_schedules", func(c *jetstream.StreamConfig) {
		c.AllowMsgSchedules, c.Discard, c.DenyPurge = true, jetstream.DiscardOld, false
	}, false, false},
	{"persist_mode", func(c *jetstream.StreamConfig) {
		c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
	}, false, false},
}

// goodConfig creates a log and gives the configuration of its stream.
func goodConfig(t *testing.T, s *site, nc *nats.Conn) (eventlog.Config, jetstream.StreamConfig) {
	t.Helper()
	cfg := s.config()
	l, err := eventlog.Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return cfg, streamConfig(t, nc, events.StreamName(cfg.Instance))
}

func testLossyBefore(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	cfg, good := goodConfig(t, s, nc)
	api := js(t, nc)
	for _, ch := range changes {
		if ch.setting == "persist_mode" && s.Replicas() > 1 {
			continue // the server refuses it there
		}
		t.Run(ch.setting, func(t *testing.T) {
			if err := api.DeleteStream(t.Context(), good.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatal(err)
			}
			bad := clone(good)
			ch.make(&bad)
			if _, err := api.CreateStream(t.Context(), bad); err != nil {
				t.Fatalf("create the stream: %v", err)
			}
			_, err := eventlog.Open(t.Context(), nc, cfg)
			wantSetting(t, err, ch.setting)
			readOnly := cfg
			readOnly.ReadOnly = true
			l := logtest.Open(t, nc, readOnly)
			wantSetting(t, l.Err(), ch.setting)
			_, err = l.Append(t.Context(), eventlog.Entry{Subject: events.ReleaseSubject(cfg.Instance)})
			wantCode(t, err, events.CodeForbidden)
		})
	}
}

// wantSetting fails the test unless the error names a setting first in the
// alphabet among those that a change made wrong: the change's own, or one that it
// brings with it.
func wantSetting(t *testing.T, err error, setting string) {
	t.Helper()
	e := wantCode(t, err, events.CodeLogUnsafe)
	brings := map[string][]string{
		"allow_msg_schedules": {"allow_rollup_hdrs", "deny_purge", "discard"},
		"deny_purge":          {"allow_rollup_hdrs"},
		"persist_mode":        {"allow_atomic"},
		"subject_transform":   {},
	}
	got, _ := e.Details["setting"].(string)
	for _, ok := range append(brings[setting], setting) {
		if got == ok {
			if e.Details["remedy"] == "" || e.Details["wanted"] == nil || e.Details["found"] == nil {
				t.Fatalf("details %v", e.Details)
			}
			return
		}
	}
	t.Fatalf("error %v names %q, want %q", err, got, setting)
}

func clone(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Subjects = append([]string(nil), c.Subjects...)
	meta := map[string]string{}
	for k, v := range c.Metadata {
		meta[k] = v
	}
	c.Metadata = meta
	return c
}

func testLossyRunning(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	api := js(t, nc)
	var l *eventlog.Log
	var c *logtest.Chain
	var good jetstream.StreamConfig
	states := make(chan error, 100)
	fresh := func() {
		cfg := s.config()
		cfg.OnState = func(err error) { states <- err }
		l = logtest.Open(t, nc, cfg)
		c = logtest.WorkChain(l, "w1")
		c.Fill(t, 3)
		good = streamConfig(t, nc, events.StreamName(cfg.Instance))
	}
	state := func(what string) error {
		select {
		case err := <-states:
			return err
		case <-time.After(5 * time.Second):
			t.Fatalf("no state after %s", what)
			return nil
		}
	}
	fresh()
	for _, ch := range changes {
		if !ch.running {
			continue
		}
		t.Run(ch.setting, func(t *testing.T) {
			bad := clone(good)
			ch.make(&bad)
			if _, err := api.UpdateStream(t.Context(), bad); err != nil {
				t.Fatalf("update the stream: %v", err)
			}
			wantSetting(t, state("the change"), ch.setting)
			_, err := l.Append(t.Context(), c.Next("refused"))
			wantSetting(t, err, ch.setting)
			if b, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader); err != nil || b.Head.Position != c.Head.Position {
				t.Fatalf("load while unsafe: %+v, %v", b, err)
			}
			if !ch.back {
				return
			}
			if _, err := api.UpdateStream(t.Context(), clone(good)); err != nil {
				t.Fatalf("put the setting back: %v", err)
			}
			if err := state("putting it back"); err != nil {
				t.Fatalf("put back, and still unsafe: %v", err)
			}
			c.Fill(t, 1)
		})
		if !ch.back {
			l.Close()
			fresh()
		}
	}
	if s.Replicas() > 1 {
		bad := clone(good)
		bad.Replicas = 1
		if _, err := api.UpdateStream(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		wantSetting(t, state("fewer replicas"), "num_replicas")
	}
}

// What a lossy setting has dropped does not come back: the log stays unsafe.
func testDroppedRunning(t *testing.T, s *site) {
	for _, ch := range []change{
		{setting: "max_msgs_per_subject", make: func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }},
		{setting: "max_age", make: func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 100*time.Millisecond, 100*time.Millisecond }},
		{setting: "max_msgs", make: func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardOld }},
	} {
		t.Run(ch.setting, func(t *testing.T) {
			nc := s.ForgeConn(t)
			cfg := s.config()
			l := logtest.Open(t, nc, cfg)
			c := logtest.WorkChain(l, "w1")
			c.Fill(t, 5)
			good := streamConfig(t, nc, events.StreamName(cfg.Instance))
			bad := clone(good)
			ch.make(&bad)
			if _, err := js(t, nc).UpdateStream(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			logtest.Eventually(t, 10*time.Second, "messages are dropped", func() bool {
				info, err := l.Info(t.Context())
				return err == nil && info.Messages < 5
			})
			if _, err := js(t, nc).UpdateStream(t.Context(), clone(good)); err != nil {
				t.Fatal(err)
			}
			logtest.Eventually(t, 5*time.Second, "the loss is seen", func() bool { return errors.Is(l.Err(), eventlog.ErrHole) })
			if err := l.Check(t.Context()); !errors.Is(err, eventlog.ErrHole) {
				t.Fatalf("put back after a loss: %v", err)
			}
			_, err := l.Append(t.Context(), c.Next("refused"))
			wantCode(t, err, events.CodeLogUnsafe)
			_, err = eventlog.Open(t.Context(), nc, cfg)
			if e := wantCode(t, err, events.CodeLogUnsafe); e.Details["position"] != uint64(1) {
				t.Fatalf("opened anew: %v, details %v", err, e.Details)
			}
		})
	}
}

func testReplacedRunning(t *testing.T, s *site) {
	nc := s.ForgeConn(t)
	cfg := s.config()
	cfg.CheckEvery = time.Second // the advisory of a deletion may be lost
	l := logtest.Open(t, nc, cfg)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 3)
	good := streamConfig(t, nc, events.StreamName(cfg.Instance))
	if err := js(t, nc).DeleteStream(t.Context(), good.Name); err != nil {
		t.Fatal(err)
	}
	logtest.Eventually(t, 5*time.Second, "the deletion is seen", func() bool { return l.Err() != nil })
	_, err := l.Append(t.Context(), c.Next("refused"))
	wantCode(t, err, events.CodeLogUnsafe)
	// The same name, even the same metadata: another stream.
	if _, err := js(t, nc).CreateStream(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	logtest.Eventually(t, 5*time.Second, "the other stream is seen", func() bool { return errors.Is(l.Err(), eventlog.ErrReplaced) && l.Err().Error() != err.Error() })
	_, err = l.Append(t.Context(), c.Next("refused"))
	wantCode(t, err, events.CodeLogUnsafe)

	cfg.LogID = "another"
	_, err = eventlog.Open(t.Context(), nc, cfg)
	wantCode(t, err, events.CodeLogUnsafe)
	if !errors.Is(err, eventlog.ErrReplaced) {
		t.Fatalf("another log id: %v", err)
	}
}
