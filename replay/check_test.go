package replay_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
	"github.com/google/go-cmp/cmp"
)

func TestGoodLog(t *testing.T) {
	m := day(t)
	opts := replay.Options{Last: uint64(len(m.log)), Twice: true}
	got, err := replay.Check(t.Context(), instance, logID, m.log, opts)
	if err != nil {
		t.Fatal(err)
	}
	want := &replay.Report{
		Instance: instance, Log: logID, Commits: 16, Boundaries: 4, Last: 16,
		Events: map[string]uint64{
			"claim.granted": 8, "claim.renewed": 1, "claim.released": 2, "claim.imported": 1, "claim.import-conflicted": 1,
			"claim.import-resolved": 1, "import.started": 1, "work.state-set": 2,
		},
		Digest: got.Digest,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
	again, err := replay.Check(t.Context(), instance, "", m.log, replay.Options{})
	if d := cmp.Diff(got, again); err != nil || d != "" {
		t.Errorf("the second time, with the log id of the first commit: %v\n%s", err, d)
	}
}

func TestEmptyLog(t *testing.T) {
	got, err := replay.Check(t.Context(), instance, logID, replay.Memory{}, replay.Options{})
	if err != nil || got.Digest != events.HashOf([]byte("forge-fold/1")) || got.Last != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A restored log has no message ids, and perhaps holes that are declared.
func TestRestoredLog(t *testing.T) {
	m := day(t)
	want, err := replay.Check(t.Context(), instance, logID, m.log, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bare := clone(m.log)
	for i := range bare {
		bare[i].Header = nil
	}
	got, err := replay.Check(t.Context(), instance, logID, bare, replay.Options{})
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("without headers: %v\n%s", err, d)
	}

	// Position 2 is the only commit of its work.
	holed := slices.Delete(clone(m.log), 1, 2)
	got, err = replay.Check(t.Context(), instance, logID, holed, replay.Options{Holes: [][2]uint64{{2, 2}}})
	if err != nil || got.Commits != 15 || got.Last != 16 {
		t.Errorf("with a declared hole: %+v, %v", got, err)
	}
	// A hole before the end counts as reached.
	if _, err := replay.Check(t.Context(), instance, logID, m.log, replay.Options{Last: 18, Holes: [][2]uint64{{17, 18}}}); err != nil {
		t.Errorf("with a declared hole at the end: %v", err)
	}
}

// Each way to tamper with a log is found, at its first bad position, and named.
func TestViolations(t *testing.T) {
	type made = func(*maker)
	type changed = func(t *testing.T, log replay.Memory) replay.Memory
	one := func(i int, change func(t *testing.T, r *events.Record)) changed {
		return func(t *testing.T, log replay.Memory) replay.Memory {
			change(t, &log[i-1])
			return log
		}
	}
	alter := func(i int, change func(*events.Commit)) changed {
		return one(i, func(t *testing.T, r *events.Record) { rewrite(t, r, change) })
	}
	header := func(values ...string) func(*testing.T, *events.Record) {
		return func(_ *testing.T, r *events.Record) { r.Header = map[string][]string{events.MsgIDHeader: values} }
	}
	last := replay.Options{Last: 16}

	for _, tt := range []struct {
		name   string
		change changed // of the good day
		made   made    // written so, after the good day: position 17 is the first
		opts   replay.Options
		at     uint64
		aspect replay.Aspect
	}{
		{name: "removed in the middle", at: 5, aspect: replay.AspectPosition, change: func(_ *testing.T, log replay.Memory) replay.Memory { return slices.Delete(log, 4, 5) }},
		{name: "removed at the beginning", at: 1, aspect: replay.AspectPosition, change: func(_ *testing.T, log replay.Memory) replay.Memory { return log[2:] }},
		{name: "given twice", at: 3, aspect: replay.AspectPosition, change: func(_ *testing.T, log replay.Memory) replay.Memory { return slices.Insert(log, 3, log[2]) }},
		{name: "out of order", at: 8, aspect: replay.AspectPosition, change: func(_ *testing.T, log replay.Memory) replay.Memory {
			log[7], log[8] = log[8], log[7]
			return log
		}},
		{name: "cut at the end", at: 15, aspect: replay.AspectEnd, opts: last, change: func(_ *testing.T, log replay.Memory) replay.Memory { return log[:14] }},
		{name: "all gone", at: 1, aspect: replay.AspectEnd, opts: last, change: func(*testing.T, replay.Memory) replay.Memory { return nil }},
		{name: "a hole that is declared elsewhere", at: 5, aspect: replay.AspectPosition, opts: replay.Options{Holes: [][2]uint64{{6, 7}}}, change: func(_ *testing.T, log replay.Memory) replay.Memory { return slices.Delete(log, 4, 5) }},
		{name: "removed, the others moved up", at: 5, aspect: replay.AspectChain, change: func(_ *testing.T, log replay.Memory) replay.Memory {
			log = slices.Delete(log, 2, 3)
			for i := range log {
				log[i].Position = uint64(i + 1)
			}
			return log
		}},
		{name: "two commits of a work swapped", at: 6, aspect: replay.AspectChain, change: func(_ *testing.T, log replay.Memory) replay.Memory {
			log[5], log[6] = log[6], log[5]
			log[5].Position, log[6].Position = 6, 7
			return log
		}},
		{name: "commits of two works swapped", at: 6, aspect: replay.AspectChain, change: func(_ *testing.T, log replay.Memory) replay.Memory {
			log[2], log[4] = log[4], log[2] // 3 follows 1 in both places; then 6 follows 3, which is w3 now
			log[2].Position, log[4].Position = 3, 5
			return log[:8]
		}},

		{name: "no payload", at: 4, aspect: replay.AspectEncoding, change: one(4, func(_ *testing.T, r *events.Record) { r.Payload = nil })},
		{name: "a byte appended", at: 4, aspect: replay.AspectEncoding, change: one(4, func(_ *testing.T, r *events.Record) { r.Payload = append(r.Payload, 0xc0) })},
		{name: "cut payload", at: 4, aspect: replay.AspectEncoding, change: one(4, func(_ *testing.T, r *events.Record) { r.Payload = r.Payload[:len(r.Payload)-1] })},
		{name: "a number in a longer form", at: 1, aspect: replay.AspectEncoding, change: one(1, func(t *testing.T, r *events.Record) {
			short, long := []byte("\xa7version\x01"), []byte("\xa7version\xcc\x01")
			if !bytes.Contains(r.Payload, short) {
				t.Fatal("no version in the payload")
			}
			r.Payload = bytes.Replace(r.Payload, short, long, 1)
		})},
		{name: "an unknown envelope", at: 2, aspect: replay.AspectEncoding, change: alter(2, func(c *events.Commit) { c.V = 2 })},
		{name: "an unknown event", at: 2, aspect: replay.AspectEncoding, change: alter(2, func(c *events.Commit) { c.Events[0].Type = "work.vanished" })},
		{name: "an event of a later version", at: 2, aspect: replay.AspectEncoding, change: alter(2, func(c *events.Commit) { c.Events[0].V = 9 })},
		{name: "an event with another member", at: 1, aspect: replay.AspectEncoding, change: alter(1, func(c *events.Commit) { c.Events[0].Type = "claim.renewed" })},
		{name: "no events", at: 2, aspect: replay.AspectEncoding, change: alter(2, func(c *events.Commit) { c.Events = nil })},
		{name: "a time out of range", at: 2, aspect: replay.AspectEncoding, change: alter(2, func(c *events.Commit) { c.At = 1 << 52 })},
		{name: "too large", at: 17, aspect: replay.AspectEncoding, made: func(m *maker) {
			m.work("w9", func(c *events.Commit) { c.Actor.Label = strings.Repeat("x", events.MaxCommit) }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},

		{name: "of another log", at: 7, aspect: replay.AspectLog, change: alter(7, func(c *events.Commit) { c.Log = "log-2" })},
		{name: "on the subject of another work", at: 2, aspect: replay.AspectSubject, change: one(2, func(_ *testing.T, r *events.Record) { r.Subject = events.WorkSubject(instance, "w1") })},
		{name: "of another instance", at: 2, aspect: replay.AspectSubject, change: one(2, func(_ *testing.T, r *events.Record) { r.Subject = events.WorkSubject("other", "w 2") })},
		{name: "under a token that is not the one", at: 2, aspect: replay.AspectSubject, change: one(2, func(_ *testing.T, r *events.Record) { r.Subject += "x" })},
		{name: "about another work", at: 1, aspect: replay.AspectSubject, change: alter(1, func(c *events.Commit) { c.AggregateID = "w9" })},
		{name: "of another kind", at: 1, aspect: replay.AspectSubject, change: alter(1, func(c *events.Commit) { c.Kind = events.KindImport })},
		{name: "an import of another instance", at: 17, aspect: replay.AspectSubject, made: func(m *maker) {
			m.snapshot(func(c *events.Commit) { c.AggregateID = "other" }, events.ImportStarted{Source: events.SourceFile})
		}},
		{name: "a padded work", at: 17, aspect: replay.AspectSubject, made: func(m *maker) {
			m.work(" w1", nil, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "no work", at: 17, aspect: replay.AspectSubject, made: func(m *maker) {
			m.work("", nil, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a work with a control character", at: 17, aspect: replay.AspectSubject, made: func(m *maker) {
			m.work("w\x01", nil, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a kind without rules", at: 17, aspect: replay.AspectFold, made: func(m *maker) {
			m.work(instance, func(c *events.Commit) { c.Kind = events.KindRelease }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},

		{name: "another message id", at: 3, aspect: replay.AspectMessageID, change: one(3, header("00000000000000000000000000000000"))},
		{name: "a message id that is none", at: 3, aspect: replay.AspectMessageID, change: one(3, header("retry-1"))},
		{name: "two message ids", at: 3, aspect: replay.AspectMessageID, change: one(3, header("00000000000000000000000000000000", "00000000000000000000000000000001"))},
		{name: "another caller", at: 3, aspect: replay.AspectMessageID, change: alter(3, func(c *events.Commit) { c.Actor.Principal = "mallory" })},
		{name: "another command id", at: 3, aspect: replay.AspectMessageID, change: alter(3, func(c *events.Commit) { c.ID = "command-99" })},

		{name: "a text altered", at: 3, aspect: replay.AspectChain, change: alter(1, func(c *events.Commit) { c.Actor.Label = "somebody else" })},
		{name: "another hash", at: 6, aspect: replay.AspectChain, change: alter(6, func(c *events.Commit) { c.PrevHash[0] ^= 1 })},
		{name: "another predecessor", at: 6, aspect: replay.AspectChain, change: alter(6, func(c *events.Commit) { c.Prev = 1 })},
		{name: "a version too many", at: 17, aspect: replay.AspectChain, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Version++ }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "begun again", at: 17, aspect: replay.AspectChain, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Version, c.Prev, c.PrevHash, c.Recent = 1, 0, events.Hash{}, nil }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a first commit that follows something", at: 17, aspect: replay.AspectChain, made: func(m *maker) {
			m.work("w9", func(c *events.Commit) { c.Version, c.Prev, c.PrevHash = 2, 16, events.HashOf(nil) }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "decided before its predecessor", at: 17, aspect: replay.AspectTime, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.At = start }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},

		{name: "an id among the recent ones altered", at: 17, aspect: replay.AspectRecent, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Recent[3].ID[0] ^= 1 }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a position among the recent ones altered", at: 17, aspect: replay.AspectRecent, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Recent[0].Position++ }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a recent one left out", at: 17, aspect: replay.AspectRecent, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Recent = c.Recent[1:] }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "none of the recent ones", at: 17, aspect: replay.AspectRecent, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.Recent = nil }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "a command applied twice", at: 17, aspect: replay.AspectRecent, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.ID = "command-15" }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},

		{name: "nothing to renew", at: 17, aspect: replay.AspectFold, made: func(m *maker) { m.work("w9", nil, renewed("w9", "a", 1)) }},
		{name: "nothing to release", at: 17, aspect: replay.AspectFold, made: func(m *maker) {
			m.work("w1", nil, events.ClaimReleased{How: events.ReleasedByForce, Generation: 8})
		}},
		{name: "a claim of another work", at: 17, aspect: replay.AspectFold, made: func(m *maker) { m.work("w9", nil, granted(events.CauseFirst, "w1", "a", 1)) }},
		{name: "an event of another kind", at: 17, aspect: replay.AspectFold, made: func(m *maker) { m.work("w9", nil, events.ImportStarted{Source: events.SourceFile}) }},

		{name: "a generation that goes back", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w1", nil, granted(events.CauseAfterRelease, "w1", "a", 1)) }},
		{name: "a generation granted twice", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w1", nil, granted(events.CauseAfterRelease, "w1", "b", 8)) }},
		{name: "generation 0 granted", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w9", nil, granted(events.CauseFirst, "w9", "a", 0)) }},
		{name: "renewed for somebody else", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w3", nil, renewed("w3", "a", 5)) }},
		{name: "renewed in another generation", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w3", nil, renewed("w3", "b", 6)) }},
		{name: "renewed after its release", at: 17, aspect: replay.AspectOwner, made: func(m *maker) { m.work("w1", nil, renewed("w1", "b", 8)) }},
		{name: "another generation released", at: 17, aspect: replay.AspectOwner, made: func(m *maker) {
			m.work("w3", nil, events.ClaimReleased{How: events.ReleasedByForce, Generation: 4})
		}},
		{name: "an imported claim of another work", at: 17, aspect: replay.AspectOwner, made: func(m *maker) {
			m.work("w9", nil, events.ClaimImported{Source: events.SourceFile, Standing: events.StandingHeld, Owner: owner("w1", "a", 1, 0)})
		}},
		{name: "a conflict about another work", at: 17, aspect: replay.AspectOwner, made: func(m *maker) {
			m.work("w3", nil, events.ClaimImportConflicted{Source: events.SourceFile, Standing: events.StandingHeld, Owner: owner("w1", "a", 7, 0)})
		}},
		{name: "a conflict resolved below its generation", at: 18, aspect: replay.AspectOwner, made: func(m *maker) {
			m.work("w3", nil, events.ClaimImportConflicted{Source: events.SourceFile, Standing: events.StandingHeld, Owner: owner("w3", "a", 7, 0)})
			m.work("w3", nil, events.ClaimImportResolved{Keep: events.KeepCurrent, Generation: 5, Reason: "the file is old"})
		}},

		{name: "a carried state altered", at: 17, aspect: replay.AspectState, made: func(m *maker) {
			m.work("w1", func(c *events.Commit) { c.State.Data = bytes.Replace(c.State.Data, []byte("open"), []byte("done"), 1) }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		}},
		{name: "no carried state", at: 17, aspect: replay.AspectState, made: func(m *maker) {
			m.work("w3", func(c *events.Commit) { c.State = nil }, events.ClaimReleased{How: events.ReleasedByForce, Generation: 5})
		}},
		{name: "the state of before", at: 17, aspect: replay.AspectState, made: func(m *maker) {
			before := session.Decider{}.EncodeState(m.works["w3"])
			m.work("w3", func(c *events.Commit) { c.State = &before }, events.ClaimReleased{How: events.ReleasedByForce, Generation: 5})
		}},
		{name: "an altered last commit", at: 16, aspect: replay.AspectState, change: alter(16, func(c *events.Commit) {
			c.Events[0] = events.Encode(events.WorkStateSet{State: "failed", How: events.SetByTerminalize})
		})},
		{name: "an altered import", at: 17, aspect: replay.AspectState, made: func(m *maker) {
			m.snapshot(func(c *events.Commit) { c.State.Data = events.Raw("\x82\xa7records\x90\xa4last\x90") }, events.ImportStarted{Source: events.SourceFile})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := day(t)
			if tt.made != nil {
				tt.made(m)
				m.work("w8", nil, events.WorkStateSet{State: "open", How: events.SetByOperator}) // the log goes on
			}
			log := clone(m.log)
			if tt.change != nil {
				log = tt.change(t, log)
			}
			report, err := replay.Check(t.Context(), instance, logID, log, tt.opts)
			var v *replay.Violation
			if !errors.As(err, &v) {
				t.Fatalf("got %v, want a violation", err)
			}
			if v.Position != tt.at || v.Aspect != tt.aspect {
				t.Errorf("got %v; want position %d, aspect %s", err, tt.at, tt.aspect)
			}
			if !errors.Is(err, events.ErrChain) && !errors.Is(err, events.ErrEncoding) {
				t.Errorf("%v wraps neither ErrChain nor ErrEncoding", err)
			}
			if report == nil || report.Last >= v.Position && v.Aspect != replay.AspectPosition || !report.Digest.IsZero() {
				t.Errorf("the report %+v does not end before position %d", report, v.Position)
			}
		})
	}
}

// Every bit of a commit that another one follows is protected: by the encoding,
// by its message id, by what it carries, at the latest by the chain.
func TestEveryBitCounts(t *testing.T) {
	m := day(t)
	follower := map[uint64]uint64{} // position → that of the next commit of the boundary
	for _, r := range m.log {
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		follower[c.Prev] = r.Position
	}
	log := clone(m.log)
	flips := 0
	for i, r := range log {
		next := follower[r.Position]
		if next == 0 || i > 6 {
			continue
		}
		for at := range r.Payload {
			for bit := range 8 {
				r.Payload[at] ^= 1 << bit
				_, err := replay.Check(t.Context(), instance, logID, log[:next], replay.Options{})
				r.Payload[at] ^= 1 << bit
				var v *replay.Violation
				if !errors.As(err, &v) || v.Position < r.Position || v.Position > next {
					t.Fatalf("position %d, byte %d, bit %d: got %v, want a violation at %d … %d", r.Position, at, bit, err, r.Position, next)
				}
				flips++
			}
		}
	}
	t.Logf("%d bits", flips)
}

type failing struct {
	replay.Memory
	after int
	err   error
}

func (f failing) Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for r, err := range f.Memory[:f.after].Records(ctx, from) {
			if !yield(r, err) {
				return
			}
		}
		yield(events.Record{}, f.err)
	}
}

// An unreadable log is not a bad one.
func TestReaderFails(t *testing.T) {
	m, broken := day(t), errors.New("the line is dead")
	report, err := replay.Check(t.Context(), instance, logID, failing{m.log, 5, broken}, replay.Options{})
	if !errors.Is(err, broken) || errors.As(err, new(*replay.Violation)) || report.Commits != 5 || !report.Digest.IsZero() {
		t.Errorf("got %+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Check(ctx, instance, logID, m.log, replay.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := replay.Check(t.Context(), "No Instance", logID, m.log, replay.Options{}); events.CodeOf(err) != events.CodeIDInvalid {
		t.Errorf("got %v", err)
	}
}

// A caller of whom only the hashed token is known is found again on a log without
// headers, and its id may not be confused with the token.
func TestHashedCaller(t *testing.T) {
	long := strings.Repeat("p", 100)
	token := events.Token(long)
	for _, tt := range []struct {
		name, principal, header string
		ok                      bool
	}{
		{"by id", long, token, true},
		{"by token", token, token, true},
		{"an id that looks like a token", token, events.Token(token), true},
		{"somebody else", long, events.Token(token), false},
	} {
		m := newMaker(t)
		m.work("w1", func(c *events.Commit) { c.Actor.Principal = tt.principal }, events.WorkStateSet{State: "open", How: events.SetByOperator})
		r := &m.log[0]
		r.Header[events.MsgIDHeader] = []string{events.NewMsgID(r.Subject, tt.header, "command-1").String()}
		if _, err := replay.Check(t.Context(), instance, logID, m.log, replay.Options{}); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A state that a later version carries is no evidence; the fold stands in.
func TestOpaqueState(t *testing.T) {
	m := newMaker(t)
	m.work("w1", func(c *events.Commit) { c.State.V = 99 }, events.WorkStateSet{State: "open", How: events.SetByOperator})
	report, err := replay.Check(t.Context(), instance, logID, m.log, replay.Options{Twice: true})
	if err != nil || report.OpaqueStates != 1 {
		t.Errorf("got %+v, %v", report, err)
	}
}

// The digest depends on subjects, versions and states, and on nothing else.
func TestDigest(t *testing.T) {
	seq := func(list ...replay.Boundary) events.Hash { return replay.Digest(slices.Values(list)) }
	b := replay.Boundary{Subject: "forge.log.main.work.w1", Version: 3, State: events.State{V: 1, Data: events.Raw("\x80")}}
	if got, want := seq(b).String(), "27d387fc9dc76d5d9a6b07f94c34dc5b40e3e98b1ff86bce483686a36157c293"; got != want {
		t.Errorf("the digest of a known fold is %s, it was %s", got, want)
	}
	seen := map[events.Hash]string{seq(): "none", seq(b): "one", seq(b, b): "two"}
	for name, change := range map[string]func(*replay.Boundary){
		"subject":       func(b *replay.Boundary) { b.Subject += "x" },
		"version":       func(b *replay.Boundary) { b.Version++ },
		"state version": func(b *replay.Boundary) { b.State.V++ },
		"state":         func(b *replay.Boundary) { b.State.Data = events.Raw("\x81") },
	} {
		other := b
		change(&other)
		if was, ok := seen[seq(other)]; ok {
			t.Errorf("another %s has the same digest as %s", name, was)
		}
		seen[seq(other)] = name
	}
}
