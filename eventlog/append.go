package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// Entry is one commit on its way to the log.
type Entry struct {
	Subject  string       // the boundary
	Expected uint64       // position of the commit before, 0 for none
	MsgID    events.MsgID // of the command
	ID       string       // the command id, as in the commit
	Digest   events.Hash  // the request digest, as in the commit
	Payload  []byte       // the encoded commit
}

// Appended says where the commit of a command is.
type Appended struct {
	Position uint64
	// AlreadyApplied: the command was applied before, by another decision. Record
	// and Commit are what that one appended (else nil).
	AlreadyApplied bool
	Record         *events.Record
	Commit         *events.Commit
}

// An appender brings entries onto the log. It may gather several; what it tells
// of each is what Append promises.
type appender interface {
	append(ctx context.Context, e Entry) (Appended, error)
}

// Append puts one commit at the end of its boundary, if the boundary is where the
// entry expects it. When it returns without an error, the commit is as durable as
// the server's sync mode and the number of replicas make it.
//
// Errors, and what they say about the log:
//
//   - a *Conflict (errors.Is ErrConflict): nothing was appended; the boundary moved.
//   - FORGE_COMMAND_ID_REUSED: nothing was appended; the id stands for another
//     request on this boundary (details subject, position).
//   - FORGE_TOO_LARGE, FORGE_CLOCK_SKEW, FORGE_BAD_REQUEST (the payload is not the
//     commit that the entry says): nothing was sent.
//   - FORGE_LOG_FULL: nothing was appended; reads go on.
//   - FORGE_LOG_UNSAFE: Err says why; nothing was appended, unless the log turns out
//     to be an older copy of itself (wraps ErrShrunk).
//   - FORGE_POISONED: nothing was appended; the last commit of the boundary cannot
//     be read.
//   - FORGE_UNAVAILABLE: in doubt. Append the command again with the same id: it
//     is applied at most once.
func (l *Log) Append(ctx context.Context, e Entry) (Appended, error) {
	if err := l.checkSubject(e.Subject); err != nil {
		return Appended{}, err
	}
	if n := len(e.Payload); n > events.MaxCommit {
		return Appended{}, events.Errorf(events.CodeTooLarge, "a commit of %d bytes, the most is %d", n, events.MaxCommit).
			With("bytes", n).With("limit", events.MaxCommit)
	}
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	c, err := l.checkEntry(&e)
	if err != nil {
		return Appended{}, err
	}
	ctx, cancel := l.patience(ctx)
	defer cancel()
	if a, known, err := l.Recall(ctx, e.Subject, c.Recent, e.MsgID, e.ID, e.Digest); known || err != nil {
		return a, err // the server's window may have forgotten what the boundary still knows
	}
	if ahead := c.At.Std().Sub(l.LeaderTime()); ahead > l.cfg.MaxClockSkew {
		return Appended{}, events.Errorf(events.CodeClockSkew, "the commit is dated %s, %s beyond the clock of the stream leader", c.At, ahead.Round(time.Millisecond)).
			With("at", c.At.String()).With("aheadMs", ahead.Milliseconds())
	}
	a, err := l.appender.append(ctx, e)
	if err == nil {
		l.note(a.Position)
	}
	return a, err
}

// checkEntry refuses what would poison the boundary.
func (l *Log) checkEntry(e *Entry) (*events.Commit, error) {
	wrong := func(format string, args ...any) error {
		return events.Errorf(events.CodeBadRequest, "append on %s: "+format, append([]any{e.Subject}, args...)...)
	}
	c, err := events.DecodeCommit(e.Payload)
	switch {
	case err != nil:
		return nil, wrong("the payload is no commit: %w", err)
	case c.Log != l.id:
		return nil, wrong("the commit is for log %q, this is %q", c.Log, l.id)
	case events.CommitSubject(l.cfg.Instance, c) != e.Subject:
		return nil, wrong("the commit belongs on %s", events.CommitSubject(l.cfg.Instance, c))
	case c.Prev != e.Expected:
		return nil, wrong("the commit follows position %d, the entry expects %d", c.Prev, e.Expected)
	case c.ID != e.ID || c.Command.RequestDigest != e.Digest:
		return nil, wrong("the commit and the entry are of different commands")
	}
	return c, nil
}

// Recall tells whether a command is among recent commits of a boundary (those of
// its Head, or of a commit), before it is decided anew: known is true, and the
// outcome is that of Append for it, already applied. It reads only when it is.
//
// Errors: FORGE_COMMAND_ID_REUSED when the id stands for another request,
// FORGE_POISONED, FORGE_LOG_UNSAFE and FORGE_UNAVAILABLE when the commit cannot be
// read.
func (l *Log) Recall(ctx context.Context, subject string, recent []events.RecentID, id events.MsgID, commandID string, digest events.Hash) (out Appended, known bool, err error) {
	for _, p := range recent {
		if p.ID == id {
			out, err := l.recent(ctx, &attempt{Entry: Entry{Subject: subject, MsgID: id, ID: commandID, Digest: digest}}, p.Position)
			return out, err == nil, err
		}
	}
	return Appended{}, false, nil
}

func (l *Log) writable() error {
	if l.cfg.ReadOnly {
		return events.Errorf(events.CodeForbidden, "the log is open for reading only")
	}
	return l.Err()
}

// inFlightRetries is how often the same expectation is sent again, when another
// append to the subject, or an earlier one of this id, was in flight.
const inFlightRetries = 3

// single publishes each entry by itself.
type single struct{ *Log }

// attempt is what is known of an entry while it is being appended.
type attempt struct {
	Entry
	doubtful bool // a publish of it stayed without an answer
	inFlight int  // answers that something was in flight
	silent   int  // publishes without an answer
}

func (l single) append(ctx context.Context, e Entry) (Appended, error) {
	a := &attempt{Entry: e}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		known := l.seen.Load()
		ack, err := l.publish(ctx, &a.Entry)
		delay := jitter(wait/2, wait)
		var api *apiError
		switch {
		case err == nil && !ack.Duplicate && ack.Sequence <= known:
			err := events.Errorf(events.CodeLogUnsafe, "%w: an append got position %d, %d was known before", ErrShrunk, ack.Sequence, known).
				With("last", ack.Sequence).With("known", known)
			l.stop(err)
			return Appended{}, err
		case err == nil && !ack.Duplicate:
			return Appended{Position: ack.Sequence}, nil
		case err == nil:
			return l.duplicate(ctx, a, ack.Sequence)
		case errors.As(err, &api):
			switch api.ErrCode {
			case codeWrongLast:
				if done, out, err := l.settle(ctx, a, lastIn(api.Description)); done {
					return out, err
				}
				a.inFlight++
				delay = jitter(time.Millisecond, 5*time.Millisecond)
			case codeWrongLastInFlight, codeDuplicateInFlight, codeDuplicateInBatch:
				if a.inFlight++; a.inFlight > inFlightRetries {
					if done, out, err := l.settle(ctx, a, 0); done {
						return out, err
					}
				} else {
					delay = jitter(time.Millisecond, 5*time.Millisecond)
				}
			case codeStoreFailed, codeStorageResources, codeNoResources, codeAccountResources:
				return Appended{}, l.full(a, api)
			case codeMessageTooLarge:
				return Appended{}, events.Errorf(events.CodeTooLarge, "append on %s: %w", a.Subject, api)
			case codeSealed:
				l.wake()
				return Appended{}, events.Errorf(events.CodeLogUnsafe, "append on %s: %w", a.Subject, api)
			default:
				if !transient(api) {
					return Appended{}, events.Errorf(events.CodeUnavailable, "append on %s: %w", a.Subject, api)
				}
			}
		case errors.Is(err, nats.ErrNoResponders):
			l.wake() // there may be no stream any more
		case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
			// Not sent.
		case transient(err), errors.Is(err, context.Canceled): // also: cut off, before or while waiting
			a.doubtful = true
			if done, out, err := l.unanswered(ctx, a, transient(err)); done {
				return out, err
			}
		case errors.Is(err, nats.ErrMaxPayload):
			return Appended{}, events.Errorf(events.CodeTooLarge, "append on %s: %w", a.Subject, err)
		default:
			return Appended{}, l.doubt(a, err)
		}
		if a.inFlight > 2*inFlightRetries {
			return Appended{}, l.doubt(a, err) // the server contradicts itself
		}
		if ctx.Err() != nil || !pause(ctx, delay) {
			return Appended{}, l.doubt(a, err)
		}
		if err := l.Err(); err != nil {
			return Appended{}, l.stoppedAt(a, err)
		}
	}
}

// stoppedAt is the outcome of an entry that err keeps from being appended: in
// doubt, if an earlier publish of it was not answered.
func (l *Log) stoppedAt(a *attempt, err error) error {
	if a.doubtful {
		return l.doubt(a, err)
	}
	return err
}

// pubAck is the server's answer to a publish.
type pubAck struct {
	Stream    string    `json:"stream"`
	Sequence  uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
	Error     *apiError `json:"error"`
}

func (l *Log) publish(ctx context.Context, e *Entry) (*pubAck, error) {
	m := &nats.Msg{Subject: e.Subject, Data: e.Payload, Header: nats.Header{
		"Nats-Msg-Id":                         {e.MsgID.String()},
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(e.Expected, 10)},
	}}
	ctx, cancel := l.connected(ctx, l.cfg.AppendTimeout)
	defer cancel()
	answer, err := l.request(ctx, m)
	if err != nil {
		return nil, err
	}
	var ack pubAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return nil, fmt.Errorf("acknowledgement on %s: %w", e.Subject, err)
	}
	switch {
	case ack.Error != nil:
		return nil, ack.Error
	case ack.Stream != l.stream || ack.Sequence == 0:
		return nil, fmt.Errorf("acknowledgement on %s is of stream %q, sequence %d", e.Subject, ack.Stream, ack.Sequence)
	}
	return &ack, nil
}

// lastIn finds N in "wrong last sequence: N", 0 if it is not there.
func lastIn(description string) uint64 {
	_, text, _ := strings.Cut(description, ": ")
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// settle decides, from the boundary as the leader shows it, what became of an
// entry that was refused or not answered. done is false when the boundary is
// still where the entry expects it. seen is a position that the boundary is known
// to have reached.
func (l *Log) settle(ctx context.Context, a *attempt, seen uint64) (done bool, out Appended, err error) {
	var last *events.Record
	for range 50 {
		if last, err = l.Last(ctx, a.Subject, Leader); err != nil {
			return true, Appended{}, l.stoppedAt(a, err)
		}
		if seen == 0 || last != nil && last.Position >= seen || !pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	found := uint64(0)
	if last != nil {
		found = last.Position
		c, err := l.decode(last)
		if err != nil {
			if found == a.Expected {
				return false, out, nil
			}
			return true, out, err
		}
		if events.MsgIDOf(*last, c) == a.MsgID {
			out, err := l.first(a, last, c)
			return true, out, err
		}
		for _, p := range c.Recent {
			if p.ID == a.MsgID {
				out, err := l.recent(ctx, a, p.Position)
				return true, out, err
			}
		}
	}
	if found == a.Expected {
		return false, out, nil
	}
	return true, out, &Conflict{Subject: a.Subject, Expected: a.Expected, Found: found, Last: last}
}

// recent reads the commit that the boundary names as the one of this id.
func (l *Log) recent(ctx context.Context, a *attempt, position uint64) (Appended, error) {
	r, err := l.At(ctx, position)
	if err != nil {
		return Appended{}, l.stoppedAt(a, err)
	}
	if r == nil {
		return Appended{}, hole(position, "which a later commit on "+a.Subject+" names")
	}
	c, err := l.decode(r)
	if err != nil {
		return Appended{}, err
	}
	if r.Subject != a.Subject || events.MsgIDOf(*r, c) != a.MsgID {
		return Appended{}, poisoned(r, fmt.Errorf("%w: a later commit on %s names it as command %s", events.ErrChain, a.Subject, a.MsgID))
	}
	return l.first(a, r, c)
}

// first is the outcome for an entry whose id is on the boundary, at r.
func (l *Log) first(a *attempt, r *events.Record, c *events.Commit) (Appended, error) {
	if c.Command.RequestDigest != a.Digest || c.ID != a.ID {
		return Appended{}, events.Errorf(events.CodeCommandIDReused, "command id %q stands for another request, at position %d", a.ID, r.Position).
			With("subject", r.Subject).With("position", r.Position)
	}
	l.note(r.Position)
	if a.doubtful && bytes.Equal(r.Payload, a.Payload) {
		return Appended{Position: r.Position}, nil // it is this very commit; only the answer was lost
	}
	return Appended{Position: r.Position, AlreadyApplied: true, Record: r, Commit: c}, nil
}

// duplicate checks what a duplicate acknowledgement claims: that the commit of
// this id is at a position. It is never believed without.
func (l *Log) duplicate(ctx context.Context, a *attempt, position uint64) (Appended, error) {
	r, err := l.get(ctx, "acknowledged duplicate", Leader, msgRequest{Seq: position})
	if err != nil {
		return Appended{}, err
	}
	if r != nil && r.Subject == a.Subject {
		c, err := l.decode(r)
		if err != nil {
			return Appended{}, err
		}
		if events.MsgIDOf(*r, c) == a.MsgID {
			return l.first(a, r, c)
		}
	}
	if r == nil {
		return Appended{}, l.doubt(a, fmt.Errorf("the server says it is at position %d, where there is nothing", position))
	}
	return Appended{}, events.Errorf(events.CodeCommandIDReused, "command id %q: its message id belongs to position %d on %s", a.ID, position, r.Subject).
		With("subject", r.Subject).With("position", position)
}

// unanswered looks up an entry whose publish got no answer. On an embedded server
// whose connection is well, that may be a write error of the disk: the appender
// stops for good when the server says so, or when repeating does not help.
func (l *Log) unanswered(ctx context.Context, a *attempt, timedOut bool) (done bool, out Appended, err error) {
	if timedOut {
		a.silent++
	}
	if l.cfg.Embedded != nil && l.nc.IsConnected() {
		// Before reading: what failed to reach the disk may still be readable.
		if why := l.cfg.Embedded.writeError(l.stream); why != "" {
			return true, out, l.stopInDoubt(a, why)
		}
	}
	if ctx.Err() != nil {
		return true, out, l.doubt(a, ctx.Err())
	}
	done, out, err = l.settle(ctx, a, 0)
	if !done && a.silent > 1 && l.cfg.Embedded != nil && l.nc.IsConnected() {
		return true, out, l.stopInDoubt(a, fmt.Sprintf("%d publishes without an answer in %s", a.silent, l.cfg.AppendTimeout))
	}
	return done, out, err
}

// stopInDoubt ends appending for good after a probable write error. What the
// server says of it, with its paths, is for the log and not for callers.
func (l *Log) stopInDoubt(a *attempt, why string) error {
	l.stop(&events.Error{
		Code:    events.CodeUnavailable,
		Message: "appending has stopped for good, for the server may not be able to write: make room or repair the disk, then restart",
		Err:     errors.New(why),
	})
	return l.doubt(a, errors.New("the server may not be able to write"))
}

// doubt is the outcome of an entry that may or may not be appended.
func (l *Log) doubt(a *attempt, cause error) error {
	return events.Errorf(events.CodeUnavailable, "append on %s: in doubt, repeat with the same command id: %w", a.Subject, cause).
		With("subject", a.Subject)
}

// full is the outcome of an entry that the log has no room for.
func (l *Log) full(a *attempt, cause *apiError) error {
	l.wake() // it may be another limit than MaxBytes, which must not be there
	return l.stoppedAt(a, events.Errorf(events.CodeLogFull, "the log takes no more commits: %w", cause).With("stream", l.stream))
}
