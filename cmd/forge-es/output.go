package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/mattn/go-isatty"
)

// printJSON prints any value as indented JSON on stdout.
func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(p.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printf prints data on stdout.
func (p *program) printf(format string, args ...any) { fmt.Fprintf(p.stdout, format, args...) }

// notef tells people something that is no data.
func (p *program) notef(format string, args ...any) {
	fmt.Fprintf(p.stderr, "forge-es: "+format+"\n", args...)
}

// printError tells an error: its code, what happened, and what would help.
func (p *program) printError(e *events.Error) {
	if p.json {
		enc := json.NewEncoder(p.stderr)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message, "details": e.Details}})
		return
	}
	fmt.Fprintf(p.stderr, "forge-es: %s\n", e.Error())
	for _, key := range slices.Sorted(maps.Keys(e.Details)) {
		fmt.Fprintf(p.stderr, "  %s: %v\n", key, plain(e.Details[key]))
	}
}

// plain shows a detail without JSON's floating point.
func plain(v any) any {
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return v
}

// terminal reports whether a stream is one.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// table prints rows under a head, as wide as they are.
func (p *program) table(head []string, rows [][]any) {
	w := table.NewWriter()
	w.SetOutputMirror(p.stdout)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	w.SetStyle(style)
	w.AppendHeader(row(head))
	for _, r := range rows {
		w.AppendRow(r)
	}
	w.Render()
}

func row(list []string) table.Row {
	r := make(table.Row, len(list))
	for i, v := range list {
		r[i] = v
	}
	return r
}

// facts prints names and values, one a line, aligned; pairs without a value are
// left out.
func (p *program) facts(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.printf("%s%s  %s\n", pairs[i], strings.Repeat(" ", width-len(pairs[i])), pairs[i+1])
		}
	}
}

// done prints the reply of a command: as JSON, or by say; a refused fence gives
// exit status 3.
func (p *program) done(r *client.Reply, say func() error) error {
	var err error
	if p.json {
		err = p.printJSON(r)
	} else {
		err = say()
	}
	if err == nil && r.Refused() {
		return exit(events.ExitRefused)
	}
	return err
}

// showSession prints a claim.
func (p *program) showSession(s *events.Session) {
	pairs := []string{
		"work", s.WorkID, "controller", s.ControllerID, "type", s.ControllerType, "session", s.SessionID,
		"principal", s.Principal(), "controller instance", s.Instance(), "generation", generation(s),
		"claimed at", s.ClaimedAt.String(), "lease ends", s.LeaseExpiresAt.String(),
	}
	if s.Digest() != "" {
		pairs = append(pairs, "capability digest", s.Digest())
	}
	p.facts(pairs...)
}

func generation(s *events.Session) string {
	if s.Generation == nil {
		return "none"
	}
	return fmt.Sprint(*s.Generation)
}

// showOutcome is the line below a result: what became of the command.
func (p *program) showOutcome(r *client.Reply) {
	p.printf("%s at position %d, version %d\n", r.Outcome, r.Position, r.Version)
}

// sayFence tells the answer of a fenced command.
func (p *program) sayFence(r *client.Reply) error {
	var f client.Fence
	if err := r.Into(&f); err != nil {
		return err
	}
	if !f.Allowed {
		p.printf("refused: %s\n", f.Reason)
		if f.Owner != nil {
			p.facts("owner", f.Owner.Fence(), "lease ends", f.Owner.LeaseExpiresAt.String())
		}
		return nil
	}
	if f.Owner != nil {
		p.showSession(f.Owner)
	}
	p.showOutcome(r)
	return nil
}
