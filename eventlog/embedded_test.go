package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

func TestEmbeddedKeepsTheLog(t *testing.T) {
	dir := t.TempDir()
	var id string
	var head events.Head
	for round := range 3 {
		e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1"})
		if err != nil {
			t.Fatal(err)
		}
		free, err := e.FreeBytes()
		if err != nil {
			t.Fatal(err)
		}
		nc, err := e.ForgeConn()
		if err != nil {
			t.Fatal(err)
		}
		l, err := eventlog.Open(t.Context(), nc, eventlog.Config{Embedded: e, LogID: id})
		if err != nil {
			t.Fatal(err)
		}
		info, err := l.Info(t.Context())
		if err != nil || info.Replicas != 1 || info.MaxBytes <= 0 || round == 0 && (info.MaxBytes < free/2 || info.MaxBytes > free/10*7) {
			t.Fatalf("info %+v with %d bytes free, %v", info, free, err)
		}
		id = l.ID()
		b, err := l.Load(t.Context(), events.WorkSubject("main", "w1"), head, eventlog.Leader)
		if err != nil || b.Head.Position != head.Position {
			t.Fatalf("after restart %d: %+v, %v", round, b, err)
		}
		c := logtest.WorkChain(l, "w1")
		c.Head = b.Head
		c.Fill(t, 3)
		head = c.Head
		l.Close()
		if err := l.Err(); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("a closed log: %v", err)
		}
		if _, err := l.Append(t.Context(), c.Next("late")); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("append to a closed log: %v", err)
		}
		nc.Close()
		if err := e.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEmbeddedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  eventlog.EmbeddedConfig
		code events.Code
	}{
		"no directory":   {eventlog.EmbeddedConfig{}, events.CodeBadRequest},
		"open address":   {eventlog.EmbeddedConfig{Listen: "0.0.0.0:-1"}, events.CodeForbidden},
		"every address":  {eventlog.EmbeddedConfig{Listen: ":-1"}, events.CodeForbidden},
		"open IPv6":      {eventlog.EmbeddedConfig{Listen: "[::]:-1"}, events.CodeForbidden},
		"host name":      {eventlog.EmbeddedConfig{Listen: "example.org:-1"}, events.CodeForbidden},
		"no port":        {eventlog.EmbeddedConfig{Listen: "127.0.0.1"}, events.CodeBadRequest},
		"user alone":     {eventlog.EmbeddedConfig{AppUser: "x"}, events.CodeBadRequest},
		"service's user": {eventlog.EmbeddedConfig{AppUser: "forge", AppPassword: "x"}, events.CodeBadRequest},
		"instance":       {eventlog.EmbeddedConfig{Instance: "No"}, events.CodeIDInvalid},
	} {
		if name != "no directory" {
			tc.cfg.DataDir = t.TempDir()
		}
		e, err := eventlog.StartEmbedded(tc.cfg)
		if err == nil {
			_ = e.Shutdown()
		}
		if events.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}

	// A JetStream that does not start is an error, and leaves nothing behind.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1"})
	wantCode(t, err, events.CodeUnavailable)
	if err := os.Remove(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	e := logtest.Embedded(t, logtest.DataDir(dir))

	taken := strings.TrimPrefix(e.ClientURL(), "nats://")
	_, err = eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: t.TempDir(), Listen: taken})
	if wantCode(t, err, events.CodeUnavailable); !strings.Contains(err.Error(), "in use") {
		t.Errorf("a port that is taken: %v", err)
	}
}

func TestEmbeddedAuthentication(t *testing.T) {
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: t.TempDir(), Listen: "0.0.0.0:-1", AppUser: "ops", AppPassword: `quote " and \`})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Shutdown() }()
	if !e.Authenticated() || strings.Contains(e.ClientURL(), "quote") {
		t.Errorf("url %s", e.ClientURL())
	}
	if nc, err := nats.Connect(e.ClientURL()); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Errorf("a caller without a password: %v", err)
	}
	nc, err := nats.Connect(e.ClientURL(), nats.UserInfo("ops", `quote " and \`))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// Callers cannot reach the log, speak for the service, or change what it owns.
func TestEmbeddedCallers(t *testing.T) {
	e, l := logtest.OpenEmbedded(t)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 1)
	service := logtest.AppConn(t, e)
	violations := make(chan error, 100)
	caller, err := nats.Connect(e.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	refused := func(what string) {
		t.Helper()
		select {
		case err := <-violations:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(2 * time.Second):
			t.Errorf("%s is allowed", what)
		}
	}
	kv, err := js(t, service).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "forge-claims-main", Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "w1", "truth"); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		"forge.feed.main", "$KV.forge-claims-main.w1", "$KV.forge-releases-main.x", "$KV.forge-authority-main.authority",
		"$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.UPDATE.KV_forge-claims-main", "$JS.API.STREAM.DELETE.KV_forge-claims-main",
		"$JS.API.STREAM.PURGE.KV_forge-claims-main", "$JS.API.STREAM.RESTORE.KV_forge-claims-main", "$JS.API.STREAM.MSG.DELETE.KV_forge-claims-main",
	} {
		if err := caller.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		refused("publishing to " + subject)
	}
	for _, subject := range []string{"forge.cmd.main.>", "forge.op.main.x.work.claim", "forge.query.>"} {
		if _, err := caller.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		refused("subscribing to " + subject)
	}

	// The log is in another account: whatever a caller publishes or has answered
	// to, it does not arrive there.
	for _, reply := range []string{c.Subject, "$JS.API.STREAM.DELETE.FORGE_MAIN"} {
		for _, request := range []string{"$JS.API.INFO", "forge.query.main.works.get", c.Subject} {
			if err := caller.PublishRequest(request, reply, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := caller.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := js(t, caller).Stream(t.Context(), "FORGE_MAIN"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a caller sees the log: %v", err)
	}
	if end, err := l.LastPosition(t.Context()); err != nil || end != 1 {
		t.Errorf("the log ends at %d, %v", end, err)
	}
	if v, err := kv.Get(t.Context(), "w1"); err != nil || string(v.Value()) != "truth" {
		t.Errorf("the view holds %v, %v", v, err)
	}
}

func TestEmbeddedKeepsSecrets(t *testing.T) {
	var out bytes.Buffer
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{
		DataDir: t.TempDir(), Listen: "127.0.0.1:-1", AppUser: "ops", AppPassword: "a-secret-of-the-operator",
		Logger: zerolog.New(zerolog.SyncWriter(&out)).Level(zerolog.TraceLevel),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"a-secret-of-the-operator", "wrong"} {
		if nc, err := nats.Connect(e.ClientURL(), nats.UserInfo("nobody", wrong)); err == nil {
			nc.Close()
			t.Error("a wrong user is let in")
		}
	}
	if err := e.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if len(e.Secrets()) != 3 || out.Len() == 0 {
		t.Fatalf("%d secrets, %d bytes of log", len(e.Secrets()), out.Len())
	}
	for _, secret := range e.Secrets() {
		if len(secret) < 16 || strings.Contains(out.String(), secret) {
			t.Errorf("the log holds a secret: %s", out.String())
		}
	}
}

// silent opens a log on an embedded server behind a wire.
func silent(t *testing.T) (*eventlog.Embedded, *eventlog.Log, *logtest.Wire) {
	t.Helper()
	e := logtest.Embedded(t)
	w := &logtest.Wire{}
	nc := logtest.ForgeConn(t, e, w.InProcess(e.Server()))
	l := logtest.Open(t, nc, eventlog.Config{Embedded: e, MaxBytes: 1 << 26, AppendTimeout: 100 * time.Millisecond, ReadTimeout: time.Second})
	return e, l, w
}

// A publish that got lost is sent again.
func TestLostPublish(t *testing.T) {
	_, l, w := silent(t)
	c := logtest.WorkChain(l, "w1")
	n := 1
	w.Swallow(func(subject string) bool { n--; return subject == c.Subject && n >= 0 })
	c.Fill(t, 3)
	if w.Lost() != 1 || c.Head.Version != 3 {
		t.Fatalf("lost %d, head %+v", w.Lost(), c.Head)
	}
}

// A server that does not answer publishes while all else works may have met a
// write error: the appender stops for good, and says so.
func TestSilentServer(t *testing.T) {
	_, l, w := silent(t)
	c := logtest.WorkChain(l, "w1")
	c.Fill(t, 1)
	w.Swallow(func(subject string) bool { return subject == c.Subject })
	e := c.Next("silence")
	_, err := l.Append(t.Context(), e)
	wantCode(t, err, events.CodeUnavailable)
	w.Swallow(nil)
	wantCode(t, l.Err(), events.CodeUnavailable)
	if err := l.Check(t.Context()); err == nil {
		t.Error("it went on by itself")
	}
	if _, err := l.Append(t.Context(), e); events.CodeOf(err) != events.CodeUnavailable {
		t.Errorf("append after the stop: %v", err)
	}
	if b, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader); err != nil || b.Head.Position != 1 {
		t.Errorf("load after the stop: %+v, %v", b, err)
	}
}

// A caller's short patience alone stops nothing.
func TestImpatientCaller(t *testing.T) {
	_, l, w := silent(t)
	c := logtest.WorkChain(l, "w1")
	w.Swallow(func(subject string) bool { return subject == c.Subject })
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := l.Append(ctx, c.Next("hurry"))
		cancel()
		wantCode(t, err, events.CodeUnavailable)
	}
	w.Swallow(nil)
	c.Fill(t, 1)
}
