package events

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
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
	state := NewWriter(64)
	owner := sampleSession()
	owner.Write(state)
	return &Commit{
		V: EnvelopeVersion, Log: "log", ID: "id", Kind: KindWork, AggregateID: "w1", Version: 2, Prev: 7,
		PrevHash: HashOf([]byte("x")), At: 1767225600000, Rules: 1,
		Command: Command{Verb: "work.claim", RequestDigest: HashOf([]byte("y"))},
		Actor:   Actor{Principal: "p", ControllerID: "c", SessionID: "s", ControllerInstanceID: "i", Label: "l"}, Correlation: "co", Causation: "ca",
		Events: []Event{Encode(ClaimGranted{Cause: CauseFirst, Owner: owner, Evidence: &Evidence{ExpectedGeneration: ptr(int64(-3)), Execution: &Execution{SessionID: "s", UpdatedAt: ptr(Time(5))}}})},
		Recent: []RecentID{{ID: NewMsgID("a", "b", "c"), Position: 300}},
		State:  &State{V: 1, Data: state.Bytes()},
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
			if _, err := DecodeCommit(b[:n]); !errors.Is(err, ErrEncoding) {
				t.Errorf("cut at %d of %d: %v", n, len(b), err)
			}
		}
	}
}

// A reader in another language sees the names and types of the design.
func TestCommitIsPlainMsgpack(t *testing.T) {
	var got map[string]any
	if err := msgpack.Unmarshal(sampleCommit().Encode(), &got); err != nil {
		t.Fatal(err)
	}
	digest, prev := HashOf([]byte("y")), HashOf([]byte("x"))
	id := NewMsgID("a", "b", "c")
	owner := map[string]any{
		"workId": "w1", "controllerId": "c1", "controllerType": "codex", "sessionId": "s1", "authorityDigest": "aa", "principalId": " p ",
		"controllerInstanceId": "", "claimGeneration": uint32(70000), "claimedAt": uint64(1767225600000), "leaseExpiresAt": uint64(1767229200000),
		"extra": []byte(`{"x":null}`),
	}
	want := map[string]any{
		"v": int8(1), "log": "log", "id": "id", "kind": "work", "aggregateId": "w1", "version": int8(2), "prev": int8(7), "prevHash": prev[:],
		"at": uint64(1767225600000), "rules": int8(1), "command": map[string]any{"verb": "work.claim", "requestDigest": digest[:]},
		"actor":       map[string]any{"principal": "p", "controllerId": "c", "sessionId": "s", "controllerInstanceId": "i", "label": "l"},
		"correlation": "co", "causation": "ca",
		"events": []any{map[string]any{"type": "claim.granted", "v": int8(1), "data": map[string]any{
			"cause": "first", "owner": owner,
			"evidence": map[string]any{"expectedGeneration": int8(-3), "execution": map[string]any{"sessionId": "s", "updatedAt": int8(5)}},
		}}},
		"recent": []any{map[string]any{"id16": id[:], "position": uint16(300)}},
		"state":  map[string]any{"v": int8(1), "data": owner},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("differs (-want +got):\n%s", d)
	}
}

func TestCommitsThatNoServiceWrites(t *testing.T) {
	for name, spoil := range map[string]func(c *Commit){
		"envelope version 2":            func(c *Commit) { c.V = 2 },
		"envelope version 0":            func(c *Commit) { c.V = 0 },
		"version 0":                     func(c *Commit) { c.Version = 0 },
		"version 1 with a predecessor":  func(c *Commit) { c.Version, c.Recent = 1, nil },
		"version 2 without predecessor": func(c *Commit) { c.Prev, c.PrevHash = 0, Hash{} },
		"a predecessor without hash":    func(c *Commit) { c.PrevHash = Hash{} },
		"a hash without predecessor":    func(c *Commit) { c.Version, c.Prev, c.Recent = 1, 0, nil },
		"a first commit with recent":    func(c *Commit) { c.Version, c.Prev, c.PrevHash = 1, 0, Hash{} },
		"no events":                     func(c *Commit) { c.Events = nil },
		"rules 0":                       func(c *Commit) { c.Rules = 0 },
		"an unknown kind":               func(c *Commit) { c.Kind = "works" },
		"no kind":                       func(c *Commit) { c.Kind = "" },
		"nine recent ones":              func(c *Commit) { c.Recent = make([]RecentID, RecentCommits+1) },
		"a time after 9999":             func(c *Commit) { c.At = maxTime + 1 },
		"a time before 0":               func(c *Commit) { c.At = minTime - 1 },
		"event version 0":               func(c *Commit) { c.Events[0].V = 0 },
		"event version 65536":           func(c *Commit) { c.Events[0].V = 65536 },
		"state version 0":               func(c *Commit) { c.State.V = 0 },
		"an event without data":         func(c *Commit) { c.Events[0].Data = nil },
		"two values as data":            func(c *Commit) { c.Events[0].Data = Raw{1, 1} },
		"a state without data":          func(c *Commit) { c.State.Data = nil },
		"a text that is not UTF-8":      func(c *Commit) { c.Actor.Label = "\xff" },
	} {
		c := sampleCommit()
		spoil(c)
		if _, err := DecodeCommit(c.Encode()); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// chain builds n commits of one boundary, at positions that others share.
func chain(n int) (records []Record, commits []*Commit) {
	var h Head
	for i := range n {
		c := &Commit{
			V: 1, Log: "log", ID: string(rune('a' + i)), Kind: KindWork, AggregateID: "w1", Version: h.Version + 1, Prev: h.Position, PrevHash: h.Hash,
			At: Time(1000 + i/2), Rules: 1, Recent: h.Recent, Events: []Event{Encode(WorkStateSet{State: string(rune('a' + i)), How: SetByOperator})},
		}
		id := NewMsgID("s", "p", c.ID)
		r := Record{Position: h.Position + uint64(i) + 1, Payload: c.Encode(), Header: map[string][]string{MsgIDHeader: {id.String()}}}
		records, commits = append(records, r), append(commits, c)
		h = HeadAfter(r, c, id)
	}
	return records, commits
}

func TestChain(t *testing.T) {
	records, _ := chain(12)
	var h Head
	for i, r := range records {
		c, err := DecodeCommit(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Follows(r, c); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
		if len(c.Recent) != min(i, RecentCommits) {
			t.Errorf("commit %d names %d recent ones", i, len(c.Recent))
		}
		for k, recent := range c.Recent {
			before := records[i-len(c.Recent)+k]
			if id, _ := before.MsgID(); recent.ID != id || recent.Position != before.Position {
				t.Errorf("commit %d: recent %d is %+v, want position %d", i, k, recent, before.Position)
			}
		}
		id, _ := r.MsgID()
		kept := append([]RecentID{}, c.Recent...)
		h = HeadAfter(r, c, id)
		if d := cmp.Diff(kept, c.Recent); d != "" && len(kept) > 0 {
			t.Errorf("HeadAfter changed the commit:\n%s", d)
		}
		if h.Position != r.Position || h.Version != uint64(i+1) || h.Hash != HashOf(r.Payload) || h.At != c.At {
			t.Errorf("head after commit %d is %+v", i, h)
		}
	}
}

func TestBrokenChains(t *testing.T) {
	records, commits := chain(3)
	id, _ := records[1].MsgID()
	h := HeadAfter(records[1], commits[1], id)
	for name, spoil := range map[string]func(r *Record, c *Commit){
		"the same position":           func(r *Record, c *Commit) { r.Position = h.Position },
		"a position before":           func(r *Record, c *Commit) { r.Position = h.Position - 1 },
		"a version left out":          func(r *Record, c *Commit) { c.Version++ },
		"a version again":             func(r *Record, c *Commit) { c.Version-- },
		"another predecessor":         func(r *Record, c *Commit) { c.Prev-- },
		"a predecessor's other bytes": func(r *Record, c *Commit) { c.PrevHash[31] ^= 1 },
		"a time before":               func(r *Record, c *Commit) { c.At = h.At - 1 },
	} {
		r, c := records[2], *commits[2]
		spoil(&r, &c)
		if err := h.Follows(r, &c); !errors.Is(err, ErrChain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.Follows(records[2], commits[2]); err != nil {
		t.Error(err)
	}
	if err := (Head{}).Follows(records[1], commits[1]); !errors.Is(err, ErrChain) {
		t.Errorf("a second commit first: %v", err)
	}
	if err := h.Follows(records[0], commits[0]); !errors.Is(err, ErrChain) {
		t.Errorf("a first commit third: %v", err)
	}
}

// Two boundaries must not share what HeadAfter appends to.
func TestHeadsDoNotShareRecent(t *testing.T) {
	records, commits := chain(4)
	id, _ := records[3].MsgID()
	a := HeadAfter(records[3], commits[3], id)
	b := HeadAfter(records[3], commits[3], MsgID{1})
	if a.Recent[len(a.Recent)-1].ID != id || b.Recent[len(b.Recent)-1].ID != (MsgID{1}) {
		t.Error("one head changed the other")
	}
}
