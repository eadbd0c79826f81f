package main

import (
	"fmt"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

func (p *program) infoCommand() *cobra.Command {
	return &cobra.Command{Use: "info WORK", Short: "A work at a glance: owner, standing, state, quarantine", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "works.info", Body: map[string]any{"workId": args[0]}}, "")
		if err != nil {
			return err
		}
		return p.done(r, func() error { return p.showInfo(r) })
	}}
}

func (p *program) showInfo(r *client.Reply) error {
	var info struct {
		WorkID     string
		State      *string
		Standing   string
		Live       bool
		Owner      *events.Session
		Quarantine *struct {
			Source, Scope, Standing string
			Owner                   *events.Session
		}
	}
	if err := r.Into(&info); err != nil {
		return err
	}
	asOf, err := events.ParseTime(r.AsOf)
	if err != nil {
		return err
	}
	state, holds := "unknown (counts as open)", "nobody ever owned it"
	if info.State != nil {
		state = *info.State
	}
	if o := info.Owner; o != nil {
		left := o.LeaseExpiresAt.Std().Sub(asOf.Std())
		switch {
		case info.Live:
			holds = fmt.Sprintf("live, %s left", span(left))
		case info.Standing == events.StandingHeld:
			holds = fmt.Sprintf("lapsed %s ago", span(-left))
		case info.Standing == events.StandingReleased:
			holds = "released"
		default:
			holds = "known by identity only"
		}
	}
	if q := info.Quarantine; q != nil {
		holds = fmt.Sprintf("QUARANTINED: a claim imported from %s (%s) contradicts the last known owner", q.Source, q.Owner.Fence())
	}
	pairs := []string{"work", info.WorkID, "state", state, "claim", holds}
	if o := info.Owner; o != nil {
		pairs = append(pairs, "controller", o.ControllerID, "type", o.ControllerType, "session", o.SessionID, "principal", o.Principal(),
			"controller instance", o.Instance(), "generation", generation(o), "claimed at", o.ClaimedAt.String(), "lease ends", o.LeaseExpiresAt.String())
	}
	if r.Position > 0 {
		pairs = append(pairs, "last change", fmt.Sprintf("position %d", r.Position))
	}
	p.facts(append(pairs, "as of", r.AsOf)...)
	return nil
}

// listCommand lists live claims. --principal, if given, is a filter here.
func (p *program) listCommand() *cobra.Command {
	var owner ownerFlags
	var within time.Duration
	var limit int
	var all bool
	var position uint64
	c := &cobra.Command{Use: "ls", Short: "Live claims", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		body := map[string]any{"limit": limit}
		optional(body, "controllerId", owner.controller)
		optional(body, "controllerType", owner.kind)
		optional(body, "controllerInstanceId", owner.instance)
		if c.Flags().Changed("principal") {
			body["principalId"] = p.principal
		}
		if within > 0 {
			body["expiresWithinMs"] = within.Milliseconds()
		}
		if position > 0 {
			body["minPosition"] = position
		}
		list := []events.Session{}
		var last *client.Reply
		for {
			r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "claims.list", Body: body}, "")
			if err != nil {
				return err
			}
			var page []events.Session
			if err := r.Into(&page); err != nil {
				return err
			}
			list, last = append(list, page...), r
			if !all || !r.Truncated {
				break
			}
			body["cursor"] = r.Cursor
		}
		if p.json {
			return p.printJSON(map[string]any{"result": list, "position": last.Position, "asOf": last.AsOf, "truncated": last.Truncated, "cursor": last.Cursor})
		}
		return p.showClaims(list, last)
	}}
	// What one's own commands take from the environment is no filter.
	c.Flags().StringVar(&owner.controller, "controller", "", "only claims of this controller `id`")
	c.Flags().StringVar(&owner.kind, "type", "", "only claims of this controller `type`")
	c.Flags().StringVar(&owner.instance, "controller-instance", "", "only claims of this controller `instance`")
	c.Flags().DurationVar(&within, "expires-within", 0, "only leases that end within this time")
	c.Flags().IntVar(&limit, "limit", 100, "entries per page, up to 1000")
	c.Flags().BoolVar(&all, "all", false, "all pages")
	c.Flags().Uint64Var(&position, "min-position", 0, "wait until the list knows this `position`")
	return c
}

func (p *program) showClaims(list []events.Session, r *client.Reply) error {
	asOf, err := events.ParseTime(r.AsOf)
	if err != nil {
		return err
	}
	rows := make([][]any, len(list))
	for i, s := range list {
		rows[i] = []any{s.WorkID, s.ControllerID, s.ControllerType, s.Principal(), generation(&s), lease(&s, asOf)}
	}
	p.table([]string{"work", "controller", "type", "principal", "gen", "lease left"}, rows)
	more := ""
	if r.Truncated {
		more = ", more follow (--all)"
	}
	p.notef("%s as of %s, position %d%s", count(len(list), "live claim"), r.AsOf, r.Position, more)
	return nil
}
