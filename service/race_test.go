package service_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service/servicetest"
)

// together runs n functions that start at the same moment.
func together(n int, fn func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			fn(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// TestTortureRacers: eight controllers want one work. One gets it; the others are
// told who did.
func TestTortureRacers(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		for round := range rounds(40, 200, 2000) {
			work := fmt.Sprintf("w%d", round)
			replies := make([]*servicetest.Reply, 8)
			together(len(replies), func(i int) {
				who := fmt.Sprintf("c%d", i)
				replies[i], _ = servicetest.Ask(s.Caller(i), servicetest.Cmd("p-"+who, session.VerbClaim), claimOf(work, who))
			})
			winner, losers := "", 0
			for i, r := range replies {
				if r == nil {
					t.Fatalf("%s: racer %d got no answer", work, i)
				}
				if r.Code != "" {
					continue
				}
				wantOutcome(t, r, appended)
				if winner != "" {
					t.Fatalf("%s: both %s and c%d won", work, winner, i)
				}
				winner = fmt.Sprintf("c%d", i)
			}
			for _, r := range replies {
				if r.Code == "" {
					continue
				}
				want(t, r, events.CodeAlreadyClaimed)
				if r.Details["controllerId"] != winner || r.Details["claimGeneration"] != 1.0 || r.Details["leaseExpiresAt"] == nil {
					t.Fatalf("%s: %s won, a loser is told %v", work, winner, r.Details)
				}
				losers++
			}
			if losers != len(replies)-1 {
				t.Fatalf("%s: %d losers", work, losers)
			}
		}
	})
}

// TestTortureRecoveryAgainstRenewal: a silent owner renews in the moment in which
// another recovers its work. One of them gets it, never both.
func TestTortureRecoveryAgainstRenewal(t *testing.T) {
	rng := random(t)
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		n, atOnce := rounds(60, 300, 10_000), 10
		renewed, recovered := 0, 0
		for from := 0; from < n; from += atOnce {
			for i := from; i < from+atOnce; i++ {
				owner(t, cmd(t, s.Caller(i), "old", session.VerbClaim, claimOf(fmt.Sprintf("w%d", i), "old")))
			}
			s.Clock.Advance(6 * minute) // beyond the grace, within the lease
			late := make([]time.Duration, atOnce)
			for i := range late {
				late[i] = time.Duration(rng.IntN(500)) * time.Microsecond
			}
			results := make([][2]*servicetest.Reply, atOnce)
			together(2*atOnce, func(k int) {
				i, work := k/2, fmt.Sprintf("w%d", from+k/2)
				if k%2 == 0 {
					time.Sleep(late[i])
					results[i][0], _ = servicetest.Ask(s.Caller(k), servicetest.Cmd("p-old", session.VerbRenew), shown(work, "old", 1))
					return
				}
				body := claimOf(work, "new").with("allowStaleRecovery", true, "expectedClaimGeneration", 1)
				results[i][1], _ = servicetest.Ask(s.Caller(k), servicetest.Cmd("p-new", session.VerbResume), body)
			})
			for i, r := range results {
				if r[0] == nil || r[1] == nil {
					t.Fatalf("w%d: no answer", from+i)
				}
				switch allowed, reason := fenceOf(t, r[0]); {
				case allowed && r[1].Code == events.CodePrincipalMismatch && r[1].Details["controllerId"] == "old":
					renewed++
				case !allowed && reason == session.ReasonStaleAuthority && r[1].Code == "":
					if o := owner(t, r[0]); o.ControllerID != "new" || o.Gen() != 2 {
						t.Fatalf("w%d: the fenced holder is told %s", from+i, o.Fence())
					}
					if o := owner(t, r[1]); o.Gen() != 2 {
						t.Fatalf("w%d: recovered in generation %d", from+i, o.Gen())
					}
					recovered++
				default:
					t.Fatalf("w%d: renewal %s, recovery %s", from+i, r[0].Data, r[1].Data)
				}
			}
		}
		t.Logf("renewed %d, recovered %d", renewed, recovered)
	})
}

// TestRotationStorm: fifty rebinds of one owner at once, each to a transport
// session of its own. There is one order, and the capability still works.
func TestRotationStorm(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		var minted session.Capability
		mustInto(t, query(t, s.Caller(0), "claims.mint", nil), &minted)
		body := claimOf("w", "c").with("authorityDigest", minted.AuthorityDigest)
		cmd(t, s.Caller(0), "c", session.VerbClaim, body)
		replies := make([]*servicetest.Reply, 50)
		together(len(replies), func(i int) {
			rebind := claimOf("w", "c").with("sessionId", fmt.Sprintf("s%d", i))
			replies[i], _ = servicetest.Ask(s.Caller(i), servicetest.Cmd("p-c", session.VerbBind), rebind)
		})
		positions := map[uint64]bool{}
		last := replies[0]
		for i, r := range replies {
			if r == nil {
				t.Fatalf("bind %d: no answer", i)
			}
			o := owner(t, r)
			wantOutcome(t, r, appended)
			if o.Gen() != 1 || o.Digest() != minted.AuthorityDigest || o.SessionID != fmt.Sprintf("s%d", i) {
				t.Fatalf("bind %d: %s", i, r.Data)
			}
			if positions[r.Position] {
				t.Fatalf("position %d twice", r.Position)
			}
			if positions[r.Position] = true; r.Position > last.Position {
				last = r
			}
		}
		for i := range s.Callers {
			if got := owner(t, query(t, s.Caller(i), "works.get", fields{"workId": "w"})); got.SessionID != owner(t, last).SessionID {
				t.Errorf("the last bind was to %s, the work says %s", owner(t, last).SessionID, got.SessionID)
			}
			var check session.Check
			mustInto(t, query(t, s.Caller(i), "works.check-authority", fields{"workId": "w", "authorityId": minted.AuthorityID}), &check)
			if !check.Matches {
				t.Error("the capability no longer matches")
			}
		}
	})
}

// TestTortureCloseAgainstClaim: a work is closed while a claim of it is in
// flight. Never is a claim granted after the close.
func TestTortureCloseAgainstClaim(t *testing.T) {
	servicetest.Sites(t, func(t *testing.T, s *servicetest.Site) {
		closedFirst, claimedFirst := 0, 0
		for round := range rounds(40, 200, 3000) {
			work := fmt.Sprintf("w%d", round)
			var closed, claimed *servicetest.Reply
			late := rand.N(300 * time.Microsecond)
			together(2, func(i int) {
				if i == 0 {
					time.Sleep(late)
					closed, _ = servicetest.Ask(s.Caller(round), servicetest.Op(session.VerbTerminalize), fields{"workId": work, "state": "done"})
					return
				}
				claimed, _ = servicetest.Ask(s.Caller(round+1), servicetest.Cmd("p-c", session.VerbClaim), claimOf(work, "c"))
			})
			if closed == nil || claimed == nil {
				t.Fatalf("%s: no answer", work)
			}
			allowed, reason := fenceOf(t, closed)
			switch {
			case allowed && claimed.Code == events.CodeClaimTerminal:
				closedFirst++
			case !allowed && reason == session.ReasonActiveClaim && claimed.Code == "":
				claimedFirst++
				if o := owner(t, closed); o.ControllerID != "c" {
					t.Fatalf("%s: the refusal names %s", work, o.ControllerID)
				}
			default:
				t.Fatalf("%s: close %s, claim %s", work, closed.Data, claimed.Data)
			}
		}
		t.Logf("closed first %d, claimed first %d", closedFirst, claimedFirst)
	})
}
