package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go/jetstream"
)

// activityRevision is how many writes the activity bucket has seen.
func activityRevision(t *testing.T, s *servicetest.Site) uint64 {
	t.Helper()
	js, err := jetstream.New(s.Nodes[0].Forge)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_forge-activity-main")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

// silent is a site on which c holds work w and was not heard of for longer than
// the grace; recovery is how d takes it over.
func silent(t *testing.T, s *servicetest.Site) (recovery fields) {
	t.Helper()
	owner(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")))
	s.Clock.Advance(6 * minute)
	return claimOf("w", "d").with("allowStaleRecovery", true, "expectedClaimGeneration", 1)
}

// TestActivityReports: a report is written once per 15 s; the first reporter owns
// the transport session.
func TestActivityReports(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		report := func(i int, who string) *servicetest.Reply {
			return cmd(t, s.Caller(i), who, "activity.report", fields{"sessionId": "s-c", "activeWorkId": "w"})
		}
		wantOutcome(t, report(0, "c"), appended)
		first := activityRevision(t, s)
		for i := range 10 {
			s.Clock.Advance(time.Second)
			wantOutcome(t, report(i, "c"), unchanged)
		}
		if n := activityRevision(t, s); n != first {
			t.Errorf("%d writes within 15 s", n-first+1)
		}
		s.Clock.Advance(5 * time.Second)
		wantOutcome(t, report(1, "c"), appended)

		want(t, report(0, "thief"), events.CodeCallerMismatch)
		want(t, cmd(t, s.Caller(1), "thief", "activity.invalidate", fields{"sessionId": "s-c"}), events.CodeCallerMismatch)
		want(t, cmd(t, s.Caller(0), "thief", "activity.report", fields{"sessionId": "s-x", "principalId": "p-c"}), events.CodeCallerMismatch)
		if n := activityRevision(t, s); n != first+1 {
			t.Errorf("%d writes by others", n-first-1)
		}
		if p := position(t, s); p != 0 {
			t.Errorf("activity is on the log: position %d", p)
		}
		// Times and principal come from the service.
		r := cmd(t, s.Caller(0), "e", "activity.report", fields{"sessionId": "s-e", "updatedAt": "2030-01-01T00:00:00.000Z", "principalId": "p-e"})
		var x events.Execution
		mustInto(t, r, &x)
		if *x.UpdatedAt != s.Clock.Now() || *x.PrincipalID != "p-e" {
			t.Errorf("reported: %s", r.Data)
		}
	})
}

// TestActivityProtects: who was heard of keeps the work; who was not, or is busy
// elsewhere, or ended long ago, may lose it.
func TestActivityProtects(t *testing.T) {
	for _, c := range []struct {
		name     string
		facts    func(t *testing.T, s *servicetest.Site)
		survives bool
	}{
		{"silence", func(*testing.T, *servicetest.Site) {}, false},
		{"a report", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c"})
		}, true},
		{"an old report", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c"})
			s.Clock.Advance(5 * minute)
		}, false},
		{"a report of this work", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c", "activeWorkId": " w "})
		}, true},
		{"a report of another work", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c", "activeWorkId": "v"})
		}, false},
		{"a report of another transport session", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-z"})
		}, false},
		{"ended just now", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.invalidate", fields{"sessionId": "s-c"})
		}, true},
		{"ended long ago, reported since", func(t *testing.T, s *servicetest.Site) {
			cmd(t, s.Caller(0), "c", "activity.invalidate", fields{"sessionId": "s-c"})
			s.Clock.Advance(5 * minute)
			cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c"})
		}, false},
		{"set by an operator", func(t *testing.T, s *servicetest.Site) {
			op(t, s.Caller(0), "activity.set", fields{"sessionId": "s-c", "session": fields{"updatedAt": s.Clock.Now().String()}})
		}, true},
		{"set and forgotten", func(t *testing.T, s *servicetest.Site) {
			op(t, s.Caller(0), "activity.set", fields{"sessionId": "s-c", "session": fields{"updatedAt": s.Clock.Now().String()}})
			op(t, s.Caller(0), "activity.set", fields{"sessionId": "s-c", "session": nil})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := servicetest.SiteR1(t)
			recovery := silent(t, s)
			c.facts(t, s)
			var blocks bool
			mustInto(t, query(t, s.Caller(0), "works.blocks-recovery", fields{"workId": "w"}), &blocks)
			r := cmd(t, s.Caller(0), "d", session.VerbResume, recovery)
			if c.survives {
				want(t, r, events.CodePrincipalMismatch)
			} else if o := owner(t, r); o.ControllerID != "d" || o.Gen() != 2 {
				t.Errorf("recovered: %s", o.Fence())
			}
			if blocks != c.survives {
				t.Errorf("blocks-recovery says %v", blocks)
			}
		})
	}
}

// TestActivityMissing: without the bucket nobody is taken to be silent; what needs
// no silence goes on. A bucket made anew protects as long as the claim does.
func TestActivityMissing(t *testing.T) {
	s := servicetest.SiteR1(t)
	recovery := silent(t, s)
	js, err := jetstream.New(s.Nodes[0].Forge)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_forge-activity-main"); err != nil {
		t.Fatal(err)
	}
	want(t, cmd(t, s.Caller(0), "d", session.VerbResume, recovery), events.CodeUnavailable)
	want(t, query(t, s.Caller(0), "works.blocks-recovery", fields{"workId": "w"}), events.CodeUnavailable)
	want(t, cmd(t, s.Caller(0), "c", "activity.report", fields{"sessionId": "s-c"}), events.CodeUnavailable)
	wantOutcome(t, cmd(t, s.Caller(0), "c", session.VerbRenew, shown("w", "c", 1)), appended)
	wantOutcome(t, cmd(t, s.Caller(0), "d", session.VerbClaim, claimOf("v", "d")), appended)

	again := servicetest.On(t, s.Embedded, events.DefaultInstance)
	again.Clock.Set(s.Clock.Now().Std())
	s.Nodes[0].Stop() //nolint:errcheck // only so that the other one answers
	want(t, cmd(t, s.Caller(0), "d", session.VerbResume, recovery), events.CodePrincipalMismatch)
	again.Clock.Advance(5 * minute)
	if o := owner(t, cmd(t, s.Caller(0), "d", session.VerbResume, recovery)); o.ControllerID != "d" {
		t.Errorf("recovered: %s", o.Fence())
	}
}

// TestPausedHolder: a holder sleeps past lease and grace, another recovers. Every
// call of the first is fenced, and told by whom.
func TestPausedHolder(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		recovery := silent(t, s)
		cmd(t, s.Caller(1), "d", session.VerbResume, recovery)
		for i := range s.Callers {
			for _, verb := range []string{session.VerbRenew, session.VerbReleaseWithAuthority, session.VerbTerminalize} {
				r := cmd(t, s.Caller(i), "c", verb, shown("w", "c", 1).with("state", "done"))
				if allowed, reason := fenceOf(t, r); allowed || reason != session.ReasonStaleAuthority || owner(t, r).Fence() != "d generation 2" {
					t.Errorf("%s of the old holder: %s", verb, r.Data)
				}
			}
			r := cmd(t, s.Caller(i), "c", session.VerbClaim, claimOf("w", "c"))
			want(t, r, events.CodeAlreadyClaimed)
			if r.Details["controllerId"] != "d" || r.Details["claimGeneration"] != 2.0 {
				t.Errorf("a refusal names %v", r.Details)
			}
			want(t, cmd(t, s.Caller(i), "c", session.VerbResume, claimOf("w", "c").with("expectedClaimGeneration", 1)), events.CodeClaimGenerationMismatch)
			want(t, cmd(t, s.Caller(i), "c", session.VerbBind, claimOf("w", "c")), events.CodeOwnerMismatch)
		}
	})
}

// TestIdentityTakeover: same controller and transport session, but another
// principal, type or instance.
func TestIdentityTakeover(t *testing.T) {
	s := servicetest.SiteR1(t)
	owner(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")))
	last := position(t, s)
	want(t, cmd(t, s.Caller(0), "x", session.VerbClaim, claimOf("w", "c").with("principalId", "p-x")), events.CodePrincipalMismatch)
	want(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c").with("controllerType", "human")), events.CodeTypeMismatch)
	want(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c").with("controllerInstanceId", "i-2")), events.CodeInstanceMismatch)
	if position(t, s) != last {
		t.Error("something was appended")
	}
}

// TestRuntimeRotation: once runtime 2 is announced it takes over with the next
// generation and the same digest; what runtime 1 still sends is refused, also when
// it calls itself current.
func TestRuntimeRotation(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		digest := session.Mint("1").AuthorityDigest
		bind := func(i int, instance, current string) *servicetest.Reply {
			return cmd(t, s.Caller(i), "c", session.VerbBind, claimOf("w", "c").with("controllerInstanceId", instance, "currentRuntimeInstanceId", current))
		}
		cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c").with("controllerInstanceId", "r1", "authorityDigest", digest))
		wantOutcome(t, op(t, s.Caller(0), "runtime.announce", fields{"controllerInstanceId": " r2 "}), appended)
		wantOutcome(t, op(t, s.Caller(1), "runtime.announce", fields{"controllerInstanceId": "r2"}), unchanged)
		r := bind(1, "r2", "r2")
		wantOutcome(t, r, appended)
		if o := owner(t, r); o.Gen() != 2 || o.Digest() != digest || o.Instance() != "r2" {
			t.Errorf("runtime 2: %s", r.Data)
		}
		for i := range s.Callers {
			want(t, bind(i, "r1", "r1"), events.CodeInstanceMismatch)
			want(t, bind(i, "r1", "r2"), events.CodeInstanceMismatch)
			wantOutcome(t, bind(i, "r2", "r2"), unchanged)
		}
		// An operator goes back.
		wantOutcome(t, op(t, s.Caller(1), "runtime.announce", fields{"controllerInstanceId": "r1"}), appended)
		if o := owner(t, bind(0, "r1", "r1")); o.Gen() != 3 {
			t.Errorf("runtime 1 again: generation %d", o.Gen())
		}
	})
}

// TestActivityRaces: many report one transport session at once; one owns it.
func TestActivityRaces(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		for round := range rounds(5, 20, 200) {
			replies := make([]*servicetest.Reply, 8)
			together(len(replies), func(i int) {
				replies[i], _ = servicetest.Ask(s.Caller(i), servicetest.Cmd(fmt.Sprintf("p%d", i), "activity.report"), fields{"sessionId": fmt.Sprintf("t%d", round)})
			})
			owners := 0
			for _, r := range replies {
				switch {
				case r == nil:
					t.Fatal("no answer")
				case r.Code == "":
					owners++
				default:
					want(t, r, events.CodeCallerMismatch)
				}
			}
			if owners != 1 {
				t.Fatalf("%d principals own one transport session", owners)
			}
		}
	})
}
