package main

import (
	"encoding/json"
	"io"
	"runtime"

	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

func (p *program) tokenCommand() *cobra.Command {
	return &cobra.Command{Use: "token TEXT", Short: "The subject token and key of an id", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
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
	return &cobra.Command{Use: "decode", Short: "Show a commit: msgpack on stdin, JSON on stdout", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		b, err := io.ReadAll(io.LimitReader(p.stdin, maxInput))
		if err != nil {
			return err
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
	return &cobra.Command{Use: "version", Short: "The version of this program", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		if p.json {
			return p.printJSON(map[string]any{"version": version, "go": runtime.Version(), "envelope": events.EnvelopeVersion})
		}
		p.printf("forge-es %s (%s, commit envelope %d)\n", version, runtime.Version(), events.EnvelopeVersion)
		return nil
	}}
}
