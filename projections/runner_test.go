package projections

import (
	"context"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// memoryLog is a log that ends.
type memoryLog []events.Record

func (m memoryLog) Tail(ctx context.Context, from uint64, fn func(events.Record) error) error {
	for _, r := range m[from-1:] {
		if err := fn(r); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// claimed is the commit of a first claim.
func claimed(t *testing.T, position uint64, work string) events.Record {
	t.Helper()
	one := int64(1)
	owner := events.Session{WorkID: work, ControllerID: "c", ControllerType: "codex", SessionID: "s", Generation: &one, ClaimedAt: 1000, LeaseExpiresAt: 5000}
	list := []events.Payload{events.ClaimGranted{Cause: events.CauseFirst, Owner: owner}}
	d := session.Decider{}
	state, err := aggregate.Evolve(d, d.Initial(work), list)
	if err != nil {
		t.Fatal(err)
	}
	carried := d.EncodeState(state)
	c := &events.Commit{
		V: 1, Log: "log", ID: work, Kind: events.KindWork, AggregateID: work, Version: 1, At: 1000, Rules: 1,
		Events: []events.Event{events.Encode(list[0])}, State: &carried,
	}
	return events.Record{Position: position, Subject: events.WorkSubject("main", work), Payload: c.Encode()}
}

func run(t *testing.T, log memoryLog) (*Runner, *Claims) {
	t.Helper()
	claims := NewClaims("log")
	r := NewRunner(log, claims)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r, claims
}

func wait(t *testing.T, r *Runner, position uint64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return r.Wait(ctx, ClaimsName, position)
}

// What cannot be read takes its work out of the list, by name, and nothing else.
func TestPoisonLeavesItsWorkOut(t *testing.T) {
	poison := func(position uint64, subject string) events.Record {
		return events.Record{Position: position, Subject: subject, Payload: []byte("no commit")}
	}
	r, claims := run(t, memoryLog{claimed(t, 1, "w1"), poison(2, events.ReleaseSubject("main")), claimed(t, 3, "w2")})
	if err := wait(t, r, 3); err != nil {
		t.Fatalf("a commit of the ledger stopped the claims: %v", err)
	}
	if n := len(claims.List(1000, Filter{}, "", 10).Sessions); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
	r, claims = run(t, memoryLog{claimed(t, 1, "w1"), claimed(t, 2, "w2"), poison(3, events.WorkSubject("main", "w2")), claimed(t, 4, "w3")})
	if err := wait(t, r, 4); err != nil {
		t.Fatalf("a commit of one work stopped the claims of all: %v", err)
	}
	page := claims.List(1000, Filter{}, "", 10)
	if len(page.Sessions) != 2 || page.Sessions[1].WorkID != "w3" || len(page.Unreadable) != 1 || page.Unreadable[0] != events.WorkSubject("main", "w2") {
		t.Errorf("page %+v", page)
	}
	if s := r.Statuses()[0]; s.Position != 4 || s.Err != nil {
		t.Errorf("status %+v", s)
	}
}

// A list never shows what it does not know yet as if it did.
func TestWaitSaysNotYet(t *testing.T) {
	r, _ := run(t, memoryLog{claimed(t, 1, "w1")})
	if err := wait(t, r, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.Wait(ctx, ClaimsName, 2); events.CodeOf(err) != events.CodeViewBehind {
		t.Errorf("%v", err)
	}
}
