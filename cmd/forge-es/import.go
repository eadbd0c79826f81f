package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/legacy"
	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/spf13/cobra"
)

func (p *program) importCommand() *cobra.Command {
	return group("import", "Take over what an existing installation has", p.importSessions(), p.importWorks(), p.importReleases(), p.importHome())
}

func (p *program) importSessions() *cobra.Command {
	var dryRun, entries bool
	var scope, worksFile string
	c := &cobra.Command{
		Use: "sessions HOME|FILE", Short: "Import claims, retained identities and activity", Args: cobra.ExactArgs(1),
		Long: "HOME is a controller home: its SQLite records and claim files are read, and left byte for byte as they were.\n" +
			"FILE is one JSON claim store. Importing again is safe and continues where it ended.",
		RunE: func(c *cobra.Command, args []string) error {
			works, err := readWorks(worksFile)
			if err != nil {
				return err
			}
			found, err := findSessions(c.Context(), args[0], scope)
			if err != nil {
				return err
			}
			return p.runPlan(c.Context(), legacy.PlanSessions(found, works), dryRun, entries)
		},
	}
	c.Flags().StringVar(&scope, "scope", "", "repository `id` that FILE belongs to (default: its folder's name if it lies in one, as in a home)")
	c.Flags().StringVar(&worksFile, "works", "", "works `file` (see import works), to count works without a known state")
	addPlanFlags(c, &dryRun, &entries)
	return c
}

func addPlanFlags(c *cobra.Command, dryRun, entries *bool) {
	c.Flags().BoolVar(dryRun, "dry-run", false, "show what would be sent, send nothing")
	c.Flags().BoolVar(entries, "entries", false, "list every entry, not only those that need a look")
}

// findSessions reads a home, or a claim store file.
func findSessions(ctx context.Context, from, scope string) (*legacy.Sessions, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, events.Errorf(events.CodeNotFound, "%w", err)
	}
	if !info.IsDir() {
		if scope == "" {
			scope = filepath.Base(filepath.Dir(from))
		}
		found, err := legacy.ReadStoreFile(ctx, from, scope)
		return found, unreadable(err)
	}
	if scope != "" {
		return nil, usagef("--scope goes with a file, not with a home")
	}
	home, err := legacy.OpenHome(from)
	if err != nil {
		return nil, unreadable(err)
	}
	found, err := home.Sessions(ctx)
	if err == nil && !legacy.IsHome(from) {
		return nil, events.Errorf(events.CodeNotFound, "%s is no controller home: it has no %s", from, strings.Join(found.Missing, " and no "))
	}
	return found, unreadable(err)
}

func unreadable(err error) error {
	if _, told := errors.AsType[*events.Error](err); told || err == nil {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return events.Errorf(events.CodeNotFound, "%w", err)
	}
	return events.Errorf(events.CodeBadRequest, "%w", err)
}

// readWorks reads a works file, or nothing without a name.
func readWorks(name string) (*legacy.Works, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, events.Errorf(events.CodeNotFound, "%w", err)
	}
	defer f.Close()
	works, err := legacy.ReadWorks(f, name)
	return works, unreadable(err)
}

func (p *program) importWorks() *cobra.Command {
	var dryRun, entries bool
	var reason string
	c := &cobra.Command{
		Use: "works FILE", Short: "Set the states of works, from lines {\"workId\": …, \"state\": …}", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			works, err := readWorks(args[0])
			if err != nil {
				return err
			}
			return p.runPlan(c.Context(), legacy.PlanWorks(works, reason), dryRun, entries)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why (recorded)")
	addPlanFlags(c, &dryRun, &entries)
	return c
}

func (p *program) importReleases() *cobra.Command {
	var dryRun, entries bool
	var authority string
	c := &cobra.Command{
		Use: "releases DIR|HOME", Short: "Import release documents and the release authority", Args: cobra.ExactArgs(1),
		Long: "HOME is a controller home; DIR is a folder of release documents (files *.json). Documents are taken over as they are;\n" +
			"one that is known with other content is refused (release receive --replace replaces one). Importing again is safe.",
		RunE: func(c *cobra.Command, args []string) error {
			found, err := findReleases(c.Context(), args[0])
			if err == nil && authority != "" {
				err = found.SetAuthority(c.Context(), authority)
			}
			if err != nil {
				return unreadable(err)
			}
			return p.runPlan(c.Context(), legacy.PlanReleases(found), dryRun, entries)
		},
	}
	c.Flags().StringVar(&authority, "authority", "", "`file` with the release authority (default: that of HOME)")
	addPlanFlags(c, &dryRun, &entries)
	return c
}

// findReleases reads a home, or a folder of release documents.
func findReleases(ctx context.Context, from string) (*legacy.Releases, error) {
	if _, err := os.Stat(from); err != nil {
		return nil, events.Errorf(events.CodeNotFound, "%w", err)
	}
	if !legacy.IsHome(from) {
		return legacy.ReadReleaseFolder(ctx, from)
	}
	home, err := legacy.OpenHome(from)
	if err != nil {
		return nil, err
	}
	return home.Releases(ctx)
}

func (p *program) importHome() *cobra.Command {
	var dryRun, entries bool
	var worksFile, reason string
	c := &cobra.Command{
		Use: "home DIR", Short: "Import all that a controller home has, in one go", Args: cobra.ExactArgs(1),
		Long: "Claims, retained identities, activity, states of works (--works), release documents, and the release authority. The\n" +
			"home is left byte for byte as it was. Importing again is safe and continues where it ended.",
		RunE: func(c *cobra.Command, args []string) error {
			works, err := readWorks(worksFile)
			if err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
				return usagef("%s is no directory; import sessions takes a single file", args[0])
			}
			sessions, err := findSessions(c.Context(), args[0], "")
			if err != nil {
				return err
			}
			home, err := legacy.OpenHome(args[0])
			if err != nil {
				return unreadable(err)
			}
			releases, err := home.Releases(c.Context())
			if err != nil {
				return unreadable(err)
			}
			return p.runPlan(c.Context(), legacy.PlanHome(sessions, works, reason, releases), dryRun, entries)
		},
	}
	c.Flags().StringVar(&worksFile, "works", "", "works `file` (see import works)")
	c.Flags().StringVar(&reason, "reason", "", "why states are set (recorded)")
	addPlanFlags(c, &dryRun, &entries)
	return c
}

// runPlan sends a plan, or only shows it, and tells what became of it. It fails
// if something was left behind.
func (p *program) runPlan(ctx context.Context, plan *legacy.Plan, dryRun, entries bool) error {
	report := plan.Report()
	var failed error
	if !dryRun {
		c, err := p.client(cmp.Or(p.principal, operator()))
		if err != nil {
			return err
		}
		bar := p.progress("importing")
		report, failed = legacy.Run(ctx, plan, sender{c, p.timeout}, bar.set)
		bar.stop()
	}
	if p.json {
		if err := p.printJSON(report); err != nil {
			return err
		}
	} else {
		p.showReport(report, entries)
	}
	if failed != nil {
		return failed
	}
	if !report.Ok() {
		return exit(events.ExitRefused)
	}
	return nil
}

// sender sends the commands of an import.
type sender struct {
	*client.Client
	timeout time.Duration
}

func (s sender) Send(ctx context.Context, cmd legacy.Command) (legacy.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.Do(ctx, client.Request{Kind: client.Kind(cmd.Root), Verb: cmd.Aggregate + "." + cmd.Verb, Body: cmd.Body})
	if err != nil {
		return legacy.Reply{}, err
	}
	return legacy.Reply{Outcome: r.Outcome, Result: r.Result}, nil
}

// calm are the outcomes that need no look.
var calm = []legacy.Outcome{legacy.OutcomeToSend, legacy.OutcomeImported, legacy.OutcomeUnchanged, legacy.OutcomeAlreadyImported, legacy.OutcomeSet}

func (p *program) showReport(r *legacy.Report, all bool) {
	rows := make([][]any, len(r.Places))
	for i, place := range r.Places {
		rows[i] = []any{place.Place, cmp.Or(place.Scope, "(instance)"), place.Entries, place.Dropped, place.Commands, place.Location}
	}
	p.table([]string{"place", "scope", "entries", "dropped", "commands", "location"}, rows)
	rows = nil
	for _, e := range r.Entries {
		if all || !slices.Contains(calm, e.Outcome) || e.Reason != "" || r.DryRun && e.Note != "" {
			rows = append(rows, []any{e.Place, cmp.Or(e.Scope, "(instance)"), e.Index, cmp.Or(e.WorkID, e.Key), e.Outcome, printable(cmp.Or(e.Reason, e.Note))})
		}
	}
	if len(rows) > 0 {
		p.printf("\n")
		p.table([]string{"place", "scope", "index", "id", "outcome", "reason"}, rows)
	}
	for _, problem := range r.Problems {
		p.printf("\nnot read: %s: %s\n", problem.Location, problem.Reason)
	}
	if len(r.Missing) > 0 {
		p.printf("\nnot there: %s\n", strings.Join(r.Missing, ", "))
	}
	p.printf("\n")
	for _, outcome := range slices.Sorted(maps.Keys(r.Counts)) {
		p.printf("%-16s %d\n", outcome, r.Counts[outcome])
	}
	if r.Works.Text != "" {
		p.printf("%s\n", r.Works.Text)
	}
	if n := r.Forms[legacy.FormAwaiting]; n > 0 {
		p.printf("%s of an older form: see forge-es release migrate --dry-run\n", count(n, "document"))
	}
	if n := r.Forms[legacy.FormInvalid]; n > 0 {
		p.printf("no valid session in %s: replace or discard them, or no release can be created\n", count(n, "document"))
	}
	if r.DryRun {
		p.printf("dry run: nothing was sent\n")
	}
}

// bar is a progress bar, or nothing.
type bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
}

// progress makes a bar on stderr, if that is a terminal.
func (p *program) progress(what string) *bar {
	if p.noProgress || !terminal(p.stderr) {
		return &bar{}
	}
	w := progress.NewWriter()
	w.SetOutputWriter(p.stderr)
	w.SetAutoStop(false)
	b := &bar{writer: w, tracker: &progress.Tracker{Message: what}}
	w.AppendTracker(b.tracker)
	go w.Render()
	return b
}

func (b *bar) set(done, total int) {
	if b.tracker != nil {
		b.tracker.UpdateTotal(int64(total))
		b.tracker.SetValue(int64(done))
	}
}

func (b *bar) stop() {
	if b.writer == nil {
		return
	}
	b.tracker.MarkAsDone()
	b.writer.Stop()
	for b.writer.IsRenderInProgress() {
		time.Sleep(time.Millisecond)
	}
}
