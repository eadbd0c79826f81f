package service_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of randomised tests; 0: a random one, which is printed")
	torture  = os.Getenv("FORGE_TORTURE") != ""
)

// random is a source that can be repeated with -seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds is how often a test repeats itself.
func rounds(short, normal, long int) int {
	switch {
	case torture:
		return long
	case testing.Short():
		return short
	}
	return normal
}

// fields are the members of a body.
type fields map[string]any

// with is a copy with other or further members; nil takes one away.
func (f fields) with(pairs ...any) fields {
	out := fields{}
	for k, v := range f {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(out, pairs[i].(string))
			continue
		}
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

// claimOf is what a controller says to own a work. Controller c is principal
// p-c, of runtime i-c and transport session s-c.
func claimOf(workID, controller string) fields {
	return fields{
		"workId": workID, "controllerId": controller, "controllerType": "agent", "sessionId": "s-" + controller,
		"principalId": "p-" + controller, "controllerInstanceId": "i-" + controller,
	}
}

// authorityOf is the authority of claimOf in a generation.
func authorityOf(controller string, generation int64) fields {
	return fields{
		"controllerId": controller, "controllerType": "agent", "principalId": "p-" + controller,
		"controllerInstanceId": "i-" + controller, "claimGeneration": generation,
	}
}

func shown(workID, controller string, generation int64) fields {
	return fields{"workId": workID, "authority": authorityOf(controller, generation)}
}

// cmd sends a command of a controller.
func cmd(t testing.TB, nc *nats.Conn, controller, verb string, body any, headers ...string) *servicetest.Reply {
	t.Helper()
	return servicetest.MustAsk(t, nc, servicetest.Cmd("p-"+controller, verb), body, headers...)
}

func op(t testing.TB, nc *nats.Conn, verb string, body any, headers ...string) *servicetest.Reply {
	t.Helper()
	return servicetest.MustAsk(t, nc, servicetest.Op(verb), body, headers...)
}

func query(t testing.TB, nc *nats.Conn, verb string, body any, headers ...string) *servicetest.Reply {
	t.Helper()
	if body == nil {
		body = []byte{}
	}
	return servicetest.MustAsk(t, nc, servicetest.Query(verb), body, headers...)
}

// owner reads a session out of a reply.
func owner(t testing.TB, r *servicetest.Reply) *events.Session {
	t.Helper()
	if r.Code != "" {
		t.Fatalf("%s: %s", r.Code, r.Data)
	}
	var fence struct {
		Owner *events.Session `json:"owner"`
	}
	if json.Unmarshal(r.Result, &fence) == nil && fence.Owner != nil {
		return fence.Owner
	}
	s := &events.Session{}
	if string(r.Result) == "null" {
		return nil
	}
	if err := json.Unmarshal(r.Result, s); err != nil {
		t.Fatalf("%v: %s", err, r.Data)
	}
	return s
}

// fenceOf reads the answer of a command that shows an authority.
func fenceOf(t testing.TB, r *servicetest.Reply) (allowed bool, reason string) {
	t.Helper()
	if r.Code != "" {
		t.Fatalf("%s: %s", r.Code, r.Data)
	}
	var f struct {
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}
	if err := json.Unmarshal(r.Result, &f); err != nil {
		t.Fatal(err)
	}
	return f.Allowed, f.Reason
}

// want fails unless a reply is the error that is wanted, and the header says so,
// too.
func want(t testing.TB, r *servicetest.Reply, code events.Code) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("got %q (%s), want %s", r.Code, r.Data, code)
	}
	if r.Number != code.Info().Number || !strings.HasPrefix(r.Header.Get("Nats-Service-Error"), string(code)) {
		t.Errorf("headers %v do not say %s", r.Header, code)
	}
}

// wantOutcome fails unless a command came to what is wanted.
func wantOutcome(t testing.TB, r *servicetest.Reply, outcome string) {
	t.Helper()
	if r.Code != "" || r.Outcome != outcome {
		t.Fatalf("got %q %q (%s), want %s", r.Code, r.Outcome, r.Data, outcome)
	}
}

// position is where the log ends.
func position(t testing.TB, s *servicetest.Site) uint64 {
	t.Helper()
	p, err := s.Log().LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	appended  = service.OutcomeAppended
	already   = service.OutcomeAlreadyApplied
	unchanged = service.OutcomeUnchanged
	refused   = service.OutcomeRefused

	minute = time.Minute
)

func mustInto(t testing.TB, r *servicetest.Reply, v any) {
	t.Helper()
	if r.Code != "" {
		t.Fatalf("%s: %s", r.Code, r.Data)
	}
	if err := json.Unmarshal(r.Result, v); err != nil {
		t.Fatalf("%v: %s", err, r.Data)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// scrape reads a page of a node.
func scrape(t testing.TB, n *servicetest.Node, path string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	n.HTTP().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.Bytes()
}

// metric reads a metric of a node, the sum over its labels.
func metric(t testing.TB, n *servicetest.Node, name string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(string(scrape(t, n, "/metrics"))) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}
