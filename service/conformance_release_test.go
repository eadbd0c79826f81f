package service_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/internal/conformance"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// TestConformanceReleases runs every release vector through the running service:
// over NATS, on embedded JetStream, an instance per trace, with a virtual clock.
func TestConformanceReleases(t *testing.T) {
	e := logtest.Embedded(t)
	forge, app, caller := logtest.ForgeConn(t, e), logtest.AppConn(t, e), servicetest.Caller(t, e)
	traces := 0
	conformance.Run(t, "release", "../testdata/conformance", func() (conformance.System, func()) {
		traces++
		w := &releaseWire{t: t, caller: caller, instance: fmt.Sprintf("release-%d", traces)}
		node, stop := servicetest.Run(t, w.instance, forge, app, func(cfg *eventlog.Config, _ *service.Options) { cfg.Embedded = e })
		w.clock = node.Clock
		return w, stop
	})
}

// releaseWire maps the operations of the release vectors to requests.
type releaseWire struct {
	t        *testing.T
	caller   *nats.Conn
	clock    *servicetest.Clock
	instance string
}

var releaseOf = map[string]string{
	"create": "cmd.%s.releaser." + release.VerbCreate, "advance": "cmd.%s.releaser." + release.VerbAdvance,
	"recordTransaction": "cmd.%s.releaser." + release.VerbTransaction, "migrate": "op.%s.operator." + release.VerbMigrate,
	"read": "query.%s.releases.get", "list": "query.%s.releases.list", "listComplete": "query.%s.releases.list-complete",
	"isTerminal": "query.%s.releases.predicates", "candidateIsRetired": "query.%s.releases.predicates",
	"isSoakingPredecessorOfStable": "query.%s.releases.predicates", "isSoakingSupersededByStableAuthority": "query.%s.releases.predicates",
}

func (w *releaseWire) Do(at time.Time, op string, input json.RawMessage) conformance.Answer {
	w.clock.Set(at)
	switch op {
	case "env.directory":
		return conformance.Answer{}
	case "env.file":
		return w.files(input)
	case "env.removeFile":
		return w.send("op.%s.operator."+release.VerbDiscardDocument, with(w.t, input, "reason", "it is gone"))
	}
	subject, ok := releaseOf[op]
	if !ok {
		w.t.Fatalf("operation %q is not known", op)
	}
	var body any = input
	if subject == "query.%s.releases.predicates" {
		body = with(w.t, input, "predicate", op)
	}
	return w.send(subject, body)
}

func (w *releaseWire) send(subject string, body any) conformance.Answer {
	r := servicetest.MustAsk(w.t, w.caller, "forge."+fmt.Sprintf(subject, w.instance), body)
	if r.Code != "" {
		return conformance.Answer{Error: string(r.Code)}
	}
	return conformance.Answer{OK: r.Result}
}

// files receives documents, which replace what is known under their names.
func (w *releaseWire) files(input json.RawMessage) conformance.Answer {
	var in struct {
		Name, Text string
		Names      []string
		JSON       json.RawMessage
	}
	if err := json.Unmarshal(input, &in); err != nil {
		w.t.Fatal(err)
	}
	if in.JSON != nil {
		in.Text = string(in.JSON)
	}
	if in.Names == nil {
		in.Names = []string{in.Name}
	}
	for _, name := range in.Names {
		a := w.send("op.%s.operator."+release.VerbReceiveDocument, map[string]any{"name": name, "text": in.Text, "replace": true, "reason": "it was found"})
		if a.Error != "" {
			return a
		}
	}
	return conformance.Answer{}
}

// with adds a member to an input.
func with(t *testing.T, input json.RawMessage, name string, v any) any {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(input, &m); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	m[name] = b
	return m
}
