package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	lru "github.com/hashicorp/golang-lru/v2"
)

// keeper keeps the boundaries of one kind folded, and brings commands to them.
// The commands of one boundary must come one after another (lanes).
type keeper[S, C, F any] struct {
	log     *eventlog.Log
	decider aggregate.Decider[S, C, F]
	cache   *lru.Cache[string, aggregate.Folded[S]]
	// recall answers a command that was applied before.
	recall func(c *events.Commit, list []events.Payload, after S) any
}

func newKeeper[S, C, F any](log *eventlog.Log, d aggregate.Decider[S, C, F], size int, recall func(*events.Commit, []events.Payload, S) any) (*keeper[S, C, F], error) {
	cache, err := lru.New[string, aggregate.Folded[S]](size)
	if err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "cache of %d boundaries: %w", size, err)
	}
	return &keeper[S, C, F]{log: log, decider: d, cache: cache, recall: recall}, nil
}

// trust says how current a state must be.
type trust int

const (
	remembers trust = iota // what this process knows will do: an append would prove it
	confirmed              // nothing acknowledged before this call may be missing
	afresh                 // what this process knows was wrong: read it from the leader
)

// load gives the state of a boundary: from memory if that is good enough, or as it
// stands on the log. It keeps nothing: only commands do, which come one after
// another. A query that reads beside them could put an older state over the one
// that a command has just made.
func (k *keeper[S, C, F]) load(ctx context.Context, subject, id string, need trust) (aggregate.Folded[S], error) {
	known, cached := k.cache.Get(subject)
	if cached && (need == remembers || need == confirmed && k.log.Confirmed()) {
		return known, nil
	}
	mode := eventlog.Leader
	if need == remembers {
		mode = eventlog.Any
	}
	b, err := k.log.Load(ctx, subject, known.Head, mode)
	if err != nil {
		return known, err
	}
	switch {
	case cached && b.Head.Position == known.Head.Position:
		return known, nil
	case b.Commit == nil:
		return aggregate.Start(k.decider, id), nil
	case !cached:
		known = aggregate.Start(k.decider, id)
	}
	return k.restore(ctx, subject, id, b, known)
}

// restore takes the state that the last commit carries, or folds the boundary on
// from what is known of it. Events that are not known here are no ground to build
// on, whatever the state says.
func (k *keeper[S, C, F]) restore(ctx context.Context, subject, id string, b *eventlog.Boundary, known aggregate.Folded[S]) (aggregate.Folded[S], error) {
	if _, err := aggregate.Payloads(b.Commit); err != nil {
		return aggregate.Folded[S]{}, poisoned(*b.Record, err)
	}
	if b.Commit.State != nil {
		state, ok, err := k.decider.DecodeState(id, *b.Commit.State)
		if err != nil {
			return aggregate.Folded[S]{}, poisoned(*b.Record, err)
		}
		if ok {
			return aggregate.Folded[S]{State: state, Head: b.Head}, nil
		}
	}
	f := known
	err := k.log.History(ctx, subject, f.Head.Position+1, func(r events.Record, _ *events.Commit) error {
		if r.Position > b.Head.Position {
			return errEnough
		}
		next, err := aggregate.Next(k.decider, f, r)
		if err != nil {
			return poisoned(r, err)
		}
		f = next
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return f, err
	}
	return f, nil
}

var errEnough = errors.New("enough")

func poisoned(r events.Record, cause error) error {
	return events.Errorf(events.CodePoisoned, "position %d on %s: %w", r.Position, r.Subject, cause).
		With("subject", r.Subject).With("position", r.Position)
}

// envelope is what a commit will say about a command, beside what was decided.
type envelope struct {
	subject, id     string // boundary
	commandID       string
	given           bool // the caller gave the id: it may have come before
	principalToken  string
	verb            string
	digest          events.Hash
	expectedVersion *uint64
	actor           events.Actor
	correlation     string
	causation       string
}

// order is a command on its way to a boundary.
type order[C, F any] struct {
	envelope
	command C
}

// factsFor gathers what a decision needs, for a state that was just loaded. now
// is not before the last commit.
type factsFor[S, F any] func(ctx context.Context, state S, now events.Time) (F, error)

// reply is what became of a command.
type reply struct {
	Result    any    `json:"result"`
	Position  uint64 `json:"position"`
	Version   uint64 `json:"version"`
	CommandID string `json:"commandId"`
	Outcome   string `json:"outcome"`
}

// Outcomes of a command.
const (
	OutcomeAppended       = "appended"
	OutcomeAlreadyApplied = "already-applied"
	OutcomeUnchanged      = "unchanged"
	OutcomeRefused        = "refused"
)

// decideAgain bounds how often a command is decided again because its boundary
// moved, before FORGE_CONTENTION. Each round some other command won.
const decideAgain = 24

// execute carries a command through: load, decide, append; again when the
// boundary moved.
func (k *keeper[S, C, F]) execute(ctx context.Context, o order[C, F], clock Clock, facts factsFor[S, F]) (reply, error) {
	out := reply{CommandID: o.commandID}
	msgID := events.NewMsgID(o.subject, o.principalToken, o.commandID)
	need := remembers
	for round := 0; round < decideAgain; round++ {
		f, err := k.load(ctx, o.subject, o.id, need)
		if err != nil {
			return out, err
		}
		if f.Head.Position != 0 {
			k.cache.Add(o.subject, f)
		}
		if position := k.appliedAt(f, o.command, msgID); position != 0 {
			return k.recalled(ctx, o, f, position)
		}
		out.Position, out.Version = f.Head.Position, f.Head.Version
		now := max(clock.Now(), f.Head.At)
		d, err := k.decide(ctx, o, f, now, clock, facts)
		if err != nil || len(d.Events) == 0 {
			// Nothing will be appended that could prove the state current.
			if need == remembers && !k.log.Confirmed() {
				need = confirmed
				continue
			}
			if _, known := any(f.State).(rememberer); o.given && !known {
				if position, found, werr := k.remembered(ctx, f.Head, msgID, now); werr != nil || found {
					if werr != nil {
						return out, werr
					}
					return k.recalled(ctx, o, f, position)
				}
			}
			return answer(out, d, err)
		}
		applied, err := k.append(ctx, o, msgID, f, d.Events, now)
		switch {
		case err == nil && applied.AlreadyApplied:
			return k.recalled(ctx, o, f, applied.Position)
		case err == nil:
			out.Position, out.Version, out.Result, out.Outcome = applied.Position, f.Head.Version+1, d.Result, OutcomeAppended
			return out, nil
		case errors.Is(err, eventlog.ErrConflict):
			need = afresh
			pause(ctx, round)
		default:
			k.cache.Remove(o.subject) // the outcome is open
			return out, err
		}
	}
	return out, events.Errorf(events.CodeContention, "%s moved %d times while %s was being decided", o.subject, decideAgain, o.verb).
		With("subject", o.subject)
}

func answer(out reply, d aggregate.Decision, err error) (reply, error) {
	if err != nil {
		return out, err
	}
	out.Result, out.Outcome = d.Result, OutcomeUnchanged
	if d.Refused {
		out.Outcome = OutcomeRefused
	}
	return out, nil
}

func (k *keeper[S, C, F]) decide(ctx context.Context, o order[C, F], f aggregate.Folded[S], now events.Time, clock Clock, facts factsFor[S, F]) (aggregate.Decision, error) {
	if v := o.expectedVersion; v != nil && *v != f.Head.Version {
		return aggregate.Decision{}, events.Errorf(events.CodeVersionConflict, "%s is at version %d, expected %d", o.subject, f.Head.Version, *v).
			With("version", f.Head.Version).With("position", f.Head.Position)
	}
	known, err := facts(ctx, f.State, now)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d, err := k.decider.Decide(f.State, o.command, known)
	if err == nil && restsOnExpiry(d.Events) {
		err = clock.Trusted()
	}
	return d, err
}

// restsOnExpiry reports whether a decision gives somebody's work away because
// time has passed.
func restsOnExpiry(list []events.Payload) bool {
	for _, e := range list {
		if g, ok := e.(events.ClaimGranted); ok && (g.Cause == events.CauseAfterLapse || g.Cause == events.CauseRecovery) {
			return true
		}
	}
	return false
}

// append puts the decided events on the log and keeps the new state.
func (k *keeper[S, C, F]) append(ctx context.Context, o order[C, F], msgID events.MsgID, f aggregate.Folded[S], list []events.Payload, now events.Time) (eventlog.Appended, error) {
	after, err := aggregate.Evolve(k.decider, f.State, list)
	if err != nil {
		return eventlog.Appended{}, events.Errorf(events.CodePoisoned, "%s: a decision that cannot be folded: %w", o.subject, err)
	}
	c := &events.Commit{
		V: events.EnvelopeVersion, Log: k.log.ID(), ID: o.commandID, Kind: k.decider.Kind(), AggregateID: o.id,
		Version: f.Head.Version + 1, Prev: f.Head.Position, PrevHash: f.Head.Hash, At: now, Rules: k.decider.Rules(),
		Command: events.Command{Verb: o.verb, RequestDigest: o.digest}, Actor: o.actor,
		Correlation: o.correlation, Causation: o.causation, Recent: f.Head.Recent,
	}
	if k.decider.Carries() {
		carried := k.decider.EncodeState(after)
		c.State = &carried
	}
	for _, p := range list {
		c.Events = append(c.Events, events.Encode(p))
	}
	payload := c.Encode()
	applied, err := k.log.Append(ctx, eventlog.Entry{
		Subject: o.subject, Expected: f.Head.Position, MsgID: msgID, ID: o.commandID, Digest: o.digest, Payload: payload,
	})
	if err == nil && !applied.AlreadyApplied {
		head := events.HeadAfter(events.Record{Position: applied.Position, Payload: payload}, c, msgID)
		k.cache.Add(o.subject, aggregate.Folded[S]{State: aggregate.Place(after, applied.Position, msgID), Head: head})
	}
	return applied, err
}

// rememberer is implemented by states that recognise more commands than the last
// commit of the boundary names.
type rememberer interface {
	// Applied is the position of a command about a target, 0 if it is not known.
	Applied(target string, id events.MsgID) uint64
}

// appliedAt is the position of a command among the latest commits of its
// boundary, or those that the state remembers; 0 if it is none of them.
func (k *keeper[S, C, F]) appliedAt(f aggregate.Folded[S], command C, id events.MsgID) uint64 {
	for _, r := range f.Head.Recent {
		if r.ID == id {
			return r.Position
		}
	}
	state, ok := any(f.State).(rememberer)
	if !ok {
		return 0
	}
	about, ok := any(command).(interface{ Target() string })
	if !ok {
		return 0
	}
	return state.Applied(about.Target(), id)
}

// How far a command that would append nothing is looked for among earlier
// commits: as long as the server remembers message ids, and no more than
// rememberCommits.
const (
	rememberMs      = 2 * 60 * 1000
	rememberCommits = 256
)

// remembered looks for a command that was applied within the last two minutes but
// is no longer named by the last commit. (A command that would append is
// recognised by the server.)
func (k *keeper[S, C, F]) remembered(ctx context.Context, h events.Head, id events.MsgID, now events.Time) (position uint64, found bool, err error) {
	if h.Version <= uint64(len(h.Recent)) {
		return 0, false, nil // all commits are named
	}
	at := h.Recent[0].Position
	for range rememberCommits {
		r, err := k.log.At(ctx, at)
		if err != nil || r == nil {
			return 0, false, err
		}
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			return 0, false, poisoned(*r, err)
		}
		if events.MsgIDOf(*r, c) == id {
			return r.Position, true, nil
		}
		if c.Prev == 0 || now-c.At > rememberMs {
			return 0, false, nil
		}
		at = c.Prev
	}
	return 0, false, nil
}

// recollecter is implemented by states that can tell how they were after one of
// their latest commits.
type recollecter[S any] interface {
	// Recollect gives the state, as far as it matters to a target, after the commit
	// at a position; ok is false when that is not known.
	Recollect(target string, position uint64) (state S, ok bool)
}

// then is the state of a boundary after an earlier commit, known being the present
// one: remembered if possible, else folded.
func (k *keeper[S, C, F]) then(ctx context.Context, o order[C, F], known aggregate.Folded[S], r *events.Record, c *events.Commit) (S, error) {
	if known.Head.Position == r.Position {
		return known.State, nil
	}
	about, named := any(o.command).(interface{ Target() string })
	if past, ok := any(known.State).(recollecter[S]); ok && named {
		if state, ok := past.Recollect(about.Target(), r.Position); ok {
			return state, nil
		}
	}
	head := events.HeadAfter(*r, c, events.MsgIDOf(*r, c))
	f, err := k.restore(ctx, o.subject, o.id, &eventlog.Boundary{Head: head, Record: r, Commit: c}, aggregate.Start(k.decider, o.id))
	return f.State, err
}

// recalled answers a command from the commit that it made when it came first.
// known is the present state.
func (k *keeper[S, C, F]) recalled(ctx context.Context, o order[C, F], known aggregate.Folded[S], position uint64) (reply, error) {
	out := reply{CommandID: o.commandID, Position: position, Outcome: OutcomeAlreadyApplied}
	r, err := k.log.At(ctx, position)
	if err != nil {
		return out, err
	}
	if r == nil {
		return out, events.Errorf(events.CodeLogUnsafe, "position %d is named by a later commit and is not there", position).With("position", position)
	}
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		return out, poisoned(*r, err)
	}
	if c.ID != o.commandID || r.Subject != o.subject || c.Command.RequestDigest != o.digest {
		return out, events.Errorf(events.CodeCommandIDReused, "command id %q stands for another request on this boundary", o.commandID).
			With("subject", r.Subject).With("position", r.Position).With("verb", c.Command.Verb)
	}
	list, err := aggregate.Payloads(c)
	if err != nil {
		return out, poisoned(*r, err)
	}
	state, err := k.then(ctx, o, known, r, c)
	if err != nil {
		return out, err
	}
	out.Version, out.Result = c.Version, k.recall(c, list, state)
	return out, nil
}

// pause waits a little, longer with every round, so that contenders part.
func pause(ctx context.Context, round int) {
	most := min(time.Millisecond<<min(round, 5), 20*time.Millisecond)
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(most) + most/4):
	}
}

// outcome is what became of the command.
func (r reply) outcome() string { return r.Outcome }
