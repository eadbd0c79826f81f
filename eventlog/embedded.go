package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// Accounts of a server of forge-es. Nothing is exported from one to the other.
const (
	AccountForge = "FORGE" // log, audit stream, activity; only the service connects to it
	AccountApp   = "APP"   // callers, service endpoints, views, feed
)

// EmbeddedConfig says how to run a NATS server inside this process.
type EmbeddedConfig struct {
	// DataDir is where JetStream keeps its files. It is created if missing, and
	// locked: one process at a time. No default.
	DataDir string

	// Listen is host:port for callers; port -1 takes a free one. Default:
	// 127.0.0.1:4222. Danger: a host that is not loopback is refused unless
	// AppUser and AppPassword are given, for without them every caller who reaches
	// the port may send every command.
	Listen string

	// Instance is the installation whose view buckets callers may not write to.
	// Default: events.DefaultInstance.
	Instance string

	// AppUser and AppPassword, if given, are what callers must show. They get the
	// same permissions as callers without authentication. Default: none, every
	// caller is let in.
	AppUser, AppPassword string

	// SyncOff leaves it to the server to write data to the disk every two minutes,
	// instead of before every acknowledgement. Danger: a power failure loses what
	// was acknowledged since. For tests and benchmarks. Default: false.
	SyncOff bool

	// ServerName is the name of the server. Default: forge-es-<instance>.
	ServerName string

	// StartTimeout bounds the start. A long log takes seconds to recover after a
	// crash. Default: 1 min.
	StartTimeout time.Duration

	// Logger gets what the server says; secrets are taken out. Default: nothing.
	Logger zerolog.Logger
}

// maxFileStore is given to the server explicitly: its default, three quarters of
// the space that is free at each start, refuses streams when the disk fills.
const maxFileStore = int64(1) << 60

// serverConfig is the configuration of an embedded server. What callers may not
// do is what would let them speak for the service, or change what it owns.
var serverConfig = template.Must(template.New("server").Funcs(template.FuncMap{"q": strconv.Quote}).Parse(`
server_name: {{q .Name}}
host: {{q .Host}}
port: {{.Port}}
jetstream {
  store_dir: {{q .Store}}
  max_file_store: {{.MaxFileStore}}
  sync_interval: {{if .SyncOff}}"2m"{{else}}always{{end}}
}
accounts {
  FORGE {
    jetstream: enabled
    users: [ { user: {{q .ForgeUser}}, password: {{q .ForgePassword}} } ]
  }
  APP {
    jetstream: enabled
    users: [
      { user: {{q .ServiceUser}}, password: {{q .ServicePassword}} }
      { user: {{q .AppUser}}, password: {{q .AppPassword}}, permissions: {
          publish: { deny: [ {{range $i, $s := .DenyPublish}}{{if $i}}, {{end}}{{q $s}}{{end}}] }
          subscribe: { deny: [ {{range $i, $s := .DenySubscribe}}{{if $i}}, {{end}}{{q $s}}{{end}}] }
      } }
    ]
  }
}
{{if .NoAuthUser}}no_auth_user: {{q .NoAuthUser}}
{{end}}{{.Extra}}`))

// Users of the server configuration.
const (
	userForge   = "forge"
	userService = "forge-service"
	userApp     = "app"
)

type serverValues struct {
	Name, Host, Store            string
	Port                         int
	MaxFileStore                 int64
	SyncOff                      bool
	ForgeUser, ForgePassword     string
	ServiceUser, ServicePassword string
	AppUser, AppPassword         string
	NoAuthUser                   string
	DenyPublish, DenySubscribe   []string
	Extra                        string
}

func callerDenials(instance string) (publish, subscribe []string) {
	publish = []string{"forge.feed.>"}
	for _, view := range []string{"claims", "releases", "authority"} {
		publish = append(publish, "$KV.forge-"+view+"-"+instance+".>")
	}
	for _, verb := range []string{"CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "MSG.DELETE"} {
		publish = append(publish, "$JS.API.STREAM."+verb+".>")
	}
	return publish, []string{"forge.cmd.>", "forge.op.>", "forge.query.>"}
}

// Embedded is a running server inside this process.
type Embedded struct {
	dir      string
	srv      *server.Server
	lock     *dirLock
	log      *natsLog
	logger   zerolog.Logger
	forge    string // passwords
	service  string
	appUser  *url.Userinfo
	stopping context.CancelFunc
	stopped  context.Context
}

// StartEmbedded starts a server and waits until it takes connections. When it
// returns without an error, everything that was acknowledged before is readable.
//
// Errors: FORGE_BUSY when another process holds the data directory (details
// directory, pid), FORGE_FORBIDDEN for an open address without authentication,
// FORGE_BAD_REQUEST for a configuration that cannot be, FORGE_LOG_UNSAFE for a
// stream with messages that no longer says what it is, FORGE_UNAVAILABLE when the
// server does not come up (a JetStream that cannot start is one).
func StartEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	setDefault(&cfg.Listen, "127.0.0.1:4222")
	setDefault(&cfg.Instance, events.DefaultInstance)
	setDefault(&cfg.ServerName, "forge-es-"+cfg.Instance)
	setDefault(&cfg.StartTimeout, time.Minute)
	if cfg.DataDir == "" {
		return nil, events.Errorf(events.CodeBadRequest, "embedded server: no data directory")
	}
	if err := events.ValidInstance(cfg.Instance); err != nil {
		return nil, err
	}
	if (cfg.AppUser == "") != (cfg.AppPassword == "") {
		return nil, events.Errorf(events.CodeBadRequest, "embedded server: user and password come together")
	}
	host, port, err := splitListen(cfg.Listen)
	if err != nil {
		return nil, err
	}
	if cfg.AppUser == "" && !isLoopback(host) {
		return nil, events.Errorf(events.CodeForbidden, "embedded server: %s is not a loopback address, and there is no authentication: every caller would be an operator", cfg.Listen).
			With("listen", cfg.Listen)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}

	e := &Embedded{dir: dir, logger: cfg.Logger, forge: rand.Text(), service: rand.Text()}
	v := serverValues{
		Name: cfg.ServerName, Host: host, Port: port, Store: dir, MaxFileStore: maxFileStore, SyncOff: cfg.SyncOff,
		ForgeUser: userForge, ForgePassword: e.forge, ServiceUser: userService, ServicePassword: e.service,
		AppUser: cfg.AppUser, AppPassword: cfg.AppPassword,
	}
	v.DenyPublish, v.DenySubscribe = callerDenials(cfg.Instance)
	if cfg.AppUser == "" {
		v.AppUser, v.AppPassword, v.NoAuthUser = userApp, rand.Text(), userApp
	} else {
		e.appUser = url.UserPassword(cfg.AppUser, cfg.AppPassword)
	}
	if v.AppUser == userForge || v.AppUser == userService {
		return nil, events.Errorf(events.CodeBadRequest, "embedded server: user %q is the service's own", v.AppUser)
	}
	e.log = newNATSLog(cfg.Logger, e.forge, e.service, v.AppPassword)

	if e.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := repairStreams(dir, cfg.Logger); err != nil {
		return nil, errors.Join(err, e.lock.unlock())
	}
	e.stopped, e.stopping = context.WithCancel(context.Background())
	if err := e.start(v, cfg.StartTimeout); err != nil {
		return nil, errors.Join(err, e.lock.unlock())
	}
	return e, nil
}

func (e *Embedded) start(v serverValues, timeout time.Duration) error {
	opts, err := serverOptions(v, e.log)
	if err != nil {
		return err
	}
	if e.srv, err = server.NewServer(opts); err != nil {
		return events.Errorf(events.CodeUnavailable, "embedded server: %w", err)
	}
	e.srv.SetLoggerV2(e.log, false, false, false)
	go e.srv.Start()

	deadline := time.After(timeout)
	for !e.srv.ReadyForConnections(10 * time.Millisecond) {
		select {
		case <-e.log.died:
		case <-deadline:
			e.kill()
			return events.Errorf(events.CodeUnavailable, "embedded server: not ready after %s", timeout)
		default:
			continue
		}
		break
	}
	if text := e.log.fatalText(); text != "" || !e.srv.JetStreamEnabled() {
		e.kill()
		return events.Errorf(events.CodeUnavailable, "embedded server: it did not start: %s", cmp.Or(text, "no JetStream"))
	}
	return nil
}

// serverOptions renders the configuration and lets the server read it.
func serverOptions(v serverValues, log *natsLog) (*server.Options, error) {
	var text bytes.Buffer
	if err := serverConfig.Execute(&text, v); err != nil {
		return nil, fmt.Errorf("server configuration: %w", err)
	}
	opts := &server.Options{NoSigs: true}
	if err := opts.ProcessConfigString(text.String()); err != nil {
		// The text may quote the configuration, and so a password.
		return nil, events.Errorf(events.CodeBadRequest, "server configuration: %s", log.text("%v", []any{err}))
	}
	opts.NoSigs = true
	return opts, nil
}

func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < -1 || port > 65535 {
		return "", 0, events.Errorf(events.CodeBadRequest, "listen address %q: want host:port", listen).With("listen", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// ForgeConn is a new connection to the account of the log, in process.
func (e *Embedded) ForgeConn(opts ...nats.Option) (*nats.Conn, error) {
	return e.connect("forge-es log", userForge, e.forge, opts)
}

// AppConn is a new connection to the account of the callers, in process, as the
// service.
func (e *Embedded) AppConn(opts ...nats.Option) (*nats.Conn, error) {
	return e.connect("forge-es service", userService, e.service, opts)
}

func (e *Embedded) connect(name, user, password string, opts []nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{nats.InProcessServer(e.srv), nats.UserInfo(user, password)}, ConnectOptions(name, e.logger)...)
	nc, err := nats.Connect("", append(all, opts...)...)
	if err != nil {
		return nil, events.Errorf(events.CodeUnavailable, "connect to the embedded server: %w", err)
	}
	return nc, nil
}

// ConnectOptions are those that a connection of the service should have: it
// never gives up, it does not keep what is published while it is cut off (that
// would be sent long after the caller was told that it failed), and its troubles
// are logged.
func ConnectOptions(name string, log zerolog.Logger) []nats.Option {
	log = log.With().Str("connection", name).Logger()
	return []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			e := log.Warn().Err(err)
			if sub != nil {
				e = e.Str("subject", sub.Subject)
			}
			e.Msg("NATS connection")
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: it was closed here
				log.Warn().Err(err).Msg("disconnected")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info().Str("server", nc.ConnectedServerName()).Msg("connected again") }),
	}
}

// ClientURL is where callers reach the server. It holds no password.
func (e *Embedded) ClientURL() string { return e.srv.ClientURL() }

// Authenticated says whether callers must show who they are.
func (e *Embedded) Authenticated() bool { return e.appUser != nil }

// DataDir is the absolute path of the data directory.
func (e *Embedded) DataDir() string { return e.dir }

// FreeBytes is the free space of the file system of the data directory.
func (e *Embedded) FreeBytes() (int64, error) { return freeBytes(e.dir) }

// Server is the server itself, for diagnosis and tests.
func (e *Embedded) Server() *server.Server { return e.srv }

// Shutdown stops the server and gives the data directory back. Connections
// should be drained before. What was acknowledged stays. It may be called again.
func (e *Embedded) Shutdown() error {
	if e.stopped.Err() != nil {
		return nil
	}
	e.stopping()
	e.kill()
	return e.lock.unlock()
}

func (e *Embedded) kill() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
}

// writeError asks the server whether a stream met a write error, after which it
// no longer answers publishes. "" means that it did not, as far as it knows.
func (e *Embedded) writeError(stream string) string {
	if !e.srv.JetStreamEnabled() {
		return "JetStream is not running"
	}
	q := url.Values{"account": {AccountForge}, "stream": {stream}, "details": {"true"}}
	r, err := http.NewRequest(http.MethodGet, "/healthz?"+q.Encode(), nil)
	if err != nil {
		return ""
	}
	var w answer
	e.srv.HandleHealthz(&w, r)
	var health struct {
		Errors []server.HealthzError `json:"errors"`
	}
	if json.Unmarshal(w.Bytes(), &health) != nil {
		return ""
	}
	for _, h := range health.Errors {
		if h.Type == server.HealthzErrorStream && h.Stream == stream {
			return h.Error
		}
	}
	return ""
}

// answer keeps what a handler writes.
type answer struct {
	bytes.Buffer
	header http.Header
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *answer) WriteHeader(int) {}
