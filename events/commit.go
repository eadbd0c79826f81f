package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Versions that this code writes.
const (
	EnvelopeVersion = 1
	// RecentCommits is how many earlier commits of its boundary a commit names
	// in Recent.
	RecentCommits = 8
	// MaxCommit is the most bytes of an encoded commit.
	MaxCommit = 768 << 10
)

// Hash is a SHA-256.
type Hash [sha256.Size]byte

// HashOf is the SHA-256 of a payload.
func HashOf(payload []byte) Hash { return sha256.Sum256(payload) }

// String is lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether the hash was never set.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText writes lower-case hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads 64 hex digits.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("a hash has %d hex digits, not %d", 2*len(h), len(b))
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// Record is a commit as it lies on the stream.
type Record struct {
	Position uint64              // stream sequence, from 1
	Subject  string              // log subject: the boundary
	Header   map[string][]string // headers as stored
	StoredAt time.Time           // the server's clock; never used for a decision
	Payload  []byte              // the encoded Commit
}

// Commit is the envelope: what one accepted command appends to one boundary.
type Commit struct {
	V           int     // version of this envelope
	Log         string  // log id: which log this belongs to, whatever its stream is called
	ID          string  // command id
	Kind        string  // KindWork, KindRelease or KindImport
	AggregateID string  // work id; the instance for the other kinds
	Version     uint64  // 1, 2, 3 … on this boundary
	Prev        uint64  // position of the commit before on this boundary, 0 for the first
	PrevHash    Hash    // SHA-256 of its payload, zero for the first
	At          Time    // when it was decided, by the service's clock
	Rules       int     // version of the rules that decided
	Command     Command // what was asked
	Actor       Actor   // who asked
	Correlation string  // optional: what belongs together
	Causation   string  // optional: what led to this
	Events      []Event // what was decided, at least one
	Recent      []RecentID
	State       *State // the folded state after this commit; works and imports carry it
}

// Command names what was asked.
type Command struct {
	Verb          string // for example "work.claim"
	RequestDigest Hash   // SHA-256 of verb, a zero byte and the canonical body
}

// Actor is who asked. Principal is what the subject proved; the rest is what the
// command said of itself, except Label, which is free text.
type Actor struct {
	Principal            string `json:"principal"`
	ControllerID         string `json:"controllerId,omitempty"`
	SessionID            string `json:"sessionId,omitempty"`
	ControllerInstanceID string `json:"controllerInstanceId,omitempty"`
	Label                string `json:"label,omitempty"`
}

// Event is one event of a commit, still encoded. Decode gives its meaning.
type Event struct {
	Type string
	V    int
	Data Raw
}

// RecentID is an earlier commit of the boundary: its message id and position.
type RecentID struct {
	ID       MsgID
	Position uint64
}

// State is a carried snapshot: a convenience, never the truth.
type State struct {
	V    int
	Data Raw
}

// Encode gives the canonical bytes.
func (c *Commit) Encode() []byte {
	w := NewWriter(1024)
	w.Object()
	w.Uint("v", uint64(c.V))
	w.Text("log", c.Log)
	w.Text("id", c.ID)
	w.Text("kind", c.Kind)
	w.Text("aggregateId", c.AggregateID)
	w.Uint("version", c.Version)
	w.Uint("prev", c.Prev)
	w.Bin("prevHash", c.PrevHash[:])
	w.Time("at", c.At)
	w.Uint("rules", uint64(c.Rules))
	w.Key("command")
	w.Object()
	w.Text("verb", c.Command.Verb)
	w.Bin("requestDigest", c.Command.RequestDigest[:])
	w.End()
	w.Key("actor")
	w.Object()
	w.Text("principal", c.Actor.Principal)
	w.OptText("controllerId", c.Actor.ControllerID)
	w.OptText("sessionId", c.Actor.SessionID)
	w.OptText("controllerInstanceId", c.Actor.ControllerInstanceID)
	w.OptText("label", c.Actor.Label)
	w.End()
	w.OptText("correlation", c.Correlation)
	w.OptText("causation", c.Causation)
	w.Array("events", len(c.Events))
	for _, e := range c.Events {
		w.Object()
		w.Text("type", e.Type)
		w.Uint("v", uint64(e.V))
		w.Raw("data", e.Data)
		w.End()
	}
	w.Array("recent", len(c.Recent))
	for _, p := range c.Recent {
		w.Object()
		w.Bin("id16", p.ID[:])
		w.Uint("position", p.Position)
		w.End()
	}
	if c.State != nil {
		w.Key("state")
		w.Object()
		w.Uint("v", uint64(c.State.V))
		w.Raw("data", c.State.Data)
		w.End()
	}
	w.End()
	return w.Bytes()
}

// DecodeCommit reads the canonical bytes of an envelope of a known version. The
// result shares memory with payload. It wraps ErrEncoding for anything else.
func DecodeCommit(payload []byte) (*Commit, error) {
	r := NewReader(payload)
	o := r.Object("commit")
	c := &Commit{}
	c.V = o.Small("v")
	if r.err == nil && c.V != EnvelopeVersion {
		return nil, fmt.Errorf("%w: envelope version %d is not known here", ErrEncoding, c.V)
	}
	c.Log = o.Text("log")
	c.ID = o.Text("id")
	c.Kind = o.Text("kind")
	c.AggregateID = o.Text("aggregateId")
	c.Version = o.Uint("version")
	c.Prev = o.Uint("prev")
	c.PrevHash = o.Hash("prevHash")
	c.At = o.Time("at")
	c.Rules = o.Small("rules")
	if o.Need("command") {
		f := r.Object("command")
		c.Command.Verb = f.Text("verb")
		c.Command.RequestDigest = f.Hash("requestDigest")
		f.End()
	}
	if o.Need("actor") {
		f := r.Object("actor")
		c.Actor.Principal = f.Text("principal")
		c.Actor.ControllerID = f.OptText("controllerId")
		c.Actor.SessionID = f.OptText("sessionId")
		c.Actor.ControllerInstanceID = f.OptText("controllerInstanceId")
		c.Actor.Label = f.OptText("label")
		f.End()
	}
	c.Correlation = o.OptText("correlation")
	c.Causation = o.OptText("causation")
	for n := o.Len("events"); n > 0 && r.err == nil; n-- {
		f := r.Object("event")
		e := Event{Type: f.Text("type"), V: f.Small("v")}
		if f.Need("data") {
			e.Data = r.Raw()
		}
		f.End()
		c.Events = append(c.Events, e)
	}
	n := o.Len("recent")
	if n > RecentCommits {
		r.Fail("commit: %d recent commits, the most is %d", n, RecentCommits)
	}
	for ; n > 0 && r.err == nil; n-- {
		f := r.Object("recent")
		var p RecentID
		id := f.Bin("id16")
		if r.err == nil && len(id) != MsgIDLen {
			r.Fail("recent: id16 has %d bytes", len(id))
		}
		copy(p.ID[:], id)
		p.Position = f.Uint("position")
		f.End()
		c.Recent = append(c.Recent, p)
	}
	if o.Has("state") {
		f := r.Object("state")
		c.State = &State{V: f.Small("v")}
		if f.Need("data") {
			c.State.Data = r.Raw()
		}
		f.End()
	}
	o.End()
	if err := r.Done(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// check refuses what no service writes.
func (c *Commit) check() error {
	switch {
	case c.Version == 0:
		return fmt.Errorf("%w: commit version 0", ErrEncoding)
	case (c.Version == 1) != (c.Prev == 0) || (c.Prev == 0) != c.PrevHash.IsZero():
		return fmt.Errorf("%w: version %d with prev %d", ErrEncoding, c.Version, c.Prev)
	case c.Version == 1 && len(c.Recent) > 0:
		return fmt.Errorf("%w: a first commit with recent ones", ErrEncoding)
	case len(c.Events) == 0:
		return fmt.Errorf("%w: a commit without events", ErrEncoding)
	case c.Kind != KindWork && c.Kind != KindRelease && c.Kind != KindImport:
		return fmt.Errorf("%w: kind %q", ErrEncoding, clip(c.Kind))
	}
	return nil
}

// MarshalJSON shows a commit to people: times as texts, hashes as hex, events with
// their meaning. An event that the catalogue does not know, and the carried state, are shown
// field by field as they are encoded.
func (c *Commit) MarshalJSON() ([]byte, error) {
	type event struct {
		Type string `json:"type"`
		V    int    `json:"v"`
		Data any    `json:"data"`
	}
	type recent struct {
		ID       string `json:"id16"`
		Position uint64 `json:"position"`
	}
	type state struct {
		V    int `json:"v"`
		Data any `json:"data"`
	}
	type command struct {
		Verb          string `json:"verb"`
		RequestDigest Hash   `json:"requestDigest"`
	}
	out := struct {
		V           int      `json:"v"`
		Log         string   `json:"log"`
		ID          string   `json:"id"`
		Kind        string   `json:"kind"`
		AggregateID string   `json:"aggregateId"`
		Version     uint64   `json:"version"`
		Prev        uint64   `json:"prev"`
		PrevHash    Hash     `json:"prevHash"`
		At          Time     `json:"at"`
		Rules       int      `json:"rules"`
		Command     command  `json:"command"`
		Actor       Actor    `json:"actor"`
		Correlation string   `json:"correlation,omitempty"`
		Causation   string   `json:"causation,omitempty"`
		Events      []event  `json:"events"`
		Recent      []recent `json:"recent"`
		State       *state   `json:"state,omitempty"`
	}{
		c.V, c.Log, c.ID, c.Kind, c.AggregateID, c.Version, c.Prev, c.PrevHash, c.At, c.Rules, command(c.Command), c.Actor,
		c.Correlation, c.Causation, make([]event, len(c.Events)), make([]recent, len(c.Recent)), nil,
	}
	for i, e := range c.Events {
		shown := event{Type: e.Type, V: e.V}
		if p, err := Decode(e); err == nil {
			shown.Data = p
		} else if shown.Data, err = e.Data.Fields(); err != nil {
			return nil, err
		}
		out.Events[i] = shown
	}
	for i, r := range c.Recent {
		out.Recent[i] = recent{ID: r.ID.String(), Position: r.Position}
	}
	if c.State != nil {
		data, err := c.State.Data.Fields()
		if err != nil {
			return nil, err
		}
		out.State = &state{V: c.State.V, Data: data}
	}
	return json.Marshal(out)
}

// Fields decodes a value without knowing its meaning: maps, lists, texts, integers, bytes.
func (r Raw) Fields() (any, error) {
	var v any
	if err := msgpack.Unmarshal(r, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	return v, nil
}

// Head is where a boundary stands: what its next commit has to follow. The zero
// Head is that of an empty boundary.
type Head struct {
	Position uint64
	Version  uint64
	Hash     Hash
	At       Time
	// Recent are the commits that the next one names: up to RecentCommits,
	// oldest first, the last commit among them.
	Recent []RecentID
}

// ErrChain is what a commit that does not follow its predecessor is.
var ErrChain = errors.New("the chain is broken")

// Follows checks that a commit, as it lies at a position, is the next one after
// h on its boundary. It wraps ErrChain.
func (h Head) Follows(r Record, c *Commit) error {
	switch {
	case r.Position <= h.Position:
		return fmt.Errorf("%w: position %d comes after %d", ErrChain, r.Position, h.Position)
	case c.Version != h.Version+1:
		return fmt.Errorf("%w: position %d has version %d, want %d", ErrChain, r.Position, c.Version, h.Version+1)
	case c.Prev != h.Position:
		return fmt.Errorf("%w: position %d follows %d, want %d", ErrChain, r.Position, c.Prev, h.Position)
	case c.At < h.At:
		return fmt.Errorf("%w: position %d was decided at %s, before its predecessor", ErrChain, r.Position, c.At)
	case c.PrevHash != h.Hash:
		return fmt.Errorf("%w: position %d follows a commit of another content than position %d has", ErrChain, r.Position, h.Position)
	}
	return nil
}

// HeadAfter is the head of a boundary whose last commit is c, at record r. id is
// the message id of c.
func HeadAfter(r Record, c *Commit, id MsgID) Head {
	recent := append(c.Recent[:len(c.Recent):len(c.Recent)], RecentID{ID: id, Position: r.Position})
	if len(recent) > RecentCommits {
		recent = recent[len(recent)-RecentCommits:]
	}
	return Head{Position: r.Position, Version: c.Version, Hash: HashOf(r.Payload), At: c.At, Recent: recent}
}

// MsgIDHeader is the header that carries the message id of a commit.
const MsgIDHeader = "Nats-Msg-Id"

// MsgID reads the message id of a stored record; ok is false when there is none
// or it is not one of NewMsgID.
func (r Record) MsgID() (id MsgID, ok bool) {
	v := r.Header[MsgIDHeader]
	if len(v) != 1 || len(v[0]) != 2*MsgIDLen || strings.ContainsAny(v[0], "ABCDEF") {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(v[0]))
	return id, err == nil
}

// MsgIDOf is the message id of a stored commit: its header, or, on a restored
// log, which has none, what the header was.
func MsgIDOf(r Record, c *Commit) MsgID {
	if id, ok := r.MsgID(); ok {
		return id
	}
	token := Token(c.Actor.Principal)
	if hex, hashed := strings.CutPrefix(c.Actor.Principal, "=="); hashed && len(hex) == 64 {
		token = c.Actor.Principal // an id of which only the token is known
	}
	return NewMsgID(r.Subject, token, c.ID)
}
