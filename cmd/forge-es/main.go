// Command forge-es runs the service and talks to it. One file holds one verb, or
// one group of verbs; program holds what they share. No rule lives here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

// version is set when the program is linked; else it is that of the module.
var version = ""

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program, and gives its exit status: 0 ok, 1 error, 2 usage,
// 3 refused or conflict, 4 not found, 5 verification failed.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	p := &program{stdin: stdin, stdout: out, stderr: stderr}
	// A mistake in the flags is told in the form that was asked for, too.
	p.json = slices.Contains(args, "-j") || slices.Contains(args, "--json")
	root := p.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	p.close()
	if err == nil && out.failed != nil {
		err = fmt.Errorf("stdout: %w", out.failed)
	}
	if err == nil {
		return events.ExitOK
	}
	return p.fail(err)
}

// output remembers that what was written did not arrive: data that is cut must
// not look complete.
type output struct {
	io.Writer
	failed error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.failed == nil {
		o.failed = err
	}
	return n, err
}

// exit is an error that only sets the exit status: everything was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usage is a mistake in the words of the command line.
type usage struct{ error }

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// hinted is an error with a line that says what to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// fail prints an error and gives the exit status that belongs to it.
func (p *program) fail(err error) int {
	var status exit
	if errors.As(err, &status) {
		return int(status)
	}
	var u usage
	e, inTable := errors.AsType[*events.Error](err)
	misused := errors.As(err, &u)
	switch {
	case inTable:
	case misused:
		e = &events.Error{Code: events.CodeBadRequest, Message: err.Error()}
	default:
		e = &events.Error{Code: events.CodeUnavailable, Message: err.Error()}
	}
	switch {
	case p.json:
		p.printJSONError(e)
	case inTable:
		p.printError(e)
	default:
		p.notef("%v", err)
	}
	var h hinted
	if errors.As(err, &h) && !p.json {
		p.notef("%s", h.hint)
	}
	return e.Code.Info().Exit
}

// group makes a command that only holds others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noSuchVerb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// noSuchVerb refuses words after a group, with those that may have been meant.
func noSuchVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	also := ""
	if list := c.SuggestionsFor(args[0]); len(list) > 0 {
		also = ", did you mean " + strings.Join(list, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q%s", args[0], also)
}

// noArgs refuses words after a verb that takes none.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, there is %q", c.CommandPath(), args[0])
	}
	return nil
}

// helpCommand is the help verb. (That of the library shows the help of the
// program for what it does not know.)
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "help [VERB]…", Short: "Help about a verb", Args: cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions, RunE: func(_ *cobra.Command, args []string) error {
		c, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = noSuchVerb(c, rest)
		}
		if err != nil {
			return usage{err}
		}
		c.InitDefaultHelpFlag()
		return c.Help()
	}}
}

// misuse makes usage errors of what the command line library finds wrong, which
// have no type of their own, and says where to look.
func misuse(c *cobra.Command) {
	seeHelp := func(c *cobra.Command, err error) error {
		return hinted{usage{err}, "see: " + c.CommandPath() + " --help"}
	}
	if c.Args != nil {
		args := c.Args
		c.Args = func(c *cobra.Command, list []string) error {
			if err := args(c, list); err != nil {
				return seeHelp(c, err)
			}
			return nil
		}
	}
	c.SetFlagErrorFunc(seeHelp)
	for _, sub := range c.Commands() {
		misuse(sub)
	}
}

// command is the tree of verbs.
func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "forge-es",
		Short: "Who owns a piece of work, and which release is live",
		Long: "forge-es decides who owns a piece of work, records every decision on an append-only log,\n" +
			"and lets anyone list, watch and replay those decisions.\n\n" +
			"Start with: forge-es serve",
		SilenceUsage: true, SilenceErrors: true,
		Args: noSuchVerb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.prepare() },
	}
	p.connectionFlags(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "work", Title: "Decide and ask:"},
		&cobra.Group{ID: "data", Title: "Data:"},
	)
	for id, list := range map[string][]*cobra.Command{
		"run":  {p.serveCommand(), p.versionCommand()},
		"work": {p.workCommand(), p.releasesCommand(), p.authorityCommand(), p.activityCommand(), p.runtimeCommand(), p.historyCommand()},
		"data": {p.importCommand(), p.decodeCommand(), p.tokenCommand()},
	} {
		for _, c := range list {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	p.completions(root)
	root.SetHelpCommand(helpCommand(root))
	root.SetHelpCommandGroupID("run")
	root.SetCompletionCommandGroupID("run")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args, c.RunE = noSuchVerb, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	misuse(root)
	return root
}
