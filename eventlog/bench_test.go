package eventlog_test

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

func BenchmarkAppend(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, callers := range []int{2, 64} {
			b.Run(fmt.Sprintf("sync=%t/callers=%d", sync, callers), func(b *testing.B) {
				var opts []logtest.Option
				if sync {
					opts = append(opts, logtest.SyncAlways)
				}
				_, l := logtest.OpenEmbedded(b, opts...)
				var n atomic.Int64
				b.SetParallelism(max(callers/runtime.GOMAXPROCS(0), 1))
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					c := logtest.WorkChain(l, strconv.FormatInt(n.Add(1), 10))
					for k := 0; pb.Next(); k++ {
						if _, err := c.Append(b.Context(), strconv.Itoa(k)); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			})
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	_, l := logtest.OpenEmbedded(b)
	c := logtest.WorkChain(l, "w1")
	for range 10 {
		if _, err := c.Append(b.Context(), strconv.FormatUint(c.Head.Version, 10)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := l.Load(b.Context(), c.Subject, events.Head{}, eventlog.Leader); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTail(b *testing.B) {
	_, l := logtest.OpenEmbedded(b)
	const n = 100_000
	var chains []*logtest.Chain
	for i := range 100 {
		chains = append(chains, logtest.WorkChain(l, strconv.Itoa(i)))
	}
	for i := range n {
		if _, err := chains[i%100].Append(b.Context(), strconv.Itoa(i)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := l.Tail(b.Context(), 1, func(r events.Record) error {
			if r.Position == n {
				return errDone
			}
			return nil
		}); err != errDone { //nolint:errorlint // as it is
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "commits/s")
}
