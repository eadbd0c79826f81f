package session

import (
	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// verbs makes a command of a body.
var verbs = map[string]func(verb string, b *aggregate.Body) Command{
	VerbClaim: parseClaim, VerbResume: parseClaim, VerbBind: parseClaim,
	VerbRenew: func(v string, b *aggregate.Body) Command {
		return &Renew{target: newTarget(v, b), shown: newShown(b), LeaseMs: b.Millis("leaseMs")}
	},
	VerbRelease: func(v string, b *aggregate.Body) Command {
		return &Release{target: newTarget(v, b), ControllerID: b.Text("controllerId")}
	},
	VerbReleaseWithAuthority: func(v string, b *aggregate.Body) Command {
		return &ReleaseWithAuthority{target: newTarget(v, b), shown: newShown(b)}
	},
	VerbReleaseObserved: newReleaseObserved,
	VerbForceRelease: func(v string, b *aggregate.Body) Command {
		return &ForceRelease{target: newTarget(v, b), Reason: b.Text("reason")}
	},
	VerbTerminalize: func(v string, b *aggregate.Body) Command {
		return &Terminalize{target: newTarget(v, b), shown: newShown(b), State: b.Text("state"), Release: b.Bool("release")}
	},
	VerbSetState: func(v string, b *aggregate.Body) Command {
		return &SetState{target: newTarget(v, b), State: b.Text("state"), Reason: b.Text("reason")}
	},
	VerbResolveImport: func(v string, b *aggregate.Body) Command {
		return &ResolveImport{target: newTarget(v, b), Keep: b.Text("keep"), Reason: b.Text("reason")}
	},
}

// Parse makes a command of a verb and its body. It looks at no rule: fields are
// judged by Decide. An unknown verb is FORGE_UNKNOWN_VERB.
func Parse(verb string, b *aggregate.Body) (Command, error) {
	parse, ok := verbs[verb]
	if !ok {
		return nil, events.Errorf(events.CodeUnknownVerb, "%s", verb)
	}
	b.Text("actor") // a label; read here so that it is not called ignored
	return parse(verb, b), nil
}

// Recall computes the answer of a command that was applied before, from its
// commit and the state after it. It equals the first answer.
func Recall(c *events.Commit, list []events.Payload, after State) any {
	var allowed Fence
	for _, e := range list {
		if r, ok := e.(events.ClaimReleased); ok && r.How == events.ReleasedAtTerminal {
			// The fence names the owner as it was when the command came.
			if after.Owner.LeaseExpiresAt > c.At {
				allowed.Owner = *after.Owner
			}
		}
	}
	switch c.Command.Verb {
	case VerbClaim, VerbResume, VerbBind, VerbForceRelease, VerbResolveImport:
		return retained(after)
	case VerbRenew, VerbReleaseWithAuthority, VerbReleaseObserved:
		return Fence{Allowed: true, Owner: *after.Owner}
	case VerbTerminalize:
		allowed.Allowed, allowed.Value = true, after.Work
		if live := after.Live(c.At); live != nil {
			allowed.Owner = *live
		}
		return allowed
	case VerbImport:
		for _, e := range list {
			if _, ok := e.(events.ClaimImported); ok {
				return EntryImported
			}
		}
		return EntryQuarantined
	case VerbSetState:
		return WorkState{WorkID: after.WorkID, State: textPtr(after.Work)}
	default:
		return nil
	}
}
