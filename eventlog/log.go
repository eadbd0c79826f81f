package eventlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Log is the log of an instance, open. Its methods may be called at the same
// time from many goroutines.
type Log struct {
	cfg      Config
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   string
	prefix   string // of the JetStream API, with the final dot
	appender appender
	request  func(context.Context, *nats.Msg) (*nats.Msg, error) // publish and wait for the answer

	id          string
	incarnation string
	created     time.Time
	declared    spans // holes that the metadata name
	undeclared  spans // holes that it does not; only in a log opened for reading

	seen         atomic.Uint64 // highest position known to be on the log
	writeVersion atomic.Int64
	leader       atomic.Pointer[leaderClock]
	line         atomic.Pointer[context.Context] // ends when the connection breaks
	cold         chan struct{}

	mu      sync.Mutex
	unsafe  error // while it lasts
	stopped error // for good
	closed  bool

	kick   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// leaderClock is what the stream leader's clock showed, and when that was here.
type leaderClock struct{ leader, here time.Time }

// Open opens the log of an instance, and creates its stream if there is none. The
// connection must lead to the account of the log; it stays the caller's.
//
// Errors: FORGE_LOG_UNSAFE when a setting of the stream loses history or breaks
// a promise (details setting, found, wanted, remedy), when positions are missing
// (details holes), or when it is another log than LogID; FORGE_BAD_REQUEST when
// the stream has to be created and MaxBytes is missing; FORGE_NOT_FOUND when
// ReadOnly and there is none; FORGE_UNAVAILABLE when the server does not answer.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, nc: nc, request: nc.RequestMsgWithContext, stream: events.StreamName(cfg.Instance), prefix: "$JS.API.",
		cold: make(chan struct{}, cfg.ColdLoads), kick: make(chan struct{}, 1),
	}
	if cfg.Domain != "" {
		l.prefix = "$JS." + cfg.Domain + ".API."
		l.js, err = jetstream.NewWithDomain(nc, cfg.Domain)
	} else {
		l.js, err = jetstream.New(nc)
	}
	if err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "open log: %w", err)
	}
	l.appender = single{l}
	life, end := context.WithCancel(context.Background())
	l.cancel = end
	l.follow(life)
	if err := l.open(ctx, life); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) open(ctx, life context.Context) error {
	ctx, cancel := l.patience(ctx)
	defer cancel()
	cfg := &l.cfg
	info, err := l.streamInfo(ctx, true)
	if errors.Is(err, errNoStream) {
		if cfg.ReadOnly {
			return events.Errorf(events.CodeNotFound, "there is no stream %s", l.stream).With("stream", l.stream)
		}
		if err = l.create(ctx); err == nil {
			info, err = l.streamInfo(ctx, true)
		}
	}
	if err != nil {
		return err
	}
	if err := l.adopt(info); err != nil {
		if !cfg.ReadOnly {
			return err
		}
		l.unsafe = err
	}
	if err := l.watch(life); err != nil {
		return err
	}
	cfg.Logger.Info().Str("stream", l.stream).Str("log", l.id).Str("incarnation", l.incarnation).
		Uint64("last", info.State.Last).Int("replicas", l.replicas(info)).Bool("readOnly", cfg.ReadOnly).Msg("log opened")
	return nil
}

// create makes the stream. It is no error when another node was faster.
func (l *Log) create(ctx context.Context) error {
	if l.cfg.MaxBytes == 0 {
		if l.cfg.Embedded == nil {
			return events.Errorf(events.CodeBadRequest, "stream %s has to be created: say how many bytes it may take (--log-max-bytes)", l.stream).
				With("field", "MaxBytes")
		}
		free, err := l.cfg.Embedded.FreeBytes()
		if err != nil {
			return err
		}
		l.cfg.MaxBytes = free / 10 * 6
	}
	id := l.cfg.LogID
	if id == "" {
		id = randomID()
	}
	for {
		made, err := l.js.CreateStream(ctx, l.cfg.settings(id, randomID()))
		if err == nil && made.CachedInfo().State.LastSeq > 0 && made.CachedInfo().Config.Metadata[MetaLog] == id {
			// The server had left the stream out, and made this one over its messages.
			return events.Errorf(events.CodeLogUnsafe, "%w: stream %s is new and has messages of another one", ErrReplaced, l.stream).
				With("stream", l.stream)
		}
		var api *jetstream.APIError
		switch {
		case err == nil, errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
			return nil
		case errors.As(err, &api) && api.ErrorCode == codeStorageResources:
			return events.Errorf(events.CodeLogFull, "create stream %s: the server has no room for %d bytes: %w", l.stream, l.cfg.MaxBytes, err)
		case errors.As(err, &api) && !transientCode(int(api.ErrorCode)):
			return events.Errorf(events.CodeUnavailable, "create stream %s: %w", l.stream, err)
		case !pause(ctx, 100*time.Millisecond):
			return events.Errorf(events.CodeUnavailable, "create stream %s: %w", l.stream, err)
		}
	}
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// adopt takes what the stream says of itself, and checks all of it.
func (l *Log) adopt(info *streamInfo) error {
	meta := info.metadata()
	l.id, l.incarnation, l.created = meta[MetaLog], meta[MetaIncarnation], info.Created
	l.note(info.State.Last)
	l.learnTime(info)
	declared, err := parseHoles(meta[MetaHoles])
	if err != nil {
		return events.Errorf(events.CodeLogUnsafe, "stream %s: %w", l.stream, err)
	}
	l.declared = declared
	l.undeclared = nil
	if head := info.State.First; head > 1 && declared.count(head-1) < head-1 {
		l.undeclared = spans{{1, head - 1}}
	}
	open := slices.DeleteFunc(info.State.Deleted, func(p uint64) bool {
		return p == 0 || declared.contains(p) // of an empty stream the server says that 0 is deleted
	})
	l.undeclared = append(l.undeclared, spansOf(open)...)

	if err := l.cfg.lossy(info); err != nil {
		return err
	}
	if err := l.checkMetadata(meta); err != nil {
		return err
	}
	if l.cfg.LogID != "" && l.cfg.LogID != l.id {
		return events.Errorf(events.CodeLogUnsafe, "%w: stream %s holds log %s, not %s", ErrReplaced, l.stream, l.id, l.cfg.LogID).
			With("found", l.id).With("wanted", l.cfg.LogID)
	}
	if len(l.undeclared) > 0 {
		text := l.undeclared.String()
		return events.Errorf(events.CodeLogUnsafe, "%w: stream %s lacks position %s", ErrHole, l.stream, text).
			With("holes", text).With("position", l.undeclared[0][0])
	}
	if info.missing() != declared.count(info.State.Last) {
		return events.Errorf(events.CodeLogUnsafe, "%w: stream %s holds %d messages up to position %d", ErrHole, l.stream, info.State.Messages, info.State.Last)
	}
	if info.State.Lost != nil && len(info.State.Lost.Msgs) > 0 {
		return events.Errorf(events.CodeLogUnsafe, "%w: the server lost messages of stream %s", ErrHole, l.stream).
			With("holes", FormatHoles(info.State.Lost.Msgs)).With("position", info.State.Lost.Msgs[0])
	}
	return nil
}

// checkMetadata checks that the stream says which log it is, and takes its write
// version.
func (l *Log) checkMetadata(meta map[string]string) error {
	for _, key := range []string{MetaLog, MetaIncarnation} {
		if meta[key] == "" {
			return lossySetting(l.stream, "metadata."+key, "not set", "the id that it was created with", "restore the log into a new stream, or put the value back with "+remedyEdit+" --metadata "+key+"=<id>")
		}
	}
	v, err := strconv.ParseInt(meta[MetaWriteVersion], 10, 32)
	if err != nil || v < 1 {
		return lossySetting(l.stream, "metadata."+MetaWriteVersion, strconv.Quote(meta[MetaWriteVersion]), "a number from 1", remedyEdit+" --metadata "+MetaWriteVersion+"=1")
	}
	l.writeVersion.Store(v)
	return nil
}

// Close ends the watching of the log, and waits for that; what is under way,
// Tail too, returns with ErrClosed soon. It leaves connection and stream alone.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.done.Wait()
}

// Err says why the log does not take appends: nil when it does. While a setting
// is wrong it is a FORGE_LOG_UNSAFE that goes when the setting is put back; when
// history was lost, or a write is in doubt for good, it stays.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return events.Errorf(events.CodeUnavailable, "%w", ErrClosed)
	case l.stopped != nil:
		return l.stopped
	}
	return l.unsafe
}

// ID is the log id.
func (l *Log) ID() string { return l.id }

// Instance is the instance whose log this is.
func (l *Log) Instance() string { return l.cfg.Instance }

// Incarnation is the id of this copy of the log.
func (l *Log) Incarnation() string { return l.incarnation }

// WriteVersion is the highest version of events and envelopes that may be
// written; it may rise while the log is open.
func (l *Log) WriteVersion() int { return int(l.writeVersion.Load()) }

// Confirmed says that what this process knows of the log is all there is: it
// embeds the only server, and is the only writer.
func (l *Log) Confirmed() bool { return l.cfg.Embedded != nil }

// Durable is the position up to which nothing can be lost any more, as far as
// the server's own promise goes: the highest position that was acknowledged, read
// or counted by this process. It never goes back.
func (l *Log) Durable() uint64 { return l.seen.Load() }

// note remembers that a position is on the log.
func (l *Log) note(position uint64) {
	for {
		old := l.seen.Load()
		if position <= old || l.seen.CompareAndSwap(old, position) {
			return
		}
	}
}

// LeaderTime is the clock of the stream leader now, as last learnt (at open, at
// every check); the local wall clock plays no part in it.
func (l *Log) LeaderTime() time.Time {
	if l.cfg.LeaderTime != nil {
		return l.cfg.LeaderTime()
	}
	c := l.leader.Load()
	return c.leader.Add(time.Since(c.here))
}

// LeaderOffset is how far the clock of the stream leader is ahead of the local
// wall clock.
func (l *Log) LeaderOffset() time.Duration { return l.LeaderTime().Sub(l.cfg.Clock()) }

func (l *Log) learnTime(info *streamInfo) {
	if !info.Time.IsZero() {
		l.leader.Store(&leaderClock{leader: info.Time, here: info.asked.Add(info.took / 2)})
	}
}

// Info is the state of the log, read from the stream leader.
type Info struct {
	Stream       string                     `json:"stream"`
	Instance     string                     `json:"instance"`
	LogID        string                     `json:"logId"`
	Incarnation  string                     `json:"incarnation"`
	WriteVersion int                        `json:"writeVersion"`
	Created      time.Time                  `json:"created"`
	First        uint64                     `json:"first"` // position, 0 when empty
	Last         uint64                     `json:"last"`
	Messages     uint64                     `json:"messages"`
	Holes        string                     `json:"holes,omitempty"` // missing positions that the metadata declare
	Bytes        uint64                     `json:"bytes"`
	MaxBytes     int64                      `json:"maxBytes"`
	Replicas     int                        `json:"replicas"`
	Consumers    int                        `json:"consumers"`
	Leader       string                     `json:"leader,omitempty"` // server name
	LeaderOffset time.Duration              `json:"leaderOffset"`     // ns
	Unsafe       string                     `json:"unsafe,omitempty"` // why appends are refused
	Settings     map[string]json.RawMessage `json:"settings"`         // as the server tells them
}

// Info asks the stream leader how the log stands. Errors: FORGE_UNAVAILABLE;
// FORGE_LOG_UNSAFE when there is no stream any more.
func (l *Log) Info(ctx context.Context) (*Info, error) {
	ctx, cancel := l.patience(ctx)
	defer cancel()
	s, err := l.streamInfo(ctx, false)
	if err != nil {
		return nil, gone(err)
	}
	l.learnTime(s)
	out := &Info{
		Stream: l.stream, Instance: l.cfg.Instance, LogID: l.id, Incarnation: l.incarnation, WriteVersion: l.WriteVersion(),
		Created: s.Created, Last: s.State.Last, Messages: s.State.Messages, Holes: l.declared.String(), Bytes: s.State.Bytes,
		MaxBytes: number(s.Config["max_bytes"]), Replicas: l.replicas(s), Consumers: s.State.Consumers,
		LeaderOffset: l.LeaderOffset(), Settings: s.Config,
	}
	if s.State.Messages > 0 {
		out.First = s.State.First
	}
	if s.Cluster != nil {
		out.Leader = s.Cluster.Leader
	}
	if err := l.Err(); err != nil {
		out.Unsafe = err.Error()
	}
	return out, nil
}

func (l *Log) replicas(s *streamInfo) int { return int(number(s.Config["num_replicas"])) }

func number(raw json.RawMessage) int64 {
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n
}

// LastPosition is the position of the last commit, 0 when there is none, read
// from the stream leader. Errors as for Info.
func (l *Log) LastPosition(ctx context.Context) (uint64, error) {
	ctx, cancel := l.patience(ctx)
	defer cancel()
	s, err := l.streamInfo(ctx, false)
	if err != nil {
		return 0, gone(err)
	}
	l.note(s.State.Last)
	return s.State.Last, nil
}

// gone turns "no such stream" into the error that it is for an open log.
func gone(err error) error {
	if errors.Is(err, errNoStream) {
		return events.Errorf(events.CodeLogUnsafe, "%w: there is no such stream any more", ErrReplaced)
	}
	return err
}

// patience bounds an operation whose caller did not.
func (l *Log) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.cfg.Patience)
}

// pause waits; false when the context ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
