//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog/logtest"
)

// natscli is the module of the real nats command line, which is no dependency of
// ours.
const (
	natscli        = "github.com/nats-io/natscli/nats"
	natscliVersion = "v0.5.0"
)

// Paths of the programs, set by TestMain.
var natsPath, forgePath string

func TestMain(m *testing.M) {
	status, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		status = 1
	}
	os.Exit(status)
}

func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "forge-es-e2e")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	forgePath = filepath.Join(dir, "forge-es")
	if out, err := exec.Command("go", "build", "-o", forgePath, "../cmd/forge-es").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build forge-es: %w\n%s", err, out)
	}
	if natsPath, err = buildNATS(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// buildNATS gives the nats command, which it builds at most once per version.
func buildNATS(dir string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = dir
	}
	kept := filepath.Join(cache, "forge-es", "natscli-"+natscliVersion+"-"+runtime.Version(), "nats")
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return "", err
	}
	// In a directory of its own: our go.mod has no say in it, and stays as it is.
	c := exec.Command("go", "install", natscli+"@"+natscliVersion)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s@%s: %w\n%s", natscli, natscliVersion, err, out)
	}
	// As a whole or not at all: another run may be doing the same.
	b, err := os.ReadFile(filepath.Join(dir, "nats"))
	if err != nil {
		return "", err
	}
	half := fmt.Sprintf("%s.%d", kept, os.Getpid())
	if err := os.WriteFile(half, b, 0o700); err != nil {
		return "", err
	}
	return kept, os.Rename(half, kept)
}

// shell is a user's shell: a home, and an environment.
type shell struct {
	t    *testing.T
	home string
	env  []string
}

func newShell(t *testing.T) *shell {
	home := t.TempDir()
	return &shell{t: t, home: home, env: []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "USER=operator",
		"PATH=" + filepath.Dir(forgePath) + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}}
}

// result is what a command printed, and how it ended.
type result struct {
	t      *testing.T
	line   string
	out    string // stdout and stderr
	status int
}

// run runs a program to its end.
func (s *shell) run(program string, args ...string) result {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), program, args...)
	c.Dir, c.Env = s.home, s.env
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	r := result{t: s.t, line: filepath.Base(program) + " " + strings.Join(args, " "), out: out.String()}
	if c.ProcessState == nil {
		s.t.Fatalf("%s: %v", r.line, err)
	}
	r.status = c.ProcessState.ExitCode()
	return r
}

func (s *shell) nats(args ...string) result  { s.t.Helper(); return s.run(natsPath, args...) }
func (s *shell) forge(args ...string) result { s.t.Helper(); return s.run(forgePath, args...) }

// ends fails the test unless the exit status is the given one.
func (r result) ends(status int) result {
	r.t.Helper()
	if r.status != status {
		r.t.Errorf("%s\nends with %d, want %d\n%s", r.line, r.status, status, r.out)
	}
	return r
}

// shows fails the test unless the output matches all patterns.
func (r result) shows(patterns ...string) result {
	r.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(r.out) {
			r.t.Errorf("%s\ndoes not show %s:\n%s", r.line, p, r.out)
		}
	}
	return r
}

// lacks fails the test if the output matches a pattern.
func (r result) lacks(pattern string) result {
	r.t.Helper()
	if regexp.MustCompile(`(?m)` + pattern).MatchString(r.out) {
		r.t.Errorf("%s\nshows %s:\n%s", r.line, pattern, r.out)
	}
	return r
}

// json reads the last JSON object of the output.
func (r result) json() map[string]any {
	r.t.Helper()
	var v map[string]any
	for _, line := range slices.Backward(strings.Split(r.out, "\n")) {
		if json.Unmarshal([]byte(line), &v) == nil {
			return v
		}
	}
	if json.Unmarshal([]byte(r.out), &v) != nil {
		r.t.Fatalf("%s\nshows no JSON:\n%s", r.line, r.out)
	}
	return v
}

// serve runs the service until the test ends, and gives its ready file.
func (s *shell) serve(args ...string) (ready struct{ NATS, HTTP, Log string }) {
	s.t.Helper()
	name := filepath.Join(s.home, "ready.json")
	c := exec.Command(forgePath, append([]string{"serve", "--http=127.0.0.1:0", "--ready-file=" + name}, args...)...)
	c.Dir, c.Env = s.home, s.env
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = c.Process.Kill()
			<-ended
			s.t.Error("the service did not stop")
		}
		if !c.ProcessState.Success() {
			s.t.Errorf("the service ended with %s\n%s", c.ProcessState, &log)
		}
	})
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(name); err == nil {
			if err := json.Unmarshal(b, &ready); err != nil {
				s.t.Fatal(err)
			}
			return ready
		}
		select {
		case <-ended:
			s.t.Fatalf("the service ended with %s\n%s", c.ProcessState, &log)
		default:
		}
	}
	s.t.Fatal("the service is not ready")
	return ready
}

const claimW1 = `{"workId":"W1","controllerId":"c1","controllerType":"codex","sessionId":"s1"}`

// TestTour is what a newcomer does with the embedded server and the nats command.
// (nats req ends with 0 whatever the service says: its output counts.)
func TestTour(t *testing.T) {
	s := newShell(t)
	ready := s.serve("--data=data", "--listen=127.0.0.1:0")
	s.env = append(s.env, "NATS_URL="+ready.NATS)

	// A command, the same again with its id, and a loser.
	r := s.nats("req", "-H", "Forge-Command-Id:one", "forge.cmd.main.c1.work.claim", claimW1).ends(0).shows(`^\S+ Content-Type: application/json$`).json()
	if r["outcome"] != "appended" || r["position"] != 1.0 || r["commandId"] != "one" {
		t.Errorf("claimed: %v", r)
	}
	if owner, _ := r["result"].(map[string]any); owner["controllerId"] != "c1" || owner["claimGeneration"] != 1.0 {
		t.Errorf("claimed: %v", owner)
	}
	r = s.nats("req", "--raw", "-H", "Forge-Command-Id:one", "forge.cmd.main.c1.work.claim", claimW1).ends(0).json()
	if r["outcome"] != "already-applied" || r["position"] != 1.0 {
		t.Errorf("claimed again: %v", r)
	}
	s.nats("req", "forge.cmd.main.c2.work.claim", strings.ReplaceAll(claimW1, "c1", "c2")).ends(0).
		shows(`Nats-Service-Error: WORK_ALREADY_CLAIMED: W1 is owned by c1 generation 1`, `Nats-Service-Error-Code: 409`, `"controllerId":"c1"`)
	s.nats("req", "forge.cmd.main.c2.work.claim", claimW1).ends(0).shows(`Nats-Service-Error: FORGE_PRINCIPAL_MISMATCH`, `Nats-Service-Error-Code: 403`)
	s.nats("req", "forge.cmd.main.c1.work.frob", "").ends(0).shows(`Nats-Service-Error: FORGE_UNKNOWN_VERB`, `Nats-Service-Error-Code: 404`)
	s.nats("req", "forge.cmd.main.c1.work.claim", "nonsense").ends(0).shows(`Nats-Service-Error-Code: 400`)
	s.nats("req", "forge.op.main.operator.work.force-release", `{"workId":"W2"}`).ends(0).shows(`Nats-Service-Error: FORGE_REASON_REQUIRED`)

	// Queries.
	r = s.nats("req", "forge.query.main.works.get", `{"workId":"W1"}`).ends(0).json()
	if owner, _ := r["result"].(map[string]any); owner["controllerId"] != "c1" || r["position"] != 1.0 || r["asOf"] == nil {
		t.Errorf("works.get: %v", r)
	}
	r = s.nats("req", "forge.query.main.works.get", `{"workId":"nobody's"}`).ends(0).json()
	if v, ok := r["result"]; !ok || v != nil {
		t.Errorf("works.get of a free work: %v", r)
	}
	r = s.nats("req", "forge.query.main.claims.list", `{"minPosition":1}`).ends(0).json()
	if list, _ := r["result"].([]any); len(list) != 1 {
		t.Errorf("claims.list: %v", r)
	}
	r = s.nats("req", "forge.query.main.works.history", `{"workId":"W1"}`).ends(0).json()
	if list, _ := r["result"].([]any); len(list) != 1 {
		t.Errorf("works.history: %v", r)
	}

	// The service is found like any other.
	s.nats("service", "ls").ends(0).shows(`forge-es +│ \d+\.\d+\.\d+`, `decides who owns a piece of work`)
	s.nats("service", "info", "forge-es").ends(0).shows(
		`^ +Service: forge-es \(`, `instance: main`, `log: `+ready.Log,
		`^ +Name: cmd-work-claim\n +Subject: forge\.cmd\.main\.\*\.work\.claim\n +Queue Group: forge-es\n +Metadata: description: claim a work under a lease$`,
		`^ +Subject: forge\.op\.main\.\*\.work\.force-release$`, `^ +Subject: forge\.query\.main\.claims\.list$`,
	)
	s.nats("service", "stats", "forge-es").ends(0).shows(`cmd-work-claim +│ \d`)
	s.nats("service", "ping", "--timeout=2s").ends(0).shows(`^forge-es `)

	// What callers may not do: see the log, take requests, make streams.
	s.nats("stream", "ls", "--all").ends(0).lacks("FORGE_")
	s.nats("stream", "info", "FORGE_MAIN").ends(1)
	s.nats("sub", "forge.cmd.>").ends(1).shows(`Permissions Violation for Subscription to "forge.cmd.>"`)
	s.nats("sub", "--queue=forge-es", "forge.query.main.works.get").ends(1).shows(`Permissions Violation`)
	s.nats("pub", "forge.log.main.work.W1", "nonsense").ends(0) // it reaches nobody

	// The program and the command see the same.
	s.forge("work", "ls").ends(0).shows(`^W1 +c1 +codex +c1 +1 `)
	r = s.forge("history", "W1", "-j").ends(0).json()
	if r["position"] != 1.0 {
		t.Errorf("history: %v", r)
	}
}

// TestReadme runs the tour of the README, line by line.
func TestReadme(t *testing.T) {
	s := newShell(t)
	ready := s.serve("--data=data", "--listen=127.0.0.1:0")
	s.env = append(s.env, "NATS_URL="+ready.NATS, "PATH="+filepath.Dir(forgePath)+":"+filepath.Dir(natsPath)+":"+os.Getenv("PATH"))
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Abs("../docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(docs, filepath.Join(s.home, "docs")); err != nil {
		t.Fatal(err)
	}
	_, tour, _ := strings.Cut(string(b), "## A tour\n")
	tour, _, _ = strings.Cut(tour, "\n## ")
	lines, status := 0, 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(tour, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", "")) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "#"):
				if m := regexp.MustCompile(`exit status (\d)`).FindStringSubmatch(line); m != nil {
					status, _ = strconv.Atoi(m[1])
				}
			case line != "" && !strings.HasPrefix(line, "export PATH="):
				s.run("sh", "-c", line).ends(status).lacks("Nats-Service-Error")
				lines, status = lines+1, 0
			}
		}
	}
	if lines < 45 {
		t.Errorf("the tour has only %d commands", lines)
	}
	s.forge("history", "w1").shows(`c1 gen 1 \(first\)`, `state is completed`)
	s.forge("work", "info", "w2").shows(`^claim +live`)
	s.forge("release", "ls").shows(`^release-1 +known_good +\d+ +1\.8\.0 `, `^release-2 +rolled_back +\d+ +1\.9\.0 `)
	s.forge("authority", "info").shows(`^live +1\.8\.0$`)
}

// tourFile is a file of the README's tour, on one line.
func tourFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../docs/tour/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestRelease leads a release to known good, and rolls one back, with the nats
// command alone.
func TestRelease(t *testing.T) {
	s := newShell(t)
	ready := s.serve("--data=data", "--listen=127.0.0.1:0")
	s.env = append(s.env, "NATS_URL="+ready.NATS)
	send := func(root, verb, body string, headers ...string) result {
		t.Helper()
		args := []string{"req"}
		for _, h := range headers {
			args = append(args, "-H", h)
		}
		return s.nats(append(args, "forge."+root+".main."+verb, body)...).ends(0)
	}
	done := func(r result, phase string, revision float64) {
		t.Helper()
		got := r.lacks("Nats-Service-Error").json()
		session, _ := got["result"].(map[string]any)
		if got["outcome"] != "appended" || session["phase"] != phase || session["revision"] != revision || got["incarnation"] == nil {
			t.Errorf("%s\n%v, want %s at revision %v", r.line, got, phase, revision)
		}
	}
	create := func(id, source, live string) string {
		return `{"sessionId":"` + id + `","sourceRevision":"` + source + `","stable":` + tourFile(t, "stable-lane.json") +
			`,"candidate":` + tourFile(t, "candidate-lane.json") + `,"stableRelease":` + tourFile(t, live) + `,"checkAuthority":true}`
	}
	receipts := func(kind string, ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, `{"kind":"`+kind+`","id":"`+id+`","summary":"ok"}`)
		}
		return `"receipts":[` + strings.Join(list, ",") + `]`
	}
	advance := func(id string, revision int, phase string, more ...string) result {
		t.Helper()
		body := fmt.Sprintf(`{"sessionId":%q,"expectedRevision":%d,"phase":%q`, id, revision, phase)
		return send("cmd", "ci.release.advance", strings.Join(append([]string{body}, more...), ",")+"}")
	}
	static := receipts("static_gate", "type", "runtime_architecture", "architecture_sync", "bootstrap")
	canaries := receipts("candidate_canary", "recovery", "mcp", "scheduler", "supervisor", "controller")

	// What is live; then from frozen source to known good.
	send("op", "operator.authority.publish", `{"authority":`+tourFile(t, "authority-1.json")+`,"expectedRevision":0}`).
		shows(`"outcome":"appended"`).lacks("fence-1")
	send("cmd", "ci.authority.publish", `{"authority":{}}`).shows("Nats-Service-Error: FORGE_FORBIDDEN")
	first := create("release-1", "4f2a91c", "live-1.7.0.json")
	done(send("cmd", "ci.release.create", first, "Forge-Command-Id:one"), "source_frozen", 1)
	send("cmd", "ci.release.create", first, "Forge-Command-Id:one").shows(`"outcome":"already-applied"`)
	send("cmd", "ci.release.create", first).shows("Nats-Service-Error: RELEASE_SESSION_ALREADY_EXISTS", "Nats-Service-Error-Code: 409")
	send("cmd", "ci.release.create", create("release-2", "b80d3e7", "live-1.7.0.json")).shows("Nats-Service-Error: RELEASE_SESSION_ACTIVE_EXISTS: release-1")
	advance("release-1", 1, "built").shows("RELEASE_SESSION_CANDIDATE_RELEASE_REQUIRED")
	done(advance("release-1", 1, "built", `"candidateRelease":`+tourFile(t, "candidate-1.8.0.json")), "built", 2)
	advance("release-1", 1, "static_verified").shows("Nats-Service-Error: RELEASE_SESSION_REVISION_FENCED", `"revision":2`)
	advance("release-1", 2, "static_verified").shows("Nats-Service-Error: RELEASE_SESSION_STATIC_GATES_INCOMPLETE")
	done(send("cmd", "ci.release.receipts", `{"sessionId":"release-1",`+static+`}`), "built", 3)
	send("query", "releases.explain", `{"sessionId":"release-1"}`).shows(`"next":"static_verified"`, `"waits":\[\]`)
	done(advance("release-1", 3, "static_verified"), "static_verified", 4)
	done(advance("release-1", 4, "candidate_booted"), "candidate_booted", 5)
	done(advance("release-1", 5, "candidate_verified", canaries), "candidate_verified", 6)
	done(advance("release-1", 6, "cutover_eligible"), "cutover_eligible", 7)
	done(advance("release-1", 7, "cutover_attempting"), "cutover_attempting", 8)
	advance("release-1", 8, "cutover_committed").shows("Nats-Service-Error: RELEASE_SESSION_TRANSACTION_REQUIRED")
	transaction := `{"sessionId":"release-1","expectedRevision":8,"transaction":` + tourFile(t, "transaction-1.8.0.json") + `}`
	done(send("cmd", "ci.release.transaction", transaction), "cutover_attempting", 9)
	send("cmd", "ci.release.transaction", transaction).shows(`"outcome":"unchanged"`)
	done(advance("release-1", 9, "cutover_committed"), "cutover_committed", 10)
	send("op", "operator.authority.publish", `{"authority":`+tourFile(t, "authority-2.json")+`,"expectedRevision":1}`).shows(`"outcome":"appended"`)
	done(advance("release-1", 10, "soaking"), "soaking", 11)
	done(advance("release-1", 11, "known_good", receipts("soak", "supervisor_continuation_proof")), "known_good", 12)
	advance("release-1", 12, "failed").shows("Nats-Service-Error: RELEASE_SESSION_TERMINAL")

	// And one that is rolled back.
	done(send("cmd", "ci.release.create", create("release-2", "b80d3e7", "live-1.8.0.json")), "source_frozen", 1)
	done(advance("release-2", 1, "built", `"candidateRelease":`+tourFile(t, "candidate-1.9.0.json")), "built", 2)
	done(advance("release-2", 2, "static_verified", static), "static_verified", 3)
	done(advance("release-2", 3, "candidate_booted"), "candidate_booted", 4)
	done(advance("release-2", 4, "candidate_verified", canaries), "candidate_verified", 5)
	done(advance("release-2", 5, "cutover_eligible"), "cutover_eligible", 6)
	advance("release-2", 6, "rolled_back").shows("Nats-Service-Error: RELEASE_SESSION_ROLLBACK_BEFORE_CUTOVER_ATTEMPT")
	done(advance("release-2", 6, "cutover_attempting"), "cutover_attempting", 7)
	done(advance("release-2", 7, "rolled_back", receipts("rollback", "rollback")), "rolled_back", 8)

	// What others see of it.
	r := send("query", "releases.list-complete", `{"order":"active-first"}`).json()
	if list, _ := r["result"].(map[string]any); list["inspected"] != 2.0 {
		t.Errorf("list: %v", r)
	}
	send("query", "releases.get", `{"sessionId":"release-9"}`).shows(`"result":null`)
	send("query", "releases.info", `{"sessionId":"release-9"}`).shows("Nats-Service-Error: RELEASE_SESSION_MISSING", "Nats-Service-Error-Code: 404")
	send("query", "authority.info", `{}`).shows(`"releaseId":"1.8.0"`, `"revision":2`).lacks("fence-2")
	s.nats("service", "info", "forge-es").ends(0).shows(`^ +Subject: forge\.cmd\.main\.\*\.release\.advance$`, `^ +Subject: forge\.op\.main\.\*\.authority\.publish$`)
	s.forge("release", "info", "release-2").ends(0).shows(`^phase +✕ rolled_back$`)
}

// TestWire: docs/wire.md tells of every endpoint that the service shows.
func TestWire(t *testing.T) {
	s := newShell(t)
	ready := s.serve("--data=data", "--listen=127.0.0.1:0")
	s.env = append(s.env, "NATS_URL="+ready.NATS)
	b, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	out := s.nats("service", "info", "forge-es").ends(0).out
	list := regexp.MustCompile(`Subject: forge\.(?:(cmd|op)\.main\.\*|query\.main)\.([a-z-]+\.[a-z-]+)\n`).FindAllStringSubmatch(out, -1)
	if len(list) < 40 {
		t.Errorf("the service shows only %d endpoints:\n%s", len(list), out)
	}
	for _, m := range list {
		row := "| `" + m[2] + "` | " + m[1]
		if !strings.Contains(string(b), row) {
			t.Errorf("docs/wire.md has no row %s", row)
		}
	}
}

// TestExistingServer: the service on a NATS server that is there already, with an
// account for the log and one for callers, named by contexts of the nats command.
func TestExistingServer(t *testing.T) {
	s := newShell(t)
	url := logtest.Single(t, true).URL()
	for _, user := range [][]string{{"forge", "forge", "test-forge"}, {"service", "forge-service", "test-service"}, {"app", "app", "test-app"}} {
		s.nats("context", "add", user[0], "--server="+url, "--user="+user[1], "--password="+user[2]).ends(0)
	}

	// What is missing is said.
	s.forge("serve", "--context=forge", "--app-context=service", "--replicas=1", "--http=-").ends(2).shows(`FORGE_BAD_REQUEST: .*--log-max-bytes`)
	s.forge("serve", "--context=frog", "--http=-").ends(2).shows(`context "frog"`, `there are: app, forge, service`)

	s.serve("--context=forge", "--app-context=service", "--replicas=1", "--log-max-bytes=1000000000", "--durability=synced")
	s.nats("--context=app", "req", "forge.cmd.main.c1.work.claim", claimW1).ends(0).shows(`"outcome":"appended"`)
	s.forge("--context=app", "work", "claim", "W 2", "--controller=c1", "--type=codex", "--session=s1").ends(0).shows(`^appended at position 2`)

	// Whoever has the account of the log can look at its records.
	s.nats("--context=app", "stream", "ls", "--all").ends(0).lacks("FORGE_MAIN")
	s.nats("--context=forge", "stream", "ls", "--all").ends(0).shows(`FORGE_MAIN`)
	got := s.nats("--context=forge", "stream", "get", "FORGE_MAIN", "2", "--translate=forge-es decode").ends(0).
		shows(`forge\.log\.main\.work\.`, `"aggregateId": "W 2"`, `"type": "claim\.granted"`, `"controllerId": "c1"`)
	token := strings.TrimSpace(s.forge("token", "W 2").ends(0).out)
	got.shows(regexp.QuoteMeta("forge.log.main.work." + token))
	s.nats("--context=forge", "sub", "--stream=FORGE_MAIN", "--all", "--count=2", "--translate=forge-es decode -j").ends(0).
		shows(`"aggregateId":"W1"`, `"aggregateId":"W 2"`)
}
