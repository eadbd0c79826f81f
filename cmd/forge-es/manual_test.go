package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

//go:generate go test -run ^TestManual$ . -update

var update = flag.Bool("update", false, "write the generated part of docs/cli.md")

const (
	manual      = "../../docs/cli.md"
	manualBegin = "<!-- generated from the program: go generate ./cmd/forge-es -->\n"
)

// TestManual: docs/cli.md has what the program's own help says, and its table of
// the environment names all variables.
func TestManual(t *testing.T) {
	for _, name := range environment(t) {
		t.Setenv(name, "") // it would appear as a default
	}
	b, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	before, generated, ok := strings.Cut(string(b), manualBegin)
	if !ok {
		t.Fatalf("%s has no line %s", manual, manualBegin)
	}
	p := &program{}
	root := p.command()
	want := "\n" + reference(root)
	if *update {
		if err := os.WriteFile(manual, []byte(before+manualBegin+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if generated != want {
		t.Errorf("%s is not what the program says; run: go generate ./cmd/forge-es", manual)
	}
	for _, name := range environment(t) {
		if !strings.Contains(before, "| `"+name+"` |") {
			t.Errorf("%s does not tell of the variable %s", manual, name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(before, -1) {
		if !slices.Contains(environment(t), row[1]) {
			t.Errorf("%s tells of the variable %s, which no flag does", manual, row[1])
		}
	}
	for _, c := range leaves(root) {
		if name := "`" + strings.TrimPrefix(c.CommandPath(), "forge-es "); !strings.Contains(before, name) {
			t.Errorf("%s says nothing about %s`", manual, name)
		}
	}
}

// environment are the variables that the help names.
func environment(t *testing.T) []string {
	t.Helper()
	names := []string{"USER"}
	for _, c := range leaves((&program{}).command()) {
		usage := c.LocalFlags().FlagUsages() + c.InheritedFlags().FlagUsages()
		for _, m := range regexp.MustCompile(`env ([A-Z_]+)`).FindAllStringSubmatch(usage, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reference is what the help says, as one document.
func reference(root *cobra.Command) string {
	var out strings.Builder
	section := func(c *cobra.Command) {
		fmt.Fprintf(&out, "### %s\n\n%s.\n\n", cmp.Or(strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath()), c.Short)
		if c.Long != "" {
			fmt.Fprintf(&out, "%s\n\n", c.Long)
		}
		if c.Example != "" {
			fmt.Fprintf(&out, "```sh\n%s\n```\n\n", strings.ReplaceAll("\n"+c.Example, "\n  ", "\n")[1:])
		}
		if c.HasAvailableLocalFlags() {
			flags := c.LocalFlags().FlagUsages()
			fmt.Fprintf(&out, "```text\n%s```\n\n", flags)
		}
	}
	for _, c := range leaves(root) {
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Hidden = true
		section(c)
	}
	fmt.Fprintf(&out, "### Flags of all verbs\n\n```text\n%s```\n", root.PersistentFlags().FlagUsages())
	return out.String()
}

// TestHelp: every verb and every flag says what it is for, and no line of it is
// too long for a terminal that is not narrow.
func TestHelp(t *testing.T) {
	root := (&program{}).command()
	for _, c := range leaves(root) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short help %q", c.CommandPath(), c.Short)
		}
		if c.RunE == nil || c.Args == nil {
			t.Errorf("%s does nothing, or takes anything", c.CommandPath())
		}
		for line := range strings.Lines(c.LocalFlags().FlagUsages() + c.Long) {
			if len(line) > 152 {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), len(line), line)
			}
			if regexp.MustCompile(`^ +(-\w, )?--\S+( \S+)?\s*$`).MatchString(line) {
				t.Errorf("%s: nothing is said about %s", c.CommandPath(), line)
			}
		}
	}
}
