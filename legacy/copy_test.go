package legacy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forge-es/forge-es/legacy/legacytest"
)

// TestCopyDisturbed does to a database, between the first look at it and its
// copy, what a writer may do.
func TestCopyDisturbed(t *testing.T) {
	commit := func(h *legacytest.Home) { h.Record("more") }
	pragma := func(text string) func(*legacytest.Home) {
		return func(h *legacytest.Home) {
			if _, err := h.DB().Exec("PRAGMA " + text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		do   []func(*legacytest.Home)
		want error
	}{
		"nothing":             {},
		"a commit":            {do: []func(*legacytest.Home){commit}},
		"a checkpoint":        {do: []func(*legacytest.Home){pragma("wal_checkpoint(passive)")}, want: errDisturbed},
		"a truncated -wal":    {do: []func(*legacytest.Home){pragma("wal_checkpoint(truncate)")}, want: errDisturbed},
		"a restarted -wal":    {do: []func(*legacytest.Home){pragma("wal_checkpoint(restart)"), commit}, want: errDisturbed},
		"an orderly stop":     {do: []func(*legacytest.Home){(*legacytest.Home).Close}, want: errDisturbed},
		"a rollback journal":  {do: []func(*legacytest.Home){func(h *legacytest.Home) { h.File(legacytest.Database+"-journal", "x") }}, want: errDisturbed},
		"no database anymore": {do: []func(*legacytest.Home){func(h *legacytest.Home) { os.Remove(filepath.Join(h.Dir, legacytest.Database)) }}, want: errDisturbed},
	} {
		t.Run(name, func(t *testing.T) {
			h := legacytest.New(t)
			h.Record("first", legacytest.NewGen(1).Sessions(20)...)
			file := filepath.Join(h.Dir, legacytest.Database)
			before, err := lookAt(file)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(settled)
			for _, do := range c.do {
				do(h)
			}
			err = before.copyTo(t.Context(), file, filepath.Join(t.TempDir(), "copy"))
			if !errors.Is(err, c.want) {
				t.Errorf("copyTo: %v, want %v", err, c.want)
			}
		})
	}
}

// TestSameHead: a -wal that begins anew after it was copied cannot belong to the
// database any more, although neither size nor time of the database shows it.
func TestSameHead(t *testing.T) {
	h := legacytest.New(t)
	h.Record("first", legacytest.NewGen(1).Sessions(20)...)
	if _, err := h.DB().Exec("PRAGMA wal_checkpoint(passive)"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(h.Dir, legacytest.Database)
	before, err := lookAt(file)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := before.copyTo(t.Context(), file, copied); err != nil {
		t.Fatal(err)
	}
	h.Record("second") // the first commit after a complete checkpoint restarts the -wal
	after, err := lookAt(file)
	if err != nil {
		t.Fatal(err)
	}
	if !unchanged(before.db, after.db) || after.wal.Size() != before.wal.Size() {
		t.Fatal("the test is void: the restart shows otherwise")
	}
	if err := sameHead(copied+"-wal", file+"-wal"); !errors.Is(err, errDisturbed) {
		t.Errorf("sameHead: %v, want errDisturbed", err)
	}
}
