package release_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/internal/conformance"
)

// TestConformance runs every release vector against the decider alone.
func TestConformance(t *testing.T) {
	conformance.Run(t, "release", "../../testdata/conformance", func() (conformance.System, func()) {
		return &memory{t: t}, func() {}
	})
}

// memory is a ledger in memory. Every event goes through its encoding, as on the
// log.
type memory struct {
	t      *testing.T
	ledger release.Ledger
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

var verbOf = map[string]string{
	"create": release.VerbCreate, "advance": release.VerbAdvance, "recordTransaction": release.VerbTransaction, "migrate": release.VerbMigrate,
}

func (m *memory) do(now events.Time, op string, input json.RawMessage) (any, error) {
	body, err := aggregate.ParseBody(input)
	if err != nil {
		return nil, err
	}
	if verb, ok := verbOf[op]; ok {
		return m.command(now, verb, body)
	}
	switch op {
	case "read":
		return release.Read(m.ledger, body.Text("sessionId"))
	case "list":
		most := math.NaN()
		if raw, ok := body.Raw("maxEntries"); ok {
			_ = json.Unmarshal(raw, &most)
		}
		return m.ledger.List(most), nil
	case "listComplete":
		return m.ledger.ListComplete(), nil
	case "env.directory":
		return nil, nil
	case "env.file":
		var in struct {
			Name, Text string
			Names      []string
			JSON       json.RawMessage
		}
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, err
		}
		if in.JSON != nil {
			in.Text = string(in.JSON)
		}
		if in.Names == nil {
			in.Names = []string{in.Name}
		}
		for _, name := range in.Names {
			receive := map[string]any{"name": name, "text": in.Text, "replace": true, "reason": "found"}
			if _, err := m.send(now, release.VerbReceiveDocument, receive); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "env.removeFile":
		return m.send(now, release.VerbDiscardDocument, map[string]any{"name": body.Text("name").Value, "reason": "gone"})
	}
	return release.Predicate(m.ledger, op, body)
}

func (m *memory) send(now events.Time, verb string, body any) (any, error) {
	text, _ := json.Marshal(body)
	b, err := aggregate.ParseBody(text)
	if err != nil {
		return nil, err
	}
	return m.command(now, verb, b)
}

func (m *memory) command(now events.Time, verb string, body *aggregate.Body) (any, error) {
	c, err := release.Parse(verb, body)
	if err != nil {
		return nil, err
	}
	before, _ := json.Marshal(m.ledger.ListComplete())
	d, err := release.Decider{}.Decide(m.ledger, c, release.Facts{Now: now})
	if unchanged, _ := json.Marshal(m.ledger.ListComplete()); string(unchanged) != string(before) {
		m.t.Errorf("%s changed the ledger by deciding", verb)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range d.Events {
		e := events.Encode(p)
		decoded, err := events.Decode(e)
		if err != nil {
			m.t.Fatalf("%s: %v", e.Type, err)
		}
		once, err := release.Decider{}.Evolve(m.ledger, decoded)
		if err != nil {
			m.t.Fatalf("%s: %v", e.Type, err)
		}
		twice, _ := release.Decider{}.Evolve(m.ledger, decoded)
		a, _ := json.Marshal(once.ListComplete())
		b, _ := json.Marshal(twice.ListComplete())
		if string(a) != string(b) {
			m.t.Fatalf("%s: folding twice gives two ledgers", e.Type)
		}
		m.ledger = once
	}
	return d.Result, nil
}
