package session

import (
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Grace of a silent owner, in ms (specification 1.6).
const (
	DefaultGraceMs = 300_000
	MinGraceMs     = 60_000
	MaxGraceMs     = 3_600_000
)

// Lease of a claim, in ms (specification 1.1).
const (
	DefaultLeaseMs = 3_600_000
	MinLeaseMs     = 1_000
	MaxLeaseMs     = 3_600_000
)

func clamp(f aggregate.Field[int64], def, least, most int64) int64 {
	if !f.Set {
		return def
	}
	return min(max(f.Value, least), most)
}

// OwnerSession is the transport session whose execution facts a decision about
// the work may need: that of the live owner, "" without one.
func (s State) OwnerSession(now events.Time) string {
	if owner := s.Live(now); owner != nil {
		return owner.SessionID
	}
	return ""
}

// BlocksRecovery reports whether a live owner is protected from being replaced at
// instant n: it was heard of, or invalidated, less than grace ms ago, unless it
// is busy with another work (specification 1.6).
func BlocksRecovery(owner *events.Session, x *events.Execution, n events.Time, graceMs int64) bool {
	latest := owner.ClaimedAt
	if x != nil {
		if x.InvalidatedAt != nil {
			return n-*x.InvalidatedAt < events.Time(graceMs)
		}
		if x.ActiveWorkID != nil {
			if w := strings.TrimSpace(*x.ActiveWorkID); w != "" && w != owner.WorkID {
				return false
			}
		}
		for _, t := range []*events.Time{x.LastValidatedAt, x.UpdatedAt} {
			if t != nil && *t > latest {
				latest = *t
			}
		}
	}
	return n-latest < events.Time(graceMs)
}

// effectivePrincipal is the principal of a live owner as resume takes it, and
// whether that came from its transport session.
func effectivePrincipal(owner *events.Session, x *events.Execution) (principal string, fromExecution bool) {
	if owner.PrincipalID != nil && strings.TrimSpace(*owner.PrincipalID) != "" {
		return owner.Principal(), false
	}
	if x != nil && x.PrincipalID != nil {
		if p := strings.TrimSpace(*x.PrincipalID); p != "" {
			return p, true
		}
	}
	return owner.ControllerID, false
}

// ParseExecution reads {principalId?, activeWorkId?, invalidatedAt?,
// lastValidatedAt?, updatedAt?} of a transport session. A member of the wrong
// type, and a time that cannot be read, is FORGE_BAD_REQUEST naming it.
func ParseExecution(sessionID string, b *aggregate.Body) (*events.Execution, error) {
	x := &events.Execution{SessionID: sessionID}
	text := func(name string) *string {
		if f := b.Text(name); f.Set {
			return &f.Value
		}
		return nil
	}
	var bad error
	moment := func(name string) *events.Time {
		p := text(name)
		if p == nil {
			return nil
		}
		t, err := events.ParseTime(strings.TrimSpace(*p))
		if err != nil && bad == nil {
			bad = events.Errorf(events.CodeBadRequest, "%s: %w", name, err).With("field", name)
		}
		return &t
	}
	x.PrincipalID, x.ActiveWorkID = text("principalId"), text("activeWorkId")
	x.InvalidatedAt, x.LastValidatedAt, x.UpdatedAt = moment("invalidatedAt"), moment("lastValidatedAt"), moment("updatedAt")
	if bad == nil {
		bad = b.Malformed()
	}
	return x, bad
}
