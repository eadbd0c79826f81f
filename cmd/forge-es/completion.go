package main

import (
	"slices"
	"strings"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/nats-io/jsm.go/natscontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// words are the values that a shell offers for flags. The service takes others
// where it takes any text.
var words = map[string][]string{
	"type":       {"chatgpt", "claude", "codex", "grok", "human"},
	"keep":       {"current", "imported"},
	"log-format": {"console", "json"},
	"log-level":  {"trace", "debug", "info", "warn", "error"},
	"durability": {"synced"},
	"phase":      append(slices.Clone(phaseLine), "rolled_back", "failed"),
	"from":       phaseLine,
	"outcome":    {"passed", "failed", "inconclusive"},
}

// files are the flags whose value is a file or directory.
var files = map[string]bool{
	"creds": true, "password-file": true, "tlscert": true, "tlskey": true, "tlsca": true, "claim": true, "capability-file": true,
	"data": true, "http-token-file": true, "app-password-file": true, "ready-file": true, "works": true, "authority": true,
}

// fileVerbs are the verbs whose argument is a file or directory.
var fileVerbs = map[string]bool{"sessions": true, "works": true, "releases": true, "home": true, "receive": true}

// completions tells the shell what may follow: no file names, but where a file
// is meant.
func (p *program) completions(root *cobra.Command) {
	contexts := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return natscontext.KnownContexts(), cobra.ShellCompDirectiveNoFileComp
	}
	for _, c := range append(leaves(root), root) {
		if c.ValidArgsFunction == nil && !fileVerbs[c.Name()] {
			c.ValidArgsFunction = arguments
		}
		flags := c.LocalFlags()
		if c == root {
			flags = c.PersistentFlags()
		}
		flags.VisitAll(func(f *pflag.Flag) {
			switch {
			case files[f.Name]:
			case f.Name == "context" || f.Name == "app-context":
				_ = c.RegisterFlagCompletionFunc(f.Name, contexts)
			default:
				_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words[f.Name], cobra.ShellCompDirectiveNoFileComp))
			}
		})
	}
}

// arguments completes what stands after a verb.
func arguments(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if strings.HasSuffix(strings.TrimSuffix(c.Use, "]"), "STATE") && len(args) == 1 {
		states := []string{"completed", "cancelled"}
		if c.Name() == "set-state" {
			states = append(states, session.Open)
		}
		return states, cobra.ShellCompDirectiveNoFileComp
	}
	switch {
	case c.Name() == "advance" && len(args) == 1:
		return words["phase"], cobra.ShellCompDirectiveNoFileComp
	case c.Name() == "receipt" && len(args) > 0:
		var list []string
		for _, phase := range phaseLine {
			for _, g := range release.Gates[phase] {
				list = append(list, g.Kind+":"+g.ID)
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// leaves are the commands that do something, but for help and completion.
func leaves(c *cobra.Command) []*cobra.Command {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	var list []*cobra.Command
	for _, sub := range c.Commands() {
		if name := sub.Name(); name != "help" && name != "completion" {
			list = append(list, leaves(sub)...)
		}
	}
	return list
}
