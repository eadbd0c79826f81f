package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

// releaseDocument is a release session as far as lists and outcomes show it.
type releaseDocument struct {
	SessionID, Phase, SourceRevision, UpdatedAt string
	Revision                                    json.Number
	CandidateRelease                            struct{ ReleaseID string }
}

func (d releaseDocument) revision() string { return d.Revision.String() }

// releaseInfo is a release session at a glance.
type releaseInfo struct {
	SessionID, Phase, Next, Since        string
	SourceRevision, CreatedAt, UpdatedAt string
	Revision                             int64
	Done, Missing                        []struct{ Kind, ID string }
	Waits                                []struct{ Code, Text, Remedy string }
	CanFail, CanRollBack                 bool
	CandidateRelease                     *struct{ ReleaseID, ArtifactIdentity string }
	Transaction                          *struct{ OperationID, StartedAt string }
	Receipts                             int
	NewestReceipts                       []struct{ ID, Kind, RecordedAt, Summary, Outcome string }
	Incarnation                          uint64
}

func (p *program) askInfo(ctx context.Context, id string) (*client.Reply, *releaseInfo, error) {
	r, err := p.do(ctx, client.Request{Kind: client.Query, Verb: "releases.info", Body: map[string]any{"sessionId": id}}, "")
	if err != nil {
		return nil, nil, err
	}
	info := new(releaseInfo)
	return r, info, r.Into(info)
}

func (p *program) releaseInfoCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{Use: "info SESSION", Short: "A release session at a glance: phase, gates, receipts, next step", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		for last := uint64(0); ; {
			r, info, err := p.askInfo(c.Context(), args[0])
			if err != nil {
				return err
			}
			if key := uint64(info.Revision); !watch || key != last {
				last = key
				if err := p.done(r, func() error { p.showRelease(info); return nil }); err != nil {
					return err
				}
				if watch && !p.json {
					p.printf("\n")
				}
			}
			if !watch || info.Next == "" {
				return nil
			}
			if !idle(c.Context(), pollEvery) {
				return nil
			}
		}
	}}
	c.Flags().BoolVar(&watch, "watch", false, "show it again whenever it changes, until it ends")
	return c
}

// pollEvery is how often a release session is looked at while it is followed.
const pollEvery = 500 * time.Millisecond

func idle(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// phaseLine are the phases of a release that succeeds.
var phaseLine = []string{
	"source_frozen", "built", "static_verified", "candidate_booted", "candidate_verified", "cutover_eligible", "cutover_attempting",
	"cutover_committed", "soaking", "known_good",
}

func (p *program) showRelease(i *releaseInfo) {
	at := slices.Index(phaseLine, i.Phase)
	var line strings.Builder
	for n, phase := range phaseLine {
		switch {
		case n < at:
			line.WriteString("●")
		case n == at:
			line.WriteString("◉ " + phase + " ")
		default:
			line.WriteString("○")
		}
	}
	if at < 0 {
		line.Reset()
		line.WriteString("✕ " + i.Phase)
	}
	pairs := []string{
		"session", i.SessionID, "phase", line.String(), "since", i.Since, "revision", fmt.Sprint(i.Revision), "source", i.SourceRevision,
	}
	if i.CandidateRelease != nil {
		pairs = append(pairs, "candidate", i.CandidateRelease.ReleaseID)
	}
	if i.Transaction != nil {
		pairs = append(pairs, "transaction", i.Transaction.OperationID+", started "+i.Transaction.StartedAt)
	}
	pairs = append(pairs, "receipts", fmt.Sprint(i.Receipts), "next", i.Next)
	p.facts(pairs...)
	for _, g := range i.Done {
		p.printf("  ✓ %s %s\n", g.Kind, g.ID)
	}
	for _, g := range i.Missing {
		p.printf("  · %s %s\n", g.Kind, g.ID)
	}
	p.showWaits(i)
	for n := len(i.NewestReceipts) - 1; n >= 0; n-- {
		r := i.NewestReceipts[n]
		if r.Outcome == "" {
			r.Outcome = "passed"
		}
		p.printf("  %s  %-13s %s:%s  %s\n", r.RecordedAt, r.Outcome, r.Kind, r.ID, r.Summary)
	}
}

// showWaits tells what the next phase waits for.
func (p *program) showWaits(i *releaseInfo) {
	switch {
	case i.Next == "":
		p.printf("it has ended: nothing follows %s\n", i.Phase)
	case len(i.Waits) == 0:
		p.printf("nothing is missing: advance it to %s\n", i.Next)
	}
	for _, w := range i.Waits {
		p.printf("waits: %s (%s)\n       %s\n", w.Text, w.Code, w.Remedy)
	}
}

func (p *program) explainCommand() *cobra.Command {
	return &cobra.Command{Use: "explain SESSION", Short: "What the next phase waits for, since when, and what would unblock it", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "releases.explain", Body: map[string]any{"sessionId": args[0]}}, "")
		if err != nil {
			return err
		}
		return p.done(r, func() error {
			var i releaseInfo
			if err := r.Into(&i); err != nil {
				return err
			}
			p.facts("session", i.SessionID, "phase", i.Phase, "since", i.Since, "next", i.Next)
			p.showWaits(&i)
			return nil
		})
	}}
}

func (p *program) releaseListCommand() *cobra.Command {
	var most int
	var all bool
	c := &cobra.Command{Use: "ls", Short: "Release sessions, active ones first", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		verb, body := "releases.list", map[string]any{"order": "active-first", "maxEntries": most}
		if all {
			verb = "releases.list-complete"
		}
		r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: verb, Body: body}, "")
		if err != nil {
			return err
		}
		return p.done(r, func() error { return p.showReleases(r) })
	}}
	c.Flags().IntVar(&most, "max-entries", 512, "documents to look at")
	c.Flags().BoolVar(&all, "all", false, "all documents")
	return c
}

func (p *program) showReleases(r *client.Reply) error {
	var list struct {
		Sessions            []releaseDocument
		InvalidSessionFiles []string
		Inspected           int
		Truncated           bool
	}
	if err := r.Into(&list); err != nil {
		return err
	}
	rows := make([][]any, len(list.Sessions))
	for i, s := range list.Sessions {
		rows[i] = []any{s.SessionID, s.Phase, s.revision(), s.SourceRevision, s.CandidateRelease.ReleaseID, s.UpdatedAt}
	}
	p.table([]string{"session", "phase", "rev", "source", "candidate", "updated"}, rows)
	for _, name := range list.InvalidSessionFiles {
		p.printf("invalid: %s\n", name)
	}
	more := ""
	if list.Truncated || r.Truncated {
		more = ", more exist (--all)"
	}
	p.notef("%d documents inspected%s", list.Inspected, more)
	return nil
}

func (p *program) releaseWaitCommand() *cobra.Command {
	var phase string
	c := &cobra.Command{
		Use: "wait SESSION --phase PHASE", Short: "Wait until a release session is in a phase", Args: cobra.ExactArgs(1),
		Long: "Exit status 0 once the session is in the phase or beyond it; 3 when it ended elsewhere (failed, rolled_back); 1 when\n" +
			"the time is up (--timeout, here one hour unless it is given).",
		RunE: func(c *cobra.Command, args []string) error {
			want := slices.Index(phaseLine, phase)
			if want < 0 && phase != "failed" && phase != "rolled_back" {
				return usagef("--phase %q is no phase", phase)
			}
			most := time.Hour
			if c.Flags().Changed("timeout") {
				most = p.timeout
			}
			ctx, cancel := context.WithTimeout(c.Context(), most)
			defer cancel()
			for {
				r, info, err := p.askInfo(ctx, args[0])
				switch {
				case errors.Is(err, events.ErrUnavailable) && ctx.Err() == nil: // it may come back
				case err != nil && ctx.Err() == nil:
					return err
				case err == nil && (info.Phase == phase || want >= 0 && slices.Index(phaseLine, info.Phase) >= want):
					return p.done(r, func() error { p.printf("%s\n", info.Phase); return nil })
				case err == nil && info.Next == "":
					p.notef("%s ended in %s", args[0], info.Phase)
					return exit(events.ExitRefused)
				}
				if !idle(ctx, pollEvery) {
					return fmt.Errorf("%s was not in %s within %s", args[0], phase, most)
				}
			}
		},
	}
	c.Flags().StringVar(&phase, "phase", "known_good", "`phase` to wait for")
	return c
}
