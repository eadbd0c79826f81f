package conformance

import (
	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// PureSession answers the session operations that touch no state: library calls,
// the same for every system.
func PureSession(op string, body *aggregate.Body) (any, error) {
	owner := session.Literal(body.Object("owner").Value)
	switch op {
	case "mint":
		return session.Mint(body.Text("uuid").Value), nil
	case "authorityDigest":
		return session.AuthorityDigest(body.Text("authorityId").Value)
	case "authorityMatches":
		return session.AuthorityMatches(owner, body.Text("authorityId").Value), nil
	case "requireAuthority":
		return session.RequireAuthority(owner)
	case "assertAuthority":
		return session.AssertAuthority(owner, session.ParseExpected(body.Object("expected").Value))
	case "authorityFromSession":
		if a, err := session.RequireAuthority(owner); err == nil {
			return a, nil
		}
		return nil, nil
	case "principalOf":
		return owner.Principal(), nil
	case "assertWorkClaimable":
		return nil, nil
	}
	return nil, events.Errorf(events.CodeUnknownVerb, "%s", op)
}
