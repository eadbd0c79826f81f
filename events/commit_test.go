package events

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func sampleSession() Session {
	return Session{
		WorkID: "w1", ControllerID: "c1", ControllerType: "codex", SessionID: "s1",
		AuthorityDigest: ptr("aa"), PrincipalID: ptr(" p "), ControllerInstanceID: ptr(""), Generation: ptr(int64(70000)),
		ClaimedAt: 1767225600000, LeaseExpiresAt: 1767229200000, Extra: []byte(`{"x":null}`),
	}
}

func sampleCommit() *Commit {
	return &Commit{
		V: EnvelopeVersion, Log: "log", ID: "id", Kind: KindWork, AggregateID: "w1", Version: 2, Prev: 7,
		PrevHash: HashOf([]byte("x")), At: 1767225600000, Rules: 1,
		Command: Command{Verb: "work.claim", RequestDigest: HashOf([]byte("y"))},
		Actor:   Actor{Principal: "p", ControllerID: "c", SessionID: "s", ControllerInstanceID: "i", Label: "l"}, Correlation: "co", Causation: "ca",
		Events: []Event{Encode(ClaimGranted{Cause: CauseFirst, Owner: sampleSession(), Evidence: &Evidence{ExpectedGeneration: ptr(int64(-3)), Execution: &Execution{SessionID: "s", UpdatedAt: ptr(Time(5))}}})},
		Recent: []RecentID{{ID: NewMsgID("a", "b", "c"), Position: 300}},
		State:  &State{V: 1, Data: Raw{0x80}},
	}
}

func TestCommitRoundTrip(t *testing.T) {
	for _, c := range []*Commit{
		sampleCommit(),
		{V: 1, Kind: KindImport, Version: 1, Rules: 1, Events: []Event{Encode(ImportStarted{Source: SourceFile})}},
	} {
		b := c.Encode()
		got, err := DecodeCommit(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, got); d != "" {
			t.Errorf("decoded commit differs (-want +got):\n%s", d)
		}
		if !bytes.Equal(got.Encode(), b) {
			t.Error("encoding again gives other bytes")
		}
		for n := range b {
			if _, err := DecodeCommit(b[:n]); err == nil {
				t.Errorf("cut at %d of %d is accepted", n, len(b))
			}
		}
	}
}
