package service_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// apart is a log with two services whose clocks are their own; the leader's clock
// is a third one.
func apart(t *testing.T) (leader *servicetest.Clock, nodes [2]*servicetest.Node, callers [2]*nats.Conn) {
	e := logtest.Embedded(t)
	leader = servicetest.NewClock(servicetest.Start)
	for i := range nodes {
		own := logtest.Single(t, false)
		// Two writers: neither may think that it is the only one.
		nodes[i] = servicetest.Serve(t, events.DefaultInstance, logtest.ForgeConn(t, e), own.AppConn(t), func(cfg *eventlog.Config, _ *service.Options) {
			cfg.LeaderTime = func() time.Time { return leader.Now().Std() }
		})
		callers[i] = servicetest.CallerOf(t, own.URL())
	}
	return leader, nodes, callers
}

// TestClockAhead: a node that is ahead, by seconds or by an hour, ends no lease,
// steals no work, and says that its clock is wrong.
func TestClockAhead(t *testing.T) {
	for _, ahead := range []time.Duration{30 * time.Second, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			leader, nodes, callers := apart(t)
			good, bad := callers[0], callers[1]
			lease := 20_000
			if ahead > minute {
				lease = 3_000_000
			}
			first := owner(t, cmd(t, good, "c", session.VerbClaim, claimOf("w", "c").with("leaseMs", lease)))
			nodes[1].Clock.Advance(ahead)

			want(t, cmd(t, bad, "d", session.VerbClaim, claimOf("w", "d")), events.CodeClockSkew)
			want(t, cmd(t, bad, "c", session.VerbRenew, shown("w", "c", 1)), events.CodeClockSkew)
			want(t, cmd(t, bad, "c", session.VerbReleaseWithAuthority, shown("w", "c", 1)), events.CodeClockSkew)
			want(t, op(t, bad, session.VerbTerminalize, fields{"workId": "w", "state": "done"}), events.CodeClockSkew)
			want(t, query(t, bad, "works.get", fields{"workId": "w"}), events.CodeClockSkew)
			r := cmd(t, bad, "e", session.VerbClaim, claimOf("new", "e"))
			want(t, r, events.CodeClockSkew)
			if r.Details["aheadMs"] != float64(ahead.Milliseconds()) {
				t.Errorf("reported: %s", r.Data)
			}
			var list []json.RawMessage
			if mustInto(t, query(t, bad, "claims.list", fields{"minPosition": 1}), &list); len(list) != 1 {
				t.Errorf("%d claims are listed", len(list))
			}
			if ready := nodes[1].Ready(); ready.Ready {
				t.Error("a node with a wrong clock calls itself ready")
			}
			if ready := nodes[0].Ready(); !ready.Ready {
				t.Errorf("a good node is not ready: %v", ready.Reasons)
			}
			if now := owner(t, query(t, good, "works.get", fields{"workId": "w"})); !now.Equal(first) {
				t.Errorf("the owner became %s", now.Fence())
			}
			// Once its clock is right it works again.
			nodes[1].Clock.Set(leader.Now().Std())
			wantOutcome(t, cmd(t, bad, "c", session.VerbRenew, shown("w", "c", 1)), appended)
		})
	}
}

// TestClockBehind: a node that is behind never shortens a lease that runs, nor
// goes back in the time of a work.
func TestClockBehind(t *testing.T) {
	for _, behind := range []time.Duration{30 * time.Second, time.Hour} {
		t.Run(behind.String(), func(t *testing.T) {
			_, nodes, callers := apart(t)
			good, bad := callers[0], callers[1]
			nodes[1].Clock.Advance(-behind)
			first := owner(t, cmd(t, good, "c", session.VerbClaim, claimOf("w", "c").with("leaseMs", 60_000)))
			again := owner(t, cmd(t, bad, "c", session.VerbRenew, shown("w", "c", 1).with("leaseMs", 60_000)))
			if again.ClaimedAt < first.ClaimedAt || again.LeaseExpiresAt < first.LeaseExpiresAt {
				t.Errorf("the lease ended at %s, renewed at %s", first.LeaseExpiresAt, again.LeaseExpiresAt)
			}
			want(t, cmd(t, bad, "d", session.VerbClaim, claimOf("w", "d")), events.CodeAlreadyClaimed)
			if r := query(t, bad, "works.get", fields{"workId": "w"}); r.AsOf < first.ClaimedAt.String() {
				t.Errorf("as of %s, claimed at %s", r.AsOf, first.ClaimedAt)
			}
			if ready := nodes[1].Ready(); ready.Ready {
				t.Error("a node with a wrong clock calls itself ready")
			}
		})
	}
}

// TestUntrustedClock: after a step of the clock nobody gets the work of somebody
// else for time having passed. Everything else goes on.
func TestUntrustedClock(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	cmd(t, nc, "c", session.VerbClaim, claimOf("lapsed", "c").with("leaseMs", 1000))
	cmd(t, nc, "c", session.VerbClaim, claimOf("silent", "c"))
	cmd(t, nc, "c", session.VerbClaim, claimOf("released", "c"))
	op(t, nc, session.VerbRelease, fields{"workId": "released", "controllerId": "c"})
	s.Clock.Advance(10 * minute)
	step := events.Errorf(events.CodeClockSkew, "the wall clock stepped by 1h").With("stepMs", 3_600_000)
	s.Clock.Doubt(step)

	recover := claimOf("silent", "d").with("allowStaleRecovery", true, "expectedClaimGeneration", 1)
	want(t, cmd(t, nc, "d", session.VerbClaim, claimOf("lapsed", "d")), events.CodeClockSkew)
	want(t, cmd(t, nc, "d", session.VerbResume, claimOf("lapsed", "d")), events.CodeClockSkew)
	want(t, cmd(t, nc, "d", session.VerbBind, claimOf("lapsed", "d").with("allowClaimIfMissing", true)), events.CodeClockSkew)
	want(t, cmd(t, nc, "d", session.VerbResume, recover), events.CodeClockSkew)
	if ready := s.Nodes[0].Ready(); ready.Ready {
		t.Error("ready with a clock that stepped")
	}

	wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, claimOf("lapsed", "c")), appended) // its last owner
	wantOutcome(t, cmd(t, nc, "c", session.VerbRenew, shown("silent", "c", 1)), appended)
	wantOutcome(t, cmd(t, nc, "d", session.VerbClaim, claimOf("released", "d")), appended)
	wantOutcome(t, cmd(t, nc, "d", session.VerbClaim, claimOf("new", "d")), appended)

	s.Clock.Doubt(nil)
	s.Clock.Advance(10 * minute)
	if o := owner(t, cmd(t, nc, "d", session.VerbResume, recover)); o.Gen() != 2 {
		t.Errorf("recovered in generation %d", o.Gen())
	}
}

// TestTimeOfAWork: the time of a work never goes back, whatever clocks do.
func TestTimeOfAWork(t *testing.T) {
	s := servicetest.SiteR1(t, func(cfg *eventlog.Config, _ *service.Options) {
		cfg.LeaderTime = func() time.Time { return servicetest.Start.Add(48 * time.Hour) }
	})
	last := events.Time(0)
	for _, step := range []time.Duration{0, time.Second, -time.Hour, minute, -minute, 2 * time.Hour, -24 * time.Hour} {
		s.Clock.Advance(step)
		o := owner(t, cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")))
		if o.ClaimedAt < last {
			t.Errorf("after a step by %s: %s, before %s", step, o.ClaimedAt, last)
		}
		last = o.ClaimedAt
		if r := query(t, s.Caller(0), "works.get", fields{"workId": "w"}); r.AsOf < last.String() || string(r.Result) == "null" {
			t.Errorf("as of %s: %s", r.AsOf, r.Data)
		}
	}
}

// TestLapse: a work whose lease ended goes to the next one in the next
// generation, and back to its last owner in the same; what others do is nothing
// to it.
func TestLapse(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	cmd(t, nc, "a", session.VerbClaim, claimOf("w", "a"))
	cmd(t, nc, "a", session.VerbReleaseWithAuthority, shown("w", "a", 1))
	digest := session.Mint("0").AuthorityDigest
	for _, work := range []string{"w", "v"} {
		cmd(t, nc, "b", session.VerbClaim, claimOf(work, "b").with("leaseMs", 1000, "authorityDigest", digest))
	}
	s.Clock.Advance(time.Second) // the end is exclusive
	for i := range 50 {
		cmd(t, nc, "x", session.VerbClaim, claimOf("other-"+string(rune('a'+i%26)), "x"))
	}
	if r := query(t, nc, "works.get", fields{"workId": "w"}); string(r.Result) != "null" {
		t.Errorf("a lapsed claim is live: %s", r.Data)
	}
	if o := owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"))); o.Gen() != 3 || o.Digest() != "" {
		t.Errorf("the next one has generation %d", o.Gen())
	}
	if o := owner(t, cmd(t, nc, "b", session.VerbClaim, claimOf("v", "b"))); o.Gen() != 1 || o.Digest() != digest {
		t.Errorf("the last one has generation %d, digest %q", o.Gen(), o.Digest())
	}
	// What was released does not come back: the first release is sent again.
	if _, reason := fenceOf(t, cmd(t, nc, "a", session.VerbReleaseWithAuthority, shown("w", "a", 1))); reason != session.ReasonStaleAuthority {
		t.Errorf("an old release: %s", reason)
	}
}
