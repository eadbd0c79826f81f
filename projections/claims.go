package projections

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// ClaimsName is the name of the projection of live claims.
const ClaimsName = "claims"

// Claims is the projection of held claims, by work. A claim whose lease has ended
// stays in it until the work changes, and is left out when it is asked. It is for
// concurrent use.
type Claims struct {
	mu    sync.RWMutex
	held  map[string]*events.Session
	asOf  events.Time // of the newest commit
	place uint64      // of the last commit
}

// NewClaims makes an empty projection.
func NewClaims() *Claims { return &Claims{held: map[string]*events.Session{}} }

// Name is ClaimsName.
func (*Claims) Name() string { return ClaimsName }

// Wants the commits of works.
func (*Claims) Wants(subject string) bool { return strings.Contains(subject, ".work.") }

// Apply takes a commit; those of other boundaries than works change nothing.
func (p *Claims) Apply(r events.Record, c *events.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Kind == events.KindWork {
		if !strings.HasSuffix(r.Subject, ".work."+events.Token(c.AggregateID)) {
			return fmt.Errorf("%w: a commit of work %q", events.ErrEncoding, c.AggregateID)
		}
		if c.State == nil {
			return fmt.Errorf("%w: a work without its state", events.ErrEncoding)
		}
		s, ok, err := session.Decider{}.DecodeState(c.AggregateID, *c.State)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: state version %d", events.ErrEncoding, c.State.V)
		case s.Standing == events.StandingHeld && s.Conflict == nil:
			p.held[s.WorkID] = s.Owner
		default:
			delete(p.held, s.WorkID)
		}
	}
	p.asOf, p.place = max(p.asOf, c.At), r.Position
	return nil
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
	Sessions []*events.Session // ordered by work id
	Next     string            // work id to go on after, "" at the end
	Position uint64            // of the last commit in it
	AsOf     events.Time       // the time that lease ends were compared with
}

// List gives the claims that are live at now, or at the time of the newest
// commit if that is later: those after a work id, at most limit.
func (p *Claims) List(now events.Time, f Filter, after string, limit int) Page {
	p.mu.RLock()
	defer p.mu.RUnlock()
	page := Page{Position: p.place, AsOf: max(now, p.asOf)}
	for id, s := range p.held {
		if id > after && s.LeaseExpiresAt > page.AsOf && f.wants(s) {
			page.Sessions = append(page.Sessions, s)
		}
	}
	slices.SortFunc(page.Sessions, func(a, b *events.Session) int { return strings.Compare(a.WorkID, b.WorkID) })
	if len(page.Sessions) > limit {
		page.Sessions = page.Sessions[:limit]
		page.Next = page.Sessions[limit-1].WorkID
	}
	return page
}

// Len is how many claims are held, lapsed ones included.
func (p *Claims) Len() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.held)
}
