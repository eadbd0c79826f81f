// Command forge-es runs the service and talks to it. One file holds one verb, or
// one group of verbs; program holds what they share. No rule lives here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program, and gives its exit status: 0 ok, 1 error, 2 usage,
// 3 refused or conflict, 4 not found, 5 verification failed.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	p.close()
	if err == nil {
		return events.ExitOK
	}
	return p.fail(err)
}

// exit is an error that only sets the exit status: everything was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usage is a mistake in the words of the command line.
type usage struct{ error }

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// fail prints an error and gives the exit status that belongs to it.
func (p *program) fail(err error) int {
	var status exit
	if errors.As(err, &status) {
		return int(status)
	}
	var e *events.Error
	if errors.As(err, &e) {
		p.printError(e)
		return e.Code.Info().Exit
	}
	fmt.Fprintf(p.stderr, "forge-es: %v\n", err)
	var u usage
	if errors.As(err, &u) || cobraUsage(err) {
		return events.ExitUsage
	}
	return events.ExitError
}

// cobraUsage recognises the errors of the command line library, which have no
// type.
func cobraUsage(err error) bool {
	for _, text := range []string{"unknown command", "unknown flag", "unknown shorthand", "invalid argument", "flag needs an argument", "accepts ", "requires ", "required flag", "none of the others can be", "at least one of the flags"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// group makes a command that only holds others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
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
		"work": {p.workCommand(), p.activityCommand(), p.runtimeCommand(), p.historyCommand()},
		"data": {p.importCommand(), p.decodeCommand(), p.tokenCommand()},
	} {
		for _, c := range list {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	return root
}
