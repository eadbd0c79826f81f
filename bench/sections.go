package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
)

// Section is a setting of the target, and what was measured on it.
type Section struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	// Restart, of the section on reading: from a clean stop to serving again.
	Restart *Restart `json:"restart,omitempty"`
}

// Restart says how long a start with a log of some works takes.
type Restart struct {
	Works  int     `json:"works"`
	Served float64 `json:"servedMs"` // until requests are answered
	Listed float64 `json:"listedMs"` // until lists know the whole log
}

// bench is a run under way.
type bench struct {
	options
	dir    string // of all data
	stderr io.Writer
}

var sectionsByName = map[string]func(context.Context, *bench) (*Section, error){
	"synced": func(ctx context.Context, b *bench) (*Section, error) {
		return b.writes(ctx, "synced", "Writing, fsync before every acknowledgement (how `forge-es serve` runs)", false)
	},
	"unsynced": func(ctx context.Context, b *bench) (*Section, error) {
		return b.writes(ctx, "unsynced", "Writing, fsync every two minutes (what the code costs, without the disk)", true)
	},
	"ledger": func(ctx context.Context, b *bench) (*Section, error) { return b.ledger(ctx) },
	"reads":  func(ctx context.Context, b *bench) (*Section, error) { return b.reads(ctx) },
}

// writes measures claims of fresh works and renewals of held ones. Every number
// of callers has a target of its own, so that all begin with an empty log.
func (b *bench) writes(ctx context.Context, name, title string, syncOff bool) (*Section, error) {
	s := &Section{Name: name, Title: title}
	for _, callers := range b.callers {
		rows, err := b.writesOf(ctx, name, callers, syncOff)
		if err != nil {
			return nil, fmt.Errorf("%d callers: %w", callers, err)
		}
		s.Rows = append(s.Rows, rows...)
	}
	// Claims first, then renewals, each by callers.
	slices.SortStableFunc(s.Rows, func(x, y Row) int { return strings.Compare(x.What, y.What) })
	return s, nil
}

func (b *bench) writesOf(ctx context.Context, section string, callers int, syncOff bool) (rows []Row, err error) {
	dir, err := os.MkdirTemp(b.dir, section)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := startTarget(childConfig{Data: dir, SyncOff: syncOff}, callers, b.stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	service, raw, err := sides(ctx, t, callers)
	if err != nil {
		return nil, err
	}
	claims, err := b.measure(ctx, t, section, "claim", callers, service.claim, raw.first)
	if err != nil {
		return nil, err
	}
	claims.Bytes = len(raw.claim)
	renewals, err := b.measure(ctx, t, section, "renew", callers, service.renew, raw.next)
	if err != nil {
		return nil, err
	}
	renewals.Bytes = len(raw.renewal)
	return []Row{claims, renewals}, nothingLost(t, service, raw)
}

// sides prepares both sides: held works, and messages as long as real commits.
func sides(ctx context.Context, t *target, callers int) (*serviceSide, *rawSide, error) {
	s := &serviceSide{target: t, held: make([][]byte, callers*heldPerCaller), turn: make([]int, callers)}
	if err := inParallel(ctx, callers, s.hold); err != nil {
		return nil, nil, err
	}
	r := &rawSide{target: t, last: make([]uint64, callers*heldPerCaller), turn: make([]int, callers)}
	var err error
	if r.renewal, err = shapeOf(t, workID(1)); err != nil {
		return nil, nil, err
	}
	if err := s.claim(0); err != nil {
		return nil, nil, err
	}
	if r.claim, err = shapeOf(t, workID(s.fresh.Load())); err != nil {
		return nil, nil, err
	}
	return s, r, inParallel(ctx, callers, func(caller int) error {
		for range heldPerCaller {
			if err := r.next(caller); err != nil {
				return err
			}
		}
		return nil
	})
}

// shapeOf is a payload as long as the last commit of a work. It refuses to go on
// when commits have other headers than the raw side sends.
func shapeOf(t *target, work string) ([]byte, error) {
	a, err := t.ask(question{Do: askCommit, Subject: events.WorkSubject(events.DefaultInstance, work)})
	if err != nil {
		return nil, err
	}
	if names := slices.Sorted(maps.Keys(a.Header)); !slices.Equal(names, []string{headerExpected, headerMsgID}) {
		return nil, fmt.Errorf("commits have the headers %q, the raw side sends others", names)
	}
	payload := make([]byte, a.Bytes)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	return payload, nil
}

// nothingLost compares what the streams hold with what was acknowledged.
func nothingLost(t *target, s *serviceSide, r *rawSide) error {
	a, err := t.ask(question{Do: askCounts})
	if err != nil {
		return err
	}
	if log, raw := s.appended.Load(), r.acknowledged.Load(); a.Log != uint64(log) || a.Raw != uint64(raw) {
		return fmt.Errorf("acknowledged %d and %d, the streams hold %d and %d", log, raw, a.Log, a.Raw)
	}
	return nil
}

// listCallers is how many of the numbers of callers lists and cold loads are
// measured with: the smallest two.
const listCallers = 2

// reads measures queries beside direct gets, on a log of a number of works; then
// again after a restart, when the service has none of them in memory.
func (b *bench) reads(ctx context.Context) (_ *Section, err error) {
	const name = "reads"
	s := &Section{Name: name, Title: fmt.Sprintf("Reading, %d claims on the log", b.works), Restart: &Restart{Works: b.works}}
	cfg := childConfig{Data: filepath.Join(b.dir, name), SyncOff: true}
	callers := slices.Max(b.callers)
	t, err := startTarget(cfg, callers, b.stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	service, raw, err := sides(ctx, t, 1)
	if err != nil {
		return nil, err
	}
	first := service.fresh.Load() + 1
	fmt.Fprintf(b.stderr, "%s: claiming %d works\n", name, b.works)
	err = inParallel(ctx, b.works, func(i int) error {
		return errors.Join(service.claim(i%callers), raw.first(i%callers))
	})
	if err != nil {
		return nil, err
	}
	if err := nothingLost(t, service, raw); err != nil {
		return nil, err
	}
	if _, err := t.ask(question{Do: askLists}); err != nil {
		return nil, err
	}
	getWork := func(caller int) error { return service.get(caller, workID(first+rand.Int64N(int64(b.works)))) }
	getRaw := func(caller int) error { return raw.get(caller, raw.subject(1+rand.Int64N(int64(b.works)))) }
	list := func(caller int) error {
		return service.list(caller, workID(first+rand.Int64N(int64(b.works-listPage+1))-1))
	}
	measure := func(what string, callers int, service, raw op) error {
		row, err := b.measure(ctx, t, name, what, callers, service, raw)
		s.Rows = append(s.Rows, row)
		return err
	}
	for _, n := range b.callers {
		if err := measure("works.get", n, getWork, getRaw); err != nil {
			return nil, err
		}
	}
	few := b.callers[:min(listCallers, len(b.callers))]
	for _, n := range few {
		if err := measure("claims.list, a page of 100", n, list, nil); err != nil {
			return nil, err
		}
	}

	if err := t.stop(); err != nil {
		return nil, err
	}
	began := time.Now()
	again, err := startTarget(cfg, callers, b.stderr)
	if err != nil {
		return nil, err
	}
	t = again
	s.Restart.Served = float64(t.first.Opened.Microseconds()) / 1000
	if _, err := t.ask(question{Do: askLists}); err != nil {
		return nil, err
	}
	s.Restart.Listed = float64(time.Since(began).Microseconds()) / 1000
	service.target, raw.target = t, t
	for _, n := range few {
		if err := measure("works.get, not in memory", n, getWork, getRaw); err != nil {
			return nil, err
		}
	}
	return s, nil
}
