package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

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
	fmt.Fprintf(p.stderr, "forge-es: %s\n", printable(e.Error()))
	for _, key := range slices.Sorted(maps.Keys(e.Details)) {
		fmt.Fprintf(p.stderr, "  %s: %s\n", printable(key), printable(plain(e.Details[key])))
	}
}

// printJSONError is printError for programs: one line.
func (p *program) printJSONError(e *events.Error) {
	enc := json.NewEncoder(p.stderr)
	enc.SetEscapeHTML(false)
	details := e.Details
	if details == nil {
		details = map[string]any{}
	}
	_ = enc.Encode(map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message, "details": details}})
}

// plain shows a detail: a text as it is, a number without JSON's floating point,
// all else as JSON.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// terminal reports whether a stream is one.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// numbers are the columns that stand to the right.
var numbers = map[string]bool{"pos": true, "gen": true, "index": true, "entries": true, "dropped": true, "commands": true, "rev": true}

// table prints rows under a head, as wide as they are; nothing without rows.
func (p *program) table(head []string, rows [][]any) {
	if len(rows) == 0 {
		return
	}
	w := table.NewWriter()
	w.SetOutputMirror(p.stdout)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	w.AppendHeader(row(head))
	var columns []table.ColumnConfig
	for i, name := range head {
		if numbers[name] {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	w.SetColumnConfigs(columns)
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
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
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

// moment shows a time in a table: to the second, in UTC. -j has it all.
func moment(t events.Time) string { return t.Std().Format("2006-01-02 15:04:05Z") }

// span shows a time span, to the second, without the zeros at its end.
func span(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// count is a number of things.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func generation(s *events.Session) string {
	if s.Generation == nil {
		return "none"
	}
	return fmt.Sprint(*s.Generation)
}

// showOutcome is the line below a result: what became of the command.
func (p *program) showOutcome(r *client.Reply) {
	if r.Position == 0 {
		p.printf("%s: nothing was ever recorded of it\n", r.Outcome)
		return
	}
	p.printf("%s at position %d, version %d\n", r.Outcome, r.Position, r.Version)
}

// sayFence tells the answer of a fenced command.
func (p *program) sayFence(r *client.Reply, verb string) error {
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
	switch {
	case verb == "work.release-with-authority" && f.Owner != nil:
		p.printf("released: %s no longer holds %s\n", f.Owner.Fence(), f.Owner.WorkID)
	case verb == "work.terminalize":
		p.printf("the state is %v\n", f.Value)
	case f.Owner != nil:
		p.showSession(f.Owner)
	}
	p.showOutcome(r)
	return nil
}
