package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Row is one op, by a number of callers, on both sides.
type Row struct {
	What     string `json:"what"`
	Callers  int    `json:"callers"`
	Service  []Cell `json:"service"`
	Raw      []Cell `json:"raw,omitempty"` // of the same rounds; empty: nothing to compare with
	Rate     Spread `json:"perSecond"`
	RawRate  Spread `json:"rawPerSecond,omitzero"`
	Ratio    Spread `json:"ratio,omitzero"` // service / raw, round by round
	P50      Spread `json:"p50ms"`
	P99      Spread `json:"p99ms"`
	RawP50   Spread `json:"rawP50ms,omitzero"`
	RawP99   Spread `json:"rawP99ms,omitzero"`
	CPU      Spread `json:"cpuMicros"` // of the target, per op
	RawCPU   Spread `json:"rawCpuMicros,omitzero"`
	Alloc    Spread `json:"allocBytes"` // by the target, per op
	RawAlloc Spread `json:"rawAllocBytes,omitzero"`
	Bytes    int    `json:"payloadBytes,omitempty"` // of the commit, and so of the raw message
}

// measure runs the rounds of a row: service, raw, service, raw … after a short
// one of each that does not count. raw may be nil.
func (b *bench) measure(ctx context.Context, t *target, section, what string, callers int, service, raw op) (Row, error) {
	row := Row{What: what, Callers: callers}
	fmt.Fprintf(b.stderr, "%s: %s, %d callers\n", section, what, callers)
	for round := range b.rounds + 1 {
		d, warmUp := b.time, round == 0
		if warmUp {
			d /= 4
		}
		cell, err := b.cell(ctx, t, callers, d, service)
		if err != nil {
			return row, fmt.Errorf("%s: %w", what, err)
		}
		if !warmUp {
			row.Service = append(row.Service, cell)
		}
		if raw == nil {
			continue
		}
		if cell, err = b.cell(ctx, t, callers, d, raw); err != nil {
			return row, fmt.Errorf("raw, beside %s: %w", what, err)
		}
		if !warmUp {
			row.Raw = append(row.Raw, cell)
		}
	}
	row.sum()
	return row, b.profiled(ctx, t, section, what, callers, service)
}

// cell drives an op, and learns what it cost the target.
func (b *bench) cell(ctx context.Context, t *target, callers int, d time.Duration, do op) (Cell, error) {
	before, err := t.ask(question{Do: askCounts})
	if err != nil {
		return Cell{}, err
	}
	c, err := drive(ctx, callers, d, do)
	if err != nil {
		return c, err
	}
	// What the lists still have to read belongs to this cell, not to the next.
	if _, err := t.ask(question{Do: askLists}); err != nil {
		return c, err
	}
	after, err := t.ask(question{Do: askCounts})
	if err != nil {
		return c, err
	}
	c.Alloc = float64(after.Alloc-before.Alloc) / float64(c.Ops)
	c.CPU = float64((after.CPU - before.CPU).Microseconds()) / float64(c.Ops)
	return c, nil
}

// profiled runs one more round under the profiler, if profiles are wanted.
func (b *bench) profiled(ctx context.Context, t *target, section, what string, callers int, do op) error {
	if b.profile == "" {
		return nil
	}
	dir, err := filepath.Abs(b.profile)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%d.pprof", section, strings.ReplaceAll(what, " ", "-"), callers)
	if _, err := t.ask(question{Do: askProfile, File: filepath.Join(dir, name)}); err != nil {
		return err
	}
	if _, err := drive(ctx, callers, 2*b.time, do); err != nil {
		return err
	}
	_, err = t.ask(question{Do: askProfileOK})
	return err
}

// sum works out what is printed of the cells.
func (r *Row) sum() {
	of := func(cells []Cell, value func(Cell) float64) Spread {
		var all []float64
		for _, c := range cells {
			all = append(all, value(c))
		}
		return spread(all)
	}
	rate := func(c Cell) float64 { return c.PerSecond }
	p50 := func(c Cell) float64 { return c.P50 }
	p99 := func(c Cell) float64 { return c.P99 }
	alloc := func(c Cell) float64 { return c.Alloc }
	cpu := func(c Cell) float64 { return c.CPU }
	r.Rate, r.RawRate = of(r.Service, rate), of(r.Raw, rate)
	r.P50, r.RawP50 = of(r.Service, p50), of(r.Raw, p50)
	r.P99, r.RawP99 = of(r.Service, p99), of(r.Raw, p99)
	r.CPU, r.RawCPU = of(r.Service, cpu), of(r.Raw, cpu)
	r.Alloc, r.RawAlloc = of(r.Service, alloc), of(r.Raw, alloc)
	var ratios []float64
	for i := range r.Raw {
		ratios = append(ratios, r.Service[i].PerSecond/r.Raw[i].PerSecond)
	}
	r.Ratio = spread(ratios)
}
