package session_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// A folded log must not contain what no decision gives: such an event stops the
// fold instead of making a state.
func TestEvolveRefusesWhatCannotFollow(t *testing.T) {
	owner := *mustSession(t, importedSession)
	other := owner
	other.WorkID = "w2"
	held := given(t).happened(session.VerbClaim, claimBody).state
	released := given(t).happened(session.VerbClaim, claimBody).happened(session.VerbRelease, claimBody).state
	identity := given(t).imported(retainedRecord(importedSession, "")).state
	quarantined := given(t).happened(session.VerbClaim, claimBody).imported(snapshot(with(importedSession, "claimGeneration", "9"))).state
	none := given(t).state
	for name, c := range map[string]struct {
		state session.State
		event events.Payload
	}{
		"a grant for another work":        {none, events.ClaimGranted{Owner: other}},
		"a renewal for another work":      {held, events.ClaimRenewed{Owner: other}},
		"a renewal of nobody":             {none, events.ClaimRenewed{Owner: owner}},
		"a grant in quarantine":           {quarantined, events.ClaimGranted{Owner: owner}},
		"a renewal in quarantine":         {quarantined, events.ClaimRenewed{Owner: owner}},
		"a release of nobody":             {none, events.ClaimReleased{}},
		"a release after a release":       {released, events.ClaimReleased{}},
		"a release of an identity":        {identity, events.ClaimReleased{}},
		"an import over an owner":         {held, events.ClaimImported{Standing: events.StandingHeld, Owner: owner}},
		"a conflict with nobody":          {none, events.ClaimImportConflicted{Standing: events.StandingHeld, Owner: owner}},
		"a resolution without a conflict": {held, events.ClaimImportResolved{Keep: events.KeepCurrent}},
		"an event of another boundary":    {none, events.ImportStarted{}},
	} {
		got, err := session.Decider{}.Evolve(c.state, c.event)
		if !errors.Is(err, events.ErrEncoding) {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(c.state, got) {
			t.Errorf("%s changed the state:\n%s", name, cmp.Diff(c.state, got))
		}
	}
}

// The contract of package aggregate: a state keeps no reference into an event.
func TestEvolveKeepsNoReferenceIntoAnEvent(t *testing.T) {
	full := func() events.Session {
		return *mustSession(t, with(importedSession, "authorityDigest", `"d"`, "note", `"n"`))
	}
	spoil := func(s *events.Session) {
		*s.AuthorityDigest, *s.PrincipalID, *s.ControllerInstanceID, *s.Generation = "x", "x", "x", 99
		s.Extra[2] = 'x'
	}
	quarantined := given(t).happened(session.VerbClaim, with(claimBody, "controllerId", `"c2"`)).state
	for name, c := range map[string]struct {
		state session.State
		event func(s events.Session) events.Payload
		owner func(s session.State) *events.Session
	}{
		"granted":    {given(t).state, func(s events.Session) events.Payload { return events.ClaimGranted{Owner: s} }, ownerOf},
		"renewed":    {quarantined, func(s events.Session) events.Payload { return events.ClaimRenewed{Owner: s} }, ownerOf},
		"imported":   {given(t).state, func(s events.Session) events.Payload { return events.ClaimImported{Owner: s} }, ownerOf},
		"conflicted": {quarantined, func(s events.Session) events.Payload { return events.ClaimImportConflicted{Owner: s} }, func(s session.State) *events.Session { return s.Conflict.Owner }},
	} {
		s := full()
		after, err := session.Decider{}.Evolve(c.state, c.event(s))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		spoil(&s)
		want := full()
		if got := c.owner(after); !got.Equal(&want) {
			t.Errorf("%s: the state changed with the event: %s", name, asText(got))
		}
	}
}

func ownerOf(s session.State) *events.Session { return s.Owner }

func TestCarriedState(t *testing.T) {
	d := session.Decider{}
	for name, s := range map[string]session.State{
		"unknown":     given(t).state,
		"open":        given(t).happened(session.VerbSetState, `{"workId":"w1","state":"open","reason":"r"}`).state,
		"held":        given(t).happened(session.VerbClaim, with(claimBody, "authorityDigest", `"d"`)).state,
		"released":    given(t).happened(session.VerbClaim, claimBody).happened(session.VerbRelease, claimBody).state,
		"imported":    given(t).imported(retainedRecord(with(importedSession, "note", `{"a":null}`, "principalId", `" "`), "")).state,
		"quarantined": given(t).happened(session.VerbClaim, claimBody).imported(snapshotOf("file", "r", with(importedSession, "claimGeneration", "9", "x", "1"))).state,
	} {
		carried := d.EncodeState(s)
		got, ok, err := d.DecodeState("w1", carried)
		if !ok || err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(s, got) {
			t.Errorf("%s differs (-want +got):\n%s", name, cmp.Diff(s, got))
		}
		for n := range carried.Data {
			if _, _, err := d.DecodeState("w1", events.State{V: carried.V, Data: carried.Data[:n]}); !errors.Is(err, events.ErrEncoding) {
				t.Errorf("%s: cut at %d: %v", name, n, err)
			}
		}
		if _, _, err := d.DecodeState("w1", events.State{V: carried.V, Data: append(carried.Data[:len(carried.Data):len(carried.Data)], 0)}); !errors.Is(err, events.ErrEncoding) {
			t.Errorf("%s: trailing bytes: %v", name, err)
		}
		// Another version is no error: the state has to be folded.
		if _, ok, err := d.DecodeState("w1", events.State{V: carried.V + 1, Data: []byte("?")}); ok || err != nil {
			t.Errorf("%s: a newer version: %t, %v", name, ok, err)
		}
	}
	if d.Kind() != events.KindWork || d.Rules() != session.RulesVersion {
		t.Errorf("%s, rules %d", d.Kind(), d.Rules())
	}
}

func TestUnknownVerbs(t *testing.T) {
	for _, verb := range []string{"", "claim", "work.steal", "WORK.CLAIM", session.VerbImport} {
		if c, err := session.Parse(verb, parseBody(t, claimBody)); c != nil || events.CodeOf(err) != events.CodeUnknownVerb {
			t.Errorf("%q: %v, %v", verb, c, err)
		}
	}
}

// What a service asks before it decides.
func TestNeededFacts(t *testing.T) {
	held := given(t).happened(session.VerbClaim, claimBody)
	bare := given(t).imported(snapshot(with(importedSession, "principalId", `" "`)))
	recovery := with(otherBody, "allowStaleRecovery", "true", "expectedClaimGeneration", "1")
	for name, c := range map[string]struct {
		w                  *work
		verb, body         string
		execution, runtime bool
	}{
		"claim":                           {held, session.VerbClaim, recovery, false, false},
		"resume":                          {held, session.VerbResume, claimBody, false, false},
		"resume by recovery":              {held, session.VerbResume, recovery, true, false},
		"resume of one without principal": {bare, session.VerbResume, claimBody, true, false},
		"bind":                            {held, session.VerbBind, claimBody, false, false},
		"bind of another instance":        {held, session.VerbBind, with(claimBody, "controllerInstanceId", `"i2"`), false, true},
		"bind by recovery":                {held, session.VerbBind, with(claimBody, "allowStaleRecovery", "true"), true, false},
		"resume of nobody's":              {given(t), session.VerbResume, recovery, false, false},
		"bind of nobody's":                {given(t), session.VerbBind, recovery, false, false},
		"renew":                           {held, session.VerbRenew, underBody, false, false},
		"release observed":                {held, session.VerbReleaseObserved, `{"workId":"w1"}`, false, false},
	} {
		command, err := session.Parse(c.verb, parseBody(t, c.body))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.w.state.NeedsExecution(command, begin); got != c.execution {
			t.Errorf("%s: needs the execution session: %t", name, got)
		}
		if got := c.w.state.NeedsRuntime(command, begin); got != c.runtime {
			t.Errorf("%s: needs the runtime: %t", name, got)
		}
	}
	if got := held.state.OwnerSession(begin); got != "s1" {
		t.Errorf("the owner's session is %q", got)
	}
	if got := held.state.OwnerSession(begin.Add(hour)); got != "" {
		t.Errorf("a lapsed owner's session is %q", got)
	}
}

func TestIgnoredFields(t *testing.T) {
	for verb, c := range map[string]struct{ body, want string }{
		session.VerbClaim:   {with(claimBody, "currentRuntimeInstanceId", `"x"`, "actor", `"a"`, "foo", "1"), `["currentRuntimeInstanceId","foo"]`},
		session.VerbBind:    {with(claimBody, "currentRuntimeInstanceId", `"x"`, "bar", "null"), `["bar"]`},
		session.VerbRenew:   {with(underBody, "reason", `"x"`, "actor", `"a"`), `["reason"]`},
		session.VerbRelease: {claimBody, `["controllerType","sessionId","principalId","controllerInstanceId"]`},
	} {
		b := parseBody(t, c.body)
		if _, err := session.Parse(verb, b); err != nil {
			t.Fatal(err)
		}
		if got := asText(b.Ignored()); got != c.want {
			t.Errorf("%s ignores %s, want %s", verb, got, c.want)
		}
	}
}

// A command that is decided again, after a conflict, is decided as the first time.
func TestCommandsCanBeDecidedAgain(t *testing.T) {
	w := given(t)
	b := parseBody(t, with(claimBody, "leaseMs", `"x"`, "authorityDigest", "7"))
	c, err := session.Parse(session.VerbClaim, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.do(c).fails(events.CodeBadRequest, "authorityDigest") // the first that was asked for
	}
	var _ aggregate.Decider[session.State, session.Command, session.Facts] = session.Decider{}
}
