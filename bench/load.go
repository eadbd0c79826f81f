package main

import (
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// An op is one request of a caller, from sending it to having its answer. Calls
// of one caller come one after another.
type op func(caller int) error

// Cell is one measurement of an op.
type Cell struct {
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50ms"`
	P99       float64 `json:"p99ms"`
	Max       float64 `json:"maxMs"`
	CPU       float64 `json:"cpuMicros"`  // CPU time of the target per op
	Alloc     float64 `json:"allocBytes"` // bytes that the target allocated per op
	Ops       int64   `json:"ops"`
}

// drive has callers do an op, each one after another, for some time. What was
// begun is finished, and counts.
func drive(ctx context.Context, callers int, d time.Duration, do op) (Cell, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	times := make([]*hdrhistogram.Histogram, callers)
	for i := range times {
		times[i] = hdrhistogram.New(1, time.Minute.Microseconds(), 2)
	}
	var all sync.WaitGroup
	began := time.Now()
	for i := range callers {
		all.Go(func() {
			for last := time.Now(); ctx.Err() == nil && last.Sub(began) < d; {
				if err := do(i); err != nil {
					cancel(err)
					return
				}
				now := time.Now()
				_ = times[i].RecordValue(now.Sub(last).Microseconds()) // a request takes less than a minute
				last = now
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	for _, h := range times[1:] {
		times[0].Merge(h)
	}
	h := times[0]
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return Cell{
		PerSecond: float64(h.TotalCount()) / took.Seconds(), Ops: h.TotalCount(),
		P50: ms(h.ValueAtQuantile(50)), P99: ms(h.ValueAtQuantile(99)), Max: ms(h.Max()),
	}, context.Cause(ctx)
}

// inParallel does something for each of n, a few at a time.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	const width = 64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range width {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}
