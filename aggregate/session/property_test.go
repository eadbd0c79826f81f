package session_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// epoch is an owner in the sense of specification 1.2.
type epoch struct{ controller, kind, principal, instance string }

func epochOf(s *events.Session) epoch {
	return epoch{s.ControllerID, s.ControllerType, s.Principal(), s.Instance()}
}

// history follows one work and knows what must hold of its whole life.
type history struct {
	*work
	// holders are the owners that this system gave a generation to.
	holders map[int64]epoch
	// shown are authorities that were valid once.
	shown []string
}

func (h *history) step(t *rapid.T) {
	h.t = t
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "value") }
	h.after(rapid.SampledFrom([]int64{0, 0, 1, 999, 60_000, session.DefaultGraceMs, hour}).Draw(t, "time goes by"))
	before := h.state
	now := h.facts.Now
	live := before.Live(now)

	claim := with(rapid.SampledFrom([]string{claimBody, claimBody, otherBody}).Draw(t, "owner"), "workId", quote(before.WorkID))
	if rapid.IntRange(0, 2).Draw(t, "as it is") > 0 {
		claim = with(claim, pick("controllerId", "controllerType", "sessionId", "principalId", "controllerInstanceId"), pick(`"c1"`, `"p1"`, `"i2"`, `"s9"`, `"codex"`, `" "`, ""))
	}
	if rapid.Bool().Draw(t, "options") {
		claim = with(claim, "authorityDigest", pick("", `"d"`), "leaseMs", pick("", "1000", "1e30", "-1", `"x"`), "allowClaimIfMissing", pick("", "true"),
			"currentRuntimeInstanceId", pick("", `"i1"`, `"i2"`))
	}
	switch rapid.IntRange(0, 3).Draw(t, "fence") {
	case 0:
		claim = with(claim, "expectedClaimGeneration", fmt.Sprint(live.Gen()), "allowStaleRecovery", "true")
	case 1:
		claim = with(claim, "expectedClaimGeneration", pick("0", "1", "2", "7", `"x"`), "allowStaleRecovery", pick("", "true"))
	}
	authority := func() string {
		if live != nil && rapid.Bool().Draw(t, "live authority") {
			return under(live)
		}
		if len(h.shown) > 0 {
			return rapid.SampledFrom(h.shown).Draw(t, "old authority")
		}
		return underBody
	}
	var o *outcome
	verb := pick(session.VerbClaim, session.VerbClaim, session.VerbResume, session.VerbResume, session.VerbBind, session.VerbBind, session.VerbRenew,
		session.VerbRelease, session.VerbReleaseWithAuthority, session.VerbReleaseObserved, session.VerbTerminalize, session.VerbSetState,
		session.VerbForceRelease, session.VerbResolveImport, session.VerbImport)
	if before.Conflict != nil && rapid.Bool().Draw(t, "resolve") {
		verb = session.VerbResolveImport
	}
	if before.Terminal() && rapid.Bool().Draw(t, "open") {
		verb = session.VerbSetState
	}
	id := quote(before.WorkID)
	switch verb {
	case session.VerbClaim, session.VerbResume, session.VerbBind:
		o = h.when(verb, claim)
	case session.VerbRenew, session.VerbReleaseWithAuthority:
		o = h.when(verb, with(authority(), "workId", id, "leaseMs", pick("", "1000")))
	case session.VerbRelease:
		o = h.when(verb, claim)
	case session.VerbReleaseObserved:
		owner := with(importedSession, "workId", id, "claimGeneration", fmt.Sprint(rapid.Int64Range(0, 5).Draw(t, "observed")))
		if live != nil && rapid.Bool().Draw(t, "live owner") {
			owner = asText(live)
		}
		o = h.when(verb, with(`{}`, "workId", id, "owner", owner))
	case session.VerbTerminalize:
		body := with(`{}`, "workId", id)
		if rapid.Bool().Draw(t, "fenced") {
			body = with(authority(), "workId", id)
		}
		o = h.when(verb, with(body, "state", pick(`"open"`, `"open"`, `"done"`), "release", pick("", "true")))
	case session.VerbSetState:
		o = h.when(verb, with(`{"reason":"r"}`, "workId", id, "state", pick("null", `"open"`, `"open"`, `"open"`, `"done"`)))
	case session.VerbForceRelease:
		o = h.when(verb, with(`{"reason":"r"}`, "workId", id))
	case session.VerbResolveImport:
		o = h.when(verb, with(`{"reason":"r"}`, "workId", id, "keep", pick(`"current"`, `"imported"`)))
	case session.VerbImport:
		imported := with(importedSession, "workId", id, "controllerId", pick(`"c1"`, `"c3"`), "controllerType", `"a"`, "principalId", pick(`"p1"`, ""),
			"claimGeneration", pick("", "-1", "0", "1", "2", "3"), "claimedAt", quote(now.Add(rapid.Int64Range(-2, 2).Draw(t, "claimed")).String()),
			"leaseExpiresAt", quote(now.Add(rapid.Int64Range(-10, hour).Draw(t, "lease")).String()), "note", pick("", "1", "null"))
		body := snapshot(imported)
		if rapid.Bool().Draw(t, "retained") {
			body = retainedRecord(imported, pick("", `"2026-01-01T00:00:00Z"`))
		}
		o = h.entry(body)
	}
	h.judge(t, verb, before, live, o)
	if h.state.Owner != nil && h.state.Owner.Gen() > 0 {
		if a := under(h.state.Owner); !slices.Contains(h.shown, a) {
			h.shown = append(h.shown, a)
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "activity") == 0 {
		at := now.Add(-rapid.Int64Range(0, hour).Draw(t, "seen"))
		h.executions[pick("s1", "s2")] = &events.Execution{PrincipalID: ptr(pick("p1", "")), ActiveWorkID: ptr(pick("", "w1", "w2")), UpdatedAt: &at}
	}
	if rapid.IntRange(0, 9).Draw(t, "announce") == 0 {
		h.facts.AnnouncedRuntime = pick("", "i1", "i2")
	}
}

// judge checks the rules that span commands.
func (h *history) judge(t *rapid.T, verb string, before session.State, live *events.Session, o *outcome) {
	after := h.state
	if o.err != nil || o.Refused || len(o.Events) == 0 {
		if asText(session.Decider{}.EncodeState(before)) != asText(session.Decider{}.EncodeState(after)) {
			t.Fatalf("%s: %v, and the work changed", verb, o.err)
		}
		return
	}
	if before.Owner != nil && after.Owner.Gen() < before.Owner.Gen() {
		t.Fatalf("%s: the generation went from %d back to %d", verb, before.Owner.Gen(), after.Owner.Gen())
	}
	for _, p := range o.Events {
		switch e := p.(type) {
		case events.ClaimGranted:
			if e.Owner.Gen() <= before.Owner.Gen() {
				t.Fatalf("%s: granted generation %d after %d", verb, e.Owner.Gen(), before.Owner.Gen())
			}
			if live != nil && e.Cause != events.CauseRecovery && e.Cause != events.CauseRuntimeChange {
				t.Fatalf("%s: a live owner lost the work by %s", verb, e.Cause)
			}
			if live != nil && verb == session.VerbClaim {
				t.Fatalf("a live lease changed its owner through claim: %s, then %s", asText(live), asText(e.Owner))
			}
			if live != nil && e.Cause == events.CauseRecovery && session.BlocksRecovery(live, h.executions[live.SessionID], h.facts.Now, session.DefaultGraceMs) {
				t.Fatalf("%s: an owner that was protected lost the work", verb)
			}
			if e.Cause == events.CauseRuntimeChange && e.Owner.ControllerID != live.ControllerID {
				t.Fatalf("%s: another controller by %s", verb, e.Cause)
			}
			h.hold(t, verb, &e.Owner)
		case events.ClaimRenewed:
			if epochOf(&e.Owner) != epochOf(before.Owner) || before.Standing == events.StandingReleased {
				t.Fatalf("%s: %s renews %s %s", verb, asText(e.Owner), before.Standing, asText(before.Owner))
			}
			h.hold(t, verb, &e.Owner)
		case events.ClaimImported, events.ClaimImportResolved:
			// Another system may have given a generation that this one gave, too;
			// an operator who keeps the imported claim decides for that one.
			h.holders[after.Owner.Gen()] = epochOf(after.Owner)
		}
	}
	if (verb == session.VerbClaim || verb == session.VerbResume || verb == session.VerbBind) && before.Terminal() {
		t.Fatalf("%s: granted on a closed work", verb)
	}
	// Whoever is not the owner any more is fenced.
	if after.Live(h.facts.Now) != nil && len(h.shown) > 0 {
		for _, old := range h.shown[max(0, len(h.shown)-3):] {
			if old == under(after.Owner) {
				continue
			}
			probe := &work{t: t, state: after, facts: h.facts, executions: h.executions}
			if probe.when(session.VerbReleaseWithAuthority, with(old, "workId", quote(after.WorkID))); after.Conflict == nil && probe.state.Standing != after.Standing {
				t.Fatalf("%s was released under the old authority %s", asText(after.Owner), old)
			}
		}
	}
}

// hold records who holds a generation: nobody else ever may.
func (h *history) hold(t *rapid.T, verb string, owner *events.Session) {
	if other, held := h.holders[owner.Gen()]; held && other != epochOf(owner) {
		t.Fatalf("%s: generation %d of %s was held by %+v and is held by %+v", verb, owner.Gen(), owner.WorkID, other, epochOf(owner))
	}
	h.holders[owner.Gen()] = epochOf(owner)
}

// Random commands on few works by few owners. The general checks of a scenario
// hold for each; here are those of a whole life. rapid prints the seed of a
// failure and takes it with -rapid.seed.
func TestRandomLives(t *testing.T) {
	granted, quarantined, recovered, renewed := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		works := map[string]*history{}
		for _, id := range []string{"w1", "w2"} {
			works[id] = &history{work: givenWork(t, id), holders: map[int64]epoch{}}
		}
		for range rapid.IntRange(5, 80).Draw(t, "commands") {
			works[rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "work")].step(t)
		}
		for id, h := range works {
			// Folding the log from nothing gives the state that was carried along.
			s := session.Decider{}.Initial(id)
			for _, e := range h.log {
				var err error
				if s, err = (session.Decider{}).Evolve(s, e); err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				switch e := e.(type) {
				case events.ClaimGranted:
					granted++
					if e.Cause == events.CauseRecovery {
						recovered++
					}
				case events.ClaimRenewed:
					renewed++
				case events.ClaimImportConflicted:
					quarantined++
				}
			}
			if asText(session.Decider{}.EncodeState(s)) != asText(session.Decider{}.EncodeState(h.state)) {
				t.Fatalf("%s: the fold gives another state", id)
			}
		}
	})
	t.Logf("%d granted, %d by recovery, %d renewed, %d quarantined", granted, recovered, renewed, quarantined)
	if !t.Failed() && (granted == 0 || renewed == 0 || quarantined == 0) {
		t.Error("too little happened: the lives do not try the rules")
	}
}
