package service_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
)

// TestActivityIsNoWeapon: what somebody else says of an owner's transport session
// neither ends its protection nor changes who it is. The ids of transport sessions
// are no secret.
func TestActivityIsNoWeapon(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c")))
	report := servicetest.MustAsk(t, nc, servicetest.Cmd("thief", "activity.report"), fields{"sessionId": "s-c", "activeWorkId": "other"})
	if report.Code != "" {
		t.Fatalf("%s", report.Data)
	}
	recover := claimOf("w", "d").with("allowStaleRecovery", true, "expectedClaimGeneration", 1)
	want(t, cmd(t, nc, "d", session.VerbResume, recover), events.CodePrincipalMismatch)

	// An owner without a principal is its controller, whoever reports its session.
	owner(t, servicetest.MustAsk(t, nc, servicetest.Cmd("plain", session.VerbClaim), fields{"workId": "v", "controllerId": "plain", "controllerType": "agent", "sessionId": "s-plain"}))
	servicetest.MustAsk(t, nc, servicetest.Cmd("p-d", "activity.report"), fields{"sessionId": "s-plain", "principalId": "p-d"})
	steal := fields{"workId": "v", "controllerId": "plain", "controllerType": "agent", "sessionId": "s-d", "principalId": "p-d", "controllerInstanceId": "i-d"}
	want(t, servicetest.MustAsk(t, nc, servicetest.Cmd("p-d", session.VerbResume), steal), events.CodePrincipalMismatch)

	// What its own principal reports counts.
	owner(t, cmd(t, nc, "e", session.VerbClaim, claimOf("x", "e")))
	servicetest.MustAsk(t, nc, servicetest.Cmd("p-e", "activity.report"), fields{"sessionId": "s-e", "activeWorkId": "another"})
	busy := claimOf("x", "d").with("allowStaleRecovery", true, "expectedClaimGeneration", 1)
	if got := owner(t, cmd(t, nc, "d", session.VerbResume, busy)); got.ControllerID != "d" {
		t.Errorf("an owner that says it is busy elsewhere: %s", got.Fence())
	}
}

// TestListIsWholeAfterRestart: the first list of a new process has everything that
// was on the log when it started.
func TestListIsWholeAfterRestart(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	const works = 300
	for i := range works {
		owner(t, cmd(t, nc, "c", session.VerbClaim, claimOf(fmt.Sprintf("w-%03d", i), "c")))
	}
	for range 5 {
		if err := s.Nodes[0].Stop(); err != nil {
			t.Fatal(err)
		}
		s.Nodes[0] = servicetest.On(t, s.Embedded, events.DefaultInstance, func(_ *eventlog.Config, opts *service.Options) { opts.Clock = s.Clock })
		r := query(t, nc, "claims.list", fields{"limit": 1000})
		var list []json.RawMessage
		if err := json.Unmarshal(r.Result, &list); err != nil || len(list) != works || r.Position < works {
			t.Fatalf("%d claims at position %d: %v", len(list), r.Position, err)
		}
	}
}
