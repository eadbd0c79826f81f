package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

// loose is a text of a document that may come from another system: whatever
// stands there can be shown.
type loose string

func (l *loose) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) != nil {
		*l = loose(printable(string(b)))
	} else if text != nil {
		*l = loose(printable(*text))
	}
	return nil
}

// printable is a text without control characters, on one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '·'
		}
		return r
	}, s)
}

// looseObject is an object of such a document, nil if it is none.
type looseObject map[string]loose

func (o *looseObject) UnmarshalJSON(b []byte) error {
	var m map[string]loose
	if json.Unmarshal(b, &m) == nil {
		*o = m
	}
	return nil
}

func (o looseObject) text(name string) string { return string(o[name]) }

// releaseDocument is a release session as far as lists and outcomes show it.
type releaseDocument struct {
	SessionID, Phase, UpdatedAt loose
	Revision                    json.Number
	CandidateRelease            looseObject
}

// gate is a required receipt.
type gate struct{ Kind, ID string }

// releaseInfo is a release session at a glance.
type releaseInfo struct {
	SessionID, Phase, Next, Since string
	SourceRevision, UpdatedAt     string
	Revision                      int64
	Done, Missing                 []gate
	Waits                         []struct{ Code, Text, Remedy string }
	CandidateRelease, Transaction looseObject
	Receipts                      int
	NewestReceipts                []looseObject
	Incarnation                   uint64
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
		r, info, err := p.askInfo(c.Context(), args[0])
		for last := ""; ; r, info, err = p.askInfo(c.Context(), args[0]) {
			switch {
			case errors.Is(err, events.ErrUnavailable) && last != "": // it may come back
			case err != nil:
				return err
			default:
				shown := fmt.Sprint(info)
				if shown != last && last != "" && !p.json {
					p.printf("\n")
				}
				if shown != last {
					if err := p.done(r, func() error { p.showRelease(info); return nil }); err != nil {
						return err
					}
				}
				last = shown
				if !watch || info.Next == "" {
					return nil
				}
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
	line := "✕ " + i.Phase
	if at >= 0 {
		line = strings.TrimSpace(strings.Repeat("●", at) + "◉ " + i.Phase + " " + strings.Repeat("○", len(phaseLine)-at-1))
	}
	pairs := []string{
		"session", i.SessionID, "phase", line, "since", i.Since, "revision", fmt.Sprint(i.Revision), "source", printable(i.SourceRevision),
		"candidate", i.CandidateRelease.text("releaseId"),
	}
	if i.Transaction != nil {
		pairs = append(pairs, "transaction", i.Transaction.text("operationId")+", started "+i.Transaction.text("startedAt"))
	}
	p.facts(append(pairs, "receipts", fmt.Sprint(i.Receipts), "next", i.Next)...)
	if len(i.Done)+len(i.Missing) > 0 {
		p.printf("\n%s needs\n", i.Next)
	}
	for _, g := range i.Done {
		p.printf("  ✓ %s:%s\n", g.Kind, g.ID)
	}
	for _, g := range i.Missing {
		p.printf("  · %s:%s\n", g.Kind, g.ID)
	}
	p.printf("\n")
	if len(i.Missing) > 0 {
		p.printf("record what is missing: forge-es release receipt %s KIND:ID\n", i.SessionID)
	}
	p.showWaits(i, false)
	if len(i.NewestReceipts) > 0 {
		p.printf("\n")
	}
	for _, r := range slices.Backward(i.NewestReceipts) {
		p.printf("%s\n", receiptLine(r))
	}
}

// marks stand for the outcomes of receipts.
var marks = map[string]string{"": "✓", "passed": "✓", "failed": "✗", "inconclusive": "?"}

// receiptLine shows a receipt on one line of a terminal.
func receiptLine(r looseObject) string {
	at := r.text("recordedAt")
	if t, err := events.ParseTime(at); err == nil {
		at = moment(t)
	}
	line := []rune(fmt.Sprintf("%s %s  %s:%s  %s", cmp.Or(marks[r.text("outcome")], "?"), at, r.text("kind"), r.text("id"), r.text("summary")))
	if len(line) > 80 {
		line = append(line[:79], '…')
	}
	return strings.TrimRight(string(line), " ")
}

// showWaits tells what the next phase waits for: all of it with the codes of the
// refusals, or all but the gates, which were shown, without them.
func (p *program) showWaits(i *releaseInfo, all bool) {
	switch {
	case i.Next == "":
		p.printf("it has ended: nothing follows %s\n", i.Phase)
	case len(i.Waits) == 0:
		p.printf("nothing is missing: forge-es release advance %s %s --from %s\n", i.SessionID, i.Next, i.Phase)
	}
	isGate := func(text string) bool {
		return slices.ContainsFunc(i.Missing, func(g gate) bool { return strings.HasPrefix(text, g.Kind+" "+g.ID+" ") })
	}
	for _, w := range i.Waits {
		switch {
		case all:
			p.printf("waits: %s\n       %s\n       %s\n", w.Text, w.Remedy, w.Code)
		case !isGate(w.Text):
			p.printf("waits: %s\n       %s\n", w.Text, w.Remedy)
		}
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
			p.showWaits(&i, true)
			return nil
		})
	}}
}

func (p *program) releaseListCommand() *cobra.Command {
	var most int
	var all bool
	c := &cobra.Command{Use: "ls", Short: "Release sessions, active ones first", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		verb, body := "releases.list-complete", map[string]any{}
		bounded := c.Flags().Changed("max-entries")
		switch {
		case bounded && all:
			return usagef("--max-entries is about one page, --all about all")
		case bounded:
			verb, body["maxEntries"], body["order"] = "releases.list", most, "active-first"
		case !all:
			body["order"] = "active-first" // has no pages
		}
		sofar := releasePage{Sessions: []json.RawMessage{}, InvalidSessionFiles: []string{}}
		for {
			r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: verb, Body: body}, "")
			if err != nil {
				return err
			}
			if all {
				if err := sofar.add(r); err != nil {
					return err
				}
			}
			if !all || r.Cursor == "" {
				return p.done(r, func() error { return p.showReleases(r) })
			}
			body["cursor"] = r.Cursor
		}
	}}
	c.Flags().IntVar(&most, "max-entries", 0, "look only at so many documents, in order of their names (default: all)")
	c.Flags().BoolVar(&all, "all", false, "all pages, in order of the names")
	return c
}

// releasePage is a list of release sessions, of one reply or of several.
type releasePage struct {
	Sessions            []json.RawMessage `json:"sessions"`
	InvalidSessionFiles []string          `json:"invalidSessionFiles"`
	Inspected           int               `json:"inspected"`
	Truncated           bool              `json:"truncated"`
}

// add takes up the page of a reply, which then holds all pages up to this one.
func (l *releasePage) add(r *client.Reply) error {
	var page releasePage
	if err := r.Into(&page); err != nil {
		return err
	}
	l.Sessions, l.InvalidSessionFiles = append(l.Sessions, page.Sessions...), append(l.InvalidSessionFiles, page.InvalidSessionFiles...)
	l.Inspected += page.Inspected
	l.Truncated = page.Truncated
	result, err := json.Marshal(l)
	r.Result = result
	return err
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
		updated := string(s.UpdatedAt)
		if t, err := events.ParseTime(updated); err == nil {
			updated = moment(t)
		}
		rows[i] = []any{s.SessionID, s.Phase, s.Revision, s.CandidateRelease.text("releaseId"), updated}
	}
	p.table([]string{"session", "phase", "rev", "candidate", "updated"}, rows)
	if len(rows) > 0 && len(list.InvalidSessionFiles) > 0 {
		p.printf("\n")
	}
	for _, name := range list.InvalidSessionFiles {
		p.printf("no valid session: %s\n", printable(name))
	}
	more := ""
	if list.Truncated || r.Truncated {
		more = ", more exist"
	}
	p.notef("%s inspected%s", count(list.Inspected, "document"), more)
	if len(list.InvalidSessionFiles) > 0 {
		p.notef("no release can be created beside documents that are no valid sessions: migrate, replace or discard them")
	}
	return nil
}

func (p *program) releaseWaitCommand() *cobra.Command {
	var phase string
	c := &cobra.Command{
		Use: "wait SESSION", Short: "Wait until a release session is in a phase", Args: cobra.ExactArgs(1),
		Long: "Exit status 0 once the session is in the phase or beyond it; 3 when it ended elsewhere (failed, rolled_back);\n" +
			"4 without such a session; 1 when the time is up (--timeout, here one hour unless it is given).",
		Example: "  forge-es release wait release-1 --phase known_good --timeout 30m",
		RunE: func(c *cobra.Command, args []string) error {
			want := slices.Index(phaseLine, phase)
			if want < 0 && phase != "failed" && phase != "rolled_back" {
				return usagef("--phase %q is none of %s", phase, strings.Join(words["phase"], ", "))
			}
			most := time.Hour
			if c.Flags().Changed("timeout") {
				most = p.timeout
			}
			ctx, cancel := context.WithTimeout(c.Context(), most)
			defer cancel()
			for asked := false; ; {
				r, info, err := p.askInfo(ctx, args[0])
				switch {
				case err != nil && ctx.Err() != nil: // the time is up
				case errors.Is(err, events.ErrUnavailable) && asked: // it may come back
				case err != nil:
					return err
				case info.Phase == phase || want >= 0 && slices.Index(phaseLine, info.Phase) >= want:
					return p.done(r, func() error { p.printf("%s\n", info.Phase); return nil })
				case info.Next == "":
					if err := p.done(r, func() error { p.printf("%s\n", info.Phase); return nil }); err != nil {
						return err
					}
					p.notef("%s ended in %s", args[0], info.Phase)
					return exit(events.ExitRefused)
				default:
					asked = true
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
