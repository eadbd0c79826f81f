package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// TestTortureKill kills the serving process at any instant, while callers claim,
// renew and release, and starts it again on the same data. What was acknowledged
// is on the log, as it was acknowledged; what was not is there at most once, and
// repeating it with its id makes that exactly once; the log opens and verifies.
//
// FORGE_SEED repeats the kills of a failed run, as far as chance allows.
func TestTortureKill(t *testing.T) {
	seed, rng := random(t)
	rounds := kills(5, 20, 200)
	dir := t.TempDir()
	callers := make([]*killCaller, 8)
	for i := range callers {
		callers[i] = &killCaller{name: fmt.Sprintf("c%d", i), held: map[string]*events.Session{}, rng: rand.New(rand.NewPCG(seed, uint64(i)+1))}
	}
	for round := range rounds {
		if rng.IntN(4) == 0 { // also while it starts, and so recovers
			p := starting(t, dir)
			time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			p.kill()
		}
		p := serving(t, dir)
		load(t, p, callers, time.Duration(20+rng.IntN(200))*time.Millisecond, p.kill)
		for _, c := range callers {
			if c.err != nil {
				t.Fatalf("round %d: %s: %v", round, c.name, c.err)
			}
		}
		// Not every time: mostly the service itself is the first that opens the
		// data after a kill.
		if round%4 == 3 || round == rounds-1 {
			verifyKilled(t, dir, callers, false)
		}
	}

	// All that is still in doubt is repeated, and the service stops in order.
	p := serving(t, dir)
	load(t, p, callers, 0, p.end)
	verifyKilled(t, dir, callers, true)
	total, repeated, found := 0, 0, 0
	for _, c := range callers {
		total, repeated, found = total+len(c.acked), repeated+c.repeated, found+c.found
	}
	t.Logf("%d kills, %d commands acknowledged, %d in doubt and repeated, of which %d had been appended", rounds, total, repeated, found)
	if total < rounds {
		t.Errorf("only %d commands were acknowledged: there was no load", total)
	}
}

// TestTortureKillAtBirth kills the first process on a new data directory, while
// it makes the log: the next one completes it, and those after it find that one
// log again.
func TestTortureKillAtBirth(t *testing.T) {
	_, rng := random(t)
	claim := client.Request{Kind: client.Command, Verb: "work.claim", CommandID: "one", Body: client.Claim{WorkID: "W1", ControllerID: "c1", ControllerType: "codex", SessionID: "s1"}}
	for range kills(3, 8, 200) {
		dir := t.TempDir()
		p := starting(t, dir)
		time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
		p.kill()
		log := ""
		for _, want := range []string{"appended", "already-applied"} {
			p := serving(t, dir)
			if log != "" && p.ready.Log != log {
				t.Errorf("it was log %s, now it is %s", log, p.ready.Log)
			}
			log = p.ready.Log
			nc, err := nats.Connect(p.ready.NATS)
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(nc, client.Options{Principal: "c1"})
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Do(t.Context(), claim)
			if err != nil || r.Outcome != want || r.Position != 1 {
				t.Errorf("%+v, %v, want %s at position 1", r, err, want)
			}
			nc.Close()
			p.kill()
		}
	}
}

// random makes a generator whose seed is printed; FORGE_SEED sets it.
func random(t *testing.T) (uint64, *rand.Rand) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FORGE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("FORGE_SEED=%d", seed)
	return seed, rand.New(rand.NewPCG(seed, 0))
}

// kills is how many: with -short, as usual, with FORGE_TORTURE.
func kills(short, usual, torture int) int {
	switch {
	case testing.Short():
		return short
	case os.Getenv("FORGE_TORTURE") != "":
		return torture
	}
	return usual
}

// starting starts a process without waiting for it.
func starting(t *testing.T, dir string) *process {
	p, err := startProcess(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	return p
}

// load lets the callers work for a while, then ends the process.
func load(t *testing.T, p *process, callers []*killCaller, span time.Duration, end func()) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done sync.WaitGroup
	for _, c := range callers {
		nc, err := nats.Connect(p.ready.NATS, nats.NoReconnect())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		done.Go(func() { c.work(ctx, nc, span) })
	}
	if span == 0 {
		done.Wait()
		end()
		return
	}
	time.Sleep(span)
	end()
	stop()
	done.Wait()
}

// sent is a command and, if it was acknowledged, its reply.
type sent struct {
	request client.Request
	workID  string
	reply   *client.Reply
}

// killCaller is a controller. Works of its own nobody else wants; the others all
// callers want.
type killCaller struct {
	name  string
	rng   *rand.Rand
	n     int
	held  map[string]*events.Session // works that it owns
	acked []sent                     // appended
	doubt *sent                      // the last command, if it was not answered

	repeated, found int
	err             error
}

// work settles what is in doubt, and then sends commands until the context ends;
// with span 0 it only settles.
func (c *killCaller) work(ctx context.Context, nc *nats.Conn, span time.Duration) {
	cl, err := client.New(nc, client.Options{Principal: c.name})
	if err != nil {
		c.err = err
		return
	}
	if c.settle(ctx, cl) {
		for ctx.Err() == nil && c.err == nil && span > 0 && c.send(ctx, cl, c.next()) {
		}
	}
}

// settle repeats what is in doubt, and the last command that was acknowledged.
func (c *killCaller) settle(ctx context.Context, cl *client.Client) bool {
	if c.doubt != nil {
		before, s := len(c.acked), *c.doubt
		if !c.send(ctx, cl, s) {
			return false
		}
		c.repeated++
		if len(c.acked) > before && c.acked[before].reply.Outcome == "already-applied" {
			c.found++
		}
	}
	if len(c.acked) == 0 {
		return true
	}
	last := c.acked[len(c.acked)-1]
	again, err := c.attempt(ctx, cl, last.request)
	if err != nil {
		return false
	}
	if again.Outcome != "already-applied" || again.Position != last.reply.Position || again.Version != last.reply.Version {
		c.err = fmt.Errorf("%s was %s at position %d; repeated after the restart it is %s at position %d",
			last.request.CommandID, last.reply.Outcome, last.reply.Position, again.Outcome, again.Position)
		return false
	}
	if diff := cmp.Diff(decoded(last.reply.Result), decoded(again.Result)); diff != "" {
		c.err = fmt.Errorf("%s was answered otherwise the second time (-first +second):\n%s", last.request.CommandID, diff)
		return false
	}
	return true
}

func decoded(text json.RawMessage) (v any) {
	_ = json.Unmarshal(text, &v)
	return v
}

// next is the next command: claim what it does not own, else renew or release.
func (c *killCaller) next() sent {
	c.n++
	work := fmt.Sprintf("%s-%d", c.name, c.rng.IntN(5))
	if c.rng.IntN(5) == 0 {
		work = fmt.Sprintf("shared-%d", c.rng.IntN(3))
	}
	r := client.Request{Kind: client.Command, CommandID: fmt.Sprintf("%s-%d", c.name, c.n)}
	owner := c.held[work]
	switch {
	case owner == nil:
		r.Verb = "work.claim"
		r.Body = client.Claim{WorkID: work, ControllerID: c.name, ControllerType: "codex", SessionID: "s-" + c.name}
	case c.rng.IntN(3) > 0:
		r.Verb, r.Body = "work.renew", map[string]any{"workId": work, "authority": client.AuthorityOf(owner)}
	default:
		r.Verb, r.Body = "work.release-with-authority", map[string]any{"workId": work, "authority": client.AuthorityOf(owner)}
	}
	return sent{request: r, workID: work}
}

// send sends a command; false when it was not answered, or something is wrong.
func (c *killCaller) send(ctx context.Context, cl *client.Client, s sent) bool {
	c.doubt = &s
	reply, err := c.attempt(ctx, cl, s.request)
	if errors.Is(err, events.ErrUnavailable) {
		return false
	}
	c.doubt = nil
	if errors.Is(err, events.ErrRefused) {
		return true // somebody else has it
	}
	if err != nil {
		c.err = fmt.Errorf("%s: %w", s.request.CommandID, err)
		return false
	}
	if reply.Outcome != "appended" && reply.Outcome != "already-applied" {
		c.err = fmt.Errorf("%s of %s is %s: %s", s.request.Verb, s.workID, reply.Outcome, reply.Result)
		return false
	}
	s.reply = reply
	c.acked = append(c.acked, s)
	owner, err := ownerOf(s.request.Verb, reply.Result)
	if err != nil {
		c.err = fmt.Errorf("%s: %w", s.request.CommandID, err)
		return false
	}
	if s.request.Verb == "work.release-with-authority" {
		owner = nil
	}
	c.held[s.workID] = owner
	return true
}

// attempt is one try: the client itself would repeat what is not answered, and
// here that is to wait for the restart.
func (c *killCaller) attempt(ctx context.Context, cl *client.Client, r client.Request) (*client.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return cl.Do(ctx, r)
}

// ownerOf is the session that a reply speaks of.
func ownerOf(verb string, result json.RawMessage) (*events.Session, error) {
	if verb == "work.claim" {
		return events.ParseSession(result)
	}
	var f client.Fence
	if err := json.Unmarshal(result, &f); err != nil {
		return nil, err
	}
	if !f.Allowed || f.Owner == nil {
		return nil, fmt.Errorf("the owner was refused: %s", result)
	}
	return f.Owner, nil
}

// verifyKilled opens the data with a server of the test, verifies the log, and
// compares it with what the callers know.
func verifyKilled(t *testing.T, dir string, callers []*killCaller, settled bool) {
	t.Helper()
	e := logtest.Embedded(t, logtest.DataDir(dir+"/data"))
	defer e.Shutdown()
	nc, err := e.ForgeConn()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := eventlog.Open(t.Context(), nc, readOnly(e))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	report := servicetest.CheckLog(t, l)

	type commit struct {
		position uint64
		*events.Commit
	}
	found := map[string]commit{}
	for r, err := range servicetest.UpTo(l, report.Last).Records(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if first, twice := found[c.ID]; twice {
			t.Errorf("command %s is at position %d and again at %d", c.ID, first.position, r.Position)
		}
		found[c.ID] = commit{r.Position, c}
	}
	known := 0
	for _, caller := range callers {
		for _, s := range caller.acked {
			id := s.request.CommandID
			c, ok := found[id]
			switch {
			case !ok:
				t.Errorf("%s was acknowledged at position %d, and is not on the log", id, s.reply.Position)
				continue
			case c.position != s.reply.Position || c.Version != s.reply.Version || c.AggregateID != s.workID || c.Actor.Principal != caller.name:
				t.Errorf("%s was acknowledged at position %d as version %d of %s; the log has position %d, version %d of %s by %s",
					id, s.reply.Position, s.reply.Version, s.workID, c.position, c.Version, c.AggregateID, c.Actor.Principal)
			}
			known++
			if err := sameOwner(s, c.Commit); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if caller.doubt != nil {
			if settled {
				t.Errorf("%s is still in doubt", caller.doubt.request.CommandID)
			}
			if _, ok := found[caller.doubt.request.CommandID]; ok {
				known++
			}
		}
	}
	if known != len(found) {
		t.Errorf("the log has %d commits, the callers know of %d", len(found), known)
	}
}

// sameOwner compares the session of a reply with that of the event.
func sameOwner(s sent, c *events.Commit) error {
	told, err := ownerOf(s.request.Verb, s.reply.Result)
	if err != nil {
		return err
	}
	p, err := events.Decode(c.Events[0])
	if err != nil {
		return err
	}
	var owner events.Session
	switch e := p.(type) {
	case events.ClaimGranted:
		owner = e.Owner
	case events.ClaimRenewed:
		owner = e.Owner
	case events.ClaimReleased:
		if e.Generation != told.Gen() {
			return fmt.Errorf("generation %d was released, %d is what was told", e.Generation, told.Gen())
		}
		return nil
	default:
		return fmt.Errorf("%T after %s", p, s.request.Verb)
	}
	if !owner.Equal(told) {
		return fmt.Errorf("the log has %+v, what was told is %+v", owner, told)
	}
	return nil
}
