package session

import (
	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Get is the live session of a work as an answer, null without one.
func Get(s State, now events.Time) (any, error) {
	if err := s.Readable(); err != nil {
		return nil, err
	}
	if live := s.Live(now); live != nil {
		return *live, nil
	}
	return nil, nil
}

// Retained is the last known owner of a work, in whatever standing: an identity,
// not a lease. null without one.
func Retained(s State) (any, error) {
	if err := s.Readable(); err != nil {
		return nil, err
	}
	return retained(s), nil
}

// Blocks is the answer of blocks-recovery at nowMs (default: now). A malformed
// number is FORGE_BAD_REQUEST.
func Blocks(s State, nowMs, graceMs aggregate.Field[int64], x func(owner *events.Session) (*events.Execution, error), now events.Time) (bool, error) {
	if err := s.Readable(); err != nil {
		return false, err
	}
	at := now
	if nowMs.Set {
		at = events.Time(nowMs.Value)
	}
	live := s.Live(at)
	if live == nil {
		return false, nil
	}
	execution, err := x(live)
	if err != nil {
		return false, err
	}
	return BlocksRecovery(live, execution, at, clamp(graceMs, DefaultGraceMs, MinGraceMs, MaxGraceMs)), nil
}

// Check is the answer of check-authority.
type Check struct {
	Matches   bool       `json:"matches"`
	Authority *Authority `json:"authority,omitempty"`
}

// CheckAuthority reports whether the live owner is the expected one (an error of
// AssertAuthority if not) and bound to the capability, if one is given. Without
// a live owner nothing matches.
func CheckAuthority(s State, now events.Time, authorityID aggregate.Field[string], expected *Expected) (Check, error) {
	if err := s.Readable(); err != nil {
		return Check{}, err
	}
	live := s.Live(now)
	if live == nil {
		return Check{}, nil
	}
	// A capability of the wrong type is one that does not match.
	shown := authorityID.Set || authorityID.Bad
	c := Check{Matches: !shown || AuthorityMatches(live, authorityID.Value)}
	var a Authority
	var err error
	if expected != nil {
		if a, err = AssertAuthority(live, *expected); err != nil {
			return Check{}, err
		}
	} else if a, err = RequireAuthority(live); err != nil {
		c.Matches = c.Matches && shown
		return c, nil
	}
	c.Authority = &a
	return c, nil
}
