package legacy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forge-es/forge-es/legacy"
	"github.com/forge-es/forge-es/legacy/legacytest"
)

// TestRunningWriter reads beside a process that writes and checkpoints: each read
// sees one transaction, none goes backwards, no file appears, and the writer is
// not disturbed.
func TestRunningWriter(t *testing.T) {
	h := legacytest.New(t)
	w := legacytest.StartWriter(t, h.Dir, 2*time.Millisecond)
	home, err := legacy.OpenHome(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	names := func() []string { return slices.Sorted(maps.Keys(legacytest.ReadTree(t, h.Dir))) }
	want := []string{".", "control-plane.sqlite", "control-plane.sqlite-shm", "control-plane.sqlite-wal"}
	last := int64(0)
	for begin := time.Now(); time.Since(begin) < time.Second; {
		s, err := home.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := transaction(t, s)
		if n < last {
			t.Errorf("read transaction %d after %d", n, last)
		}
		last = n
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("the home holds %q, want %q", got, want)
		}
	}
	if last < 5 {
		t.Errorf("only transaction %d was reached: the writer was held up", last)
	}

	// A crash: the home then stays as it is, and everything committed is read.
	w.Kill()
	if n := transaction(t, read(t, h.Dir)); n < last {
		t.Errorf("after the crash transaction %d, before it %d", n, last)
	} else {
		last = n
	}

	// An orderly stop removes the -wal.
	w = legacytest.StartWriter(t, h.Dir, time.Millisecond)
	w.Stop()
	if _, err := os.Stat(filepath.Join(h.Dir, legacytest.Database+"-wal")); err == nil {
		t.Fatal("the -wal is still there after an orderly stop")
	}
	transaction(t, read(t, h.Dir))
}

// TestWriterComesAndGoes reads while writers start and stop: the -wal appears
// and disappears under the reader.
func TestWriterComesAndGoes(t *testing.T) {
	h := legacytest.New(t)
	legacytest.StartWriter(t, h.Dir, time.Millisecond).Stop()
	home, err := legacy.OpenHome(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var reads []*legacy.Sessions
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			s, err := home.Sessions(t.Context())
			if err != nil {
				done <- err
				return
			}
			reads = append(reads, s)
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	for range 8 {
		w := legacytest.StartWriter(t, h.Dir, 3*time.Millisecond)
		time.Sleep(40 * time.Millisecond)
		w.Stop()
		time.Sleep(60 * time.Millisecond)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads", len(reads))
	for _, s := range reads {
		transaction(t, s)
	}
}

// transaction gives the number of the transaction that was read, after checking
// that all places are of the same one.
func transaction(t *testing.T, s *legacy.Sessions) int64 {
	t.Helper()
	if len(s.Problems) > 0 || len(s.Groups) != 3 {
		t.Fatalf("found %q", outline(s))
	}
	var claim struct{ ClaimGeneration int64 }
	var retained struct {
		Session struct{ ClaimGeneration int64 }
	}
	var transport struct{ PrincipalID string }
	for i, v := range []any{&claim, &retained, &transport} {
		if err := json.Unmarshal(s.Groups[i].Entries[0].Raw, v); err != nil {
			t.Fatal(err)
		}
	}
	n := claim.ClaimGeneration
	if retained.Session.ClaimGeneration != n || transport.PrincipalID != fmt.Sprintf("p-%d", n) {
		t.Errorf("a mixture of transactions: %d, %d, %s", n, retained.Session.ClaimGeneration, transport.PrincipalID)
	}
	return n
}
