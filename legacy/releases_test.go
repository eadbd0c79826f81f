package legacy_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/legacy"
	"github.com/forge-es/forge-es/legacy/legacytest"
)

// readReleases reads a home and checks that nothing in it has changed.
func readReleases(t *testing.T, dir string) *legacy.Releases {
	t.Helper()
	before := legacytest.ReadTree(t, dir)
	home, err := legacy.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := home.Releases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, legacytest.ReadTree(t, dir)); diff != "" {
		t.Errorf("the home has changed (-before +after):\n%s", diff)
	}
	return r
}

// received is the body of a receive-document.
type received struct {
	Name       string
	Text       *string
	TextBase64 *string
}

func (r received) content(t *testing.T) string {
	t.Helper()
	if (r.Text == nil) == (r.TextBase64 == nil) {
		t.Fatalf("%s has text %v and textBase64 %v", r.Name, r.Text != nil, r.TextBase64 != nil)
	}
	if r.Text != nil {
		return *r.Text
	}
	b, err := base64.StdEncoding.DecodeString(*r.TextBase64)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDocuments: documents go out as the bytes they are, in byte order of the
// whole file name; what is no document, or cannot be read, is left out or named.
func TestDocuments(t *testing.T) {
	h := legacytest.New(t)
	want := map[string]string{}
	add := func(name, content string) {
		h.Document(name, content)
		want[name] = content
	}
	for name, content := range legacytest.Broken() {
		add(name, content)
	}
	for _, form := range []legacytest.Form{legacytest.Current, legacytest.Legacy, legacytest.Transitional} {
		id := "release-" + string(form)
		add(id+".json", legacytest.Release{ID: id, Form: form, Phase: "known_good"}.JSON())
	}
	add("a.json", "{}")
	add("a-x.json", "{}")
	add("a1.json", "{}\r\n")
	add(".json", "{}")
	add("bom.json", "\ufeff{}")
	add("odd.json", "\x00\u2028<&>\ufffd\\u0000")
	add("zzz-control.json", strings.Repeat("\x01", legacy.MaxDocument))
	add("zzz-binary.json", strings.Repeat("\xff", legacy.MaxDocument))
	h.Document("release-1.json.tmp", "half")
	h.Document("note.txt", "no document")
	h.Document("UPPER.JSON", "no document")
	h.Document("large.json", strings.Repeat("x", legacy.MaxDocument+1))
	h.Document("folder.json/inside.json", "{}")
	// What cannot be taken is not left out: a release would be created without it.
	maps.Copy(want, map[string]string{
		"large.json":         "not imported: it has 524289 bytes, the most of a document is 524288\n",
		"folder.json":        "not imported: it could not be read: not a regular file\n",
		"link-dangling.json": "not imported: it could not be read: no such file or directory\n",
		"link-out.json":      "not imported: it could not be read: path escapes from parent\n",
		"link-up.json":       "not imported: it could not be read: path escapes from parent\n",
	})
	folder := filepath.Join(h.Dir, filepath.FromSlash(legacytest.ReleaseFolder))
	for name, target := range map[string]string{
		"link-out.json": filepath.Join(t.TempDir(), "x"), "link-in.json": "release-current.json", "link-dangling.json": "nothing", "link-up.json": "../../../../x",
	} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	want["link-in.json"] = want["release-current.json"]
	if os.WriteFile(filepath.Join(folder, "caf\xe9.json"), []byte("{}"), 0o600) == nil { // some file systems have only UTF-8 names
		want["caf\ufffd.json"] = "not imported: its name is not UTF-8\n"
	}

	r := readReleases(t, h.Dir)
	plan := legacy.PlanReleases(r)
	var order []string
	for c := range plan.Commands() {
		var b received
		if err := json.Unmarshal(c.Body, &b); err != nil {
			t.Fatal(err)
		}
		if c.Root != "op" || c.Aggregate != "release" || c.Verb != "receive-document" || len(c.Body) > legacy.MaxDocumentBody {
			t.Errorf("command %s.%s.%s of %d bytes", c.Root, c.Aggregate, c.Verb, len(c.Body))
		}
		if got := b.content(t); got != want[b.Name] {
			t.Errorf("%s has other content: %.80q, want %.80q", b.Name, got, want[b.Name])
		}
		order = append(order, b.Name)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if x, y, z := slices.Index(order, "a-x.json"), slices.Index(order, "a.json"), slices.Index(order, "a1.json"); x > y || y > z {
		t.Error("the order is not that of the whole file name")
	}

	var problems []string
	for _, p := range r.Problems {
		problems = append(problems, strings.TrimPrefix(p.Location, legacytest.ReleaseFolder+"/")+": "+p.Reason)
		if p.Place != legacy.PlaceRelease {
			t.Errorf("problem of place %s", p.Place)
		}
	}
	if diff := cmp.Diff([]string{
		"folder.json: not a regular file", "link-dangling.json: no such file or directory",
		"link-out.json: path escapes from parent", "link-up.json: path escapes from parent",
	}, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	report := plan.Report()
	if report.Kind != "releases" || !report.DryRun || report.Ok() || report.Counts[legacy.OutcomeToSend] != len(want) || report.Counts[legacy.OutcomeDropped] > 0 {
		t.Errorf("report %s, dry run %v, ok %v, counts %v", report.Kind, report.DryRun, report.Ok(), report.Counts)
	}
	if diff := cmp.Diff([]string{legacytest.AuthorityFile}, report.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}

	// A bare folder gives the same documents.
	if legacy.IsHome(folder) || !legacy.IsHome(h.Dir) {
		t.Error("the folder is a home, or the home is none")
	}
	bare, err := legacy.ReadReleaseFolder(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	var again []string
	for c := range legacy.PlanReleases(bare).Commands() {
		var b received
		if err := json.Unmarshal(c.Body, &b); err != nil {
			t.Fatal(err)
		}
		again = append(again, b.Name)
	}
	if diff := cmp.Diff(order, again); diff != "" {
		t.Errorf("the bare folder (-home +folder):\n%s", diff)
	}
	if _, err := legacy.ReadReleaseFolder(t.Context(), filepath.Join(folder, "nothing")); !errors.Is(err, legacy.ErrNotHome) {
		t.Errorf("ReadReleaseFolder: %v, want ErrNotHome", err)
	}
}

// TestReleasesMissing: a home may lack both places; one that is a link out of it
// is a problem.
func TestReleasesMissing(t *testing.T) {
	h := legacytest.New(t)
	r := readReleases(t, h.Dir)
	if diff := cmp.Diff([]string{legacytest.ReleaseFolder, legacytest.AuthorityFile}, r.Missing); diff != "" || len(r.Groups)+len(r.Problems) > 0 {
		t.Errorf("missing (-want +got):\n%s\n%+v", diff, r)
	}
	for _, name := range []string{"recovery", "runtime"} {
		if err := os.Symlink(t.TempDir(), filepath.Join(h.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if r = readReleases(t, h.Dir); len(r.Problems) != 2 || len(r.Missing) > 0 {
		t.Errorf("links out of the home: %+v", r)
	}

	home, err := legacy.OpenHome(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Releases(t.Context()); !errors.Is(err, legacy.ErrNotHome) {
		t.Errorf("Releases of a vanished home: %v", err)
	}
	h2 := legacytest.New(t)
	h2.Release(legacytest.Release{ID: "release-1", Phase: "built"})
	home, err = legacy.OpenHome(h2.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := home.Releases(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Releases: %v, want cancelled", err)
	}
}

func TestAuthority(t *testing.T) {
	good := legacytest.Authority(3, "rel-b", "rel-a")
	for content, want := range map[string]string{
		good:                                  "",
		`{"revision": 3.0, "active": {}}`:     "",
		`{"revision": "3", "active": 7}`:      "", // for the service to say
		"null\n":                              "it is null: no authority",
		"":                                    "invalid JSON: unexpected end of JSON input",
		`{"revision": 1,`:                     "invalid JSON: unexpected end of JSON input",
		"[]":                                  "not a JSON object",
		`{"revision": 1, "revision": 2}`:      `duplicate key "revision"`,
		"{\"active\": \"\xff\"}":              "not UTF-8",
		`{"revision":1,"status":"staged"}`:    `status is "staged", want "committed"`,
		`{"revision":1,"status":7}`:           `status is 7, want "committed"`,
		strings.Repeat(" ", legacy.MaxBody+1): "has 409601 bytes, the most is 409600",
	} {
		h := legacytest.New(t)
		h.Authority(content)
		r := readReleases(t, h.Dir)
		name := filepath.Join(h.Dir, filepath.FromSlash(legacytest.AuthorityFile))
		other := &legacy.Releases{From: "x"}
		err := other.SetAuthority(t.Context(), name)
		if want != "" {
			if len(r.Problems) != 1 || r.Problems[0].Reason != want || r.Problems[0].Place != legacy.PlaceAuthority || r.Problems[0].Location != legacytest.AuthorityFile {
				t.Errorf("%.40q: %+v, want %s", content, r.Problems, want)
			}
			if !errors.Is(err, legacy.ErrAuthority) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("SetAuthority: %v, want %s", err, want)
			}
			continue
		}
		for _, r := range []*legacy.Releases{r, other} {
			var bodies []string
			for c := range legacy.PlanReleases(r).Commands() {
				bodies = append(bodies, c.Aggregate+"."+c.Verb+" "+string(c.Body))
			}
			compact, _ := json.Marshal(json.RawMessage(content))
			if diff := cmp.Diff([]string{`authority.publish {"authority":` + string(compact) + `}`}, bodies); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		}

		// A file given for it takes the place of the one that was found.
		if err := r.SetAuthority(t.Context(), name); err != nil || len(r.Groups) != 1 {
			t.Errorf("SetAuthority: %v, groups %v", err, r.Groups)
		}
		text, err := json.Marshal(legacy.PlanReleases(r).Report())
		if err != nil || strings.Contains(string(text), "fence_") {
			t.Errorf("the report shows the fencing token: %s", text)
		}
	}
	if err := new(legacy.Releases).SetAuthority(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, legacy.ErrAuthority) {
		t.Errorf("SetAuthority: %v, want ErrAuthority", err)
	}
}

// shelf is a service that keeps documents as the real one does.
type shelf struct {
	t         *testing.T
	mu        sync.Mutex // guards what follows
	docs      map[string]string
	revision  float64
	authority string
	sent      []string
}

func (s *shelf) Send(_ context.Context, cmd legacy.Command) (legacy.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, cmd.Aggregate+"."+cmd.Verb)
	switch cmd.Verb {
	case "publish":
		var b struct{ Authority struct{ Revision float64 } }
		if err := json.Unmarshal(cmd.Body, &b); err != nil {
			s.t.Fatal(err)
		}
		switch {
		case string(cmd.Body) == s.authority:
			return legacy.Reply{Outcome: "unchanged"}, nil
		case b.Authority.Revision <= s.revision:
			return legacy.Reply{}, events.Errorf(events.CodeVersionConflict, "no").With("revision", s.revision)
		}
		s.authority, s.revision = string(cmd.Body), b.Authority.Revision
		return legacy.Reply{Outcome: "appended", Result: json.RawMessage(`{"revision":1}`)}, nil
	case "receive-document":
		var b received
		if err := json.Unmarshal(cmd.Body, &b); err != nil {
			s.t.Fatal(err)
		}
		text := b.content(s.t)
		known, there := s.docs[b.Name]
		outcome := "appended"
		if there {
			if outcome = "unchanged"; known != text {
				return legacy.Reply{}, events.Errorf(events.CodeReleaseAlreadyExists, "%s is known with other content", b.Name)
			}
		}
		s.docs[b.Name] = text
		form := map[string]string{"name": b.Name, "form": "current"}
		switch {
		case strings.Contains(b.Name, "broken"):
			form["form"], form["why"] = "invalid", "RELEASE_SESSION_INVALID: it is broken"
		case !strings.Contains(text, "semanticEpoch"):
			form["form"] = "awaiting-migration"
		}
		result, err := json.Marshal(form)
		return legacy.Reply{Outcome: outcome, Result: result}, err
	}
	return legacy.Reply{Outcome: "appended", Result: json.RawMessage(`{"snapshot":"imported","entries":[]}`)}, nil
}

// TestRunReleases: a thousand documents, some broken, each named in the report; the
// second run gives the same report but for what is unchanged.
func TestRunReleases(t *testing.T) {
	h := legacytest.New(t)
	for i := range 1000 - 5 {
		form := []legacytest.Form{legacytest.Current, legacytest.Legacy, legacytest.Transitional}[i%3]
		h.Release(legacytest.Release{ID: fmt.Sprintf("release-%04d", i), Form: form, Phase: "failed", Minute: int64(i)})
	}
	broken := legacytest.Broken()
	for _, name := range slices.Sorted(maps.Keys(broken))[1:6] {
		h.Document(name, broken[name])
	}
	h.Authority(legacytest.Authority(3, "rel-b", "rel-a"))
	plan := legacy.PlanReleases(readReleases(t, h.Dir))

	s := &shelf{t: t, docs: map[string]string{}}
	steps := 0
	run := func() *legacy.Report {
		t.Helper()
		steps = 0
		r, err := legacy.Run(t.Context(), plan, s, func(done, total int) {
			if done != steps || total != 1001 {
				t.Errorf("progress %d of %d, want %d of 1001", done, total, steps)
			}
			steps++
		})
		if err != nil || !r.Complete {
			t.Fatal(err)
		}
		return r
	}
	report := run()
	if steps != 1002 || len(s.docs) != 1000 {
		t.Errorf("%d calls of progress, %d documents", steps, len(s.docs))
	}
	if s.sent[1000] != "authority.publish" {
		t.Error("the authority does not come last")
	}
	if diff := cmp.Diff(map[legacy.Outcome]int{"imported": 996, "invalid": 5}, report.Counts); diff != "" || report.Ok() {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"current": 332, "awaiting-migration": 663, "invalid": 5}, report.Forms); diff != "" {
		t.Errorf("forms (-want +got):\n%s", diff)
	}
	for _, e := range report.Entries {
		if e.Outcome == legacy.OutcomeInvalid && (e.Reason == "" || !strings.Contains(e.Key, "broken") || e.Form != "invalid") {
			t.Errorf("entry %+v", e)
		}
	}
	again := run()
	for i := range again.Entries {
		if again.Entries[i].Outcome == legacy.OutcomeUnchanged {
			again.Entries[i].Outcome = legacy.OutcomeImported
		}
	}
	again.Counts = report.Counts
	if diff := cmp.Diff(report, again); diff != "" {
		t.Errorf("the second run (-first +second):\n%s", diff)
	}

	// What changed meanwhile is refused, by name; an older authority is no error.
	s.docs["release-0007.json"] = "{}"
	s.revision, s.authority = 9, "another"
	report = run()
	if diff := cmp.Diff(map[legacy.Outcome]int{"unchanged": 994, "invalid": 5, "refused": 1, "older": 1}, report.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	for _, e := range report.Entries {
		if e.Outcome == legacy.OutcomeRefused && (e.Key != "release-0007.json" || !strings.HasPrefix(e.Reason, "RELEASE_SESSION_ALREADY_EXISTS: ")) {
			t.Errorf("entry %+v", e)
		}
		if e.Place == legacy.PlaceAuthority && e.Key != "revision 3" {
			t.Errorf("entry %+v", e)
		}
	}
	// The same revision with other content contradicts.
	s.revision = 3
	if report = run(); report.Counts[legacy.OutcomeRefused] != 2 || report.Counts[legacy.OutcomeOlder] != 0 {
		t.Errorf("counts %v", report.Counts)
	}
}

// TestPlanHome: all that a home has goes out in one go, in order.
func TestPlanHome(t *testing.T) {
	h := legacytest.New(t)
	full(h)
	h.Release(legacytest.Release{ID: "release-1", Phase: "known_good"})
	h.Document("release-2.json", "null")
	h.Authority(legacytest.Authority(2, "rel-b", "rel-a"))
	h.Close()
	works, err := legacy.ReadWorks(strings.NewReader(`{"workId":"WORK-000001","state":"completed"}`+"\nnonsense\n"), "works")
	if err != nil {
		t.Fatal(err)
	}
	s, r := read(t, h.Dir), readReleases(t, h.Dir)
	plan := legacy.PlanHome(s, works, "", r)
	sh := &shelf{t: t, docs: map[string]string{}}
	report, err := legacy.Run(t.Context(), plan, sh, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"work.import", "activity.set", "work.set-state", "release.receive-document", "authority.publish"}, slices.Compact(slices.Clone(sh.sent))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if report.Kind != "home" || len(report.Problems) != 1 || report.Works.CountAsOpen != report.Works.Named-1 {
		t.Errorf("report %s, problems %v, works %+v", report.Kind, report.Problems, report.Works)
	}
	without := legacy.PlanHome(s, nil, "", r)
	if without.Len() != plan.Len()-1 || without.Report().Works.CountAsOpen != report.Works.Named {
		t.Errorf("%d commands without a works file, %d with one", without.Len(), plan.Len())
	}
	notes := map[string]string{}
	for _, e := range plan.Report().Entries {
		notes[e.Key] = e.Note
	}
	if notes["release-2.json"] != "no session: not a JSON object" || notes["release-1.json"] != "" {
		t.Errorf("notes %v", notes)
	}
}
