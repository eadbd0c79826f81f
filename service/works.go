package service

import (
	"context"
	"time"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// works brings commands and queries to the works of an instance.
type works struct {
	*keeper[session.State, session.Command, session.Facts]
	instance string
	activity *Activity
	clock    Clock
	maxSkew  time.Duration
	// requireCapability is asked of the verbs that show an authority.
	requireCapability bool
}

// command makes the endpoint of a work verb.
func (s *Service) command(root, verb, description string) endpoint {
	return endpoint{
		root: root, verb: verb, description: description,
		boundary: func(r *request) string {
			return events.WorkSubject(s.instance, r.body.Peek("workId"))
		},
		handle: func(ctx context.Context, r *request) (any, error) {
			o, err := s.order(r)
			if err != nil {
				return nil, err
			}
			if t, ok := o.command.(*session.Terminalize); ok && root == RootCommand && !t.Fenced() {
				err := events.Errorf(events.CodeForbidden, "%s without an authority is an operator's", verb).With("field", "authority")
				return named(nil, err, o.commandID)
			}
			out, err := s.works.run(ctx, o, r.caller)
			return named(out, err, o.commandID)
		},
	}
}

// named puts the command id into the details of an error, so that a caller that
// gave none can repeat the command.
func named(out any, err error, commandID string) (any, error) {
	if err != nil {
		return nil, events.AsError(err).With("commandId", commandID)
	}
	return out, nil
}

// order makes an order of a request about a work.
func (s *Service) order(r *request) (o order[session.Command, session.Facts], err error) {
	if o.command, err = session.Parse(r.verb, r.body); err != nil {
		return o, err
	}
	if o.envelope, err = r.envelope(); err != nil {
		return o, err
	}
	o.id = o.command.Target()
	o.subject = events.WorkSubject(s.instance, o.id)
	return o, nil
}

// run executes an order on its work.
func (w *works) run(ctx context.Context, o order[session.Command, session.Facts], caller session.Caller) (reply, error) {
	if err := events.CheckID("workId", o.id); err != nil {
		// The rules may have an earlier check; an id that cannot be stored has no
		// boundary to load.
		_, err := session.Decider{}.Decide(session.State{}, o.command, session.Facts{Now: w.clock.Now(), Caller: caller})
		if err == nil {
			err = events.CheckID("workId", o.id)
		}
		return reply{}, err
	}
	return w.execute(ctx, o, w.clock, func(ctx context.Context, s session.State, now events.Time) (session.Facts, error) {
		f := session.Facts{Now: now, Caller: caller, RequireCapability: w.requireCapability}
		err := error(nil)
		if asksWhoIsLive(o.verb) {
			err = w.early(s, now)
		}
		if err != nil {
			return f, err
		}
		if s.NeedsExecution(o.command, now) {
			if f.Execution, err = w.activity.Execution(ctx, s.Live(now)); err != nil {
				return f, err
			}
		}
		if s.NeedsRuntime(o.command, now) {
			f.AnnouncedRuntime, err = w.activity.Runtime(ctx)
		}
		return f, err
	})
}

// asksWhoIsLive reports whether a verb is decided by whether a lease runs.
func asksWhoIsLive(verb string) bool {
	switch verb {
	case session.VerbRelease, session.VerbForceRelease, session.VerbSetState, session.VerbImport, session.VerbResolveImport:
		return false
	}
	return true
}

// early is FORGE_CLOCK_SKEW when a lease has ended for this node, but not for one
// whose clock agrees with that of the stream leader: a node that is ahead must not
// tell holders that they lost their work.
func (w *works) early(s session.State, now events.Time) error {
	leader := events.TimeOf(w.log.LeaderTime())
	if s.Live(now) != nil || s.Live(leader.Add(w.maxSkew.Milliseconds())) == nil {
		return nil
	}
	return events.Errorf(events.CodeClockSkew, "the lease of %s ends at %s, which is not yet over by the clock of the stream leader", s.WorkID, s.Owner.LeaseExpiresAt).
		With("workId", s.WorkID).With("leaseExpiresAt", s.Owner.LeaseExpiresAt).With("aheadMs", int64(now-leader))
}

// current is the state of a work as of this call, its position, and the time that
// counts for it.
func (w *works) current(ctx context.Context, r *request) (aggregate.Folded[session.State], events.Time, error) {
	id := aggregate.Trimmed(r.body.Text("workId"))
	if err := events.CheckID("workId", id); err != nil {
		return aggregate.Folded[session.State]{}, 0, err
	}
	f, err := w.load(ctx, events.WorkSubject(w.instance, id), id, confirmed)
	now := max(w.clock.Now(), f.Head.At)
	if err == nil {
		err = w.early(f.State, now)
	}
	return f, now, err
}
