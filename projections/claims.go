package projections

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/tidwall/btree"
)

// ClaimsName is the name of the projection of live claims.
const ClaimsName = "claims"

// Claims is the projection of held claims, by work. A claim whose lease has ended
// stays in it until the work changes, and is left out when it is asked. A work of
// which a commit cannot be read is left out, and named. It is for concurrent use.
type Claims struct {
	log        string // log id
	mu         sync.RWMutex
	held       btree.Map[string, *events.Session] // by work id
	works      map[string]string                  // log subject → id of a held work
	unreadable map[string]bool                    // log subjects
	asOf       events.Time                        // of the newest commit
	place      uint64                             // of the last commit
}

// NewClaims makes an empty projection of the log with an id.
func NewClaims(logID string) *Claims {
	return &Claims{log: logID, works: map[string]string{}, unreadable: map[string]bool{}}
}

// Name is ClaimsName.
func (*Claims) Name() string { return ClaimsName }

// Apply takes a commit; those of other boundaries than works change nothing.
func (p *Claims) Apply(r events.Record, c *events.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asOf, p.place = max(p.asOf, c.At), r.Position
	if !ofWork(r.Subject) || p.unreadable[r.Subject] {
		return nil
	}
	s, err := p.stateOf(r, c)
	switch {
	case err != nil:
		p.leaveOut(r.Subject)
	case s.Standing == events.StandingHeld && s.Conflict == nil:
		p.held.Set(s.WorkID, s.Owner)
		p.works[r.Subject] = s.WorkID
	default:
		p.drop(r.Subject)
	}
	return nil
}

func ofWork(subject string) bool { return strings.Contains(subject, ".work.") }

// stateOf is the state that a commit of a work carries, if the commit belongs
// where it lies and says nothing that is not known here.
func (p *Claims) stateOf(r events.Record, c *events.Commit) (session.State, error) {
	bad := func(format string, args ...any) (session.State, error) {
		return session.State{}, fmt.Errorf("%w: "+format, append([]any{events.ErrEncoding}, args...)...)
	}
	if c.Log != p.log {
		return bad("a commit of log %q", c.Log)
	}
	if c.Kind != events.KindWork || !strings.HasSuffix(r.Subject, ".work."+events.Token(c.AggregateID)) {
		return bad("a commit of %s %q", c.Kind, c.AggregateID)
	}
	if c.State == nil {
		return bad("a work without its state")
	}
	if _, err := aggregate.Payloads(c); err != nil {
		return session.State{}, err
	}
	s, ok, err := session.Decider{}.DecodeState(c.AggregateID, *c.State)
	if err == nil && !ok {
		return bad("state version %d", c.State.V)
	}
	return s, err
}

// Unreadable takes a record that is no commit: if it lies on a work, that work is
// left out from now on. Others go on.
func (p *Claims) Unreadable(r events.Record, _ error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place = r.Position
	if ofWork(r.Subject) {
		p.leaveOut(r.Subject)
	}
	return true
}

func (p *Claims) leaveOut(subject string) {
	p.drop(subject)
	p.unreadable[subject] = true
}

func (p *Claims) drop(subject string) {
	if id, ok := p.works[subject]; ok {
		p.held.Delete(id)
		delete(p.works, subject)
	}
}

// mostNamed bounds how many unreadable subjects are named.
const mostNamed = 20

// LeftOut names the log subjects of works that are left out, at most 20, sorted.
func (p *Claims) LeftOut() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leftOut()
}

func (p *Claims) leftOut() []string {
	if len(p.unreadable) == 0 {
		return nil
	}
	list := slices.Sorted(maps.Keys(p.unreadable))
	return list[:min(len(list), mostNamed)]
}

// Filter says which claims are wanted; empty fields want all.
type Filter struct {
	ControllerID, ControllerType, PrincipalID, ControllerInstanceID string
	// ExpiresBy, if set, wants leases that end at or before it.
	ExpiresBy *events.Time
}

func (f Filter) wants(s *events.Session) bool {
	return (f.ControllerID == "" || f.ControllerID == s.ControllerID) &&
		(f.ControllerType == "" || f.ControllerType == s.ControllerType) &&
		(f.PrincipalID == "" || f.PrincipalID == s.Principal()) &&
		(f.ControllerInstanceID == "" || f.ControllerInstanceID == s.Instance()) &&
		(f.ExpiresBy == nil || s.LeaseExpiresAt <= *f.ExpiresBy)
}

// Page is a part of a list, and what it was made from.
type Page struct {
	Sessions   []*events.Session // ordered by work id
	Next       string            // work id to go on after, "" at the end
	Position   uint64            // of the last commit in it
	AsOf       events.Time       // the time that lease ends were compared with
	Unreadable []string          // log subjects of works that are left out, at most 20
}

// List gives the claims that are live at now, or at the time of the newest
// commit if that is later: those after a work id, at most limit.
func (p *Claims) List(now events.Time, f Filter, after string, limit int) Page {
	p.mu.RLock()
	defer p.mu.RUnlock()
	page := Page{Position: p.place, AsOf: max(now, p.asOf), Unreadable: p.leftOut()}
	p.held.Ascend(after, func(id string, s *events.Session) bool {
		if id == after && after != "" || s.LeaseExpiresAt <= page.AsOf || !f.wants(s) {
			return true
		}
		if len(page.Sessions) == limit {
			page.Next = page.Sessions[limit-1].WorkID
			return false
		}
		page.Sessions = append(page.Sessions, s)
		return true
	})
	return page
}

// Len is how many claims are held, lapsed ones included.
func (p *Claims) Len() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.held.Len()
}
