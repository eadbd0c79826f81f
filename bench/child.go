package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// childEnv holds the childConfig of a process that is to be the target.
const childEnv = "FORGE_BENCH_TARGET"

type childConfig struct {
	Data    string `json:"data"`
	SyncOff bool   `json:"syncOff"`
}

// The stream of the raw side: its settings are copied from the log, but it is in
// the account of the callers, so that they may publish to it as they are.
const (
	rawStream = "BENCH_RAW"
	rawRoot   = "bench.log."
	logRoot   = "forge.log."
)

func rawSubject(logSubject string) string { return rawRoot + strings.TrimPrefix(logSubject, logRoot) }

// question is what the load process asks the target, a line of JSON on stdin; the
// answer is a line on stdout.
type question struct {
	Do      string `json:"do"`                // one of the verbs below
	Subject string `json:"subject,omitempty"` // askCommit: of which the last commit is wanted
	File    string `json:"file,omitempty"`    // askProfile
}

// Verbs of questions.
const (
	askCounts    = "counts"     // how many messages the streams hold; CPU time and allocations so far
	askCommit    = "commit"     // size and headers of the last commit on a subject
	askLists     = "lists"      // wait until the lists know the whole log
	askProfile   = "profile"    // begin a CPU profile
	askProfileOK = "profile-ok" // end it
)

type answer struct {
	Error  string              `json:"error,omitempty"`
	URL    string              `json:"url,omitempty"`    // first answer: where callers connect
	Opened time.Duration       `json:"opened,omitempty"` // first answer: from begin to serving
	Log    uint64              `json:"log,omitempty"`    // messages
	Raw    uint64              `json:"raw,omitempty"`
	CPU    time.Duration       `json:"cpu,omitempty"`   // of this process, user and system
	Alloc  uint64              `json:"alloc,omitempty"` // bytes allocated so far
	Bytes  int                 `json:"bytes,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
}

// child is what is measured: a server and a service as `forge-es serve` runs
// them.
type child struct {
	server     *eventlog.Embedded
	forge, app *nats.Conn
	maker      *nats.Conn // makes the raw stream; callers may not
	log        *eventlog.Log
	service    *service.Service
	raw        jetstream.Stream
	profile    *os.File
}

// serveChild is the process of the target. It ends when its stdin does.
func serveChild(config string, stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to both processes; the load process decides
	var cfg childConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	began := time.Now()
	c, err := startChild(context.Background(), cfg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(stdout)
	if err := out.Encode(answer{URL: c.server.ClientURL(), Opened: time.Since(began)}); err != nil {
		return errors.Join(err, c.stop())
	}
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		var q question
		err := json.Unmarshal(lines.Bytes(), &q)
		var a answer
		if err == nil {
			a, err = c.answer(context.Background(), q)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return errors.Join(err, c.stop())
		}
	}
	return c.stop()
}

func startChild(ctx context.Context, cfg childConfig) (c *child, err error) {
	c = &child{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	logger := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	if c.server, err = eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: cfg.Data, Listen: "127.0.0.1:0", SyncOff: cfg.SyncOff, Logger: logger}); err != nil {
		return c, err
	}
	if c.forge, err = c.server.ForgeConn(); err != nil {
		return c, err
	}
	if c.app, err = c.server.AppConn(); err != nil {
		return c, err
	}
	if c.log, err = eventlog.Open(ctx, c.forge, eventlog.Config{Embedded: c.server, Logger: logger}); err != nil {
		return c, err
	}
	if c.service, err = service.Start(ctx, service.Options{Log: c.log, Forge: c.forge, App: c.app, Logger: logger}); err != nil {
		return c, err
	}
	if c.maker, err = c.server.AppConn(); err != nil {
		return c, err
	}
	c.raw, err = c.openRaw(ctx)
	return c, err
}

// openRaw makes the stream of the raw side, with the settings that the log has.
func (c *child) openRaw(ctx context.Context) (jetstream.Stream, error) {
	forge, err := jetstream.New(c.forge)
	if err != nil {
		return nil, err
	}
	log, err := forge.Stream(ctx, events.StreamName(c.log.Instance()))
	if err != nil {
		return nil, err
	}
	cfg := log.CachedInfo().Config
	cfg.Name, cfg.Description = rawStream, "bench: messages of the shape of commits"
	for i, s := range cfg.Subjects {
		cfg.Subjects[i] = rawSubject(s)
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	maps.DeleteFunc(cfg.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") })
	app, err := jetstream.New(c.maker)
	if err != nil {
		return nil, err
	}
	if s, err := app.Stream(ctx, rawStream); err == nil {
		return s, nil
	}
	return app.CreateStream(ctx, cfg)
}

func (c *child) answer(ctx context.Context, q question) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	switch q.Do {
	case askCounts:
		info, err := c.log.Info(ctx)
		if err != nil {
			return a, err
		}
		raw, err := c.raw.Info(ctx)
		if err != nil {
			return a, err
		}
		a.Log, a.Raw = info.Messages, raw.State.Msgs
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		a.Alloc = sample[0].Value.Uint64()
		a.CPU, err = cpuTime()
		return a, err
	case askCommit:
		r, err := c.log.Last(ctx, q.Subject, eventlog.Leader)
		if err == nil && r == nil {
			err = fmt.Errorf("nothing on %s", q.Subject)
		}
		if err != nil {
			return a, err
		}
		return answer{Bytes: len(r.Payload), Header: r.Header}, nil
	case askLists:
		last, err := c.log.LastPosition(ctx)
		for err == nil && c.service.ClaimsPosition() < last {
			time.Sleep(time.Millisecond)
			err = ctx.Err()
		}
		return a, err
	case askProfile:
		if c.profile, err = os.Create(q.File); err != nil {
			return a, err
		}
		return a, pprof.StartCPUProfile(c.profile)
	case askProfileOK:
		pprof.StopCPUProfile()
		return a, errors.Join(c.profile.Close(), writeAllocs(strings.TrimSuffix(c.profile.Name(), ".pprof")+".allocs.pprof"))
	}
	return a, fmt.Errorf("question %q", q.Do)
}

// writeAllocs writes what was allocated since the process began, on both sides.
func writeAllocs(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

// cpuTime is what this process has used of the processors.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

func (c *child) stop() error {
	var errs []error
	if c.service != nil {
		errs = append(errs, c.service.Stop())
	}
	if c.log != nil {
		c.log.Close()
	}
	for _, nc := range []*nats.Conn{c.maker, c.app, c.forge} {
		if nc != nil {
			nc.Close()
		}
	}
	if c.server != nil {
		errs = append(errs, c.server.Shutdown())
	}
	return errors.Join(errs...)
}
