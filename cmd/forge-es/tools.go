package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

func (p *program) tokenCommand() *cobra.Command {
	return &cobra.Command{Use: "token TEXT", Example: "  nats req \"forge.cmd.main.$(forge-es token 'Ann Lee').work.claim\" '{…}'", Short: "The subject token and key of an id", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		if strings.TrimSpace(args[0]) == "" {
			return usagef("the text is blank")
		}
		args[0] = strings.TrimSpace(args[0]) // as the service does
		if err := events.CheckID("text", args[0]); err != nil {
			return err
		}
		if p.json {
			return p.printJSON(map[string]string{"text": args[0], "token": events.Token(args[0])})
		}
		p.printf("%s\n", events.Token(args[0]))
		return nil
	}}
}

// decodeCommand is made for: nats sub … --translate "forge-es decode".
func (p *program) decodeCommand() *cobra.Command {
	return &cobra.Command{Use: "decode", Example: "  nats sub --stream FORGE_MAIN --all --translate 'forge-es decode'   # with a context of the log's account", Short: "Show a commit: msgpack on stdin, JSON on stdout", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		if terminal(p.stdin) {
			p.notef("reading a commit from stdin")
		}
		b, err := io.ReadAll(io.LimitReader(p.stdin, maxInput))
		if err != nil {
			return fmt.Errorf("stdin: %w", err)
		}
		if len(b) == 0 {
			return usagef("stdin is empty: a commit is expected there")
		}
		c, err := events.DecodeCommit(b)
		if err != nil {
			return events.Errorf(events.CodePoisoned, "stdin is no commit: %w", err)
		}
		if p.json {
			return json.NewEncoder(p.stdout).Encode(c)
		}
		return p.printJSON(c)
	}}
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "The version of this program", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		if p.json {
			return p.printJSON(map[string]any{"version": built(), "go": runtime.Version(), "envelope": events.EnvelopeVersion})
		}
		p.printf("forge-es %s (%s, commit envelope %d)\n", built(), runtime.Version(), events.EnvelopeVersion)
		return nil
	}}
}

// built is the version of this program: that of the link, else that of the
// module (go install …@version), else dev.
func built() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
