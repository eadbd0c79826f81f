package session_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/internal/conformance"
)

// TestConformance runs every session vector against the deciders alone.
func TestConformance(t *testing.T) {
	conformance.Run(t, "session", "../../testdata/conformance", func() (conformance.System, func()) {
		return &memory{t: t, works: map[string]session.State{}, executions: map[string]*events.Execution{}}, func() {}
	})
}

// memory is the boundaries of one instance, in memory. Every state goes through
// the carried form and every event through its encoding, as on the log.
type memory struct {
	t          *testing.T
	works      map[string]session.State
	imports    session.ImportState
	executions map[string]*events.Execution
}

var verbOf = map[string]string{
	"claim": session.VerbClaim, "resume": session.VerbResume, "resumeTx": session.VerbResume, "bind": session.VerbBind,
	"release": session.VerbRelease, "releaseWithAuthority": session.VerbReleaseWithAuthority, "releaseObserved": session.VerbReleaseObserved,
	"terminalize": session.VerbTerminalize,
}

func (m *memory) Do(at time.Time, op string, input json.RawMessage) conformance.Answer {
	result, err := m.do(events.TimeOf(at), op, input)
	if err != nil {
		return conformance.Answer{Error: string(events.AsError(err).Code)}
	}
	b, err := json.Marshal(result)
	if err != nil {
		m.t.Fatal(err)
	}
	return conformance.Answer{OK: b}
}

func (m *memory) do(now events.Time, op string, input json.RawMessage) (any, error) {
	body, err := aggregate.ParseBody(input)
	if err != nil {
		return nil, err
	}
	work := func() session.State { return m.state(aggregate.Trimmed(body.Text("workId"))) }
	if verb, ok := verbOf[op]; ok {
		c, err := session.Parse(verb, body)
		if err != nil {
			return nil, err
		}
		return m.command(now, c)
	}
	switch op {
	case "get":
		return session.Get(work(), now)
	case "retained":
		return session.Retained(work())
	case "list":
		live := []any{}
		for _, s := range m.works {
			if owner := s.Live(now); owner != nil && s.Conflict == nil {
				live = append(live, *owner)
			}
		}
		return live, nil
	case "blocksRecovery":
		return session.Blocks(work(), body.Int("nowMs"), body.Millis("graceMs"), func(owner *events.Session) (*events.Execution, error) {
			return m.executions[owner.SessionID], nil
		}, now)
	case "env.work":
		state, _ := body.Raw("state")
		if state == nil {
			state = []byte("null")
		}
		set, _ := json.Marshal(map[string]any{"workId": body.Text("workId").Value, "state": state, "reason": "the surrounding system says so"})
		b, _ := aggregate.ParseBody(set)
		c, _ := session.Parse(session.VerbSetState, b)
		return m.command(now, c)
	case "env.execution":
		x := body.Object("session")
		id := aggregate.Trimmed(body.Text("sessionId"))
		if !x.Set {
			delete(m.executions, id)
			return nil, nil
		}
		execution, err := session.ParseExecution(id, x.Value)
		m.executions[id] = execution
		return nil, err
	case "env.legacyStore", "env.legacyRetained":
		snapshot, err := session.ParseSnapshot(body)
		if err != nil {
			return nil, err
		}
		return m.take(now, snapshot)
	}
	return conformance.PureSession(op, body)
}

func (m *memory) state(id string) session.State {
	if s, ok := m.works[id]; ok {
		return s
	}
	return session.Decider{}.Initial(id)
}

func (m *memory) command(now events.Time, c session.Command) (any, error) {
	s := m.state(c.Target())
	f := session.Facts{Now: now, Execution: m.executions[s.OwnerSession(now)]}
	if !s.NeedsExecution(c, now) {
		f.Execution = nil
	}
	d, err := session.Decider{}.Decide(s, c, f)
	if err != nil || len(d.Events) == 0 {
		return d.Result, err
	}
	after := commit(m.t, session.Decider{}, c.Target(), s, d.Events)
	m.works[c.Target()] = after
	again := session.Recall(&events.Commit{At: now, Command: events.Command{Verb: c.Verb()}}, d.Events, after)
	if asText(again) != asText(d.Result) {
		m.t.Errorf("%s: recalled result differs\nfirst %s\nagain %s", c.Verb(), asText(d.Result), asText(again))
	}
	return d.Result, nil
}

func (m *memory) take(now events.Time, snapshot *session.Snapshot) (any, error) {
	d, err := session.Imports{}.Decide(m.imports, snapshot, session.Facts{Now: now})
	if err != nil || d.Result == session.SnapshotIgnored {
		return nil, err
	}
	m.imports = commit(m.t, session.Imports{}, "main", m.imports, d.Events)
	for _, e := range snapshot.Entries {
		if e.Dropped != nil {
			continue
		}
		if _, err := m.command(now, snapshot.Entry(e)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// commit evolves a state by events that went through their encoding, checks that
// folding twice agrees, and gives the state through its carried form.
func commit[S, C, F any](t failer, d aggregate.Decider[S, C, F], id string, s S, list []events.Payload) S {
	t.Helper()
	decoded := make([]events.Payload, len(list))
	for i, p := range list {
		e := events.Encode(p)
		var err error
		if decoded[i], err = events.Decode(e); err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
	}
	once, err := aggregate.Evolve(d, s, decoded)
	if err != nil {
		t.Fatalf("%v", err)
	}
	twice, _ := aggregate.Evolve(d, s, decoded)
	carried := d.EncodeState(once)
	if string(carried.Data) != string(d.EncodeState(twice).Data) {
		t.Fatalf("folding twice gives two states")
	}
	after, ok, err := d.DecodeState(id, carried)
	if !ok || err != nil {
		t.Fatalf("carried state: %v", err)
	}
	if string(d.EncodeState(after).Data) != string(carried.Data) {
		t.Fatalf("the carried state changes when it is read")
	}
	return after
}
