package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// stack is a decider for these tests: a work whose states pile up.
type stack struct{}

func (stack) Kind() string             { return events.KindWork }
func (stack) Rules() int               { return 1 }
func (stack) Initial(id string) string { return id }
func (stack) Carries() bool            { return true }

func (stack) EncodeState(string) (s events.State) { return s }

func (stack) DecodeState(string, events.State) (string, bool, error) { return "", false, nil }

func (stack) Decide(string, string, int) (d aggregate.Decision, err error) { return d, nil }

func (stack) Evolve(s string, e events.Payload) (string, error) {
	set, ok := e.(events.WorkStateSet)
	if !ok || set.State == "impossible" {
		return "spoilt", fmt.Errorf("%w: cannot follow", events.ErrEncoding)
	}
	return s + "/" + set.State, nil
}

func set(states ...string) (list []events.Event) {
	for _, s := range states {
		list = append(list, events.Encode(events.WorkStateSet{State: s, How: events.SetByOperator}))
	}
	return list
}

// follow makes the record of the next commit.
func follow(f aggregate.Folded[string], position uint64, spoil func(c *events.Commit), list ...events.Event) events.Record {
	c := &events.Commit{
		V: 1, Log: "log", ID: fmt.Sprint(position), Kind: events.KindWork, AggregateID: "w", Version: f.Head.Version + 1, Prev: f.Head.Position,
		PrevHash: f.Head.Hash, At: events.Time(position), Rules: 1, Recent: f.Head.Recent, Events: list,
	}
	if spoil != nil {
		spoil(c)
	}
	id := events.NewMsgID("s", "p", c.ID)
	return events.Record{Position: position, Payload: c.Encode(), Header: map[string][]string{events.MsgIDHeader: {id.String()}}}
}

func TestNextFolds(t *testing.T) {
	f := aggregate.Start[string, string, int](stack{}, "w")
	for i, list := range [][]events.Event{set("a"), set("b", "c"), set("d")} {
		r := follow(f, uint64(10*i+3), nil, list...)
		next, err := aggregate.Next[string, string, int](stack{}, f, r)
		if err != nil {
			t.Fatal(err)
		}
		if next.Head.Position != r.Position || next.Head.Version != uint64(i+1) || next.Head.Hash != events.HashOf(r.Payload) || len(next.Head.Recent) != i+1 {
			t.Errorf("the head is %+v", next.Head)
		}
		if again, err := aggregate.Next[string, string, int](stack{}, f, r); err != nil || again.State != next.State || again.Head.Hash != next.Head.Hash {
			t.Errorf("folding twice gives %+v and %+v", next, again)
		}
		f = next
	}
	if f.State != "w/a/b/c/d" {
		t.Errorf("the state is %s", f.State)
	}
}

// What does not follow is an error, not a state.
func TestNextRefuses(t *testing.T) {
	start := aggregate.Start[string, string, int](stack{}, "w")
	f, err := aggregate.Next[string, string, int](stack{}, start, follow(start, 3, nil, set("a")...))
	if err != nil {
		t.Fatal(err)
	}
	unknown := events.Event{Type: "work.vanished", V: 1, Data: events.Raw{0x80}}
	newer := set("b")[0]
	newer.V = 2
	odd := set("b")[0]
	odd.Data = events.Raw{0x80}
	good := follow(f, 5, nil, set("b")...)
	cut := good
	cut.Payload = good.Payload[:len(good.Payload)-1]
	for name, c := range map[string]struct {
		record events.Record
		want   error
	}{
		"the same commit again":       {follow(start, 3, nil, set("a")...), events.ErrChain},
		"a position before":           {follow(f, 2, nil, set("b")...), events.ErrChain},
		"a hole":                      {follow(f, 5, func(c *events.Commit) { c.Version++ }, set("b")...), events.ErrChain},
		"another predecessor":         {follow(f, 5, func(c *events.Commit) { c.PrevHash[0] ^= 1 }, set("b")...), events.ErrChain},
		"a time before":               {follow(f, 5, func(c *events.Commit) { c.At = 1 }, set("b")...), events.ErrChain},
		"another kind":                {follow(f, 5, func(c *events.Commit) { c.Kind = events.KindRelease }, set("b")...), events.ErrEncoding},
		"an unknown event":            {follow(f, 5, nil, unknown), events.ErrUnknownEvent},
		"an unknown event behind":     {follow(f, 5, nil, set("b")[0], unknown), events.ErrUnknownEvent},
		"a newer version":             {follow(f, 5, nil, newer), events.ErrUnknownEvent},
		"missing fields":              {follow(f, 5, nil, odd), events.ErrEncoding},
		"an event that cannot follow": {follow(f, 5, nil, set("b", "impossible")...), events.ErrEncoding},
		"cut bytes":                   {cut, events.ErrEncoding},
	} {
		got, err := aggregate.Next[string, string, int](stack{}, f, c.record)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if got.State != f.State || got.Head.Hash != f.Head.Hash {
			t.Errorf("%s: the state became %s", name, got.State)
		}
	}
	if _, err := aggregate.Next[string, string, int](stack{}, f, good); err != nil {
		t.Error(err)
	}
}

func TestEvolveStopsAtTheFirstMistake(t *testing.T) {
	list := []events.Payload{events.WorkStateSet{State: "a"}, events.WorkStateSet{State: "impossible"}, events.WorkStateSet{State: "c"}}
	got, err := aggregate.Evolve[string, string, int](stack{}, "w", list)
	if got != "w/a" || err == nil || !strings.Contains(err.Error(), "event 1") {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := aggregate.Evolve[string, string, int](stack{}, "w", nil); got != "w" || err != nil {
		t.Errorf("no events give %s, %v", got, err)
	}
}

func TestPayloadsNameTheEvent(t *testing.T) {
	c := &events.Commit{Events: append(set("a"), events.Event{Type: "x", V: 1})}
	if list, err := aggregate.Payloads(c); list != nil || err == nil || !strings.Contains(err.Error(), "event 1") {
		t.Errorf("got %v, %v", list, err)
	}
}
