package replay

import (
	"errors"
	"testing"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// fickle is a decider whose folds do not depend on their arguments alone.
type fickle struct {
	aggregate.Decider[[]byte, any, any]
	evolve func(state []byte) []byte
}

func (f fickle) Initial(string) []byte { return []byte{1} }
func (f fickle) Evolve(state []byte, _ events.Payload) ([]byte, error) {
	return f.evolve(state), nil
}

func (f fickle) EncodeState(state []byte) events.State {
	return events.State{V: 1, Data: append(events.Raw{}, state...)}
}

func TestFoldTwice(t *testing.T) {
	calls := byte(0)
	for _, tt := range []struct {
		name   string
		evolve func(state []byte) []byte
		stable bool
	}{
		{"pure", func(s []byte) []byte { return []byte{s[0] + 1} }, true},
		{"changes its input", func(s []byte) []byte { s[0]++; return s }, false},
		{"changes its input, answers well", func(s []byte) []byte { s[0] = 7; return []byte{7} }, false},
		{"depends on something else", func([]byte) []byte { calls++; return []byte{calls} }, false},
	} {
		f := begin(fickle{evolve: tt.evolve}, "w1", nil)
		was, list := f.state(), []events.Payload{events.WorkStateSet{}}
		if err := f.evolve(list, place{}); err != nil {
			t.Fatal(err)
		}
		if err := f.again(list, place{}, was); (err == nil) != tt.stable || err != nil && !errors.Is(err, errUnstable) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
