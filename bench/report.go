package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// Report is all that a run measured; it is what -json writes. Fields are only
// ever added.
type Report struct {
	Machine  Machine   `json:"machine"`
	Rounds   int       `json:"rounds"`
	Seconds  float64   `json:"seconds"` // of one measurement
	Disk     *Disk     `json:"disk"`
	Sections []Section `json:"sections"`
}

func (r *Report) write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// print writes Markdown that can be read as it is, and put into
// docs/performance.md.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "%d cores, %s, %s, nats-server %s; %d rounds of %g s: median (min..max).\n", r.Machine.Cores, r.Machine.Memory, r.Machine.Go, r.Machine.Server, r.Rounds, r.Seconds)
	fmt.Fprintf(w, "The disk alone, 800 bytes and an fsync at a time: %s/s, p50 %s ms, p99 %s ms.\n", number(r.Disk.PerSecond), number(r.Disk.P50), number(r.Disk.P99))
	for _, s := range r.Sections {
		fmt.Fprintf(w, "\n### %s\n\n", s.Title)
		s.print(w)
	}
}

func (s *Section) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(cells ...string) { fmt.Fprintf(t, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	line("", "callers", "service/s", "raw/s", "service ÷ raw", "service p50 · p99 ms", "raw p50 · p99 ms", "CPU µs, service · raw", "kB allocated, service · raw", "bytes")
	line(strings.Fields(strings.Repeat("--- ", 10))...)
	for _, r := range s.Rows {
		raw := func(text string) string {
			if len(r.Raw) == 0 {
				return ""
			}
			return text
		}
		bytes := ""
		if r.Bytes > 0 {
			bytes = fmt.Sprint(r.Bytes)
		}
		line(r.What, fmt.Sprint(r.Callers), r.Rate.String(), raw(r.RawRate.String()), raw(r.Ratio.String()),
			number(r.P50.Median)+" · "+number(r.P99.Median), raw(number(r.RawP50.Median)+" · "+number(r.RawP99.Median)),
			number(r.CPU.Median)+raw(" · "+number(r.RawCPU.Median)),
			number(r.Alloc.Median/1000)+raw(" · "+number(r.RawAlloc.Median/1000)), bytes)
	}
	_ = t.Flush() // what a terminal refuses is lost
	if s.Restart != nil {
		fmt.Fprintf(w, "\nA start on this log, after a clean stop: requests are answered after %s ms, lists are complete after %s ms.\n",
			number(s.Restart.Served), number(s.Restart.Listed))
	}
}

func (s Spread) String() string {
	return number(s.Median) + " (" + number(s.Min) + ".." + number(s.Max) + ")"
}

// number is a figure with about three digits.
func number(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.1f k", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
