package service_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
)

// call is what a caller asks about a work.
type call struct {
	work, verb, controller string
	generation             int64 // shown
}

// told is what the service answers: how it ended, and who holds the work in
// which generation.
type told struct {
	end        string // ok, claimed, missing, stale, none
	holder     string
	generation int64
}

// holding is the model of a work: who holds it, "" for nobody, and the last
// generation.
type holding struct {
	holder     string
	generation int64
}

// apply is the specification, as far as these calls go.
func (h holding) apply(c call) (told, holding) {
	held := told{"", h.holder, h.generation}
	answer := func(end string) told { held.end = end; return held }
	shows := c.controller == h.holder && c.generation == h.generation
	switch {
	case c.verb == "works.get" && h.holder == "":
		return told{end: "none"}, h
	case c.verb == "works.get":
		return answer("ok"), h
	case c.verb == session.VerbClaim && h.holder == "":
		h = holding{c.controller, h.generation + 1}
		return told{"ok", h.holder, h.generation}, h
	case c.verb == session.VerbClaim && h.holder != c.controller:
		return answer("claimed"), h
	case c.verb == session.VerbClaim:
		return answer("ok"), h
	case h.holder == "":
		return told{end: "missing"}, h
	case !shows:
		return answer("stale"), h
	case c.verb == session.VerbReleaseWithAuthority:
		return answer("ok"), holding{"", h.generation}
	default:
		return answer("ok"), h
	}
}

var workModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byWork := map[string][]porcupine.Operation{}
		for _, op := range history {
			work := op.Input.(call).work
			byWork[work] = append(byWork[work], op)
		}
		var out [][]porcupine.Operation
		for _, list := range byWork {
			out = append(out, list)
		}
		return out
	},
	Init: func() any { return holding{} },
	Step: func(state, input, output any) (bool, any) {
		answer, next := state.(holding).apply(input.(call))
		return answer == output.(told), next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// callers lets clients call about a few works at the same time, and records it.
func callers(t *testing.T, s *servicetest.Site, rng *rand.Rand, works []string, clients, calls int) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	seeds := make([]uint64, clients)
	for i := range seeds {
		seeds[i] = rng.Uint64()
	}
	together(clients, func(i int) {
		rng := rand.New(rand.NewPCG(seeds[i], 0))
		who := fmt.Sprintf("c%d", i%4) // two clients speak for each controller
		known := map[string]int64{}
		for range calls {
			c := call{work: works[rng.IntN(len(works))], controller: who}
			c.generation = known[c.work]
			subject, body := servicetest.Cmd("p-"+who, session.VerbClaim), claimOf(c.work, who)
			switch rng.IntN(8) {
			case 0, 1, 2:
				c.verb = "works.get"
				subject, body = servicetest.Query(c.verb), fields{"workId": c.work}
			case 3:
				c.verb = session.VerbRenew
				subject, body = servicetest.Cmd("p-"+who, c.verb), shown(c.work, who, c.generation)
			case 4, 5:
				c.verb = session.VerbReleaseWithAuthority
				subject, body = servicetest.Cmd("p-"+who, c.verb), shown(c.work, who, c.generation)
			default:
				c.verb = session.VerbClaim
			}
			op := porcupine.Operation{ClientId: i, Input: c, Call: int64(time.Since(begin))}
			r, err := servicetest.Ask(s.Caller(rng.IntN(len(s.Callers))), subject, body)
			op.Return = int64(time.Since(begin))
			if err != nil {
				t.Errorf("%v: %v", c, err)
				return
			}
			out := answerOf(t, r)
			if out.holder == who {
				known[c.work] = out.generation
			}
			op.Output = out
			mu.Lock()
			history = append(history, op)
			mu.Unlock()
		}
	})
	return history
}

// answerOf reads an answer as the model speaks.
func answerOf(t *testing.T, r *servicetest.Reply) told {
	switch r.Code {
	case "":
	case events.CodeAlreadyClaimed:
		holder, _ := r.Details["controllerId"].(string)
		generation, _ := r.Details["claimGeneration"].(float64)
		return told{"claimed", holder, int64(generation)}
	default:
		t.Errorf("unexpected: %s", r.Data)
		return told{end: string(r.Code)}
	}
	if string(r.Result) == "null" {
		return told{end: "none"}
	}
	out := told{end: "ok"}
	if r.Outcome == refused {
		if _, reason := fenceOf(t, r); reason == session.ReasonClaimMissing {
			return told{end: "missing"}
		}
		out.end = "stale"
	}
	o := owner(t, r)
	out.holder, out.generation = o.ControllerID, o.Gen()
	return out
}

// TestTortureLinearizable: whatever callers are told about a work can be put into
// one order that the specification allows and that no caller could contradict.
// The cache is so small that works come and go.
func TestTortureLinearizable(t *testing.T) {
	rng := random(t)
	small := func(_ *eventlog.Config, o *service.Options) { o.CacheSize = 1 }
	run := func(t *testing.T, s *servicetest.Site, seeds int) {
		for n := range seeds {
			var works []string
			for i := range 3 {
				works = append(works, fmt.Sprintf("w%d-%d", n, i))
			}
			history := callers(t, s, rng, works, 8, 60)
			result, info := porcupine.CheckOperationsVerbose(workModel, history, minute)
			if result == porcupine.Ok {
				continue
			}
			if f, err := os.CreateTemp("", "forge-history-*.html"); err == nil {
				defer f.Close()
				t.Logf("the history is drawn in %s", f.Name())
				_ = porcupine.Visualize(workModel, info, f)
			}
			t.Fatalf("history %d: %s", n, result)
		}
	}
	t.Run("R1", func(t *testing.T) { run(t, servicetest.SiteR1(t, small), rounds(4, 10, 200)) })
	t.Run("R1, all cached", func(t *testing.T) { run(t, servicetest.SiteR1(t), rounds(2, 5, 100)) })
	t.Run("R3", func(t *testing.T) { run(t, servicetest.SiteR3(t, 3, small), rounds(2, 5, 100)) })
}
