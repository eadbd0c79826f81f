package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/legacy"
	"github.com/forge-es/forge-es/legacy/legacytest"
)

// read reads a home and checks that nothing in it has changed.
func read(t *testing.T, dir string) *legacy.Sessions {
	t.Helper()
	before := legacytest.ReadTree(t, dir)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	home, err := legacy.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := home.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, legacytest.ReadTree(t, dir)); diff != "" {
		t.Errorf("the home has changed (-before +after):\n%s", diff)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("the temporary directory still holds %v (%v)", left, err)
	}
	return s
}

// outline is what was found, one line per group, entry and problem.
func outline(s *legacy.Sessions) []string {
	var out []string
	for _, g := range s.Groups {
		line := fmt.Sprintf("%s %s: %d", g.Place, g.Scope, len(g.Entries))
		if g.Ignored != "" {
			line += " ignored, " + g.Ignored
		}
		out = append(out, line)
		for _, e := range g.Entries {
			if e.Dropped != "" {
				out = append(out, fmt.Sprintf("  %d %s dropped: %s", e.Index, e.Key, e.Dropped))
			}
		}
	}
	for _, p := range s.Problems {
		out = append(out, fmt.Sprintf("problem %s %s: %s: %s", p.Place, p.Scope, p.Location, p.Reason))
	}
	for _, m := range s.Missing {
		out = append(out, "missing "+m)
	}
	return out
}

func wantOutline(t *testing.T, s *legacy.Sessions, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, outline(s)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// missingRows is what an empty database lacks.
var missingRows = []string{
	"missing control-plane.sqlite controller_session_claim_store",
	"missing control-plane.sqlite controller_session_identity",
	"missing control-plane.sqlite execution_session",
}

func TestOpenHome(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "none"), file} {
		if _, err := legacy.OpenHome(name); !errors.Is(err, legacy.ErrNotHome) || !errors.Is(err, legacy.ErrLegacy) {
			t.Errorf("OpenHome: %v, want ErrNotHome", err)
		}
	}
	home, err := legacy.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Sessions(t.Context()); !errors.Is(err, legacy.ErrNotHome) {
		t.Errorf("Sessions of a vanished home: %v, want ErrNotHome", err)
	}
}

func TestEmptyHome(t *testing.T) {
	h := legacytest.New(t)
	wantOutline(t, read(t, h.Dir), "missing control-plane.sqlite", "missing repositories")

	h.File("repositories/r1/other.json", "{}")
	h.File("repositories/note.txt", "no folder")
	h.DB()
	h.Close()
	wantOutline(t, read(t, h.Dir), missingRows...)

	h2 := legacytest.New(t)
	h2.File(legacytest.Database, "") // SQLite reads an empty file as an empty database
	wantOutline(t, read(t, h2.Dir), "missing control-plane.sqlite table control_plane_records", "missing repositories")
}

// full fills a home with every place.
func full(h *legacytest.Home) {
	g := legacytest.NewGen(1)
	s := g.Sessions(6)
	h.Record("repo-b", s[0])
	h.Record(legacytest.InstanceScope, s[1], s[2])
	h.Row(legacytest.Claims, "repo-a", legacytest.ClaimsKey, legacytest.Store())
	h.Retain(legacytest.InstanceScope, s[3], "")
	h.Retain(legacytest.InstanceScope, s[2], s[2].LeaseExpiresAt)
	h.Retain("repo-a", s[4], "")
	for _, s := range s {
		h.Row(legacytest.Transport, "controller", s.SessionID, g.Transport(s))
	}
	h.Row("other_namespace", "controller", "index", "no JSON")
	h.Store("repo-a", s[4])
	h.Store("repo-c", s[5], s[5])
}

var fullOutline = []string{
	"record controller: 2", "record repo-a: 0", "record repo-b: 1",
	"file repo-a: 1 ignored, a record of the same scope exists",
	"file repo-c: 2 ignored, the record of the whole instance exists",
	"retained controller: 2", "retained repo-a: 1",
	"activity controller: 6",
}

func TestAllPlaces(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		h := legacytest.New(t)
		full(h)
		h.Close()
		wantOutline(t, read(t, h.Dir), fullOutline...)
	})
	t.Run("crashed, all in the -wal", func(t *testing.T) {
		h := legacytest.New(t)
		full(h)
		h.Crash()
		wantOutline(t, read(t, h.Dir), fullOutline...)
	})
	t.Run("crashed, part in the -wal", func(t *testing.T) {
		h := legacytest.New(t)
		full(h)
		h.Checkpoint()
		h.Row(legacytest.Claims, "repo-d", legacytest.ClaimsKey, legacytest.Store())
		h.Crash()
		want := slices.Insert(slices.Clone(fullOutline), 3, "record repo-d: 0")
		wantOutline(t, read(t, h.Dir), want...)
	})
	t.Run("-wal of no bytes", func(t *testing.T) {
		h := legacytest.New(t)
		full(h)
		h.Close()
		h.File(legacytest.Database+"-wal", "")
		wantOutline(t, read(t, h.Dir), fullOutline...)
	})
	t.Run("-wal of rubbish", func(t *testing.T) {
		h := legacytest.New(t)
		full(h)
		h.Close()
		h.File(legacytest.Database+"-wal", strings.Repeat("rubbish ", 1000))
		wantOutline(t, read(t, h.Dir), fullOutline...)
	})
	t.Run("path with signs of URLs", func(t *testing.T) {
		h := legacytest.In(t, filepath.Join(t.TempDir(), "a home?mode=rwc&x=#1 %41;ü"))
		full(h)
		h.Crash()
		wantOutline(t, read(t, h.Dir), fullOutline...)
		h.DB()
		h.Close()
		wantOutline(t, read(t, h.Dir), fullOutline...)
	})
	t.Run("read-only folder", func(t *testing.T) {
		for _, end := range []func(*legacytest.Home){(*legacytest.Home).Close, (*legacytest.Home).Crash} {
			h := legacytest.New(t)
			full(h)
			end(h)
			if err := os.Chmod(h.Dir, 0o500); err != nil {
				t.Fatal(err)
			}
			wantOutline(t, read(t, h.Dir), fullOutline...)
			if err := os.Chmod(h.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestEntriesAsFound: what is planned is what was written, field by field and
// digit by digit.
func TestEntriesAsFound(t *testing.T) {
	h := legacytest.New(t)
	odd := `{ "schemaVersion": 1, "workId": " w1 ", "claimGeneration": 123456789012345678901234567890,
		"extra": {"b": 1e400, "a": [1.10, -0, "<&>\u2028 \ud83d\ude00 ü"]}, "leaseExpiresAt": "never" }`
	compact := `{"schemaVersion":1,"workId":" w1 ","claimGeneration":123456789012345678901234567890,"extra":{"b":1e400,"a":[1.10,-0,"<&>\u2028 \ud83d\ude00 ü"]},"leaseExpiresAt":"never"}`
	h.Row(legacytest.Claims, "controller", "index", `{"schemaVersion": 1.0, "updatedAt": "2026-01-01T00:00:00.000Z", "more": 1, "sessions": [`+odd+`]}`)
	h.Row(legacytest.Identity, "controller", "w1", `{"schemaVersion": 1, "session": `+odd+`, "retainedAt": 5, "x": null}`)
	h.Row(legacytest.Transport, "controller", "t1", `{"updatedAt": "x", "principalId": " p ", "activeWorkId": null, "secret": "s", "lastValidatedAt": 12345678901234567890}`)
	h.Close()
	s := read(t, h.Dir)

	store := s.Groups[0]
	if got := string(store.UpdatedAt); got != `"2026-01-01T00:00:00.000Z"` {
		t.Errorf("updatedAt = %s", got)
	}
	for i, want := range []string{
		compact,
		`{"schemaVersion":1,"session":` + compact + `,"retainedAt":5,"x":null}`,
		`{"principalId":" p ","lastValidatedAt":12345678901234567890,"updatedAt":"x"}`,
	} {
		e := s.Groups[i].Entries[0]
		if got := string(e.Raw); got != want {
			t.Errorf("group %d:\n got %s\nwant %s", i, got, want)
		}
		if i < 2 && e.WorkID != "w1" {
			t.Errorf("group %d: work %q, want w1", i, e.WorkID)
		}
	}
}

func TestBrokenEntries(t *testing.T) {
	h := legacytest.New(t)
	good := legacytest.NewGen(1).Session("w").JSON()
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	h.Row(legacytest.Claims, "controller", "index", `{"schemaVersion":1,"updatedAt":17,"sessions":[`+strings.Join([]string{
		good, `null`, `7`, `[]`, `"w"`,
		`{"workId":"w","workId":"v"}`,
		`{"workId":"w","x":[{"a":1,"\u0061":2}]}`,
		`{"workId":"w","schemaVersion":2}`,
		`{"workId":"w","schemaVersion":"1"}`,
		`{"workId":"  "}`, `{"workId":5}`, `{"WorkId":"w"}`,
		"{\"workId\":\"w\xff\"}",
		`{"workId":"w","deep":` + deep + `}`,
		`{"workId":"w"}`,
	}, ",")+`]}`)
	for key, payload := range map[string]any{
		"a-good":      `{"schemaVersion":1,"session":` + good + `}`,
		"b-not-json":  `{"schemaVersion":1,`,
		"c-null":      nil,
		"d-number":    5,
		"e-version":   `{"schemaVersion":2,"session":` + good + `}`,
		"f-none":      `{"session":` + good + `}`,
		"g-duplicate": `{"schemaVersion":1,"schemaVersion":1,"session":` + good + `}`,
		"h-session":   `{"schemaVersion":1}`,
		"i-session":   `{"schemaVersion":1,"session":null}`,
		"i-text":      `{"schemaVersion":1,"session":"s"}`,
		"j-utf8":      []byte("{\"schemaVersion\":1,\"session\":{\"workId\":\"\xff\"}}"),
		"k-more":      `{"schemaVersion":1,"session":` + good + `} {}`,
		"l-empty":     ``,
		"m-key\xff":   `{"schemaVersion":1,"session":` + good + `}`,
	} {
		h.Row(legacytest.Identity, "controller", key, payload)
	}
	h.Row(legacytest.Identity, " ", "w", `{}`)
	h.Row(legacytest.Identity, " ", "v", `{}`)
	h.Row(legacytest.Transport, "controller", "t1", `[]`)
	h.Row(legacytest.Transport, "controller", "t2", `{"principalId":null,"secret":1}`)
	h.Row(legacytest.Transport, "controller", " ", `{"principalId":"p"}`)
	h.Row(legacytest.Transport, "elsewhere", "t3", `{"principalId":"p"}`)
	h.Close()
	wantOutline(
		t, read(t, h.Dir),
		"record controller: 15",
		"  1  dropped: not a JSON object",
		"  2  dropped: not a JSON object",
		"  3  dropped: not a JSON object",
		"  4  dropped: not a JSON object",
		`  5  dropped: duplicate key "workId"`,
		`  6  dropped: duplicate key "a"`,
		"  7  dropped: schemaVersion of the session is 2, want 1",
		`  8  dropped: schemaVersion of the session is "1", want 1`,
		"  9  dropped: workId of the session is missing, blank or no text",
		"  10  dropped: workId of the session is missing, blank or no text",
		"  11  dropped: workId of the session is missing, blank or no text",
		"  12  dropped: not UTF-8",
		"  13  dropped: nested deeper than 100 levels",
		"retained controller: 14",
		"  1 b-not-json dropped: invalid JSON: unexpected end of JSON input",
		"  2 c-null dropped: the payload is no text but null",
		"  3 d-number dropped: not a JSON object", // the column makes it a text
		"  4 e-version dropped: schemaVersion is 2, want 1",
		"  5 f-none dropped: schemaVersion is missing, want 1",
		`  6 g-duplicate dropped: duplicate key "schemaVersion"`,
		"  7 h-session dropped: session is missing",
		"  8 i-session dropped: session is missing",
		"  9 i-text dropped: session: not a JSON object",
		"  10 j-utf8 dropped: not UTF-8",
		"  11 k-more dropped: invalid JSON: invalid character '{' after top-level value",
		"  12 l-empty dropped: invalid JSON: unexpected end of JSON input",
		`  13 "m-key\xff" dropped: the key is not UTF-8`,
		"activity controller: 3",
		"  0   dropped: the session id is blank",
		"  1 t1 dropped: not a JSON object",
		"  2 t2 dropped: it holds no activity",
		"problem retained  : control-plane.sqlite controller_session_identity/ : the scope is blank",
		"problem activity : control-plane.sqlite execution_session: 1 rows are in another scope than controller and were not read",
		"missing repositories",
	)
}

// TestBrokenStores: a store that is broken as a whole is named; a record that
// exists but cannot be read still silences the files of its scope.
func TestBrokenStores(t *testing.T) {
	h := legacytest.New(t)
	h.Row(legacytest.Claims, "r1", "index", `{"schemaVersion":1,"sessions":[}`)
	h.Row(legacytest.Claims, "r2", "index", `{"schemaVersion":2,"sessions":[]}`)
	h.Row(legacytest.Claims, "r3", "index", `{"schemaVersion":1,"sessions":[],"sessions":[]}`)
	h.Row(legacytest.Claims, "r4", "index", nil)
	h.Row(legacytest.Claims, "r5", "other", legacytest.Store())
	h.Row(legacytest.Claims, "r6", "index", `{"schemaVersion":1,"sessions":{}}`)
	h.Row(legacytest.Claims, "r7\n", "index", legacytest.Store())
	for _, repo := range []string{"r1", "r5", "r8"} {
		h.Store(repo, legacytest.NewGen(1).Session("w"))
	}
	h.File("repositories/f1/controller-sessions.json", "")
	h.File("repositories/f2/controller-sessions.json", "\ufeff"+legacytest.Store())
	h.File("repositories/f3/controller-sessions.json", legacytest.Store()+"x")
	h.File("repositories/r2/controller-sessions.json", "?")
	const db = "control-plane.sqlite controller_session_claim_store/"
	h.Close()
	wantOutline(
		t, read(t, h.Dir),
		"file r1: 1 ignored, a record of the same scope exists, but cannot be read",
		"file r2: 0 ignored, a record of the same scope exists, but cannot be read; the file cannot be read: invalid JSON: invalid character '?' looking for beginning of value",
		"file r5: 1",
		"file r8: 1",
		"problem record r1: "+db+"r1/index: invalid JSON: invalid character '}' looking for beginning of value",
		"problem record r2: "+db+"r2/index: schemaVersion is 2, want 1",
		`problem record r3: `+db+`r3/index: duplicate key "sessions"`,
		"problem record r4: "+db+"r4/index: the payload is no text but null",
		"problem record r5: "+db+"r5/other: unknown key, want index",
		"problem record r6: "+db+"r6/index: sessions is no array",
		`problem record "r7\n": `+db+`"r7\n"/index: the scope holds a control character or is not UTF-8`,
		"problem file f1: repositories/f1/controller-sessions.json: invalid JSON: unexpected end of JSON input",
		"problem file f2: repositories/f2/controller-sessions.json: invalid JSON: invalid character 'ï' looking for beginning of value",
		"problem file f3: repositories/f3/controller-sessions.json: invalid JSON: invalid character 'x' after top-level value",
		"missing control-plane.sqlite controller_session_identity",
		"missing control-plane.sqlite execution_session",
	)
}

func TestUnreadable(t *testing.T) {
	t.Run("no database", func(t *testing.T) {
		h := legacytest.New(t)
		h.File(legacytest.Database, strings.Repeat("no database ", 500))
		h.Store("r1", legacytest.NewGen(1).Session("w"))
		s := read(t, h.Dir)
		if len(s.Problems) != 1 || s.Problems[0].Location != legacytest.Database || !strings.Contains(s.Problems[0].Reason, "not a database") {
			t.Errorf("problems %v, want one that the database is none", s.Problems)
		}
		if len(s.Groups) != 1 || !strings.HasPrefix(s.Groups[0].Ignored, "it is unknown whether a record exists") {
			t.Errorf("groups %v, want the file ignored", outline(s))
		}
	})
	t.Run("damaged database", func(t *testing.T) {
		h := legacytest.New(t)
		g := legacytest.NewGen(1)
		h.Record("controller", g.Sessions(500)...)
		h.Store("r1", g.Session("w"))
		h.Close()
		name := filepath.Join(h.Dir, legacytest.Database)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 4096; i < len(b); i++ {
			b[i] ^= 0x5a
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := read(t, h.Dir)
		if len(s.Problems) == 0 || len(s.Groups) != 1 || s.Groups[0].Ignored == "" {
			t.Errorf("found %q, want problems and the file ignored", outline(s))
		}
	})
	t.Run("folders in place of files", func(t *testing.T) {
		h := legacytest.New(t)
		h.File(legacytest.Database+"/x", "")
		h.File("repositories/r1/controller-sessions.json/x", "")
		h.File("repositories/r2/controller-sessions.json", legacytest.Store())
		wantOutline(
			t, read(t, h.Dir),
			"file r1: 0 ignored, it is unknown whether a record exists: not a regular file; the file cannot be read: not a regular file",
			"file r2: 0 ignored, it is unknown whether a record exists: not a regular file",
			"problem record : control-plane.sqlite: not a regular file",
		)
	})
	t.Run("no permission", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Log("the superuser may read everything; only other users see what follows")
			return
		}
		h := legacytest.New(t)
		h.File("repositories/r1/controller-sessions.json", legacytest.Store())
		h.File("repositories/r2/controller-sessions.json", legacytest.Store())
		if err := os.Chmod(filepath.Join(h.Dir, "repositories/r1/controller-sessions.json"), 0); err != nil {
			t.Fatal(err)
		}
		wantOutline(
			t, read(t, h.Dir), "file r2: 0",
			"problem file r1: repositories/r1/controller-sessions.json: permission denied",
			"missing control-plane.sqlite",
		)
	})
}

func TestLinks(t *testing.T) {
	h := legacytest.New(t)
	outside := legacytest.New(t)
	outside.Store("secret", legacytest.NewGen(1).Session("w"))
	h.Store("r1", legacytest.NewGen(1).Session("w"))
	h.File("repositories/r3/x", "")
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(h.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside.Dir, "repositories/secret"), "repositories/a-folder")
	link("../../"+filepath.Base(filepath.Dir(outside.Dir)), "repositories/b-folder")
	link("r1", "repositories/c-inside")
	link("nowhere", "repositories/d-dangling")
	link(filepath.Join(outside.Dir, "repositories/secret/controller-sessions.json"), "repositories/r3/controller-sessions.json")
	s := read(t, h.Dir)
	got := outline(s)
	want := []string{
		"file c-inside: 1", "file r1: 1",
		"problem file a-folder: repositories/a-folder/controller-sessions.json: path escapes from parent",
		"problem file d-dangling: repositories/d-dangling/controller-sessions.json: no such file or directory",
		"problem file r3: repositories/r3/controller-sessions.json: path escapes from parent",
		"missing control-plane.sqlite",
	}
	got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "problem file b-folder") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}

	h2 := legacytest.New(t)
	if err := os.Symlink(filepath.Join(outside.Dir, "repositories"), filepath.Join(h2.Dir, "repositories")); err != nil {
		t.Fatal(err)
	}
	wantOutline(t, read(t, h2.Dir), "problem file : repositories: path escapes from parent", "missing control-plane.sqlite")
}

// TestDatabaseLink: the database may lie elsewhere; its -wal lies beside it.
func TestDatabaseLink(t *testing.T) {
	real := legacytest.New(t)
	full(real)
	real.Crash()
	h := legacytest.New(t)
	if err := os.Symlink(filepath.Join(real.Dir, legacytest.Database), filepath.Join(h.Dir, legacytest.Database)); err != nil {
		t.Fatal(err)
	}
	before := legacytest.ReadTree(t, real.Dir)
	s := read(t, h.Dir)
	if len(s.Groups) != 6 || len(s.Problems) > 0 {
		t.Errorf("found %q", outline(s))
	}
	if diff := cmp.Diff(before, legacytest.ReadTree(t, real.Dir)); diff != "" {
		t.Errorf("the folder of the database has changed (-before +after):\n%s", diff)
	}
}

func TestInstanceScope(t *testing.T) {
	h := legacytest.New(t)
	h.Record("everything")
	h.Record("another")
	h.Retain("everything", legacytest.NewGen(1).Session("w"), "")
	h.Retain("another", legacytest.NewGen(1).Session("w"), "")
	h.Store("r1")
	h.Close()
	home, err := legacy.OpenHome(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for scope, ignored := range map[string]bool{legacy.InstanceScope: false, "everything": true} {
		home.InstanceScope = scope
		s, err := home.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Groups[2].Ignored != ""; got != ignored {
			t.Errorf("instance scope %s: ignored %v, want %v", scope, got, ignored)
		}
		for _, i := range []int{0, 3} { // the newest comes first
			if got := s.Groups[i].Scope == "everything"; got != ignored {
				t.Errorf("instance scope %s: group %d is of scope %s", scope, i, s.Groups[i].Scope)
			}
		}
	}
}

func TestReadStoreFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "store.json")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(legacytest.Store(legacytest.NewGen(1).Sessions(3)...))
	s, err := legacy.ReadStoreFile(t.Context(), name, "repo")
	if err != nil {
		t.Fatal(err)
	}
	wantOutline(t, s, "file repo: 3")
	for content, want := range map[string]string{"[]": "not a JSON object", `{"schemaVersion":3,"sessions":[]}`: "schemaVersion is 3"} {
		write(content)
		if _, err := legacy.ReadStoreFile(t.Context(), name, "repo"); !errors.Is(err, legacy.ErrStore) || !strings.Contains(err.Error(), want) {
			t.Errorf("store %s: %v, want ErrStore with %q", content, err, want)
		}
	}
	for file, scope := range map[string]string{name: " ", dir: "r", filepath.Join(dir, "none"): "r"} {
		if _, err := legacy.ReadStoreFile(t.Context(), file, scope); !errors.Is(err, legacy.ErrStore) {
			t.Errorf("scope %q: %v, want ErrStore", scope, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	for _, end := range []func(*legacytest.Home){(*legacytest.Home).Close, (*legacytest.Home).Crash} {
		h := legacytest.New(t)
		full(h)
		end(h)
		home, err := legacy.OpenHome(h.Dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := home.Sessions(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Sessions: %v, want the context's error", err)
		}
	}
}

// TestLargeHome: 10 000 claims, identities and transport sessions.
func TestLargeHome(t *testing.T) {
	const n = 10_000
	h := legacytest.New(t)
	g := legacytest.NewGen(3)
	sessions := g.Sessions(n)
	h.Record("controller", sessions...)
	rows := make([]legacytest.Row, 0, 2*n)
	for _, s := range sessions {
		rows = append(
			rows,
			legacytest.Row{Namespace: legacytest.Identity, Scope: "controller", Key: s.WorkID, Payload: legacytest.Retained(s, "")},
			legacytest.Row{Namespace: legacytest.Transport, Scope: "controller", Key: s.SessionID, Payload: g.Transport(s)},
		)
	}
	h.Rows(rows)
	h.Crash()
	s := read(t, h.Dir)
	wantOutline(t, s, "record controller: 10000", "retained controller: 10000", "activity controller: 10000", "missing repositories")

	plan := legacy.PlanSessions(s, nil)
	if plan.Entries() != 3*n {
		t.Errorf("the plan sends %d entries, want %d", plan.Entries(), 3*n)
	}
	checkCommands(t, plan)
	got := legacy.WorkCount{Named: n, CountAsOpen: n, Text: "10000 works appear in claims without a known state; they count as open"}
	if diff := cmp.Diff(got, plan.Report().Works); diff != "" {
		t.Errorf("works (-want +got):\n%s", diff)
	}
}

// TestRandomHomes: whatever the combination of places, reading finds what was
// written and changes nothing.
func TestRandomHomes(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("FORGE_TEST_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("FORGE_TEST_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 25 {
		h := legacytest.New(t)
		g := legacytest.NewGen(r.Uint64())
		scopes := []string{"controller", "r1", "r2", "r3"}
		wrote := make(map[string]int)
		database := false
		for _, scope := range scopes {
			if r.IntN(3) == 0 {
				n := r.IntN(5)
				h.Record(scope, g.Sessions(n)...)
				wrote["record "+scope], database = n, true
			}
			if r.IntN(3) == 0 && scope != "controller" {
				n := r.IntN(5)
				h.Store(scope, g.Sessions(n)...)
				wrote["file "+scope] = n
			}
			if n := r.IntN(4); n > 0 {
				for _, s := range g.Sessions(n) {
					h.Retain(scope, s, "")
				}
				wrote["retained "+scope], database = n, true
			}
			if database && r.IntN(4) == 0 {
				h.Checkpoint()
			}
		}
		if database {
			[]func(*legacytest.Home){(*legacytest.Home).Close, (*legacytest.Home).Crash}[r.IntN(2)](h)
		}
		s := read(t, h.Dir)
		found := make(map[string]int)
		for _, g := range s.Groups {
			found[string(g.Place)+" "+g.Scope] = len(g.Entries)
			_, own := wrote["record "+g.Scope]
			_, whole := wrote["record controller"]
			if want := g.Place == legacy.PlaceFile && (own || whole); want != (g.Ignored != "") {
				t.Errorf("%s %s: ignored %q, want %v", g.Place, g.Scope, g.Ignored, want)
			}
		}
		if diff := cmp.Diff(wrote, found); diff != "" {
			t.Errorf("found (-want +got):\n%s", diff)
		}
		if len(s.Problems) > 0 {
			t.Errorf("problems: %v", s.Problems)
		}
		if a, b := reportJSON(t, legacy.PlanSessions(s, nil)), reportJSON(t, legacy.PlanSessions(read(t, h.Dir), nil)); a != b {
			t.Error("the plan of the same home differs")
		}
	}
}

func reportJSON(t *testing.T, p *legacy.Plan) string {
	t.Helper()
	b, err := json.Marshal(p.Report())
	if err != nil {
		t.Fatal(err)
	}
	for c := range p.Commands() {
		b = append(b, c.Body...)
	}
	return string(b)
}
