package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/legacy"
	"github.com/spf13/cobra"
)

func (p *program) releasesCommand() *cobra.Command {
	return group("release", "Release sessions",
		p.createReleaseCommand(), p.advanceCommand(), p.receiptCommand(), p.transactionCommand(),
		p.stepCommand("fail", "Take a release session to failed", "failed"),
		p.stepCommand("rollback", "Take a release session to rolled_back", "rolled_back"),
		p.releaseInfoCommand(), p.explainCommand(), p.releaseListCommand(), p.releaseWaitCommand(),
		p.endCommand(), p.receiveCommand(), p.discardCommand(), p.migrateCommand(),
	)
}

// value reads a JSON argument: the text itself, @FILE, or - for stdin.
func (p *program) value(arg string) (json.RawMessage, error) {
	text := []byte(arg)
	var err error
	switch {
	case arg == "-":
		text, err = p.input()
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

// input reads stdin, once.
func (p *program) input() ([]byte, error) {
	if p.stdin == nil {
		return nil, errors.New("- stands for stdin, which can be given only once")
	}
	in := p.stdin
	p.stdin = nil
	return io.ReadAll(io.LimitReader(in, maxInput))
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

// given refuses a verb whose flags are missing, naming them all.
func given(c *cobra.Command, names ...string) error {
	var lacking []string
	for _, name := range names {
		if f := c.Flags().Lookup(name); f.Value.String() == "" {
			lacking = append(lacking, "--"+name)
		}
	}
	if len(lacking) > 0 {
		return hinted{usagef("give %s", strings.Join(lacking, ", ")), "see: " + c.CommandPath() + " --help"}
	}
	return nil
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

// needed refuses a step that does not say from where.
func (f *ledgerFence) needed() error {
	if f.revision == 0 && f.from == "" {
		return usagef("from where? Give --from PHASE or --revision N, as release info shows them")
	}
	return nil
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
		p.facts("session", string(s.SessionID), "phase", string(s.Phase), "revision", s.Revision.String())
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
		Long: "Lanes and the stable release are JSON: the text itself, @FILE, or - for stdin. The stable release is\n" +
			"{authorityRevision, releaseId, artifactIdentity, manifestSha256, workerProtocolVersion, releaseFencingTokenSha256}.",
		Example: "  forge-es release create release-1 --stable @stable.json --candidate @candidate.json --stable-release @live.json --source 4f2a91c",
		RunE: func(c *cobra.Command, args []string) error {
			if err := given(c, "stable", "candidate", "stable-release", "source"); err != nil {
				return err
			}
			body := map[string]any{"sessionId": args[0], "sourceRevision": source}
			for _, v := range [][2]string{{"stable", stable}, {"candidate", candidate}, {"stableRelease", release}} {
				if err := p.putValue(body, v[0], v[1]); err != nil {
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
	c.Flags().StringVar(&release, "stable-release", "", "`JSON` of the release that is live: {authorityRevision, releaseId, …}")
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

// receiptList reads what --receipt, or the arguments of release receipt, say.
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

// moveFlags are the flags of a command that moves a session to another phase.
type moveFlags struct {
	commandFlags
	fence    ledgerFence
	receipts []string
	reason   string
}

func (f *moveFlags) add(c *cobra.Command) {
	f.commandFlags.add(c)
	f.fence.add(c)
	c.Flags().StringArrayVar(&f.receipts, "receipt", nil, "`KIND:ID[=SUMMARY]`, may be repeated")
	c.Flags().StringVar(&f.reason, "reason", "", "why (recorded)")
}

// body is that of the command for a session and the phase to come.
func (f *moveFlags) body(session, phase string) (map[string]any, error) {
	if err := f.fence.needed(); err != nil {
		return nil, err
	}
	body := map[string]any{"sessionId": session, "phase": phase}
	f.fence.into(body)
	optional(body, "reason", f.reason)
	if len(f.receipts) > 0 {
		list, err := receiptList(f.receipts, "")
		if err != nil {
			return nil, err
		}
		body["receipts"] = list
	}
	return body, nil
}

func (p *program) advanceCommand() *cobra.Command {
	var move moveFlags
	var candidate string
	example := "  forge-es release advance release-1 built --from source_frozen --candidate-release @release.json --receipt build:build=built"
	c := &cobra.Command{Use: "advance SESSION PHASE", Short: "Move a release session to another phase", Example: example, Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		body, err := move.body(args[0], args[1])
		if err != nil {
			return err
		}
		if err := p.putValue(body, "candidateRelease", candidate); err != nil {
			return err
		}
		return p.tellRelease(c, move.request(client.Command, "release.advance", body))
	}}
	move.add(c)
	c.Flags().StringVar(&candidate, "candidate-release", "", "candidate release: `JSON`, @FILE or -")
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
	c := &cobra.Command{
		Use: "transaction SESSION JSON", Short: "Record the rollback authority of a cutover (JSON, @FILE or -)", Args: cobra.ExactArgs(2),
		Long: "It is recorded once. Without --revision the session is asked for its revision first.",
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{"sessionId": args[0]}
			if err := p.putValue(body, "transaction", args[1]); err != nil {
				return err
			}
			switch {
			case fence.revision == 0 && common.id != "":
				return usagef("a command with --id has to be the same each time: give --revision, too")
			case fence.revision == 0:
				_, info, err := p.askInfo(c.Context(), args[0])
				if err != nil {
					return err
				}
				fence.revision, fence.incarnation = info.Revision, cmp.Or(fence.incarnation, int64(info.Incarnation))
			}
			fence.into(body)
			return p.tellRelease(c, common.request(client.Command, "release.transaction", body))
		},
	}
	common.add(c)
	fence.add(c)
	return c
}

// stepCommand is an advance to one phase.
func (p *program) stepCommand(verb, short, phase string) *cobra.Command {
	var move moveFlags
	c := &cobra.Command{Use: verb + " SESSION", Short: short, Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body, err := move.body(args[0], phase)
		if err != nil {
			return err
		}
		return p.tellRelease(c, move.request(client.Command, "release.advance", body))
	}}
	move.add(c)
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

// documentName is the file name of a document, which may be given without .json.
func documentName(name string) string {
	if strings.HasSuffix(name, ".json") {
		return name
	}
	return name + ".json"
}

// text puts the bytes of a document into a body.
func putDocument(body map[string]any, content []byte) {
	if utf8.Valid(content) {
		body["text"] = string(content)
		return
	}
	body["textBase64"] = content // JSON has base64 for bytes
}

func (p *program) receiveCommand() *cobra.Command {
	var common commandFlags
	var name, reason string
	var replace bool
	c := &cobra.Command{
		Use: "receive FILE", Short: "Take over one document as it is, as operator (- for stdin)", Args: cobra.ExactArgs(1),
		Long: "A document that is known with other content is refused, unless --replace says, with a reason, that it may be\n" +
			"replaced. A document that is no valid session is kept too, and told; exit status 3.",
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{"name": documentName(cmp.Or(name, filepath.Base(args[0])))}
			var content []byte
			var err error
			switch {
			case args[0] != "-":
				content, err = os.ReadFile(args[0])
			case name == "":
				return usagef("what is its name? Give --name")
			default:
				content, err = p.input()
			}
			if err != nil {
				return events.Errorf(events.CodeNotFound, "%w", err)
			}
			if len(content) > legacy.MaxDocument {
				return events.Errorf(events.CodeTooLarge, "the document has %d bytes, the most is %d", len(content), legacy.MaxDocument)
			}
			putDocument(body, content)
			if replace {
				body["replace"] = true
			}
			optional(body, "reason", reason)
			r, err := p.do(c.Context(), common.request(client.Operator, "release.receive-document", body), operator())
			if err != nil {
				return err
			}
			return p.received(r)
		},
	}
	common.add(c)
	c.Flags().StringVar(&name, "name", "", "file `name` of the document (default: that of FILE)")
	c.Flags().BoolVar(&replace, "replace", false, "replace a document that has other content (needs --reason)")
	c.Flags().StringVar(&reason, "reason", "", "why (required with --replace, recorded)")
	return c
}

// received tells what became of a document.
func (p *program) received(r *client.Reply) error {
	var d struct{ Name, Form, Why string }
	if err := r.Into(&d); err != nil {
		return err
	}
	err := p.done(r, func() error {
		p.facts("document", d.Name, "form", d.Form, "why", d.Why)
		p.showOutcome(r)
		return nil
	})
	if err == nil && d.Form == legacy.FormInvalid {
		return exit(events.ExitRefused)
	}
	return err
}

func (p *program) discardCommand() *cobra.Command {
	var common commandFlags
	var reason string
	c := &cobra.Command{Use: "discard DOCUMENT", Short: "Remove a stored document, as operator", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"name": documentName(args[0]), "reason": reason}
		r, err := p.do(c.Context(), common.request(client.Operator, "release.discard-document", body), operator())
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
			case none && authority != "":
				return usagef("--authority and --no-authority exclude each other")
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
				var published struct{ Authority json.RawMessage } // a null result leaves it nil
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
		p.notef("%s; dry run: nothing was changed", count(m.Inspected, "document"))
		return nil
	}
	for _, id := range m.MigratedSessionIDs {
		p.printf("migrated  %s\n", id)
	}
	p.notef("%s: %d migrated, %d were current", count(m.Inspected, "document"), len(m.MigratedSessionIDs), len(m.CurrentSessionIDs))
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
	var a *struct {
		Revision  json.Number
		Authority struct {
			Active, Previous looseObject
			CommittedAt      loose
		}
	}
	if err := r.Into(&a); err != nil {
		return err
	}
	if a == nil {
		p.printf("no release authority was published\n")
		return nil
	}
	live := a.Authority.Active
	p.facts("revision", a.Revision.String(), "live", live.text("releaseId"), "artifact", live.text("artifactIdentity"),
		"committed at", string(a.Authority.CommittedAt), "previous", a.Authority.Previous.text("releaseId"))
	if r.Outcome != "" {
		p.showOutcome(r)
	}
	return nil
}
