package service

import (
	"context"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// Answer is the reply of a query.
type Answer struct {
	Result any `json:"result"`
	// Position is up to where the answer knows the log: that of the last commit
	// of the work, or of the projection.
	Position uint64 `json:"position"`
	// AsOf is the time that lease ends were compared with.
	AsOf      events.Time `json:"asOf"`
	Truncated bool        `json:"truncated,omitempty"`
	Cursor    string      `json:"cursor,omitempty"` // where a list goes on
	Next      uint64      `json:"next,omitempty"`   // position at which a history goes on
	// Unreadable are log subjects of works that a list leaves out, because a commit
	// of them cannot be read; at most 20 are named.
	Unreadable []string `json:"unreadable,omitempty"`
}

// workQuery makes the endpoint of a question about one work, answered from the
// work itself.
func (s *Service) workQuery(verb, description string, ask func(ctx context.Context, r *request, state session.State, now events.Time) (any, error)) endpoint {
	return endpoint{
		root: RootQuery, verb: verb, description: description,
		handle: func(ctx context.Context, r *request) (any, error) {
			f, now, err := s.works.current(ctx, r)
			if err != nil {
				return nil, err
			}
			result, err := ask(ctx, r, f.State, now)
			if err == nil {
				err = r.body.Malformed()
			}
			if err != nil {
				return nil, err
			}
			return Answer{Result: result, Position: f.Head.Position, AsOf: now}, nil
		},
	}
}

func (s *Service) queries() []endpoint {
	return []endpoint{
		s.workQuery("works.get", "the live session of a work", func(_ context.Context, _ *request, state session.State, now events.Time) (any, error) {
			return session.Get(state, now)
		}),
		s.workQuery("works.retained", "the last known owner of a work: an identity, not a lease", func(_ context.Context, _ *request, state session.State, _ events.Time) (any, error) {
			return session.Retained(state)
		}),
		s.workQuery("works.blocks-recovery", "whether the live owner is protected from being replaced", func(ctx context.Context, r *request, state session.State, now events.Time) (any, error) {
			return session.Blocks(state, r.body.Int("nowMs"), r.body.Millis("graceMs"), func(owner *events.Session) (*events.Execution, error) {
				return s.works.activity.Execution(ctx, owner)
			}, now)
		}),
		s.workQuery("works.check-authority", "whether the live owner is the expected one and holds the capability", func(_ context.Context, r *request, state session.State, now events.Time) (any, error) {
			var expected *session.Expected
			if o := r.body.Object("expected"); o.Set {
				e := session.ParseExpected(o.Value)
				expected = &e
			}
			return session.CheckAuthority(state, now, r.body.Text("authorityId"), expected)
		}),
		s.workQuery("works.info", "a work at a glance: owner, standing, state, quarantine", workInfo),
		{root: RootQuery, verb: "works.history", description: "the commits of a work, oldest first", handle: s.history},
		{root: RootQuery, verb: "claims.mint", description: "a new capability and its digest; nothing is stored", handle: s.mint},
		{root: RootQuery, verb: "claims.list", description: "live claims, without digests", handle: s.claimsList},
		{root: RootQuery, verb: "claims.list-full", description: "live claims as stored", handle: s.claimsListFull},
	}
}

// WorkInfo is a work at a glance.
type WorkInfo struct {
	WorkID   string  `json:"workId"`
	State    *string `json:"state"`    // null: unknown, which counts as open
	Standing string  `json:"standing"` // held, released, identity; "" without an owner
	Live     bool    `json:"live"`
	// Owner is the last known owner, without its digest.
	Owner      *events.Session `json:"owner"`
	Generation int64           `json:"generation"`
	// Quarantine is the imported claim that waits for an operator, if any.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Quarantine is an imported claim that contradicts the last known owner.
type Quarantine struct {
	Source   string          `json:"source"`
	Scope    string          `json:"scope,omitempty"`
	Standing string          `json:"standing"`
	Owner    *events.Session `json:"owner"`
}

func workInfo(_ context.Context, _ *request, s session.State, now events.Time) (any, error) {
	info := WorkInfo{WorkID: s.WorkID, Standing: s.Standing, Live: s.Live(now) != nil, Owner: withoutDigest(s.Owner), Generation: s.Owner.Gen()}
	if s.Work != "" {
		info.State = &s.Work
	}
	if c := s.Conflict; c != nil {
		info.Quarantine = &Quarantine{Source: c.Source, Scope: c.Scope, Standing: c.Standing, Owner: withoutDigest(c.Owner)}
	}
	return info, nil
}

// withoutDigest is a session as anybody may see it.
func withoutDigest(s *events.Session) *events.Session {
	if s == nil {
		return nil
	}
	c := *s
	c.AuthorityDigest = nil
	return &c
}

// mint makes a capability. The plain text is in this reply and nowhere else.
func (s *Service) mint(_ context.Context, r *request) (any, error) {
	if err := r.body.Malformed(); err != nil {
		return nil, err
	}
	uuid, err := s.opts.UUID()
	if err != nil {
		return nil, unavailable("mint", err)
	}
	return Answer{Result: session.Mint(uuid), Position: s.opts.Log.Durable(), AsOf: s.clock.Now()}, nil
}

// Limits of lists.
const (
	defaultListLimit = 100
	maxListLimit     = 1000
)

// listLimit reads how many entries are wanted.
func listLimit(f aggregate.Field[int64]) (int, error) {
	if !f.Set {
		return defaultListLimit, nil
	}
	if f.Value < 1 {
		return 0, events.Errorf(events.CodeBadRequest, "limit is %d, the least is 1", f.Value).With("field", "limit")
	}
	return int(min(f.Value, maxListLimit)), nil
}
