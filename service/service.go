package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/projections"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"
)

// Options say what a Service serves, and how.
type Options struct {
	// Log is the log of the instance, open. Required.
	Log *eventlog.Log

	// Forge is the connection into the account of the log; the activity bucket is
	// there. Required.
	Forge *nats.Conn

	// App is the connection into the account of the callers; the endpoints are
	// there. Required. Danger: if it is in the account of the log, only the check
	// of reply subjects keeps callers off the log.
	App *nats.Conn

	// Replicas of the activity bucket. Default: 1.
	Replicas int

	// RequireCapability makes the verbs that show an authority show the
	// capability, too. Default: false.
	RequireCapability bool

	// MinimumSoak is how long a release must have been soaking before it can become
	// known good. Default: 0, no minimum.
	MinimumSoak time.Duration

	// Clock. Default: a SystemClock with MaxClockSkew.
	Clock Clock

	// MaxClockSkew is how far the clock of this node may be from that of the stream
	// leader, before Ready reports it, and before what rests on the end of a lease
	// is refused. Default: DefaultMaxClockSkew.
	MaxClockSkew time.Duration

	// UUID is the random source of capabilities. Default: random UUIDs.
	UUID func() (string, error)

	// CacheSize is how many works are kept folded in memory, about 1 kB each.
	// Default: 100 000.
	CacheSize int

	// MaxPending bounds the requests that wait or are worked on; beyond it
	// callers get FORGE_BUSY. Default: 4096.
	MaxPending int

	// PendingBytes bounds the bytes that wait unread per endpoint. Default: 64 MiB.
	PendingBytes int

	// CommandTimeout bounds the work on one request. Default: 15 s.
	CommandTimeout time.Duration

	// ViewTimeout is how long a query waits for its minPosition, before
	// FORGE_VIEW_BEHIND. Default: 3 s.
	ViewTimeout time.Duration

	// Version of the build, as the services framework shows it (semantic version).
	Version string

	// Facts about the set-up, for readyz: accounts separate or shared, durability
	// synced or unverified, authentication on or off.
	Setup Setup

	// Logger gets what concerns the service as a whole. Default: nothing.
	Logger zerolog.Logger
}

// Setup says what can be relied on.
type Setup struct {
	Accounts       string `json:"accounts"`       // separate, shared
	Durability     string `json:"durability"`     // synced, unverified, off
	Authentication string `json:"authentication"` // on, off: the principal is a label, not a proof
}

func (o Options) withDefaults() Options {
	setDefault(&o.Replicas, 1)
	setDefault(&o.CacheSize, 100_000)
	setDefault(&o.MaxPending, 4096)
	setDefault(&o.PendingBytes, 64<<20)
	setDefault(&o.CommandTimeout, 15*time.Second)
	setDefault(&o.ViewTimeout, 3*time.Second)
	setDefault(&o.MaxClockSkew, DefaultMaxClockSkew)
	if o.Clock == nil {
		o.Clock = NewSystemClock(o.MaxClockSkew)
	}
	if o.UUID == nil {
		o.UUID = func() (string, error) {
			id, err := uuid.NewRandom()
			return id.String(), err
		}
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Service serves one instance until Stop.
type Service struct {
	opts     Options
	instance string
	app      *nats.Conn
	clock    Clock
	log      zerolog.Logger
	trouble  zerolog.Logger // of single requests: at most troublesPerSecond
	metrics  *metrics

	works      *works
	ledger     *ledger
	imports    *keeper[session.ImportState, *session.Snapshot, session.Facts]
	activity   *Activity
	runner     *projections.Runner
	liveClaims *projections.Claims

	began     uint64 // last position when the service started: lists begin there
	lanes     *lanes
	endpoints []endpoint
	roots     map[string]map[string]bool // verb → roots that it is served on
	svc       micro.Service

	stop func() error
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup
}

// Start opens the activity bucket, starts the projections and then the
// endpoints. When it returns, requests are answered; lists may still be catching
// up (Ready says so).
func Start(ctx context.Context, opts Options) (*Service, error) {
	if opts.Log == nil || opts.Forge == nil || opts.App == nil {
		return nil, errors.New("service: Log, Forge and App are required")
	}
	opts = opts.withDefaults()
	s := &Service{
		opts: opts, instance: opts.Log.Instance(), app: opts.App, clock: opts.Clock, log: opts.Logger,
		lanes: newLanes(opts.MaxPending), liveClaims: projections.NewClaims(opts.Log.ID()),
	}
	s.trouble = s.log.Sample(&zerolog.BurstSampler{Burst: troublesPerSecond, Period: time.Second})
	var err error
	if s.activity, err = OpenActivity(ctx, opts.Forge, s.instance, opts.Replicas); err != nil {
		return nil, err
	}
	s.works = &works{instance: s.instance, activity: s.activity, clock: s.clock, maxSkew: opts.MaxClockSkew, requireCapability: opts.RequireCapability}
	if s.works.keeper, err = newKeeper(opts.Log, session.Decider{}, opts.CacheSize, session.Recall); err != nil {
		return nil, err
	}
	if s.imports, err = newKeeper(opts.Log, session.Imports{}, 1, recallImport); err != nil {
		return nil, err
	}
	s.ledger = &ledger{subject: events.ReleaseSubject(s.instance), instance: s.instance, clock: s.clock, minimumSoakMs: opts.MinimumSoak.Milliseconds()}
	if s.ledger.keeper, err = newKeeper(opts.Log, release.Decider{}, 1, release.Recall); err != nil {
		return nil, err
	}
	s.runner = projections.NewRunner(opts.Log, s.liveClaims)
	s.metrics = newMetrics(s)
	s.endpoints = slices.Concat(s.commands(), s.queries(), s.operations(), s.ledgerCommands(), s.ledgerQueries())
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("service endpoints: %w", err)
	}
	s.stop = sync.OnceValue(s.drain)
	if s.began, err = opts.Log.LastPosition(ctx); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() {
		if err := s.runner.Run(s.life); err != nil && s.life.Err() == nil {
			s.log.Error().Err(err).Msg("projections stopped")
		}
	})
	if err := s.listen(); err != nil {
		s.end()
		s.done.Wait()
		return nil, err
	}
	return s, nil
}

// troublesPerSecond bounds what callers can make the service log. The metrics
// count all.
const troublesPerSecond = 10

// commands are the verbs about works.
func (s *Service) commands() []endpoint {
	return []endpoint{
		s.command(RootCommand, session.VerbClaim, "claim a work under a lease"),
		s.command(RootCommand, session.VerbResume, "claim a work, or come back to it, showing principal and instance"),
		s.command(RootCommand, session.VerbBind, "rebind a work to the present transport session and runtime"),
		s.command(RootCommand, session.VerbRenew, "extend the lease, showing the authority"),
		s.command(RootCommand, session.VerbReleaseWithAuthority, "give up a work, showing the authority"),
		s.command(RootCommand, session.VerbTerminalize, "set a work's state under the owner's authority"),
		s.command(RootOperator, session.VerbTerminalize, "set a work's state"),
		s.command(RootOperator, session.VerbRelease, "end the claim of a controller"),
		s.command(RootOperator, session.VerbReleaseObserved, "end the claim of an owner as it was observed"),
		s.command(RootOperator, session.VerbForceRelease, "end a claim, with a reason"),
		s.command(RootOperator, session.VerbSetState, "set or forget a work's state, with a reason"),
		s.command(RootOperator, session.VerbResolveImport, "lift a quarantine, with a reason"),
	}
}

// operations are the verbs that are not about one work.
func (s *Service) operations() []endpoint {
	activity := func(root, verb, description string, handle func(ctx context.Context, r *request) (reply, error)) endpoint {
		return endpoint{root: root, verb: verb, description: description, handle: func(ctx context.Context, r *request) (any, error) {
			id, err := r.commandID()
			if err != nil {
				return nil, err
			}
			out, err := handle(ctx, r)
			out.CommandID = id
			return named(out, err, id)
		}}
	}
	return []endpoint{
		{
			root: RootOperator, verb: session.VerbImport, description: "take over claims of another system",
			boundary: func(*request) string { return events.ImportSubject(s.instance) }, handle: s.takeOver,
		},
		activity(RootCommand, "activity.report", "a transport session is alive", func(ctx context.Context, r *request) (reply, error) {
			return s.activity.report(ctx, r.body, r.caller, r.principal(), s.clock.Now())
		}),
		activity(RootCommand, "activity.invalidate", "a transport session ended", func(ctx context.Context, r *request) (reply, error) {
			return s.activity.invalidate(ctx, r.body, r.caller, r.principal(), s.clock.Now())
		}),
		activity(RootOperator, "activity.set", "what is known of a transport session", func(ctx context.Context, r *request) (reply, error) {
			return s.activity.set(ctx, r.body)
		}),
		activity(RootOperator, "runtime.announce", "the present runtime", func(ctx context.Context, r *request) (reply, error) {
			return s.activity.announce(ctx, r.body, s.clock.Now())
		}),
	}
}

// frameworkSubs are the subscriptions of the services framework itself: PING, INFO
// and STATS, each for all services, for the name, and for the one service.
const frameworkSubs = 9

// drainPatience bounds each step of Stop.
const drainPatience = 10 * time.Second

// Stop takes no more requests, answers those that came, and returns when nothing
// of the service runs any more. The connections and the log stay open. It may be
// called again.
func (s *Service) Stop() error { return s.stop() }

func (s *Service) drain() error {
	own := len(s.svc.Info().Endpoints) + frameworkSubs
	others := s.app.NumSubscriptions() - own // of whoever else uses the connection
	err := s.svc.Stop()
	// Draining goes on after Stop returns: wait until every subscription is gone
	// and so every message was handed to its lane.
	for limit := time.Now().Add(drainPatience); s.app.NumSubscriptions() > others && !s.app.IsClosed() && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	s.lanes.close()
	if flushErr := s.app.FlushTimeout(drainPatience); err == nil && flushErr != nil && !s.app.IsClosed() {
		err = flushErr
	}
	s.end()
	s.done.Wait()
	return err
}

// Ready is what readyz tells.
type Ready struct {
	Ready       bool              `json:"ready"`
	Instance    string            `json:"instance"`
	Reasons     []string          `json:"reasons,omitempty"`  // why it is not ready
	Warnings    []string          `json:"warnings,omitempty"` // what is wrong and does not keep it from serving
	Setup       Setup             `json:"setup"`
	Projections []ProjectionReady `json:"projections"`
}

// ProjectionReady is a projection as readyz tells it.
type ProjectionReady struct {
	projections.Status
	Error string `json:"error,omitempty"`
}

// Ready says whether commands are decided and lists are current, and if not, why.
func (s *Service) Ready() Ready {
	r := Ready{Instance: s.instance, Setup: s.opts.Setup}
	not := func(reason string, err error) {
		if err != nil {
			reason += ": " + err.Error()
		}
		r.Reasons = append(r.Reasons, reason)
	}
	if err := s.opts.Log.Err(); err != nil {
		not("log", err)
	}
	if !s.opts.Forge.IsConnected() || !s.app.IsConnected() {
		not("not connected", nil)
	}
	if s.life.Err() != nil {
		not("stopping", nil)
	}
	if err := s.clock.Trusted(); err != nil {
		not("clock", err)
	}
	if ahead := s.ahead(); ahead.Abs() > s.opts.MaxClockSkew {
		not(fmt.Sprintf("clock: %s ahead of the stream leader's", ahead.Round(time.Millisecond)), nil)
	}
	durable := s.opts.Log.Durable()
	for _, status := range s.runner.Statuses() {
		p := ProjectionReady{Status: status}
		if status.Err != nil {
			p.Error = status.Err.Error()
			not("projection "+status.Name, status.Err)
		} else if status.Position+maxReadyLag < durable {
			not(fmt.Sprintf("projection %s is at position %d of %d", status.Name, status.Position, durable), nil)
		}
		r.Projections = append(r.Projections, p)
	}
	for _, subject := range s.liveClaims.LeftOut() {
		r.Warnings = append(r.Warnings, "a commit on "+subject+" cannot be read: that work answers FORGE_POISONED, and lists leave it out")
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// ahead is how far the clock is ahead of that of the stream leader.
func (s *Service) ahead() time.Duration {
	return s.clock.Now().Std().Sub(s.opts.Log.LeaderTime())
}

// now is the time for lists: the clock's, unless that is too far ahead.
func (s *Service) now() events.Time {
	return min(s.clock.Now(), events.TimeOf(s.opts.Log.LeaderTime().Add(s.opts.MaxClockSkew)))
}

// maxReadyLag is how many commits a list may be behind while the service calls
// itself ready.
const maxReadyLag = 10_000

// ClaimsPosition is up to where the lists know the log.
func (s *Service) ClaimsPosition() uint64 { return s.runner.Position() }
