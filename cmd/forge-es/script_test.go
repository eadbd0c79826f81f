package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/legacy/legacytest"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test binary the program itself when it is called by the
// program's name, as the scripts and the kill test do.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forge-es": main})
}

// TestScripts runs testdata/script. Each script has a directory of its own and
// starts its own service. Beside the commands of testscript there are:
//
//	start FLAGS       start a service on free ports, and wait for it as ready does
//	ready FILE        wait for the --ready-file, set NATS_URL, ADDRESS, HTTP_URL and PID
//	status N VERB …   run forge-es, which must end with exit status N
//	signal NAME PID   send a signal
//	gone PID          wait until a process has ended
//	shows FILE        stdout must be the file, once times, ids and the like are masked
//	json FILE PATH V  the value at PATH of a JSON file ("stdout", "stderr") is V;
//	                  with !, there is none
//	keys FILE PATH K  the object at PATH has exactly the keys K (a,b,c)
//	fits FILE N       no line is wider than N
//	http [-t TOKEN] N PATH   get PATH from HTTP_URL, which must answer with status N
//	home KIND DIR     build a home of the replaced system
//	tree DIR FILE     write down all that DIR holds
//	record DATA FILE  write the newest commit on the log of a stopped service, as it is
//	request SUBJECT BODY   send a request, its reply is stdout
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("USER", "operator")
			e.Setenv("GORACE", noExitSleep)
			tour, err := filepath.Abs("../../docs/tour") // the files of the README's tour
			e.Setenv("TOUR", tour)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start": scriptStart, "ready": scriptReady, "status": scriptStatus, "signal": scriptSignal, "gone": scriptGone,
			"shows": scriptShows, "json": scriptJSON, "keys": scriptKeys, "fits": scriptFits, "http": scriptHTTP,
			"home": func(ts *testscript.TestScript, neg bool, args []string) { scriptHome(t, ts, args) },
			"tree": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[1]), fmt.Appendf(nil, "%v\n", legacytest.ReadTree(t, ts.MkAbs(args[0]))), 0o600))
			},
			"request": scriptRequest, "record": func(ts *testscript.TestScript, neg bool, args []string) { scriptRecord(t, ts, args) },
		},
	})
}

// scriptStart starts a service on free ports and waits for it; flags may be
// added.
func scriptStart(ts *testscript.TestScript, _ bool, args []string) {
	log, err := os.Create(ts.MkAbs("serve.log"))
	ts.Check(err)
	p, err := startProcess(ts.MkAbs("."), log, args...)
	ts.Check(err)
	ts.Defer(func() {
		p.end()
		log.Close()
	})
	scriptReady(ts, false, []string{"ready.json"})
}

func scriptReady(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil {
			var r ready
			ts.Check(json.Unmarshal(b, &r))
			ts.Setenv("NATS_URL", r.NATS)
			ts.Setenv("ADDRESS", strings.TrimPrefix(r.NATS, "nats://"))
			ts.Setenv("HTTP_URL", r.HTTP)
			ts.Setenv("PID", strconv.Itoa(r.PID))
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the service did not become ready: %v", err)
		}
	}
}

func scriptStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec("forge-es", args[1:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("forge-es: %v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("forge-es %s: exit status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "KILL": syscall.SIGKILL}

func scriptSignal(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}

func scriptGone(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[0])
	ts.Check(err)
	for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("process %d goes on", pid)
		}
	}
}

// masks hide what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "MOMENT              "},
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ULID"},
	{regexp.MustCompile(`\bctrl_[0-9a-f]{32}\b`), "CAPABILITY"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`\b59m\d\ds\b`), "1h"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.text)
	}
	return text
}

func scriptShows(ts *testscript.TestScript, _ bool, args []string) {
	got, want := masked(ts.ReadFile("stdout")), ts.ReadFile(args[0])
	if got != want {
		ts.Fatalf("stdout is\n%swant\n%s", got, want)
	}
}

// at finds a value by a path as in .result.0.workId.
func at(ts *testscript.TestScript, file, path string) (any, bool) {
	text := ts.ReadFile(file)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		ts.Fatalf("%s is no JSON: %v\n%s", file, err, text)
	}
	for _, name := range strings.Split(strings.Trim(path, "."), ".") {
		if name == "" {
			continue
		}
		switch x := v.(type) {
		case map[string]any:
			member, ok := x[name]
			if !ok {
				return nil, false
			}
			v = member
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(x) {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	v, ok := at(ts, args[0], args[1])
	if neg {
		if ok {
			ts.Fatalf("%s has %s: %v", args[0], args[1], v)
		}
		return
	}
	if !ok {
		ts.Fatalf("%s has no %s", args[0], args[1])
	}
	got := fmt.Sprint(v)
	if v == nil {
		got = "null"
	}
	if !regexp.MustCompile(`^(?:` + args[2] + `)$`).MatchString(got) {
		ts.Fatalf("%s of %s is %q, want %q", args[1], args[0], got, args[2])
	}
}

func scriptKeys(ts *testscript.TestScript, _ bool, args []string) {
	v, _ := at(ts, args[0], args[1])
	object, ok := v.(map[string]any)
	if !ok {
		ts.Fatalf("%s of %s is no object: %v", args[1], args[0], v)
	}
	var got []string
	for k := range object {
		got = append(got, k)
	}
	want := strings.Split(args[2], ",")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		ts.Fatalf("%s of %s has the keys %s, want %s", args[1], args[0], got, want)
	}
}

func scriptFits(ts *testscript.TestScript, _ bool, args []string) {
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > most {
			ts.Fatalf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
		if strings.TrimRight(line, " ") != line {
			ts.Fatalf("blanks at the end of %q", line)
		}
	}
}

func scriptHTTP(ts *testscript.TestScript, _ bool, args []string) {
	token := ""
	if args[0] == "-t" {
		token, args = args[1], args[2:]
	}
	r, err := http.NewRequest(http.MethodGet, ts.Getenv("HTTP_URL")+args[1], nil)
	ts.Check(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	ts.Check(err)
	_, err = ts.Stdout().Write(b)
	ts.Check(err)
	if want := args[0]; strconv.Itoa(answer.StatusCode) != want {
		ts.Fatalf("%s: status %d, want %s\n%s", args[1], answer.StatusCode, want, b)
	}
	if csp := answer.Header.Get("Content-Security-Policy"); answer.StatusCode == http.StatusOK && !strings.Contains(csp, "default-src 'none'") {
		ts.Fatalf("%s: Content-Security-Policy %q", args[1], csp)
	}
}

func scriptRequest(ts *testscript.TestScript, _ bool, args []string) {
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	answer, err := nc.Request(args[0], []byte(args[1]), 10*time.Second)
	ts.Check(err)
	_, err = ts.Stdout().Write(answer.Data)
	ts.Check(err)
}

func scriptRecord(t *testing.T, ts *testscript.TestScript, args []string) {
	e := logtest.Embedded(t, logtest.DataDir(ts.MkAbs(args[0])))
	defer e.Shutdown()
	nc, err := e.ForgeConn()
	ts.Check(err)
	defer nc.Close()
	l, err := eventlog.Open(t.Context(), nc, readOnly(e))
	ts.Check(err)
	defer l.Close()
	last, err := l.LastPosition(t.Context())
	ts.Check(err)
	for r, err := range servicetest.UpTo(l, last).Records(t.Context(), last) {
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), r.Payload, 0o600))
	}
}

// scriptHome builds homes: "clean" has nothing that needs a look, "odd" has a
// broken session and works in several places, "documents" has a thousand release
// documents of which five are broken, "releases" has one that becomes something of
// each, "full" has everything.
func scriptHome(t *testing.T, ts *testscript.TestScript, args []string) {
	h := legacytest.In(t, ts.MkAbs(args[1]))
	claim := func(work, controller string, generation int64) legacytest.Session {
		return legacytest.Session{
			SchemaVersion: 1, WorkID: work, ControllerID: controller, ControllerType: "codex", SessionID: "sess_" + controller,
			ControllerInstanceID: "runtime_1", ClaimGeneration: generation,
			ClaimedAt: "2026-01-02T03:04:05.000Z", LeaseExpiresAt: "2026-01-02T04:04:05.000Z",
		}
	}
	switch args[0] {
	case "clean":
		h.Record(legacytest.InstanceScope, claim("WORK-1", "codex-a", 3), claim("WORK-2", "codex-b", 1))
		h.Retain(legacytest.InstanceScope, claim("WORK-3", "codex-c", 2), "2026-01-03T00:00:00.000Z")
	case "odd":
		h.Record(legacytest.InstanceScope, claim("W1", "codex-a", 7), claim("WORK-4", "codex-b", 1), legacytest.Session{SchemaVersion: 1, WorkID: "WORK-5"})
	case "documents":
		for i := range 995 {
			form := []legacytest.Form{legacytest.Current, legacytest.Legacy, legacytest.Transitional}[i%3]
			h.Release(legacytest.Release{ID: fmt.Sprintf("release-%04d", i), Form: form, Phase: "failed", Minute: int64(i)})
		}
		broken := legacytest.Broken()
		for _, kind := range []string{"json", "latin1", "null", "phase", "twice"} {
			h.Document("broken-"+kind+".json", broken["broken-"+kind+".json"])
		}
		h.Authority(legacytest.Authority(2, "rel-b", "rel-a"))
	case "releases":
		h.Release(legacytest.Release{ID: "release-current", Phase: "failed", Minute: 1})
		h.Release(legacytest.Release{ID: "release-old", Form: legacytest.Legacy, Phase: "known_good", Stable: "rel-x", Candidate: "rel-y", Minute: 2})
		h.Release(legacytest.Release{ID: "release-soaked", Form: legacytest.Transitional, Phase: "soaking", Stable: "rel-y", Candidate: "rel-a", Minute: 100})
		h.Release(legacytest.Release{ID: "release-rolled", Form: legacytest.Legacy, Phase: "rolled_back", Candidate: "rel-c", Minute: 200})
		h.Release(legacytest.Release{ID: "release-committed", Form: legacytest.Transitional, Phase: "cutover_committed", StableRevision: 2, Minute: 300})
		h.Authority(legacytest.Authority(3, "rel-b", "rel-a"))
	case "full":
		held := claim("WORK-1", "codex-a", 3)
		h.Record(legacytest.InstanceScope, held, claim("WORK-2", "codex-b", 1))
		h.Retain(legacytest.InstanceScope, claim("WORK-3", "codex-c", 2), "2026-01-03T00:00:00.000Z")
		h.Record("repo-1", claim("WORK-4", "codex-d", 1))
		h.Store("repo-1", claim("WORK-4", "codex-d", 1))
		h.Row(legacytest.Transport, "controller", held.SessionID, legacytest.NewGen(1).Transport(held))
		h.Release(legacytest.Release{ID: "release-current", Phase: "known_good"})
		h.Release(legacytest.Release{ID: "release-legacy", Form: legacytest.Legacy, Phase: "failed"})
		h.Release(legacytest.Release{ID: "release-transit", Form: legacytest.Transitional, Phase: "rolled_back"})
		h.Authority(legacytest.Authority(2, "rel-b", "rel-a"))
	default:
		ts.Fatalf("no home is called %s", args[0])
	}
	h.Close()
}

// TestOutputFails: data that cannot be written is an error, not silence.
func TestOutputFails(t *testing.T) {
	var stderr bytes.Buffer
	if got := run(t.Context(), []string{"token", "x"}, strings.NewReader(""), broken{}, &stderr); got != 1 {
		t.Errorf("exit status %d, want 1", got)
	}
	if !strings.Contains(stderr.String(), "stdout: no room") {
		t.Errorf("stderr is %q", &stderr)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }
