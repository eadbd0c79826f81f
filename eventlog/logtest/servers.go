package logtest

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// Servers are external NATS servers, one or a cluster, with the accounts that
// forge-es wants. They run in this process; clients reach them over TCP.
type Servers struct {
	t     testing.TB
	nodes []*node
}

type node struct {
	opts serverValues
	srv  *server.Server // nil while stopped
}

type serverValues struct {
	Name, Store         string
	Port, ClusterPort   int
	Routes              string
	SyncAlways, Cluster bool
}

// Passwords of the test servers.
const (
	forgePassword   = "test-forge"
	servicePassword = "test-service"
)

var serverConfig = template.Must(template.New("server").Funcs(template.FuncMap{"q": strconv.Quote}).Parse(`
server_name: {{q .Name}}
listen: "127.0.0.1:{{.Port}}"
jetstream { store_dir: {{q .Store}}, max_file_store: 1152921504606846976, max_memory_store: 1073741824, sync_interval: {{if .SyncAlways}}always{{else}}"2m"{{end}} }
{{if .Cluster}}cluster { name: forge-test, listen: "127.0.0.1:{{.ClusterPort}}", no_advertise: true, routes: [ {{.Routes}} ] }{{end}}
accounts {
  FORGE { jetstream: enabled, users: [ { user: forge, password: test-forge } ] }
  APP { jetstream: enabled, users: [ { user: forge-service, password: test-service }, { user: app, password: test-app } ] }
}
no_auth_user: app
`))

// Single runs one external server.
func Single(t testing.TB, syncAlways bool) *Servers {
	t.Helper()
	return start(t, 1, syncAlways)
}

// Cluster runs three servers that form a JetStream cluster, and waits until it has
// a leader.
func Cluster(t testing.TB, syncAlways bool) *Servers {
	t.Helper()
	return start(t, 3, syncAlways)
}

func start(t testing.TB, n int, syncAlways bool) *Servers {
	t.Helper()
	s := &Servers{t: t}
	ports := freePorts(t, 2*n)
	routes := make([]string, n)
	for i := range routes {
		routes[i] = fmt.Sprintf("%q", "nats://127.0.0.1:"+strconv.Itoa(ports[n+i]))
	}
	dir := t.TempDir()
	for i := range n {
		s.nodes = append(s.nodes, &node{opts: serverValues{
			Name: "n" + strconv.Itoa(i), Store: filepath.Join(dir, strconv.Itoa(i)), Port: ports[i], ClusterPort: ports[n+i],
			Routes: strings.Join(routes, ", "), SyncAlways: syncAlways, Cluster: n > 1,
		}})
	}
	t.Cleanup(func() {
		for i := range s.nodes {
			s.Stop(i)
		}
	})
	for i := range s.nodes {
		s.run(i)
	}
	s.ready()
	return s
}

// freePorts reserves ports of the loopback by using them for a moment.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("reserve a port: %v", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

func (s *Servers) run(i int) {
	s.t.Helper()
	n := s.nodes[i]
	var text bytes.Buffer
	if err := serverConfig.Execute(&text, n.opts); err != nil {
		s.t.Fatalf("server configuration: %v", err)
	}
	opts := &server.Options{NoSigs: true}
	if err := opts.ProcessConfigString(text.String()); err != nil {
		s.t.Fatalf("server configuration: %v", err)
	}
	opts.NoSigs = true
	srv, err := server.NewServer(opts)
	if err != nil {
		s.t.Fatalf("server %d: %v", i, err)
	}
	log := &serverLog{}
	srv.SetLoggerV2(log, false, false, false)
	go srv.Start()
	n.srv = srv
	if !srv.ReadyForConnections(20*time.Second) || log.fatal.Load() != nil {
		s.t.Fatalf("server %d did not start: %v", i, log.fatal.Load())
	}
}

// serverLog keeps the first fatal message, the only report of a failed start.
type serverLog struct{ fatal atomic.Pointer[string] }

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Warnf(string, ...any)   {}
func (l *serverLog) Errorf(string, ...any)  {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}
func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
}

// ready waits until the servers that run can create streams.
func (s *Servers) ready() {
	s.t.Helper()
	if len(s.nodes) == 1 {
		return
	}
	Eventually(s.t, 30*time.Second, "the cluster has a leader and knows its members", func() bool {
		for _, n := range s.nodes {
			if n.srv != nil && n.srv.JetStreamIsLeader() && len(n.srv.JetStreamClusterPeers()) == len(s.nodes) {
				return true
			}
		}
		return false
	})
}

// Len is how many servers there are.
func (s *Servers) Len() int { return len(s.nodes) }

// Replicas is how many copies a log on these servers has.
func (s *Servers) Replicas() int { return len(s.nodes) }

// Server is a server that runs.
func (s *Servers) Server(i int) *server.Server { return s.nodes[i].srv }

// URL names all servers, for clients.
func (s *Servers) URL() string {
	urls := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		urls[i] = "nats://127.0.0.1:" + strconv.Itoa(n.opts.Port)
	}
	return strings.Join(urls, ",")
}

// Stop shuts one server down, cleanly. Connections to it break.
func (s *Servers) Stop(i int) {
	if n := s.nodes[i]; n.srv != nil {
		n.srv.Shutdown()
		n.srv.WaitForShutdown()
		n.srv = nil
	}
}

// StoreDir is where a server keeps its data.
func (s *Servers) StoreDir(i int) string { return s.nodes[i].opts.Store }

// Restart stops a server and runs it again, on its data and its port.
func (s *Servers) Restart(i int) {
	s.t.Helper()
	s.Stop(i)
	s.run(i)
	s.ready()
}

// StartAll runs every server that is stopped.
func (s *Servers) StartAll() {
	s.t.Helper()
	for i, n := range s.nodes {
		if n.srv == nil {
			s.run(i)
		}
	}
	s.ready()
}

// Leader is the server that leads a stream of the account of the log, -1 for none.
func (s *Servers) Leader(stream string) int {
	for i, n := range s.nodes {
		if n.srv != nil && n.srv.JetStreamIsStreamLeader(eventlog.AccountForge, stream) {
			return i
		}
	}
	return -1
}

// StepDown has a stream of the account of the log elect another leader. Alone, a
// server leads on.
func (s *Servers) StepDown(stream string) {
	s.t.Helper()
	if len(s.nodes) == 1 {
		return
	}
	Eventually(s.t, 20*time.Second, "the stream has a leader that steps down", func() bool {
		i := s.Leader(stream)
		return i >= 0 && s.nodes[i].srv.JetStreamStepdownStream(eventlog.AccountForge, stream) == nil
	})
}

// ForgeConn connects to the account of the log until the test ends.
func (s *Servers) ForgeConn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return s.connect(t, "forge", forgePassword, opts)
}

// AppConn connects to the account of the callers, as the service, until the test
// ends.
func (s *Servers) AppConn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return s.connect(t, "forge-service", servicePassword, opts)
}

func (s *Servers) connect(t testing.TB, user, password string, opts []nats.Option) *nats.Conn {
	t.Helper()
	all := append(eventlog.ConnectOptions("test", zerolog.Nop()), nats.UserInfo(user, password), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond))
	return closing(t)(nats.Connect(s.URL(), append(all, opts...)...))
}
