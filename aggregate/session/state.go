package session

import (
	"fmt"

	"github.com/forge-es/forge-es/events"
)

// Open is the state of a work that can be claimed. Any other state is terminal;
// no state at all (an unknown work) is claimable too.
const Open = "open"

// State is one work.
type State struct {
	WorkID string
	// Work is the state of the work: Open, a terminal state, or "" for unknown.
	Work string
	// Owner is the last known owner, nil if there never was one.
	Owner *events.Session
	// Standing says how firmly Owner holds the work; "" without an owner.
	Standing string
	// Conflict is the imported claim that contradicts Owner; the work is
	// quarantined while it is there.
	Conflict *Conflict
	// Rejected is the digest of the imported claim that an operator decided
	// against; importing it again changes nothing. Zero if there is none.
	Rejected events.Hash
}

// Conflict is an imported claim that waits for an operator.
type Conflict struct {
	Source, Scope, Standing string
	Owner                   *events.Session
}

// Live gives the owner if its lease runs at the given time, else nil. The lease
// end is exclusive.
func (s State) Live(now events.Time) *events.Session {
	if s.Owner != nil && s.Standing == events.StandingHeld && s.Owner.LeaseExpiresAt > now {
		return s.Owner
	}
	return nil
}

// Readable is CONTROLLER_SESSION_ID_COLLISION on a quarantined work.
func (s State) Readable() error {
	if s.Conflict == nil {
		return nil
	}
	return events.Errorf(events.CodeSessionIDCollision, "%s is quarantined: an imported claim contradicts the last known owner", s.WorkID).
		With("workId", s.WorkID).With("current", s.Owner.Fence()).With("imported", s.Conflict.Owner.Fence()).
		With("remedy", "an operator decides with work resolve-import")
}

// Terminal reports whether the work is known and not open.
func (s State) Terminal() bool { return s.Work != "" && s.Work != Open }

// stateVersion is the version of the carried state.
const stateVersion = 1

func encodeState(s State) events.State {
	w := events.NewWriter(512)
	w.Object()
	w.OptText("work", s.Work)
	w.OptText("standing", s.Standing)
	if s.Owner != nil {
		w.Key("owner")
		s.Owner.Write(w)
	}
	if c := s.Conflict; c != nil {
		w.Key("conflict")
		w.Object()
		w.Text("source", c.Source)
		w.OptText("scope", c.Scope)
		w.Text("standing", c.Standing)
		w.Key("owner")
		c.Owner.Write(w)
		w.End()
	}
	if !s.Rejected.IsZero() {
		w.Bin("rejected", s.Rejected[:])
	}
	w.End()
	return events.State{V: stateVersion, Data: w.Bytes()}
}

func decodeState(id string, carried events.State) (State, bool, error) {
	if carried.V != stateVersion {
		return State{}, false, nil
	}
	r := events.NewReader(carried.Data)
	o := r.Object("work state")
	s := State{WorkID: id, Work: o.OptText("work"), Standing: o.OptText("standing")}
	if o.Has("owner") {
		s.Owner = events.ReadSession(r)
	}
	if o.Has("conflict") {
		c := r.Object("conflict")
		s.Conflict = &Conflict{Source: c.Text("source"), Scope: c.OptText("scope"), Standing: c.Text("standing")}
		if c.Need("owner") {
			s.Conflict.Owner = events.ReadSession(r)
		}
		c.End()
	}
	if o.Has("rejected") {
		s.Rejected = r.Hash()
	}
	o.End()
	if err := r.Done(); err != nil {
		return s, true, err
	}
	if (s.Owner == nil) != (s.Standing == "") || s.Owner == nil && s.Conflict != nil {
		return s, true, fmt.Errorf("%w: work state: an owner without standing, or none with one", events.ErrEncoding)
	}
	return s, true, nil
}

// digestOf tells imported claims apart.
func digestOf(s *events.Session) events.Hash {
	w := events.NewWriter(512)
	s.Write(w)
	return events.HashOf(w.Bytes())
}
