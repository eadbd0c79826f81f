package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/internal/conformance"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// TestConformance runs every session vector through the running service: over
// NATS, on embedded JetStream, an instance per trace, with a virtual clock.
func TestConformance(t *testing.T) {
	e := logtest.Embedded(t)
	forge, app, caller := logtest.ForgeConn(t, e), logtest.AppConn(t, e), servicetest.Caller(t, e)
	traces := 0
	conformance.Run(t, "session", "../testdata/conformance", func() (conformance.System, func()) {
		traces++
		w := &wire{t: t, caller: caller, instance: fmt.Sprintf("trace-%d", traces)}
		node, stop := servicetest.Run(t, w.instance, forge, app, func(cfg *eventlog.Config, opts *service.Options) {
			cfg.Embedded = e
			opts.UUID = func() (string, error) { return w.uuid, nil }
		})
		w.clock = node.Clock
		return w, stop
	})
}

// wire maps the operations of the vectors to requests.
type wire struct {
	t        *testing.T
	caller   *nats.Conn
	clock    *servicetest.Clock
	instance string
	position uint64 // of the last commit that was seen
	uuid     string // what the random source yields next
}

var commandOf = map[string]string{
	"claim": session.VerbClaim, "resume": session.VerbResume, "resumeTx": session.VerbResume, "bind": session.VerbBind,
	"releaseWithAuthority": session.VerbReleaseWithAuthority,
}

var operatorOf = map[string]string{
	"release": session.VerbRelease, "releaseObserved": session.VerbReleaseObserved,
	"env.execution": "activity.set", "env.legacyStore": session.VerbImport, "env.legacyRetained": session.VerbImport,
}

var queryOf = map[string]string{"get": "works.get", "retained": "works.retained", "blocksRecovery": "works.blocks-recovery"}

func (w *wire) Do(at time.Time, op string, input json.RawMessage) conformance.Answer {
	w.clock.Set(at)
	subject, body := "", any(input)
	switch {
	case commandOf[op] != "":
		subject = w.command(input, commandOf[op])
	case operatorOf[op] != "":
		subject = "forge.op." + w.instance + ".operator." + operatorOf[op]
	case queryOf[op] != "":
		subject = "forge.query." + w.instance + "." + queryOf[op]
	case op == "terminalize":
		subject = "forge.op." + w.instance + ".operator." + session.VerbTerminalize
		if strings.Contains(string(input), `"authority":{`) {
			subject = w.command(input, session.VerbTerminalize)
		}
	case op == "env.work":
		subject = "forge.op." + w.instance + ".operator." + session.VerbSetState
		body = withReason(w.t, input)
	case op == "list":
		return w.list()
	case op == "mint":
		var in struct{ UUID string }
		w.must(json.Unmarshal(input, &in))
		w.uuid = in.UUID
		subject = "forge.query." + w.instance + ".claims.mint"
	default:
		return w.pure(op, input)
	}
	r := servicetest.MustAsk(w.t, w.caller, subject, body)
	w.position = max(w.position, r.Position)
	if r.Code != "" {
		return conformance.Answer{Error: string(r.Code)}
	}
	return conformance.Answer{OK: r.Result}
}

// command is the subject of a command by the principal that the body names, as a
// gateway sends it.
func (w *wire) command(input json.RawMessage, verb string) string {
	var in struct {
		PrincipalID, ControllerID string
		Authority                 struct{ PrincipalID string }
	}
	_ = json.Unmarshal(input, &in) // wrong types are for the service to judge
	principal := "nobody"
	for _, p := range []string{in.ControllerID, in.PrincipalID, in.Authority.PrincipalID} {
		if p = strings.TrimSpace(p); p != "" {
			principal = p
		}
	}
	return "forge.cmd." + w.instance + "." + events.Token(principal) + "." + verb
}

// list reads all pages, each at least as new as the last commit that was seen.
func (w *wire) list() conformance.Answer {
	all, cursor := []json.RawMessage{}, ""
	for {
		r := servicetest.MustAsk(w.t, w.caller, "forge.query."+w.instance+".claims.list-full", map[string]any{"minPosition": w.position, "cursor": cursor})
		if r.Code != "" {
			return conformance.Answer{Error: string(r.Code)}
		}
		var page []json.RawMessage
		w.must(json.Unmarshal(r.Result, &page))
		all, cursor = append(all, page...), r.Cursor
		if !r.Truncated {
			break
		}
	}
	b, err := json.Marshal(all)
	w.must(err)
	return conformance.Answer{OK: b}
}

func (w *wire) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func withReason(t *testing.T, input json.RawMessage) any {
	var m map[string]any
	if err := json.Unmarshal(input, &m); err != nil {
		t.Fatal(err)
	}
	m["reason"] = "the surrounding system says so"
	return m
}

// pure answers the operations that are library calls in both runs.
func (w *wire) pure(op string, input json.RawMessage) conformance.Answer {
	body, err := aggregate.ParseBody(input)
	w.must(err)
	result, err := conformance.PureSession(op, body)
	if err != nil {
		return conformance.Answer{Error: string(events.CodeOf(err))}
	}
	b, err := json.Marshal(result)
	w.must(err)
	return conformance.Answer{OK: b}
}
