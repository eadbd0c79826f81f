package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Activity is what is known of the transport sessions of an instance, and which
// runtime was announced. It is fact, not decision: a bucket that keeps the last
// value only, written by the service alone, read from its leader.
type Activity struct {
	kv jetstream.KeyValue
}

// reportEveryMs is how often a report of the same facts is written: once per
// 15 s and transport session.
const reportEveryMs = 15_000

const (
	activityPrefix = "session."
	runtimeKey     = "runtime"
)

func activityBucket(instance string) string { return "forge-activity-" + instance }

// OpenActivity opens the bucket of an instance in the account of the log, and
// creates it if it is missing. Direct gets stay off, so that every read is one
// from the leader. It is patient with servers that are just being elected.
func OpenActivity(ctx context.Context, nc *nats.Conn, instance string, replicas int) (*Activity, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, unavailable("activity", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	for {
		kv, err := openBucket(ctx, js, activityBucket(instance), replicas)
		if err == nil {
			return &Activity{kv: kv}, nil
		}
		var api *jetstream.APIError
		if ctx.Err() != nil || errors.As(err, &api) && api.Code != http.StatusServiceUnavailable {
			return nil, unavailable("activity", err)
		}
		select {
		case <-ctx.Done():
			return nil, unavailable("activity", err)
		case <-time.After(openAgain):
		}
	}
}

// How long OpenActivity waits for servers, and how often it asks.
const (
	openPatience = 30 * time.Second
	openTimeout  = 2 * time.Second
	openAgain    = 100 * time.Millisecond
)

func openBucket(ctx context.Context, js jetstream.JetStream, bucket string, replicas int) (jetstream.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	kv, err := js.KeyValue(ctx, bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Storage: jetstream.FileStorage, Replicas: replicas,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: false,
		MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, MaxMsgSize: -1,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil, err
	}
	return js.KeyValue(ctx, bucket)
}

func unavailable(what string, err error) error {
	return events.Errorf(events.CodeUnavailable, "%s: %w", what, err)
}

// transport is what the bucket holds for a transport session.
type transport struct {
	events.Execution
	// Reporter is the token of the principal that reported the session first; it
	// owns it. Empty for free values set by an operator.
	Reporter string `json:"reporter,omitempty"`
}

// read gives a value and its revision; ok is false when there is none.
func (a *Activity) read(ctx context.Context, key string, into any) (revision uint64, ok bool, err error) {
	entry, err := a.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, unavailable("activity", err)
	}
	if err := json.Unmarshal(entry.Value(), into); err != nil {
		return 0, false, unavailable("activity "+key, err)
	}
	return entry.Revision(), true, nil
}

// write puts a value over the revision that was read (0: none). It reports false
// when somebody else wrote in between.
func (a *Activity) write(ctx context.Context, key string, revision uint64, v any) (bool, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return false, unavailable("activity", err)
	}
	if revision == 0 {
		_, err = a.kv.Create(ctx, key, b)
	} else {
		_, err = a.kv.Update(ctx, key, b, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || isWrongSequence(err) {
		return false, nil
	}
	if err != nil {
		return false, unavailable("activity", err)
	}
	return true, nil
}

func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == wrongSequenceConstant)
}

// wrongSequenceConstant is what a replicated stream answers while another write
// of the subject is in flight.
const wrongSequenceConstant = 10164

// change reads a transport session, changes it, and writes it unless it stays
// the same; again when somebody else was faster.
func (a *Activity) change(ctx context.Context, sessionID string, change func(old *transport) (*transport, error)) (value *transport, written bool, err error) {
	key := activityPrefix + events.Token(sessionID)
	for range decideAgain {
		var old transport
		revision, ok, err := a.read(ctx, key, &old)
		if err != nil {
			return nil, false, err
		}
		var before *transport
		if ok {
			before = &old
		}
		after, err := change(before)
		if err != nil || after == before {
			return after, false, err
		}
		if ok, err := a.write(ctx, key, revision, after); err != nil || ok {
			return after, ok, err
		}
	}
	return nil, false, events.Errorf(events.CodeContention, "transport session %s changes too often", sessionID)
}

// Execution is what is known of the transport session of an owner, nil if nothing
// is. It is read from the leader. Only what the owner's principal reported counts,
// or an operator set: the ids of transport sessions are no secret, and what
// somebody else says of one must neither end nor change who owns a work.
func (a *Activity) Execution(ctx context.Context, owner *events.Session) (*events.Execution, error) {
	var t transport
	_, ok, err := a.read(ctx, activityPrefix+events.Token(owner.SessionID), &t)
	if err != nil || !ok || t.SessionID == "" || t.Reporter != "" && t.Reporter != events.Token(owner.Principal()) {
		return nil, err
	}
	return &t.Execution, nil
}

// runtime is what the bucket holds about the announced runtime.
type runtime struct {
	ControllerInstanceID string      `json:"controllerInstanceId"`
	AnnouncedAt          events.Time `json:"announcedAt"`
}

// Runtime is the announced controller instance, "" if none was.
func (a *Activity) Runtime(ctx context.Context) (string, error) {
	var r runtime
	_, _, err := a.read(ctx, runtimeKey, &r)
	return r.ControllerInstanceID, err
}

// report notes that a principal's transport session is alive.
func (a *Activity) report(ctx context.Context, b *aggregate.Body, caller session.Caller, principal string, now events.Time) (reply, error) {
	id, err := transportID(b, caller)
	if err != nil {
		return reply{}, err
	}
	active := b.Text("activeWorkId")
	if err := b.Malformed(); err != nil {
		return reply{}, err
	}
	if err := events.CheckID("activeWorkId", aggregate.Trimmed(active)); err != nil {
		return reply{}, err
	}
	work := aggregate.Trimmed(active)
	return a.reply(a.change(ctx, id, func(old *transport) (*transport, error) {
		if err := owned(old, caller, id); err != nil {
			return old, err
		}
		if old != nil && text(old.ActiveWorkID) == work && old.UpdatedAt != nil && now-*old.UpdatedAt < reportEveryMs {
			return old, nil
		}
		t := &transport{Reporter: caller.Token, Execution: events.Execution{SessionID: id, PrincipalID: &principal, LastValidatedAt: &now, UpdatedAt: &now}}
		if work != "" {
			t.ActiveWorkID = &work
		}
		if old != nil {
			t.InvalidatedAt = old.InvalidatedAt
		}
		return t, nil
	}))
}

// invalidate notes that a principal's transport session ended.
func (a *Activity) invalidate(ctx context.Context, b *aggregate.Body, caller session.Caller, principal string, now events.Time) (reply, error) {
	id, err := transportID(b, caller)
	if err != nil {
		return reply{}, err
	}
	if err := b.Malformed(); err != nil {
		return reply{}, err
	}
	return a.reply(a.change(ctx, id, func(old *transport) (*transport, error) {
		if err := owned(old, caller, id); err != nil {
			return old, err
		}
		if old != nil && old.InvalidatedAt != nil {
			return old, nil
		}
		t := &transport{Reporter: caller.Token, Execution: events.Execution{SessionID: id, PrincipalID: &principal}}
		if old != nil {
			t.Execution = old.Execution
		}
		t.InvalidatedAt, t.UpdatedAt = &now, &now
		return t, nil
	}))
}

// set stores free values, or forgets a transport session (null). With keepNewer, values
// that are known and as new or newer stay: importing twice takes nothing back.
func (a *Activity) set(ctx context.Context, b *aggregate.Body) (reply, error) {
	id, err := transportID(b, session.Caller{Operator: true})
	if err != nil {
		return reply{}, err
	}
	facts, keepNewer := b.Object("session"), b.Bool("keepNewer")
	if err := b.Malformed(); err != nil {
		return reply{}, err
	}
	t := &transport{}
	if facts.Set {
		x, err := session.ParseExecution(id, facts.Value)
		if err != nil {
			return reply{}, err
		}
		t.Execution = *x
	}
	return a.reply(a.change(ctx, id, func(old *transport) (*transport, error) {
		if keepNewer.Value && old != nil && old.SessionID != "" && latest(&old.Execution) >= latest(&t.Execution) {
			return old, nil
		}
		return t, nil
	}))
}

// latest is the last time that is known of a transport session, 0 for none.
func latest(x *events.Execution) (t events.Time) {
	for _, at := range []*events.Time{x.InvalidatedAt, x.LastValidatedAt, x.UpdatedAt} {
		if at != nil {
			t = max(t, *at)
		}
	}
	return t
}

// announce stores the present runtime.
func (a *Activity) announce(ctx context.Context, b *aggregate.Body, now events.Time) (reply, error) {
	f := b.Text("controllerInstanceId")
	id := aggregate.Trimmed(f)
	if err := b.Malformed(); err != nil {
		return reply{}, err
	}
	if id == "" {
		return reply{}, events.Errorf(events.CodeBadRequest, "controllerInstanceId is blank").With("field", "controllerInstanceId")
	}
	if err := events.CheckID("controllerInstanceId", id); err != nil {
		return reply{}, err
	}
	for range decideAgain {
		var old runtime
		revision, ok, err := a.read(ctx, runtimeKey, &old)
		if err != nil {
			return reply{}, err
		}
		if ok && old.ControllerInstanceID == id {
			return reply{Result: old, Outcome: OutcomeUnchanged}, nil
		}
		next := runtime{ControllerInstanceID: id, AnnouncedAt: now}
		if ok, err = a.write(ctx, runtimeKey, revision, next); err != nil || ok {
			return reply{Result: next, Outcome: OutcomeAppended}, err
		}
	}
	return reply{}, events.Errorf(events.CodeContention, "the announced runtime changes too often")
}

// transportID reads the transport session that a request is about.
func transportID(b *aggregate.Body, caller session.Caller) (string, error) {
	id := aggregate.Trimmed(b.Text("sessionId"))
	if id == "" {
		return "", events.Errorf(events.CodeIdentityRequired, "sessionId is blank").With("field", "sessionId")
	}
	if err := events.CheckID("sessionId", id); err != nil {
		return "", err
	}
	return id, caller.Proves(b.Text("principalId"), b.Text("controllerId"))
}

// owned refuses a principal that did not report the session first.
func owned(old *transport, caller session.Caller, id string) error {
	if old == nil || old.Reporter == "" || old.Reporter == caller.Token {
		return nil
	}
	return events.Errorf(events.CodeCallerMismatch, "transport session %s was first reported by another principal", id).With("sessionId", id)
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return strings.TrimSpace(*p)
}

// reply answers a change of a transport session.
func (a *Activity) reply(t *transport, written bool, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	out := reply{Outcome: OutcomeUnchanged}
	if written {
		out.Outcome = OutcomeAppended
	}
	if t != nil && t.SessionID != "" {
		out.Result = t.Execution
	}
	return out, nil
}
