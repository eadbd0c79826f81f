package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test program be the target, as the program itself is.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program runs, all sections, and what it tells makes sense. How fast
// anything was is not looked at.
func TestShort(t *testing.T) {
	dir := t.TempDir()
	file, profiles := filepath.Join(dir, "report.json"), filepath.Join(dir, "profiles")
	var out, progress bytes.Buffer
	args := []string{"-short", "-seconds", "0.05", "-data", dir, "-json", file, "-profile", profiles}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Machine.Cores < 1 || r.Rounds != 1 || r.Disk.PerSecond <= 0 {
		t.Errorf("machine %+v, %d rounds, disk %+v", r.Machine, r.Rounds, r.Disk)
	}
	got := map[string]int{}
	for _, s := range r.Sections {
		for _, row := range s.Rows {
			got[s.Name+": "+row.What]++
			if row.Rate.Median <= 0 || row.P50.Median <= 0 || row.P99.Median < row.P50.Median || row.CPU.Median <= 0 || len(row.Service) != r.Rounds {
				t.Errorf("%s: %+v", s.Name, row)
			}
			if list := strings.HasPrefix(row.What, "claims.list"); !list && (row.Ratio.Median <= 0 || row.RawCPU.Median <= 0) {
				t.Errorf("%s: nothing beside: %+v", s.Name, row)
			}
			if s.Name != "reads" && row.Bytes < 500 {
				t.Errorf("%s: commits of %d bytes", s.Name, row.Bytes)
			}
			if !strings.Contains(out.String(), "| "+row.What+" ") {
				t.Errorf("%q is not printed:\n%s", row.What, out.String())
			}
		}
		if s.Name == "reads" && (s.Restart == nil || s.Restart.Served <= 0 || s.Restart.Listed < s.Restart.Served) {
			t.Errorf("restart: %+v", s.Restart)
		}
	}
	want := map[string]int{
		"synced: claim": 2, "synced: renew": 2, "unsynced: claim": 2, "unsynced: renew": 2,
		"reads: works.get": 2, "reads: claims.list, a page of 100": 2, "reads: works.get, not in memory": 2,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows: -want +got\n%s", d)
	}
	if found, _ := filepath.Glob(filepath.Join(profiles, "*-claim-4.pprof")); len(found) != 2 {
		t.Errorf("profiles: %q", found)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "bench-data-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range []string{"-callers 0", "-callers x", "-rounds 0", "-sections reads,none", "-seconds 0", "-works 1", "extra", "-none"} {
		var said bytes.Buffer
		if _, err := parseOptions(strings.Fields(args), &said); err != errUsage || said.Len() == 0 { //nolint:errorlint // as it is
			t.Errorf("%s: %v, %q", args, err, said.String())
		}
	}
	o, err := parseOptions([]string{"-short", "-rounds", "3"}, t.Output())
	if err != nil || o.rounds != 3 || len(o.callers) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{3, 1, 2}, Spread{2, 1, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9}},
	} {
		if got := spread(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}
