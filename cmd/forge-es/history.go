package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

// shownCommit is a commit as the service shows it, as far as a timeline needs it.
type shownCommit struct {
	Position uint64 `json:"position"`
	Commit   struct {
		Version uint64
		At      events.Time
		Command struct{ Verb string }
		Actor   events.Actor
		Events  []struct {
			Type string
			Data json.RawMessage
		}
	} `json:"commit"`
}

func (p *program) historyCommand() *cobra.Command {
	return &cobra.Command{Use: "history WORK", Short: "What happened to a work, oldest first", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"workId": args[0], "limit": 1000}
		var entries []json.RawMessage
		var last *client.Reply
		for {
			r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "works.history", Body: body}, "")
			if err != nil {
				return err
			}
			var page []json.RawMessage
			if err := r.Into(&page); err != nil {
				return err
			}
			entries, last = append(entries, page...), r
			if !r.Truncated {
				break
			}
			body["from"] = r.Next
		}
		if p.json && len(entries) > 0 {
			return p.printJSON(map[string]any{"result": entries, "position": last.Position, "asOf": last.AsOf})
		}
		if len(entries) == 0 {
			return events.Errorf(events.CodeNotFound, "nothing ever happened to work %q", args[0])
		}
		return p.showHistory(entries, last)
	}}
}

func (p *program) showHistory(entries []json.RawMessage, last *client.Reply) error {
	asOf, err := events.ParseTime(last.AsOf)
	if err != nil {
		return err
	}
	var rows [][]any
	var held *events.Session // whose lease is running
	lapse := func(until events.Time) {
		if held != nil && held.LeaseExpiresAt <= until {
			rows = append(rows, []any{"", moment(held.LeaseExpiresAt), "", "lapsed: the lease of " + fence(held) + " ended"})
			held = nil
		}
	}
	for _, raw := range entries {
		var e shownCommit
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		lapse(e.Commit.At)
		for i, ev := range e.Commit.Events {
			what, owner, ends := describe(ev.Type, ev.Data, e.Commit.At, strings.TrimPrefix(e.Commit.Command.Verb, "work."))
			if owner != nil {
				held = owner
			}
			if ends {
				held = nil
			}
			r := []any{"", "", "", what}
			if i == 0 {
				r = []any{e.Position, moment(e.Commit.At), who(e.Commit.Actor), what}
			}
			rows = append(rows, r)
		}
	}
	lapse(asOf)
	p.table([]string{"pos", "at", "who", "what"}, rows)
	return nil
}

func who(a events.Actor) string {
	if a.Label != "" {
		return a.Principal + " (" + a.Label + ")"
	}
	return a.Principal
}

// describe says what an event means; owner is set when somebody holds the work
// afterwards, ends when nobody does.
func describe(kind string, data json.RawMessage, at events.Time, verb string) (what string, owner *events.Session, ends bool) {
	var e struct {
		Cause, How, Reason, Source, Scope, Standing, Keep, State string
		Generation, Entries                                      int64
		Owner                                                    json.RawMessage
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return kind + ": " + string(data), nil, false
	}
	var s events.Session
	if len(e.Owner) > 0 {
		if err := json.Unmarshal(e.Owner, &s); err != nil {
			return kind + ": " + string(data), nil, false
		}
	}
	because := ""
	if e.Reason != "" {
		because = ": " + e.Reason
	}
	switch kind {
	case "claim.granted":
		return fmt.Sprintf("%s: %s (%s), for %s", verb, fence(&s), e.Cause, lease(&s, at)), &s, false
	case "claim.renewed":
		return fmt.Sprintf("%s: %s renewed, for %s", verb, fence(&s), lease(&s, at)), &s, false
	case "claim.released":
		return fmt.Sprintf("gen %d released (%s)%s", e.Generation, e.How, because), nil, true
	case "claim.imported":
		what = fmt.Sprintf("imported from %s: %s, %s", place(e.Source, e.Scope), fence(&s), e.Standing)
		if e.Standing == events.StandingHeld {
			return what, &s, false
		}
		return what, nil, true
	case "claim.import-conflicted":
		return fmt.Sprintf("quarantined: %s from %s contradicts", fence(&s), place(e.Source, e.Scope)), nil, false
	case "claim.import-resolved":
		return fmt.Sprintf("quarantine lifted, %s kept, gen %d%s", e.Keep, e.Generation, because), nil, false
	case "work.state-set":
		if e.State == "" {
			e.State = "unknown"
		}
		return fmt.Sprintf("state is %s (%s)%s", e.State, e.How, because), nil, false
	}
	return kind + ": " + string(data), nil, false
}

// fence is an owner and its generation, short.
func fence(s *events.Session) string { return fmt.Sprintf("%s gen %d", s.ControllerID, s.Gen()) }

// lease is how long a lease runs from a time on.
func lease(s *events.Session, from events.Time) string {
	return span(s.LeaseExpiresAt.Std().Sub(from.Std()))
}

func place(source, scope string) string {
	return strings.TrimSuffix(source+" of "+scope, " of ")
}
