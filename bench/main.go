package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the manual of the command line.
type options struct {
	rounds   int
	time     time.Duration // of one cell
	callers  []int
	works    int
	sections []string
	data     string
	json     string
	profile  string
}

func main() {
	if cfg := os.Getenv(childEnv); cfg != "" {
		if err := serveChild(cfg, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench target:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func parseOptions(args []string, stderr io.Writer) (options, error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	rounds := fs.Int("rounds", 5, "`times` that each side of a row is measured")
	seconds := fs.Float64("seconds", 2, "`length` of one measurement")
	callers := fs.String("callers", "1,16,64,256", "concurrent `callers`, a list")
	works := fs.Int("works", 20_000, "`works` of the section on reading")
	sections := fs.String("sections", "synced,unsynced,reads,ledger", "what to measure, a `list`")
	short := fs.Bool("short", false, "a smoke test: 1 round of 0.2 s, 1 and 4 callers, 500 works; flags given explicitly win")
	data := fs.String("data", ".", "`directory` below which data lies while it runs; not a memory file system, whose fsync costs nothing")
	json := fs.String("json", "", "`file` for everything that was measured")
	profile := fs.String("profile", "", "`directory` for CPU profiles of the target, one extra round per row that does not count")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, errUsage
	}
	if *short {
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]string{"rounds": "1", "seconds": "0.2", "callers": "1,4", "works": "500"} {
			if !given[name] {
				_ = fs.Set(name, value) // it parses
			}
		}
	}
	o := options{
		rounds: *rounds, time: time.Duration(*seconds * float64(time.Second)), works: *works, sections: strings.Split(*sections, ","),
		data: *data, json: *json, profile: *profile,
	}
	usage := func(format string, args ...any) (options, error) {
		fmt.Fprintf(stderr, format+"\n", args...)
		return options{}, errUsage
	}
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return usage("-callers %q: want numbers from 1, with commas between", *callers)
		}
		o.callers = append(o.callers, n)
	}
	for _, name := range o.sections {
		if sectionsByName[name] == nil {
			return usage("-sections: there is no %q", name)
		}
	}
	if o.rounds < 1 || o.time <= 0 || o.works < listPage || fs.NArg() > 0 {
		return usage("-rounds and -seconds are above 0, -works at least %d, and there are no arguments", listPage)
	}
	return o, nil
}

// run measures and prints. What is going on is told on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.data, "bench-data-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
	}
	report := &Report{Machine: thisMachine(), Rounds: o.rounds, Seconds: o.time.Seconds()}
	if report.Disk, err = probeDisk(ctx, dir, o.time); err != nil {
		return err
	}
	b := &bench{options: o, dir: dir, stderr: stderr}
	for _, name := range o.sections {
		s, err := sectionsByName[name](ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		report.Sections = append(report.Sections, *s)
	}
	report.print(stdout)
	if o.json == "" {
		return nil
	}
	return report.write(o.json)
}
