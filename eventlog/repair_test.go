package eventlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

// TestTornStream: a kill may come between the two files in which the server
// describes a stream. The log is found again, or it is said that it cannot be;
// never is a new one made over its messages.
func TestTornStream(t *testing.T) {
	for name, c := range map[string]struct {
		filled bool // the log has commits when it is torn
		tear   func(dir string) error
		want   error // of the next start or open; nil: it opens
	}{
		"checksum missing, empty":  {tear: func(dir string) error { return os.Remove(filepath.Join(dir, "meta.sum")) }},
		"checksum missing, filled": {filled: true, tear: func(dir string) error { return os.Remove(filepath.Join(dir, "meta.sum")) }},
		"checksum of an older description": {filled: true, tear: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "meta.sum"), []byte("0123456789abcdef"), 0o600)
		}},
		"description missing, empty":  {tear: func(dir string) error { return os.Remove(filepath.Join(dir, "meta.inf")) }},
		"both missing, empty":         {tear: func(dir string) error { return removeAll(dir, "meta.inf", "meta.sum") }},
		"description missing, filled": {filled: true, tear: func(dir string) error { return os.Remove(filepath.Join(dir, "meta.inf")) }, want: events.ErrLogUnsafe},
		"both missing, filled":        {filled: true, tear: func(dir string) error { return removeAll(dir, "meta.inf", "meta.sum") }, want: events.ErrLogUnsafe},
		"description cut, filled":     {filled: true, tear: func(dir string) error { return os.Truncate(filepath.Join(dir, "meta.inf"), 0) }, want: events.ErrLogUnsafe},
		"description broken, filled":  {filled: true, tear: func(dir string) error { return os.Truncate(filepath.Join(dir, "meta.inf"), 40) }, want: events.ErrLogUnsafe},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var chain *logtest.Chain
			use := func(do func(l *eventlog.Log)) error {
				e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1"})
				if err != nil {
					return err
				}
				defer e.Shutdown()
				nc, err := e.ForgeConn()
				if err != nil {
					return err
				}
				defer nc.Close()
				l, err := eventlog.Open(t.Context(), nc, eventlog.Config{Embedded: e, MaxBytes: 1 << 30})
				if err != nil {
					return err
				}
				defer l.Close()
				do(l)
				return nil
			}
			fill := func(l *eventlog.Log) {
				if chain == nil {
					chain = logtest.WorkChain(l, "W1")
				}
				chain.Log = l
				chain.Fill(t, 3)
			}
			id := ""
			if err := use(func(l *eventlog.Log) {
				id = l.ID()
				if c.filled {
					fill(l)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := c.tear(filepath.Join(dir, "jetstream", eventlog.AccountForge, "streams", "FORGE_MAIN")); err != nil {
				t.Fatal(err)
			}
			err := use(func(l *eventlog.Log) {
				if c.filled && l.ID() != id {
					t.Errorf("it was log %s, now it is %s", id, l.ID())
				}
				id = l.ID()
				fill(l)
			})
			if !errors.Is(err, c.want) || (err != nil) != (c.want != nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want != nil {
				if err := use(func(*eventlog.Log) {}); !errors.Is(err, c.want) {
					t.Errorf("the second time: %v", err)
				}
				return
			}
			// What was repaired stays so.
			if err := use(func(l *eventlog.Log) {
				if l.ID() != id {
					t.Errorf("it was log %s, now it is %s", id, l.ID())
				}
				fill(l)
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

func removeAll(dir string, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
