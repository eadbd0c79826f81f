package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/forge-es/forge-es/client"
	"github.com/spf13/cobra"
)

func (p *program) releasesCommand() *cobra.Command {
	return group("release", "Release sessions",
		p.createReleaseCommand(), p.advanceCommand(), p.receiptCommand(), p.transactionCommand(),
		p.stepCommand("fail", "Take a release session to failed", "failed"),
		p.stepCommand("rollback", "Take a release session to rolled_back", "rolled_back"),
		p.releaseInfoCommand(), p.explainCommand(), p.releaseListCommand(), p.releaseWaitCommand(),
		p.endCommand(), p.discardCommand(), p.migrateCommand(),
	)
}

// value reads a JSON argument: the text itself, @FILE, or - for stdin.
func (p *program) value(arg string) (json.RawMessage, error) {
	text := []byte(arg)
	var err error
	switch {
	case arg == "-":
		text, err = io.ReadAll(io.LimitReader(p.stdin, maxInput))
	case strings.HasPrefix(arg, "@"):
		text, err = os.ReadFile(arg[1:])
	}
	if err != nil {
		return nil, usage{err}
	}
	if !json.Valid(text) {
		return nil, usagef("%.60q is no JSON; give JSON, @FILE, or - for stdin", arg)
	}
	return text, nil
}

// putValue puts a JSON argument into a body, if it was given.
func (p *program) putValue(body map[string]any, name, arg string) error {
	if arg == "" {
		return nil
	}
	v, err := p.value(arg)
	body[name] = v
	return err
}

// ledgerFence are the flags that say where a release session is expected.
type ledgerFence struct {
	revision, incarnation int64
	from                  string
}

func (f *ledgerFence) add(c *cobra.Command) {
	c.Flags().Int64Var(&f.revision, "revision", 0, "`revision` that the session must have")
	c.Flags().StringVar(&f.from, "from", "", "`phase` that the session must be in")
	c.Flags().Int64Var(&f.incarnation, "incarnation", 0, "`incarnation` that the session must be")
}

func (f *ledgerFence) into(body map[string]any) {
	if f.revision != 0 {
		body["expectedRevision"] = f.revision
	}
	optional(body, "expectedPhase", f.from)
	if f.incarnation != 0 {
		body["expectedIncarnation"] = f.incarnation
	}
}

// tellRelease sends a command about a release session and shows what it is
// afterwards.
func (p *program) tellRelease(c *cobra.Command, r client.Request) error {
	reply, err := p.do(c.Context(), r, operator())
	if err != nil {
		return err
	}
	return p.done(reply, func() error {
		var s releaseDocument
		if err := reply.Into(&s); err != nil {
			return err
		}
		p.facts("session", s.SessionID, "phase", s.Phase, "revision", s.revision())
		p.showOutcome(reply)
		return nil
	})
}

func (p *program) createReleaseCommand() *cobra.Command {
	var common commandFlags
	var stable, candidate, release, source string
	var check bool
	c := &cobra.Command{
		Use: "create SESSION", Short: "Begin a release session", Args: cobra.ExactArgs(1),
		Long: "Lanes and the stable release are JSON: the text itself, @FILE, or - for stdin.",
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{"sessionId": args[0], "sourceRevision": source}
			for name, arg := range map[string]string{"stable": stable, "candidate": candidate, "stableRelease": release} {
				if err := p.putValue(body, name, arg); err != nil {
					return err
				}
			}
			if check {
				body["checkAuthority"] = true
			}
			return p.tellRelease(c, common.request(client.Command, "release.create", body))
		},
	}
	common.add(c)
	c.Flags().StringVar(&stable, "stable", "", "stable lane: `JSON` {controllerHome, port, …}")
	c.Flags().StringVar(&candidate, "candidate", "", "candidate lane: `JSON` {controllerHome, port, …}")
	c.Flags().StringVar(&release, "stable-release", "", "`JSON` {authorityRevision, releaseId, artifactIdentity, manifestSha256, workerProtocolVersion, releaseFencingTokenSha256}")
	c.Flags().StringVar(&source, "source", "", "source `revision` of the candidate")
	c.Flags().BoolVar(&check, "check-authority", false, "the stable release must be the published one")
	return c
}

// receiptFlag reads KIND:ID or KIND:ID=SUMMARY.
func receiptFlag(text, outcome string) (map[string]any, error) {
	name, summary, _ := strings.Cut(text, "=")
	kind, id, ok := strings.Cut(name, ":")
	if !ok {
		return nil, usagef("receipt %q: want KIND:ID or KIND:ID=SUMMARY", text)
	}
	r := map[string]any{"kind": kind, "id": id, "summary": summary}
	optional(r, "outcome", outcome)
	return r, nil
}

func receiptList(texts []string, outcome string) ([]any, error) {
	list := make([]any, len(texts))
	for i, text := range texts {
		r, err := receiptFlag(text, outcome)
		if err != nil {
			return nil, err
		}
		list[i] = r
	}
	return list, nil
}

func (p *program) advanceCommand() *cobra.Command {
	var common commandFlags
	var fence ledgerFence
	var candidate string
	var receipts []string
	c := &cobra.Command{Use: "advance SESSION PHASE", Short: "Move a release session to another phase (needs --revision or --from)", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"sessionId": args[0], "phase": args[1]}
		fence.into(body)
		if err := p.putValue(body, "candidateRelease", candidate); err != nil {
			return err
		}
		if len(receipts) > 0 {
			list, err := receiptList(receipts, "")
			if err != nil {
				return err
			}
			body["receipts"] = list
		}
		return p.tellRelease(c, common.request(client.Command, "release.advance", body))
	}}
	common.add(c)
	fence.add(c)
	c.Flags().StringVar(&candidate, "candidate-release", "", "candidate release: `JSON`, @FILE or -")
	c.Flags().StringArrayVar(&receipts, "receipt", nil, "`KIND:ID[=SUMMARY]`, may be repeated")
	return c
}

func (p *program) receiptCommand() *cobra.Command {
	var common commandFlags
	var fence ledgerFence
	var outcome string
	c := &cobra.Command{Use: "receipt SESSION KIND:ID[=SUMMARY]...", Short: "Record evidence as it arrives", Args: cobra.MinimumNArgs(2), RunE: func(c *cobra.Command, args []string) error {
		list, err := receiptList(args[1:], outcome)
		if err != nil {
			return err
		}
		body := map[string]any{"sessionId": args[0], "receipts": list}
		fence.into(body)
		return p.tellRelease(c, common.request(client.Command, "release.receipts", body))
	}}
	common.add(c)
	fence.add(c)
	c.Flags().StringVar(&outcome, "outcome", "", "`outcome`: passed (default), failed or inconclusive")
	return c
}

func (p *program) transactionCommand() *cobra.Command {
	var common commandFlags
	var fence ledgerFence
	c := &cobra.Command{Use: "transaction SESSION JSON", Short: "Record the rollback authority of a cutover (JSON, @FILE or -)", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"sessionId": args[0]}
		fence.into(body)
		if err := p.putValue(body, "transaction", args[1]); err != nil {
			return err
		}
		return p.tellRelease(c, common.request(client.Command, "release.transaction", body))
	}}
	common.add(c)
	fence.add(c)
	return c
}

// stepCommand is an advance to one phase.
func (p *program) stepCommand(verb, short, phase string) *cobra.Command {
	var common commandFlags
	var fence ledgerFence
	var receipts []string
	c := &cobra.Command{Use: verb + " SESSION", Short: short + " (needs --revision or --from)", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"sessionId": args[0], "phase": phase}
		fence.into(body)
		if len(receipts) > 0 {
			list, err := receiptList(receipts, "")
			if err != nil {
				return err
			}
			body["receipts"] = list
		}
		return p.tellRelease(c, common.request(client.Command, "release.advance", body))
	}}
	common.add(c)
	fence.add(c)
	c.Flags().StringArrayVar(&receipts, "receipt", nil, "`KIND:ID[=SUMMARY]`, may be repeated")
	return c
}

func (p *program) endCommand() *cobra.Command {
	var common commandFlags
	var fence ledgerFence
	var reason string
	c := &cobra.Command{Use: "end SESSION", Short: "Take a session that cannot end by itself to failed, as operator", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"sessionId": args[0], "reason": reason}
		fence.into(body)
		return p.tellRelease(c, common.request(client.Operator, "release.end", body))
	}}
	common.add(c)
	fence.add(c)
	c.Flags().StringVar(&reason, "reason", "", "why (required, recorded)")
	return c
}

func (p *program) discardCommand() *cobra.Command {
	var common commandFlags
	var reason string
	c := &cobra.Command{Use: "discard DOCUMENT", Short: "Remove a stored document, as operator", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		name := args[0]
		if !strings.HasSuffix(name, ".json") {
			name += ".json"
		}
		r, err := p.do(c.Context(), common.request(client.Operator, "release.discard-document", map[string]any{"name": name, "reason": reason}), operator())
		if err != nil {
			return err
		}
		return p.done(r, func() error { p.showOutcome(r); return nil })
	}}
	common.add(c)
	c.Flags().StringVar(&reason, "reason", "", "why (required, recorded)")
	return c
}

func (p *program) migrateCommand() *cobra.Command {
	var common commandFlags
	var authority string
	var dryRun, none bool
	c := &cobra.Command{
		Use: "migrate", Short: "Bring stored documents to the present form, all or none, as operator", Args: noArgs,
		Long: "The release authority decides what a cutover became: by default the published one.",
		RunE: func(c *cobra.Command, _ []string) error {
			body := map[string]any{}
			switch {
			case none:
			case authority != "":
				if err := p.putValue(body, "authority", authority); err != nil {
					return err
				}
			default:
				r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "authority.info"}, "")
				if err != nil {
					return err
				}
				var published struct{ Authority json.RawMessage }
				if err := r.Into(&published); err != nil {
					return err
				}
				if published.Authority != nil {
					body["authority"] = published.Authority
				}
			}
			if dryRun {
				body["dryRun"] = true
			}
			r, err := p.do(c.Context(), common.request(client.Operator, "release.migrate", body), operator())
			if err != nil {
				return err
			}
			return p.done(r, func() error { return p.showMigration(r, dryRun) })
		},
	}
	common.add(c)
	c.Flags().StringVar(&authority, "authority", "", "release authority: `JSON`, @FILE or - (default: the published one)")
	c.Flags().BoolVar(&none, "no-authority", false, "there is none")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be done")
	return c
}

func (p *program) showMigration(r *client.Reply, dryRun bool) error {
	var m struct {
		MigratedSessionIDs, CurrentSessionIDs []string
		Inspected                             int
		Plan                                  []struct{ SessionID, Outcome, From, To string }
	}
	if err := r.Into(&m); err != nil {
		return err
	}
	if dryRun {
		rows := make([][]any, len(m.Plan))
		for i, step := range m.Plan {
			rows[i] = []any{step.SessionID, step.Outcome, step.From, step.To}
		}
		p.table([]string{"session", "outcome", "phase", "becomes"}, rows)
		p.notef("%d documents; dry run: nothing was changed", m.Inspected)
		return nil
	}
	for _, id := range m.MigratedSessionIDs {
		p.printf("migrated  %s\n", id)
	}
	p.notef("%d documents: %d migrated, %d were current", m.Inspected, len(m.MigratedSessionIDs), len(m.CurrentSessionIDs))
	return nil
}

func (p *program) authorityCommand() *cobra.Command {
	return group("authority", "The release authority: which release is live", p.publishCommand(), p.authorityInfoCommand())
}

func (p *program) publishCommand() *cobra.Command {
	var common commandFlags
	var expected int64
	c := &cobra.Command{Use: "publish JSON", Short: "Say which release is live (JSON, @FILE or -), as operator", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{}
		if err := p.putValue(body, "authority", args[0]); err != nil {
			return err
		}
		if c.Flags().Changed("expect-revision") {
			body["expectedRevision"] = expected
		}
		r, err := p.do(c.Context(), common.request(client.Operator, "authority.publish", body), operator())
		if err != nil {
			return err
		}
		return p.done(r, func() error { return p.showAuthority(r) })
	}}
	common.add(c)
	c.Flags().Int64Var(&expected, "expect-revision", 0, "`revision` that is published now, 0 for none")
	return c
}

func (p *program) authorityInfoCommand() *cobra.Command {
	return &cobra.Command{Use: "info", Short: "The published release authority", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "authority.info"}, "")
		if err != nil {
			return err
		}
		return p.done(r, func() error { return p.showAuthority(r) })
	}}
}

func (p *program) showAuthority(r *client.Reply) error {
	type release struct {
		ReleaseID, ArtifactIdentity, PublishedAt string
	}
	var a *struct {
		Revision  json.Number
		Authority struct {
			Active      release
			Previous    *release
			CommittedAt string
		}
	}
	if err := r.Into(&a); err != nil {
		return err
	}
	if a == nil {
		p.printf("no release authority was published\n")
		return nil
	}
	pairs := []string{"revision", a.Revision.String(), "live", a.Authority.Active.ReleaseID, "artifact", a.Authority.Active.ArtifactIdentity, "committed at", a.Authority.CommittedAt}
	if prev := a.Authority.Previous; prev != nil {
		pairs = append(pairs, "previous", prev.ReleaseID)
	}
	p.facts(pairs...)
	return nil
}
