package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/google/renameio/v2"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// serveFlags are the manual of the service's command line.
type serveFlags struct {
	data, listen, http      string
	readyFile               string
	httpToken               string
	appUser, appPassword    string
	appContext              string
	replicas                int
	maxBytes                int64
	durability              string
	capability              bool
	skew, soak              time.Duration
	cache, pending          int
	logLevel, logFormat     string
	commandTimeout, checkup time.Duration
}

func (p *program) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run the service", Args: noArgs,
		Long: "Without --server and --context, NATS JetStream runs inside this process, with its data below --data,\n" +
			"and every commit is on the disk before it is acknowledged. With them, an existing NATS is used:\n" +
			"--context is the account of the log (FORGE), --app-context that of the callers (APP).\n\n" +
			"A signal stops the service after what it took is answered; a second one ends it at once.",
		Example: "  forge-es serve\n  forge-es serve --data /var/lib/forge-es --instance prod\n  forge-es serve --context forge --app-context app --durability synced",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.checkServe(c.Flags(), f); err != nil {
				return err
			}
			return p.serve(c.Context(), f)
		},
	}
	fs := c.Flags()
	stringFlag(fs, &f.data, "data", "FORGE_DATA", "./forge-data", "data `directory` of the embedded server (env FORGE_DATA)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:4222", "`address` of the embedded server, port 0 for a free one; off loopback only with --app-user")
	fs.StringVar(&f.http, "http", "127.0.0.1:7420", "`address` of /healthz, /readyz and /metrics, port 0 for a free one; - for none")
	fs.StringVar(&f.readyFile, "ready-file", "", "`file` to write as JSON (pid, nats, http, …) once requests are answered; removed at the end")
	fs.StringVar(&f.httpToken, "http-token-file", "", "`file` with the bearer token that HTTP callers need; required off loopback")
	fs.StringVar(&f.appUser, "app-user", "", "`user` that callers of the embedded server must be")
	fs.StringVar(&f.appPassword, "app-password-file", "", "`file` with the password of --app-user")
	fs.StringVar(&f.appContext, "app-context", "", "NATS `context` of the callers' account (default: that of --context)")
	fs.IntVar(&f.replicas, "replicas", 0, "copies of the log (default: 1 embedded, 3 on an existing NATS)")
	fs.Int64Var(&f.maxBytes, "log-max-bytes", 0, "most `bytes` of the log when it is created (default: 60 % of the free space; needed on an existing NATS)")
	fs.StringVar(&f.durability, "durability", "", "what an existing NATS does before it acknowledges: `synced`, if you know it")
	fs.BoolVar(&f.capability, "require-capability", false, "verbs that show an authority must show the capability, too")
	fs.DurationVar(&f.skew, "max-clock-skew", service.DefaultMaxClockSkew, "how far clocks may step or differ")
	fs.DurationVar(&f.soak, "minimum-soak", 0, "least time that a release soaks before it can become known good")
	fs.IntVar(&f.cache, "cache", 0, "`works` kept in memory (default 100000, about 1 kB each)")
	fs.IntVar(&f.pending, "max-pending", 0, "`requests` worked on at a time, beyond it FORGE_BUSY (default 4096)")
	fs.DurationVar(&f.commandTimeout, "command-timeout", 0, "most time for one request (default 15s)")
	fs.DurationVar(&f.checkup, "check-every", 0, "time between checks of the log's settings (default 1m)")
	fs.StringVar(&f.logLevel, "log-level", "info", "`level`: trace, debug, info, warn, error")
	fs.StringVar(&f.logFormat, "log-format", "", "`format`: console or json (default: console on a terminal)")
	return c
}

func (p *program) logger(f serveFlags) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil || !slices.Contains(words["log-level"], f.logLevel) {
		return zerolog.Logger{}, usagef("--log-level is none of %s", strings.Join(words["log-level"], ", "))
	}
	var out io.Writer = p.stderr
	switch f.logFormat {
	case "console":
		out = zerolog.ConsoleWriter{Out: p.stderr, TimeFormat: "15:04:05.000", NoColor: !terminal(p.stderr)}
	case "json":
	case "":
		if terminal(p.stderr) {
			out = zerolog.ConsoleWriter{Out: p.stderr, TimeFormat: "15:04:05.000"}
		}
	default:
		return zerolog.Logger{}, usagef("--log-format is neither console nor json")
	}
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).Hook(timestamp).With().Str("instance", p.instance).Logger(), nil
}

// checkServe refuses flags that contradict each other. Flags of the embedded
// server ask for one, even where the environment names a server for clients.
func (p *program) checkServe(flags *pflag.FlagSet, f serveFlags) error {
	external := ""
	for _, name := range []string{"server", "context"} {
		if flags.Changed(name) {
			external = name
		}
	}
	embedded := ""
	for _, name := range []string{"data", "listen", "app-user", "app-password-file"} {
		if flags.Changed(name) {
			embedded = name
		}
	}
	switch {
	case external != "" && embedded != "":
		return usagef("--%s is about the embedded server, --%s about an existing one", embedded, external)
	case embedded != "":
		p.server, p.context = "", ""
	case external == "" && (p.server != "" || p.context != ""):
		p.notef("using an existing NATS, which NATS_URL or NATS_CONTEXT names; --data DIR runs the embedded one")
	}
	if p.server == "" && p.context == "" {
		for _, name := range []string{"app-context", "durability"} {
			if flags.Changed(name) {
				return usagef("--%s goes with an existing NATS (--server or --context)", name)
			}
		}
	}
	if (f.appUser == "") != (f.appPassword == "") {
		return usagef("--app-user and --app-password-file come together")
	}
	for name, v := range map[string]int64{
		"replicas": int64(f.replicas), "log-max-bytes": f.maxBytes, "cache": int64(f.cache), "max-pending": int64(f.pending),
		"max-clock-skew": int64(f.skew), "minimum-soak": int64(f.soak), "command-timeout": int64(f.commandTimeout), "check-every": int64(f.checkup),
	} {
		if v < 0 {
			return usagef("--%s is negative", name)
		}
	}
	if f.durability != "" && f.durability != "synced" {
		return usagef("--durability can only be synced")
	}
	return nil
}

// timestamp is the time of a log line, to the millisecond.
var timestamp = zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Stringer(zerolog.TimestampFieldName, events.TimeOf(time.Now()))
})

// standing is what a service stands on.
type standing struct {
	forge, app *nats.Conn
	embedded   *eventlog.Embedded
	setup      service.Setup
}

func (s *standing) close() error {
	for _, nc := range []*nats.Conn{s.app, s.forge} {
		if nc != nil {
			nc.Close()
		}
	}
	if s.embedded != nil {
		return s.embedded.Shutdown()
	}
	return nil
}

// stand starts the embedded server, or connects to an existing one.
func (p *program) stand(f serveFlags, log zerolog.Logger) (s *standing, err error) {
	s = &standing{}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	if p.server == "" && p.context == "" {
		cfg := eventlog.EmbeddedConfig{DataDir: f.data, Listen: f.listen, Instance: p.instance, AppUser: f.appUser, Logger: log.With().Str("part", "nats").Logger()}
		s.setup = service.Setup{Accounts: "separate", Durability: "synced", Authentication: "off"}
		if f.appUser != "" {
			if cfg.AppPassword, err = secretFile(f.appPassword); err != nil {
				return s, usagef("--app-password-file: %w", err)
			}
			s.setup.Authentication = "on"
		}
		if s.embedded, err = eventlog.StartEmbedded(cfg); err != nil {
			return s, err
		}
		if s.forge, err = s.embedded.ForgeConn(); err != nil {
			return s, err
		}
		s.app, err = s.embedded.AppConn()
		return s, err
	}
	s.setup = service.Setup{Accounts: "shared", Durability: cmp.Or(f.durability, "unverified"), Authentication: "by the server"}
	if s.forge, err = p.dial("forge-es log", eventlog.ConnectOptions("forge-es log", log)...); err != nil {
		return s, err
	}
	callers := p.connection
	if f.appContext != "" {
		callers.context, callers.server = f.appContext, ""
		s.setup.Accounts = "separate"
	}
	s.app, err = callers.dial("forge-es service", eventlog.ConnectOptions("forge-es service", log)...)
	return s, err
}

func (p *program) serve(ctx context.Context, f serveFlags) (err error) {
	log, err := p.logger(f)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	web, err := listenHTTP(f)
	if err != nil {
		return err
	}
	if web != nil {
		defer web.Close()
		web.serve()
	}
	s, err := p.stand(f, log)
	if err != nil {
		return err
	}
	defer func() {
		if closing := s.close(); err == nil {
			err = closing
		}
	}()

	clock := service.NewSystemClock(f.skew)
	l, err := eventlog.Open(ctx, s.forge, eventlog.Config{
		Instance: p.instance, Embedded: s.embedded, Replicas: f.replicas, MaxBytes: f.maxBytes, MaxClockSkew: f.skew, CheckEvery: f.checkup,
		Logger: log.With().Str("part", "log").Logger(),
	})
	if err != nil {
		return begun(ctx, err)
	}
	defer l.Close()
	replicas := f.replicas
	if replicas == 0 && s.embedded == nil {
		replicas = 3
	}
	svc, err := service.Start(ctx, service.Options{
		Log: l, Forge: s.forge, App: s.app, Replicas: replicas, RequireCapability: f.capability, MinimumSoak: f.soak, Clock: clock,
		MaxClockSkew: f.skew,
		CacheSize:    f.cache, MaxPending: f.pending, CommandTimeout: f.commandTimeout, Version: semantic(built()), Setup: s.setup,
		Logger: log.With().Str("part", "service").Logger(),
	})
	if err != nil {
		return begun(ctx, err)
	}
	if web != nil {
		web.ready(svc.HTTP())
	}
	if f.readyFile != "" {
		if err := p.writeReady(f.readyFile, s, l, web); err != nil {
			return errors.Join(fmt.Errorf("--ready-file: %w", err), svc.Stop())
		}
		defer os.Remove(f.readyFile)
	}
	p.announce(log, s, l, web)
	<-ctx.Done()
	stop() // a second signal ends the process at once
	log.Info().Msg("stopping: answering what was taken")
	if err := svc.Stop(); err != nil {
		return events.Errorf(events.CodeUnavailable, "stop: %w", err)
	}
	log.Info().Msg("stopped")
	return nil
}

// begun is the error of a start that did not get through; a signal meanwhile is
// no failure.
func begun(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// announce says where the service can be reached and what can be relied on.
func (p *program) announce(log zerolog.Logger, s *standing, l *eventlog.Log, web *webServer) {
	e := log.Info().Str("log", l.ID()).Uint64("position", l.Durable()).
		Str("accounts", s.setup.Accounts).Str("durability", s.setup.Durability).Str("authentication", s.setup.Authentication)
	e = e.Str("nats", s.address())
	if s.embedded != nil {
		e = e.Str("data", s.embedded.DataDir())
	}
	if web != nil {
		e = e.Str("http", "http://"+web.Addr().String())
	}
	e.Msg("serving")
	if s.setup.Authentication == "off" {
		log.Warn().Msg("callers are not authenticated: a principal is a label, not a proof")
	}
	if s.setup.Accounts == "shared" {
		log.Warn().Msg("callers share the account of the log: only the check of reply subjects protects it")
	}
}

// ready is what --ready-file holds.
type ready struct {
	PID      int    `json:"pid"`
	Instance string `json:"instance"`
	NATS     string `json:"nats"`
	HTTP     string `json:"http,omitempty"`
	Log      string `json:"log"`
	Data     string `json:"data,omitempty"`
	Version  string `json:"version"`
	service.Setup
}

// writeReady writes the file as a whole: who finds it can read it.
func (p *program) writeReady(name string, s *standing, l *eventlog.Log, web *webServer) error {
	r := ready{PID: os.Getpid(), Instance: p.instance, NATS: s.address(), Log: l.ID(), Version: built(), Setup: s.setup}
	if s.embedded != nil {
		r.Data = s.embedded.DataDir()
	}
	if web != nil {
		r.HTTP = "http://" + web.Addr().String()
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(name, append(b, '\n'), 0o644)
}

// address is where callers connect; it holds no password.
func (s *standing) address() string {
	if s.embedded != nil {
		return s.embedded.ClientURL()
	}
	return s.app.ConnectedUrlRedacted()
}

// semantic makes a semantic version of the build's version, as the services
// framework wants it.
func semantic(v string) string {
	v = strings.TrimPrefix(v, "v")
	if base, rest, _ := strings.Cut(v, "-"); strings.Count(base, ".") == 2 {
		if rest == "" {
			return base
		}
		return base + "-" + rest
	}
	return "0.0.0-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, v)
}

// webServer is the HTTP side.
type webServer struct {
	net.Listener
	token   string
	srv     *http.Server
	handler atomic.Pointer[http.Handler] // nil until the service is there
}

// listenHTTP opens the address of --http, nil for none. Off loopback it needs a
// token.
func listenHTTP(f serveFlags) (*webServer, error) {
	if f.http == "-" {
		return nil, nil
	}
	w := &webServer{}
	var err error
	if f.httpToken != "" {
		if w.token, err = secretFile(f.httpToken); err != nil {
			return nil, usagef("--http-token-file: %w", err)
		}
	}
	addr, err := net.ResolveTCPAddr("tcp", f.http)
	if err != nil {
		return nil, usagef("--http: %w", err)
	}
	if !addr.IP.IsLoopback() && w.token == "" {
		return nil, events.Errorf(events.CodeForbidden, "--http %s is not loopback: it needs --http-token-file", f.http)
	}
	if w.Listener, err = net.Listen("tcp", f.http); err != nil {
		return nil, events.Errorf(events.CodeUnavailable, "--http: %w", err)
	}
	return w, nil
}

// serve answers at once: while a long log is recovered, that the service starts.
func (w *webServer) serve() {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h := w.handler.Load(); h != nil {
			(*h).ServeHTTP(rw, r)
			return
		}
		if r.URL.Path == "/healthz" {
			_, _ = io.WriteString(rw, "starting\n")
			return
		}
		http.Error(rw, "starting", http.StatusServiceUnavailable)
	})
	w.srv = &http.Server{Handler: w.guard(h), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = w.srv.Serve(w.Listener) }()
}

// ready hands over to the service.
func (w *webServer) ready(h http.Handler) { w.handler.Store(&h) }

// guard asks for the token, if there is one.
func (w *webServer) guard(next http.Handler) http.Handler {
	if w.token == "" {
		return next
	}
	want := []byte("Bearer " + w.token)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			rw.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(rw, "a token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// Close ends the HTTP side at once: there is nothing to finish.
func (w *webServer) Close() error {
	if w.srv != nil {
		return w.srv.Close()
	}
	return w.Listener.Close()
}
