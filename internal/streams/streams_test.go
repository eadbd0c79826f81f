package streams

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
	"github.com/forge-es/forge-es/replay/streamfile"
	"github.com/google/go-cmp/cmp"
)

// root is where the recorded streams lie; a folder per version.
const root = "../../testdata/streams"

// frozen are the versions that never change any more: the SHA-256 of their list
// of checksums, SUMS. What is recorded later gets a new version.
var frozen = map[string]string{
	"v1": "44d10efdbaa30fea9a2b89ac0a4aa756f3aa20fb658ebc0750f1a8ca56114147",
	"v2": "b787a7b852f2e7ddf6c78ce9b68580d5045ce5f3bdac388893c005a2c6387460",
}

// recordEnv names the variable that asks to record a day, by name, or "all" that
// are not recorded yet.
const recordEnv = "FORGE_RECORD_STREAM"

// Every recorded stream is intact, reads, checks, and folds to its digest, twice.
func TestRecordedStreamsFold(t *testing.T) {
	for _, name := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			var first *replay.Report
			for range 2 {
				f, err := os.Open(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				h, report, err := streamfile.Check(t.Context(), f, replay.Options{Twice: true})
				f.Close()
				if err != nil {
					t.Fatal(err)
				}
				if h.Name+".jsonl" != filepath.Base(name) {
					t.Errorf("the file of %s is called %s", h.Name, name)
				}
				if first != nil {
					if d := cmp.Diff(first, report); d != "" {
						t.Errorf("the second time:\n%s", d)
					}
				}
				first = report
			}
		})
	}
}

// A folder holds exactly the files that its SUMS names, with their checksums; and
// SUMS itself is the one that was frozen.
func TestRecordedStreamsAreFrozen(t *testing.T) {
	versions, err := filepath.Glob(root + "/v*")
	if err != nil || len(versions) == 0 {
		t.Fatalf("no versions below %s: %v", root, err)
	}
	for version := range frozen {
		if !slices.Contains(versions, filepath.Join(root, version)) {
			t.Errorf("%s is gone", version)
		}
	}
	for _, dir := range versions {
		sums, err := os.ReadFile(filepath.Join(dir, "SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		if want := frozen[filepath.Base(dir)]; want != sumOf(sums) {
			t.Errorf("%s/SUMS has SHA-256 %s, frozen is %q", filepath.Base(dir), sumOf(sums), want)
		}
		if got := sumsOf(t, dir); got != string(sums) {
			t.Errorf("%s differs from its SUMS:\n%s", filepath.Base(dir), cmp.Diff(strings.Split(string(sums), "\n"), strings.Split(got, "\n")))
		}
	}
}

// The present service does on each day what it did when the day was recorded: the
// same commits, byte for byte. A commit of rules that are not the present ones
// ends the comparison of its day.
func TestDaysPlayAgain(t *testing.T) {
	e := logtest.Embedded(t)
	for _, d := range days {
		t.Run(d.name, func(t *testing.T) {
			played := play(t, e, d)
			f, err := os.Open(filepath.Join(root, d.file()))
			if err != nil {
				t.Fatalf("%v; %s=%s records it", err, recordEnv, d.name)
			}
			defer f.Close()
			r, err := streamfile.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			if want := header(d); r.Header() != want {
				t.Errorf("header %+v, want %+v", r.Header(), want)
			}
			for want, err := range r.Records(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				c, err := events.DecodeCommit(want.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if c.Rules != session.RulesVersion {
					t.Logf("position %d was decided by rules %d, today's are %d", want.Position, c.Rules, session.RulesVersion)
					return
				}
				if len(played) < int(want.Position) {
					t.Fatalf("the day ends at position %d, position %d was recorded", len(played), want.Position)
				}
				if got := played[want.Position-1]; cmp.Diff(want, got) != "" {
					t.Fatalf("position %d (-recorded +played):\n%s%s", want.Position, cmp.Diff(text(t, want), text(t, got)), cmp.Diff(want.Header, got.Header))
				}
			}
			if n := r.Trailer().Records; uint64(len(played)) != n {
				t.Errorf("the day has %d commits, %d were recorded", len(played), n)
			}
		})
	}
}

// A day played twice leaves the same log: nothing in it depends on when it plays.
func TestDaysAreReproducible(t *testing.T) {
	for _, d := range days[:2] {
		if d := cmp.Diff(play(t, logtest.Embedded(t), d), play(t, logtest.Embedded(t), d)); d != "" {
			t.Error(d)
		}
	}
}

// TestRecord records days that were asked for. It writes new files only, and none
// into a frozen version.
func TestRecord(t *testing.T) {
	asked := os.Getenv(recordEnv)
	if asked == "" {
		return // nothing is asked for
	}
	e := logtest.Embedded(t)
	for _, d := range days {
		name := filepath.Join(root, d.file())
		_, err := os.Stat(name)
		if asked != d.name && (asked != "all" || err == nil) {
			continue
		}
		if frozen[d.version] != "" {
			t.Fatalf("%s: %s is frozen", d.name, d.version)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s is recorded already (%v)", name, err)
		}
		log := play(t, e, d)
		report, err := replay.Check(t.Context(), d.name, d.logID(), log, replay.Options{Twice: true})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w, err := streamfile.NewWriter(&b, header(d))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range log {
			if err := w.Append(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(report.Digest); err != nil {
			t.Fatal(err)
		}
		if err := writeNew(name, b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, d.version, "SUMS"), []byte(sumsOf(t, filepath.Dir(name))), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d commits on %d boundaries, digest %s", d.file(), report.Commits, report.Boundaries, report.Digest)
	}
}

func header(d day) streamfile.Header {
	return streamfile.Header{Format: streamfile.Format, Name: d.name, Title: d.title, Instance: d.name, Log: d.logID()}
}

// writeNew writes a file that does not exist yet.
func writeNew(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// recorded names all recorded streams, as version/file.
func recorded(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(root + "/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no streams below %s: %v", root, err)
	}
	for i := range files {
		if files[i], err = filepath.Rel(root, files[i]); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// sumsOf lists all files of a folder but SUMS as sha256sum does.
func sumsOf(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		if e.Name() == "SUMS" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s  %s\n", sumOf(content), e.Name())
	}
	return b.String()
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// text shows a commit to people.
func text(t testing.TB, r events.Record) string {
	t.Helper()
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
