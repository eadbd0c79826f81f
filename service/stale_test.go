package service_test

import (
	"fmt"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/service/servicetest"
)

// TestTortureNoStaleAnswer: what one node was told to do, the other knows in its
// next answer, also when that answer appends nothing and the node remembers the
// work as it was.
func TestTortureNoStaleAnswer(t *testing.T) {
	s := servicetest.SiteR3(t, 2)
	t.Run("works", func(t *testing.T) {
		for i := range 10 {
			t.Run(fmt.Sprintf("w%d", i), func(t *testing.T) {
				t.Parallel()
				alternate(t, s, fmt.Sprintf("w%d", i), rounds(10, 100, 1000))
			})
		}
	})
}

// alternate has one node change a work and asks the other one about it.
func alternate(t *testing.T, s *servicetest.Site, work string, rounds int) {
	generation := int64(0)
	for round := range rounds {
		a, b := s.Caller(round), s.Caller(round+1)
		generation++
		if o := owner(t, cmd(t, a, "c", session.VerbClaim, claimOf(work, "c"))); o.Gen() != generation {
			t.Fatalf("round %d: generation %d, want %d", round, o.Gen(), generation)
		}
		// The other node has heard of it, and remembers.
		wantOutcome(t, cmd(t, b, "c", session.VerbBind, claimOf(work, "c")), unchanged)
		if allowed, reason := fenceOf(t, cmd(t, a, "c", session.VerbReleaseWithAuthority, shown(work, "c", generation))); !allowed {
			t.Fatalf("round %d: not released: %s", round, reason)
		}
		switch round % 4 {
		case 0: // an answer from a stale state would be: yours, unchanged
			if r := cmd(t, b, "c", session.VerbBind, claimOf(work, "c")); r.Code == "" {
				t.Fatalf("round %d: bound to a released claim: %s", round, r.Data)
			}
		case 1: // … or: claimed by c
			generation++
			if o := owner(t, cmd(t, b, "d", session.VerbClaim, claimOf(work, "d"))); o.Gen() != generation {
				t.Fatalf("round %d: generation %d, want %d", round, o.Gen(), generation)
			}
			if allowed, reason := fenceOf(t, cmd(t, a, "c", session.VerbRenew, shown(work, "c", generation-1))); allowed || reason != session.ReasonStaleAuthority {
				t.Fatalf("round %d: the old holder renews: %v %s", round, allowed, reason)
			}
			if allowed, _ := fenceOf(t, cmd(t, a, "d", session.VerbReleaseWithAuthority, shown(work, "d", generation))); !allowed {
				t.Fatalf("round %d: d cannot release", round)
			}
		case 2:
			if got := query(t, b, "works.get", fields{"workId": work}); string(got.Result) != "null" {
				t.Fatalf("round %d: live after its release: %s", round, got.Data)
			}
		case 3: // … or: still held, released now
			wantOutcome(t, op(t, b, session.VerbRelease, fields{"workId": work, "controllerId": "c"}), unchanged)
			if allowed, reason := fenceOf(t, cmd(t, b, "c", session.VerbReleaseWithAuthority, shown(work, "c", generation))); allowed || reason != session.ReasonClaimMissing {
				t.Fatalf("round %d: released twice: %v %s", round, allowed, reason)
			}
		}
	}
}

// TestNoStaleState: also the state of a work, and what was never claimed.
func TestNoStaleState(t *testing.T) {
	s := servicetest.SiteR3(t, 2)
	for round := range rounds(20, 60, 500) {
		work, a, b := fmt.Sprintf("w%d", round), s.Caller(round), s.Caller(round+1)
		if got := query(t, b, "works.get", fields{"workId": work}); string(got.Result) != "null" {
			t.Fatalf("%s is claimed: %s", work, got.Data)
		}
		wantOutcome(t, op(t, a, session.VerbTerminalize, fields{"workId": work, "state": "done"}), appended)
		if r := cmd(t, b, "c", session.VerbClaim, claimOf(work, "c")); r.Code == "" {
			t.Fatalf("%s: claimed after its end", work)
		}
		wantOutcome(t, op(t, b, session.VerbTerminalize, fields{"workId": work, "state": "done"}), unchanged)
		wantOutcome(t, op(t, b, session.VerbSetState, fields{"workId": work, "state": "open", "reason": "again"}), appended)
		wantOutcome(t, cmd(t, a, "c", session.VerbClaim, claimOf(work, "c")), appended)
		if r := op(t, b, session.VerbTerminalize, fields{"workId": work, "state": "done"}); r.Outcome != refused {
			t.Fatalf("%s: closed under its owner: %s", work, r.Data)
		}
	}
}
