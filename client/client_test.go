package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub answers requests in place of a service.
type stub struct {
	mu   sync.Mutex
	seen []*nats.Msg
}

// requests are those that came.
func (s *stub) requests() []*nats.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*nats.Msg(nil), s.seen...)
}

// serveStub listens where a service does. answer gets the number of the request,
// from 0; nil is no answer.
func serveStub(t *testing.T, e *eventlog.Embedded, answer func(n int, m *nats.Msg) *nats.Msg) *stub {
	t.Helper()
	s := &stub{}
	nc := logtest.AppConn(t, e)
	for _, root := range []string{"forge.cmd.>", "forge.op.>", "forge.query.>"} {
		if _, err := nc.Subscribe(root, func(m *nats.Msg) {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := len(s.seen)
			s.seen = append(s.seen, m)
			if a := answer(n, m); a != nil {
				_ = m.RespondMsg(a)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

func okReply(result string) *nats.Msg {
	m := nats.NewMsg("")
	m.Data = fmt.Appendf(nil, `{"result":%s,"position":7,"version":2,"commandId":"id","outcome":"appended"}`, result)
	return m
}

func errorReply(code events.Code, details map[string]any) *nats.Msg {
	m := nats.NewMsg("")
	m.Header.Set("Nats-Service-Error", string(code))
	m.Header.Set("Nats-Service-Error-Code", fmt.Sprint(code.Info().Number))
	m.Data, _ = json.Marshal(map[string]any{"code": code, "message": "no", "details": details})
	return m
}

// caller is a client of a server, as callers connect.
func caller(t *testing.T, e *eventlog.Embedded, opts client.Options) *client.Client {
	t.Helper()
	if opts.Principal == "" {
		opts.Principal = "p 1"
	}
	c, err := client.New(servicetest.Caller(t, e), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func claim(work string) client.Claim {
	return client.Claim{WorkID: work, ControllerID: "p 1", ControllerType: "codex", SessionID: "s1"}
}

// TestLostReplies: as long as nobody answers, the same command is sent again,
// with the id that it had.
func TestLostReplies(t *testing.T) {
	e := logtest.Embedded(t)
	s := serveStub(t, e, func(n int, _ *nats.Msg) *nats.Msg {
		if n < 3 {
			return nil
		}
		return okReply(`{}`)
	})
	retries := 0
	c := caller(t, e, client.Options{Attempt: 100 * time.Millisecond, Retrying: func(err error) {
		retries++
		if !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("retrying because of %v", err)
		}
	}})
	version := uint64(4)
	r, err := c.Do(t.Context(), client.Request{
		Kind: client.Command, Verb: "work.claim", Body: claim("W1"), Correlation: "k1", Causation: "k0", ExpectedVersion: &version,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != "appended" || r.Position != 7 || r.Version != 2 || r.CommandID != "id" || retries != 3 {
		t.Errorf("%+v after %d retries", r, retries)
	}
	seen := s.requests()
	if len(seen) != 4 {
		t.Fatalf("%d requests, want 4", len(seen))
	}
	for _, m := range seen {
		if m.Subject != "forge.cmd.main."+events.Token("p 1")+".work.claim" {
			t.Errorf("subject %s", m.Subject)
		}
		if id := m.Header.Get("Forge-Command-Id"); len(id) != 26 || id != seen[0].Header.Get("Forge-Command-Id") {
			t.Errorf("command id %q, the first was %q", id, seen[0].Header.Get("Forge-Command-Id"))
		}
		if string(m.Data) != string(seen[0].Data) {
			t.Errorf("body %s, the first was %s", m.Data, seen[0].Data)
		}
		got := []string{m.Header.Get("Forge-Correlation-Id"), m.Header.Get("Forge-Causation-Id"), m.Header.Get("Forge-Expected-Version")}
		if diff := cmp.Diff([]string{"k1", "k0", "4"}, got); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	}
}

// TestPatience: without a deadline of the caller's, a request is given up in the
// end, and the outcome is said to be in doubt.
func TestPatience(t *testing.T) {
	e := logtest.Embedded(t)
	serveStub(t, e, func(int, *nats.Msg) *nats.Msg { return nil })
	c := caller(t, e, client.Options{Attempt: 50 * time.Millisecond, Patience: 300 * time.Millisecond})
	begin := time.Now()
	_, err := c.Claim(t.Context(), claim("W1"))
	if !errors.Is(err, events.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	// The caller's own deadline and its end count, too.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Claim(ctx, claim("W1")); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.Claim(ctx, claim("W1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestBusy: a busy service is asked again, more and more slowly.
func TestBusy(t *testing.T) {
	e := logtest.Embedded(t)
	var at []time.Time
	s := serveStub(t, e, func(n int, _ *nats.Msg) *nats.Msg {
		at = append(at, time.Now())
		if n < 4 {
			return errorReply(events.CodeBusy, nil)
		}
		return okReply(`{}`)
	})
	c := caller(t, e, client.Options{})
	if _, err := c.Do(t.Context(), client.Request{Kind: client.Command, Verb: "work.claim", CommandID: "mine"}); err != nil {
		t.Fatal(err)
	}
	seen := s.requests()
	if len(seen) != 5 || seen[4].Header.Get("Forge-Command-Id") != "mine" {
		t.Errorf("%d requests", len(seen))
	}
	for i := 1; i < len(at); i++ {
		// The n-th pause lies between half and three halves of 20 ms · 2ⁿ.
		if pause, least := at[i].Sub(at[i-1]), 10*time.Millisecond<<(i-1); pause < least {
			t.Errorf("pause %d was %s, at least %s is meant", i, pause, least)
		}
	}
}

// TestNobodyThere: without a service the client waits for one.
func TestNobodyThere(t *testing.T) {
	e := logtest.Embedded(t)
	c := caller(t, e, client.Options{Patience: 200 * time.Millisecond, Instance: "other"})
	_, err := c.Get(t.Context(), "W1")
	if !errors.Is(err, events.ErrUnavailable) || !strings.Contains(err.Error(), `no service answers for instance "other"`) {
		t.Errorf("got %v", err)
	}
	started := make(chan struct{})
	var once sync.Once
	c = caller(t, e, client.Options{Retrying: func(error) {
		once.Do(func() {
			serveStub(t, e, func(int, *nats.Msg) *nats.Msg { return okReply(`null`) })
			close(started)
		})
	}})
	if owner, err := c.Get(t.Context(), "W1"); err != nil || owner != nil {
		t.Errorf("got %v, %v", owner, err)
	}
	<-started
}

// TestErrors: errors have code, details and sentinel, and what is final is not
// repeated.
func TestErrors(t *testing.T) {
	e := logtest.Embedded(t)
	var reply atomic.Pointer[nats.Msg]
	s := serveStub(t, e, func(int, *nats.Msg) *nats.Msg { return reply.Load() })
	c := caller(t, e, client.Options{Patience: 200 * time.Millisecond})
	for code, sentinel := range map[events.Code]error{
		events.CodeAlreadyClaimed: events.ErrRefused, events.CodeIdentityRequired: events.ErrBadRequest, events.CodeForbidden: events.ErrForbidden,
		events.CodeNotFound: events.ErrNotFound, events.CodeVersionConflict: events.ErrConflict, events.CodeCommandIDReused: events.ErrCommandIDReused,
		events.CodeTooLarge: events.ErrTooLarge, events.CodePoisoned: events.ErrPoisoned, events.CodeLogUnsafe: events.ErrLogUnsafe,
		events.CodeClockSkew: events.ErrClockSkew, events.CodeViewBehind: events.ErrViewBehind, events.CodeLogFull: events.ErrLogFull,
	} {
		reply.Store(errorReply(code, map[string]any{"workId": "W1"}))
		before := len(s.requests())
		_, err := c.Claim(t.Context(), claim("W1"))
		var typed *events.Error
		if !errors.As(err, &typed) || typed.Code != code || typed.Details["workId"] != "W1" || typed.Message != "no" {
			t.Errorf("%s: got %#v", code, err)
		}
		if !errors.Is(err, sentinel) {
			t.Errorf("%s is not %v", code, sentinel)
		}
		if n := len(s.requests()) - before; n != 1 {
			t.Errorf("%s: %d requests", code, n)
		}
	}

	// A reply that is none: in doubt.
	for name, data := range map[string]string{"no JSON": "nonsense", "wrong types": `{"position":"x"}`} {
		m := nats.NewMsg("")
		m.Data = []byte(data)
		reply.Store(m)
		if _, err := c.Claim(t.Context(), claim("W1")); !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	m := errorReply(events.CodeBusy, nil)
	m.Data = []byte("{}")
	reply.Store(m)
	if _, err := c.Claim(t.Context(), claim("W1")); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("an error without a code: got %v", err)
	}
}

// TestMistakes are found before anything is sent.
func TestMistakes(t *testing.T) {
	e := logtest.Embedded(t)
	s := serveStub(t, e, func(int, *nats.Msg) *nats.Msg { return okReply(`null`) })
	nc := servicetest.Caller(t, e)
	if _, err := client.New(nc, client.Options{Instance: "No Good"}); !errors.Is(err, events.ErrBadRequest) {
		t.Errorf("a bad instance: got %v", err)
	}
	anonymous, err := client.New(nc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anonymous.Claim(t.Context(), claim("W1")); !errors.Is(err, events.ErrBadRequest) {
		t.Errorf("no principal: got %v", err)
	}
	if _, err := anonymous.Do(t.Context(), client.Request{Kind: client.Command, Verb: "work.claim", Body: func() {}}); !errors.Is(err, events.ErrBadRequest) {
		t.Errorf("a body that is no JSON: got %v", err)
	}
	c := caller(t, e, client.Options{})
	huge := claim("W1")
	huge.SessionID = strings.Repeat("x", 2<<20)
	begin := time.Now()
	if _, err := c.Claim(t.Context(), huge); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("2 MiB: got %v", err)
	}
	if time.Since(begin) > 5*time.Second {
		t.Error("what is too large was tried again and again")
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	// A query needs no principal.
	if _, err := anonymous.Get(t.Context(), "W1"); err != nil {
		t.Error(err)
	}
}

// TestLife is a life of a claim against the real service, through every method.
func TestLife(t *testing.T) {
	_, e := servicetest.Embedded(t)
	c := caller(t, e, client.Options{Principal: "c1"})
	ctx := t.Context()
	in := client.Claim{WorkID: "W1", ControllerID: "c1", ControllerType: "codex", SessionID: "s1", ControllerInstanceID: "i1", PrincipalID: "c1"}

	s, err := c.Claim(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if s.WorkID != "W1" || s.Gen() != 1 || s.LeaseExpiresAt.Std().Sub(s.ClaimedAt.Std()) != time.Hour {
		t.Errorf("claimed %+v", s)
	}
	in.SessionID = "s2"
	if s, err = c.Bind(ctx, in); err != nil || s.SessionID != "s2" {
		t.Fatalf("bound %+v, %v", s, err)
	}
	if s, err = c.Resume(ctx, in); err != nil || s.Gen() != 1 {
		t.Fatalf("resumed %+v, %v", s, err)
	}
	if got, err := c.Get(ctx, "W1"); err != nil || !got.Equal(s) {
		t.Fatalf("got %+v, %v, want %+v", got, err, s)
	}
	a := client.AuthorityOf(s)
	f, err := c.Renew(ctx, "W1", a, 60_000)
	if err != nil || !f.Allowed || f.Owner.LeaseExpiresAt.Std().Sub(f.Owner.ClaimedAt.Std()) != time.Minute {
		t.Fatalf("renewed %+v, %v", f, err)
	}
	if f, err = c.Renew(ctx, "W1", a, 0); err != nil || !f.Allowed {
		t.Fatalf("renewed %+v, %v", f, err)
	}
	stale := a
	stale.ClaimGeneration++
	if f, err = c.Renew(ctx, "W1", stale, 0); err != nil || f.Allowed || f.Reason != "stale_controller_authority" {
		t.Fatalf("a stale authority: %+v, %v", f, err)
	}

	other := caller(t, e, client.Options{Principal: "c2"})
	in2 := in
	in2.ControllerID, in2.PrincipalID = "c2", "c2"
	_, err = other.Claim(ctx, in2)
	var typed *events.Error
	if !errors.As(err, &typed) || typed.Code != events.CodeAlreadyClaimed || typed.Details["controllerId"] != "c1" {
		t.Errorf("a loser is told %v", err)
	}
	if _, err = other.Claim(ctx, in); !errors.Is(err, events.ErrForbidden) {
		t.Errorf("as somebody else: %v", err)
	}
	none := int64(0)
	in3 := in
	in3.ExpectedGeneration = &none
	if _, err = c.Claim(ctx, in3); events.CodeOf(err) != events.CodeClaimGenerationMismatch {
		t.Errorf("expecting nobody: %v", err)
	}

	if f, err = c.Release(ctx, "W1", a); err != nil || !f.Allowed {
		t.Fatalf("released %+v, %v", f, err)
	}
	if got, err := c.Get(ctx, "W1"); err != nil || got != nil {
		t.Fatalf("after the release: %+v, %v", got, err)
	}
	in.WorkID = "W2"
	if s, err = c.Claim(ctx, in); err != nil {
		t.Fatal(err)
	}
	if f, err = c.Terminalize(ctx, "W2", "completed", client.AuthorityOf(s)); err != nil || !f.Allowed {
		t.Fatalf("terminalized %+v, %v", f, err)
	}

	// An unknown field is told, an unknown verb is an error.
	r, err := c.Do(ctx, client.Request{Kind: client.Query, Verb: "works.get", Body: json.RawMessage(`{"workId":"W1","wrokId":"W2"}`)})
	if err != nil || r.Ignored != "wrokId" || r.AsOf == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = c.Do(ctx, client.Request{Kind: client.Command, Verb: "work.frob"}); events.CodeOf(err) != events.CodeUnknownVerb {
		t.Errorf("an unknown verb: %v", err)
	}
}

// TestLostRepliesOfService: the reply of the real service is lost, the client
// repeats the command, and there is one commit.
func TestLostRepliesOfService(t *testing.T) {
	n, e := servicetest.Embedded(t)
	// The client gives up before the reply can be there.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
	defer cancel()
	c := caller(t, e, client.Options{Principal: "c1"})
	request := client.Request{Kind: client.Command, Verb: "work.claim", CommandID: "one", Body: client.Claim{WorkID: "W1", ControllerID: "c1", ControllerType: "codex", SessionID: "s1"}}
	_, first := c.Do(ctx, request)
	r, err := c.Do(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if first != nil && !errors.Is(first, events.ErrUnavailable) {
		t.Errorf("a lost reply is %v", first)
	}
	if r.Position != 1 || r.Version != 1 {
		t.Errorf("%+v", r)
	}
	if last, err := n.Log.LastPosition(t.Context()); err != nil || last != 1 {
		t.Errorf("the log ends at %d, %v", last, err)
	}
}
