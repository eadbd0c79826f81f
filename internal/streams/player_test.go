package streams

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// day is a script: what callers do to one instance, and what they are answered.
type day struct {
	name, title string
	version     string // the folder that it is recorded in
	play        func(p *player)
}

func (d day) file() string { return d.version + "/" + d.name + ".jsonl" }

// logID is fixed, so that a day can be played again.
func (d day) logID() string { return hexOf(32, "log", d.name) }

// player plays a day through a running service. Nothing of what it sends depends
// on when or where it plays.
type player struct {
	testing.TB
	day    day
	embed  *eventlog.Embedded
	forge  *nats.Conn
	app    *nats.Conn
	caller *nats.Conn
	clock  *servicetest.Clock
	node   *servicetest.Node
	stop   func()
	sent   int
}

// play runs a day on an embedded server and gives the log that it left.
func play(t testing.TB, e *eventlog.Embedded, d day) replay.Memory {
	t.Helper()
	p := &player{
		TB: t, day: d, embed: e, forge: logtest.ForgeConn(t, e), app: logtest.AppConn(t, e), caller: servicetest.Caller(t, e),
		clock: servicetest.NewClock(date),
	}
	p.start()
	defer func() { p.stop() }()
	d.play(p)
	last, err := p.node.Log.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var log replay.Memory
	for r, err := range servicetest.UpTo(p.node.Log, last).Records(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		r.StoredAt = time.Time{} // the server's clock
		log = append(log, r)
	}
	return log
}

func (p *player) start() {
	p.node, p.stop = servicetest.Run(p, p.day.name, p.forge, p.app, func(cfg *eventlog.Config, opts *service.Options) {
		cfg.Embedded, cfg.LogID, opts.Clock = p.embed, p.day.logID(), p.clock
	})
}

// restart stops the service and starts it again, with nothing in memory.
func (p *player) restart() {
	p.stop()
	p.start()
}

// date is the day on which all days happen.
var date = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// at sets the clock to a time of the day, for example 09:30:00.
func (p *player) at(text string) {
	p.Helper()
	t, err := time.Parse(time.TimeOnly, text)
	if err != nil {
		p.Fatal(err)
	}
	p.clock.Set(date.Add(t.Sub(t.Truncate(24 * time.Hour))))
}

// after moves the clock on.
func (p *player) after(d time.Duration) { p.clock.Advance(d) }

// object is the body of a request.
type object = map[string]any

// with adds members, given as name, value, …
func with(o object, pairs ...any) object {
	o = maps.Clone(o)
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	return o
}

// sender is who sends requests.
type sender struct {
	*player
	root, principal string
	headers         []string
}

// as is a principal on the root of commands, operator one on that of operators.
func (p *player) as(principal string) sender { return sender{p, "forge.cmd", principal, nil} }

func (p *player) operator(name string) sender { return sender{p, "forge.op", name, nil} }

// header adds headers, given as name, value, …
func (s sender) header(pairs ...string) sender {
	s.headers = append(s.headers[:len(s.headers):len(s.headers)], pairs...)
	return s
}

// send gives a request the next command id of the day, unless it has one.
func (s sender) send(verb string, body object) *servicetest.Reply {
	s.Helper()
	s.sent++
	headers := append([]string{service.HeaderCommandID, fmt.Sprintf("%s-%03d", s.day.name, s.sent)}, s.headers...)
	token := s.principal
	if !strings.HasPrefix(token, "==") {
		token = events.Token(token)
	}
	return servicetest.MustAsk(s, s.caller, s.root+"."+s.day.name+"."+token+"."+verb, body, headers...)
}

func (s sender) want(outcome, verb string, body object) *servicetest.Reply {
	s.Helper()
	r := s.send(verb, body)
	if r.Outcome != outcome {
		s.Fatalf("%s %s by %s: %s, want %s: %s", verb, show(body), s.principal, r.Outcome, outcome, r.Data)
	}
	return r
}

// appended, unchanged, refused, already and fails each send a request and fail
// the test unless that is what became of it.
func (s sender) appended(verb string, body object) *servicetest.Reply {
	s.Helper()
	return s.want(service.OutcomeAppended, verb, body)
}

func (s sender) unchanged(verb string, body object) *servicetest.Reply {
	s.Helper()
	return s.want(service.OutcomeUnchanged, verb, body)
}

func (s sender) refused(verb string, body object) *servicetest.Reply {
	s.Helper()
	return s.want(service.OutcomeRefused, verb, body)
}

func (s sender) already(verb string, body object) *servicetest.Reply {
	s.Helper()
	return s.want(service.OutcomeAlreadyApplied, verb, body)
}

func (s sender) fails(code events.Code, verb string, body object) {
	s.Helper()
	if r := s.send(verb, body); r.Code != code {
		s.Fatalf("%s %s by %s: %s %s, want %s: %s", verb, show(body), s.principal, r.Code, r.Outcome, code, r.Data)
	}
}

// imported sends a snapshot and compares what became of its entries.
func (s sender) imported(snapshot string, body object, outcomes ...string) {
	s.Helper()
	r := s.send("work.import", body)
	var got struct {
		Snapshot string
		Entries  []struct{ Outcome string }
	}
	if r.Code != "" || json.Unmarshal(r.Result, &got) != nil {
		s.Fatalf("import: %s", r.Data)
	}
	var list []string
	for _, e := range got.Entries {
		list = append(list, e.Outcome)
	}
	if got.Snapshot != snapshot || strings.Join(list, " ") != strings.Join(outcomes, " ") {
		s.Fatalf("import: %s %v, want %s %v: %s", got.Snapshot, list, snapshot, outcomes, r.Data)
	}
}

func show(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// controller is somebody who claims works.
type controller struct {
	id, kind, principal, instance string
	transport                     int // how often its transport session rotated
}

// session is its present transport session.
func (c controller) session() string {
	return "sess_" + hexOf(32, "session", c.id, fmt.Sprint(c.transport))
}

// rotated has the next transport session.
func (c controller) rotated() controller { c.transport++; return c }

// under runs in another runtime.
func (c controller) under(instance string) controller { c.instance = instance; return c }

// claim is the body of claim, resume and bind.
func (c controller) claim(work string, pairs ...any) object {
	return with(object{
		"workId": work, "controllerId": c.id, "controllerType": c.kind, "sessionId": c.session(), "principalId": c.principal,
		"controllerInstanceId": c.instance,
	}, pairs...)
}

// shows is the body of a verb that shows the authority of a generation.
func (c controller) shows(work string, generation int, pairs ...any) object {
	return with(object{"workId": work, "authority": object{
		"controllerId": c.id, "controllerType": c.kind, "principalId": c.principal, "controllerInstanceId": c.instance, "claimGeneration": generation,
	}}, pairs...)
}

// stored is a claim as an older system stored it.
func (c controller) stored(work string, generation int, claimedAt string, pairs ...any) object {
	at, err := time.Parse(time.RFC3339, claimedAt)
	if err != nil {
		panic(err) // a mistake in the script
	}
	return with(c.claim(work), append([]any{
		"schemaVersion", 1, "claimGeneration", generation, "claimedAt", events.TimeOf(at).String(), "leaseExpiresAt", events.TimeOf(at.Add(time.Hour)).String(),
	}, pairs...)...)
}

// snapshot is the body that imports stored claims.
func snapshot(source, scope string, sessions ...object) object {
	return object{"source": source, "scope": scope, "store": object{"schemaVersion": 1, "updatedAt": "2026-03-01T23:59:00.000Z", "sessions": append([]object{}, sessions...)}}
}

// digestOf is what is stored of a capability.
func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte("ctrl_" + hexOf(32, parts...)))
	return hex.EncodeToString(sum[:])
}

// hexOf makes n hex digits of a text: ids that look like those of an installation
// and are always the same.
func hexOf(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}

func runtime(name string) string { return "runtime_" + hexOf(32, "runtime", name) }
