package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/events"
)

// Options of Check. The zero value suits a log that was read to its end.
type Options struct {
	// Last is a position that the log is known to have reached: if it ends
	// before, its end was cut. Default: 0, nothing is known.
	Last uint64

	// Holes are the positions that the log is declared to lack (it was restored
	// without them): first and last each, in order. Default: none.
	Holes [][2]uint64

	// Twice folds every commit again from where it began, and fails unless that
	// gives the same: it finds a fold that changes its input or depends on
	// something else. For tests; about twice the work. Default: false.
	Twice bool
}

// Report is what Check found. After a Violation it says how far Check came.
type Report struct {
	Instance   string            `json:"instance"`
	Log        string            `json:"log"` // log id
	Commits    uint64            `json:"commits"`
	Boundaries uint64            `json:"boundaries"`
	Events     map[string]uint64 `json:"events"` // how many of each type
	// OpaqueStates are carried states of a version that is not known here. They
	// are no evidence for or against the log.
	OpaqueStates uint64 `json:"opaqueStates,omitempty"`
	// Last is the position of the last good commit, 0 for an empty log.
	Last uint64 `json:"last"`
	// Digest of the folds; zero after a Violation.
	Digest events.Hash `json:"digest"`
}

// Check reads the log of an instance once, in order, from its first commit on,
// and checks every Aspect of every commit. logID is the id of the log; "" takes
// that of its first commit.
//
// The report is never nil. Errors: a *Violation, for the first bad position;
// FORGE_ID_INVALID for a name that no instance has; what the reader gave, wrapped.
func Check(ctx context.Context, instance, logID string, log Reader, opts Options) (*Report, error) {
	w := &walk{
		opts: opts, boundaries: map[string]*boundary{},
		report: &Report{Instance: instance, Log: logID, Events: map[string]uint64{}},
	}
	if err := events.ValidInstance(instance); err != nil {
		return w.report, err
	}
	for r, err := range log.Records(ctx, 1) {
		if err != nil {
			return w.report, fmt.Errorf("read the log after position %d: %w", w.report.Last, err)
		}
		if err := w.take(r); err != nil {
			return w.report, err
		}
	}
	if err := w.reach(opts.Last+1, AspectEnd, "the log ends at position %d, it reached position %d", w.report.Last, opts.Last); err != nil {
		return w.report, err
	}
	w.report.Digest = Digest(w.folds())
	return w.report, nil
}

// walk is a Check under way.
type walk struct {
	opts       Options
	report     *Report
	boundaries map[string]*boundary
}

// boundary is what is known of one boundary.
type boundary struct {
	head events.Head
	fold fold
}

// take checks the next record and moves on.
func (w *walk) take(r events.Record) error {
	bad := func(aspect Aspect, err error) error {
		return &Violation{Position: r.Position, Subject: r.Subject, Aspect: aspect, Err: err}
	}
	if r.Position <= w.report.Last {
		return bad(AspectPosition, broken("it comes after position %d", w.report.Last))
	}
	if err := w.reach(r.Position, AspectPosition, "it is missing, position %d comes after %d", r.Position, w.report.Last); err != nil {
		return err
	}
	c, list, err := decode(r)
	if err != nil {
		return bad(AspectEncoding, err)
	}
	if w.report.Log == "" {
		w.report.Log = c.Log
	}
	if c.Log != w.report.Log {
		return bad(AspectLog, broken("it belongs to log %q, this is %q", c.Log, w.report.Log))
	}
	if err := belongs(w.report.Instance, r, c); err != nil {
		return bad(AspectSubject, err)
	}
	id, err := messageID(r, c)
	if err != nil {
		return bad(AspectMessageID, err)
	}
	kind, ok := kinds[c.Kind]
	if !ok {
		return bad(AspectFold, fmt.Errorf("%w: a boundary of kind %q cannot be folded", events.ErrEncoding, c.Kind))
	}
	b := w.boundaries[r.Subject]
	if b == nil {
		b = &boundary{fold: kind.start(c.AggregateID)}
	}
	if err := b.head.Follows(r, c); err != nil {
		if c.At < b.head.At && c.Version == b.head.Version+1 && c.Prev == b.head.Position {
			return bad(AspectTime, err)
		}
		return bad(AspectChain, err)
	}
	if err := recent(b.head, c, id); err != nil {
		return bad(AspectRecent, err)
	}
	at := place{r.Position, id}
	var was events.State
	twice := w.opts.Twice && (kind.carries || sampled(c.Version))
	if twice {
		was = b.fold.state()
	}
	if err := b.fold.evolve(list, at); err != nil {
		if errors.As(err, new(ownerError)) {
			return bad(AspectOwner, err)
		}
		return bad(AspectFold, err)
	}
	if twice {
		if err := b.fold.again(list, at, was); err != nil {
			return fmt.Errorf("position %d on %s: %w", r.Position, r.Subject, err)
		}
	}
	if err := w.carried(c, b.fold, kind.carries); err != nil {
		return bad(AspectState, err)
	}
	b.head = events.HeadAfter(r, c, id)
	w.boundaries[r.Subject] = b
	w.report.Commits++
	w.report.Boundaries = uint64(len(w.boundaries))
	w.report.Last = r.Position
	for _, e := range c.Events {
		w.report.Events[e.Type]++
	}
	return nil
}

// reach checks that no position before next is missing but declared holes.
func (w *walk) reach(next uint64, aspect Aspect, format string, args ...any) error {
	missing := w.report.Last + 1
	for _, hole := range w.opts.Holes {
		if hole[0] <= missing && missing <= hole[1] {
			missing = hole[1] + 1
		}
	}
	if missing >= next {
		return nil
	}
	return &Violation{Position: missing, Aspect: aspect, Err: broken(format, args...)}
}

// decode reads envelope and events, and checks that they are the only encoding of
// what they say. An event of an old version is only read: what it would be
// written as today is another version.
func decode(r events.Record) (*events.Commit, []events.Payload, error) {
	if len(r.Payload) > events.MaxCommit {
		return nil, nil, fmt.Errorf("%w: %d bytes, the most is %d", events.ErrEncoding, len(r.Payload), events.MaxCommit)
	}
	c, err := events.DecodeCommit(r.Payload)
	if err != nil {
		return nil, nil, err
	}
	if !c.At.Valid() {
		return nil, nil, fmt.Errorf("%w: time %d has no four-digit year", events.ErrEncoding, int64(c.At))
	}
	if !bytes.Equal(c.Encode(), r.Payload) {
		return nil, nil, fmt.Errorf("%w: the envelope is not in canonical form", events.ErrEncoding)
	}
	list := make([]events.Payload, len(c.Events))
	for i, e := range c.Events {
		p, err := events.Decode(e)
		if err != nil {
			if !errors.Is(err, events.ErrEncoding) {
				err = fmt.Errorf("%w: %w", events.ErrEncoding, err)
			}
			return nil, nil, fmt.Errorf("event %d: %w", i, err)
		}
		if again := events.Encode(p); again.V == e.V && !bytes.Equal(again.Data, e.Data) {
			return nil, nil, fmt.Errorf("event %d: %w: %s is not in canonical form", i, events.ErrEncoding, e.Type)
		}
		list[i] = p
	}
	return c, list, nil
}

// belongs checks that a commit lies on the subject of what it is about.
func belongs(instance string, r events.Record, c *events.Commit) error {
	if want := events.CommitSubject(instance, c); r.Subject != want {
		return broken("it belongs on %s", want)
	}
	if c.Kind != events.KindWork {
		if c.AggregateID != instance {
			return broken("it is about %q, not about instance %s", c.AggregateID, instance)
		}
		return nil
	}
	if c.AggregateID == "" || strings.TrimSpace(c.AggregateID) != c.AggregateID {
		return broken("work id %q is blank or padded", c.AggregateID)
	}
	if err := events.CheckID("workId", c.AggregateID); err != nil {
		return broken("%w", err)
	}
	return nil
}

// messageID is the message id of a commit: that of its command. A header with
// another one, or with something else, is an error; a restored log has none.
func messageID(r events.Record, c *events.Commit) (events.MsgID, error) {
	want := events.NewMsgID(r.Subject, events.Token(c.Actor.Principal), c.ID)
	asToken := want
	if hashedToken(c.Actor.Principal) {
		// The caller's id was not told, only the token that stands for it.
		asToken = events.NewMsgID(r.Subject, c.Actor.Principal, c.ID)
	}
	if len(r.Header[events.MsgIDHeader]) == 0 {
		return asToken, nil
	}
	got, ok := r.MsgID()
	switch {
	case !ok:
		return got, broken("the header %s is no message id", events.MsgIDHeader)
	case got != want && got != asToken:
		return got, broken("the header has %s, command %q of %q has %s", got, c.ID, c.Actor.Principal, want)
	}
	return got, nil
}

// hashedToken reports whether a principal is the token of an id that cannot be
// told from it.
func hashedToken(principal string) bool {
	text, ok := strings.CutPrefix(principal, "==")
	return ok && len(text) == 2*len(events.Hash{}) && strings.Trim(text, "0123456789abcdef") == ""
}

// recent checks that a commit names the latest ones of its boundary, and that it
// is not one of them again.
func recent(h events.Head, c *events.Commit, id events.MsgID) error {
	if !slices.Equal(c.Recent, h.Recent) {
		return broken("it names %s as the commits before it, they are %s", positions(c.Recent), positions(h.Recent))
	}
	for _, p := range h.Recent {
		if p.ID == id {
			return broken("its command was applied at position %d", p.Position)
		}
	}
	return nil
}

func positions(list []events.RecentID) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d (%s)", p.Position, p.ID)
	}
	return "[" + b.String() + "]"
}

// sampled says which commits of a boundary with a large state are folded twice:
// encoding it at each would take quadratic time.
func sampled(version uint64) bool { return version <= 64 || version%64 == 0 }

// carried checks the state that a commit carries against the fold.
func (w *walk) carried(c *events.Commit, f fold, carries bool) error {
	if !carries || c.State == nil {
		if (c.State != nil) != carries {
			return fmt.Errorf("%w: a commit of kind %s carries a state: %t, want %t", events.ErrEncoding, c.Kind, c.State != nil, carries)
		}
		return nil
	}
	same, known, err := f.same(*c.State)
	switch {
	case err != nil:
		return err
	case !known:
		w.report.OpaqueStates++
	case !same:
		return broken("the state that it carries is not what its events fold to")
	}
	return nil
}

// folds gives all boundaries in subject order.
func (w *walk) folds() iter.Seq[Boundary] {
	return func(yield func(Boundary) bool) {
		for _, subject := range slices.Sorted(maps.Keys(w.boundaries)) {
			b := w.boundaries[subject]
			if !yield(Boundary{Subject: subject, Version: b.head.Version, State: b.fold.state()}) {
				return
			}
		}
	}
}
