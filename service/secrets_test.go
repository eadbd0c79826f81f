package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// diary is a log output that is read later.
type diary struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// TestSecrets: the plain capability is in the reply of the minting query, and
// nowhere else; digests are not in lists.
func TestSecrets(t *testing.T) {
	lines := &diary{}
	logger := zerolog.New(lines).Level(zerolog.TraceLevel)
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: t.TempDir(), Listen: "127.0.0.1:-1", SyncOff: true, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown() })
	n := servicetest.Serve(t, events.DefaultInstance, logtest.ForgeConn(t, e), logtest.AppConn(t, e), func(cfg *eventlog.Config, o *service.Options) {
		cfg.Embedded, cfg.Logger = e, logger
		o.Logger, o.RequireCapability = logger, true
	})
	nc := servicetest.Caller(t, e)
	var minted session.Capability
	reply := query(t, nc, "claims.mint", nil)
	mustInto(t, reply, &minted)
	if len(minted.AuthorityID) != len("ctrl_")+32 || !bytes.Contains(reply.Data, []byte(minted.AuthorityID)) {
		t.Fatalf("minted %s", reply.Data)
	}
	if again := query(t, nc, "claims.mint", nil); bytes.Contains(again.Data, []byte(minted.AuthorityID)) {
		t.Error("the same capability twice")
	}
	var heard [][]byte // every later reply
	hear := func(r *servicetest.Reply) *servicetest.Reply {
		heard = append(heard, r.Data)
		for name, values := range r.Header {
			heard = append(heard, []byte(name+strings.Join(values, "")))
		}
		return r
	}
	secret := minted.AuthorityID
	with := func(controller string) fields { return shown("w", controller, 1).with("authorityId", secret) }

	hear(cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c").with("authorityDigest", minted.AuthorityDigest)))
	wantOutcome(t, hear(cmd(t, nc, "c", session.VerbRenew, with("c"))), appended)
	want(t, hear(cmd(t, nc, "c", session.VerbRenew, shown("w", "c", 1))), events.CodeAuthorityRequired)
	wantOutcome(t, hear(cmd(t, nc, "c", session.VerbRenew, with("c").with("authorityId", secret+"x"))), refused)
	hear(cmd(t, nc, "d", session.VerbRenew, with("d")))
	hear(cmd(t, nc, "d", session.VerbRenew, with("c")))                                          // another principal
	hear(cmd(t, nc, "c", session.VerbRenew, with("c").with("workId", strings.Repeat("x", 600)))) // an id that cannot be
	hear(cmd(t, nc, "c", session.VerbTerminalize, with("c").with("state", 7)))
	hear(cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c").with("authorityId", secret))) // ignored there
	hear(op(t, nc, session.VerbForceRelease, fields{"workId": "w", "authorityId": secret}))
	hear(op(t, nc, session.VerbImport, fields{"source": "record", "authorityId": secret}))
	hear(cmd(t, nc, "c", "work.unknown", with("c")))
	hear(servicetest.MustAsk(t, nc, servicetest.Cmd("p-c", session.VerbRenew), []byte(`{"authorityId":"`+secret+`","authorityId":"`+secret+`"}`)))
	hear(servicetest.MustAsk(t, nc, servicetest.Cmd("p-c", session.VerbRenew), []byte(`{"authorityId":"`+secret+`"`)))
	hear(servicetest.MustAsk(t, nc, servicetest.Cmd("p-c", session.VerbRenew), []byte(secret), service.HeaderContentType, service.ContentMsgpack))
	var check session.Check
	r := hear(query(t, nc, "works.check-authority", fields{"workId": "w", "authorityId": secret}))
	if mustInto(t, r, &check); !check.Matches {
		t.Error("the capability does not match")
	}
	hear(query(t, nc, "works.check-authority", fields{"workId": "w", "authorityId": secret, "expected": fields{"controllerId": "d"}}))
	hear(query(t, nc, "works.get", fields{"workId": "w", "authorityId": secret}))
	hear(cmd(t, nc, "c", "activity.report", fields{"sessionId": "s-c", "authorityId": secret}))
	hear(query(t, nc, "works.history", fields{"workId": "w"}))
	hear(query(t, nc, "claims.list-full", nil))
	for _, what := range []string{"claims.list", "works.info"} {
		if r := hear(query(t, nc, what, fields{"workId": "w", "minPosition": 1})); bytes.Contains(r.Data, []byte(minted.AuthorityDigest)) || !bytes.Contains(r.Data, []byte(`"w"`)) {
			t.Errorf("%s shows the digest: %s", what, r.Data)
		}
	}

	// Where it could have gone.
	places := map[string][]byte{"replies": bytes.Join(heard, nil), "metrics": scrape(t, n, "/metrics"), "readyz": scrape(t, n, "/readyz")}
	ready, err := json.Marshal(n.Ready())
	if err != nil {
		t.Fatal(err)
	}
	places["Ready"] = ready
	last, err := n.Log.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range servicetest.UpTo(n.Log, last).Records(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		places["log"] = append(places["log"], r.Payload...)
		for name, values := range r.Header {
			places["log"] = append(places["log"], name+strings.Join(values, "")+r.Subject...)
		}
	}
	places["activity"] = bucket(t, n, "forge-activity-main")
	places["output"] = []byte(lines.String())
	for name, text := range places {
		if bytes.Contains(text, []byte(secret)) || bytes.Contains(text, []byte(strings.TrimPrefix(secret, "ctrl_"))) {
			t.Errorf("the capability is in the %s", name)
		}
		if len(text) == 0 {
			t.Errorf("nothing was read of the %s", name)
		}
	}
	if !bytes.Contains(places["log"], []byte(minted.AuthorityDigest)) {
		t.Error("not even the digest is on the log")
	}
}

// bucket reads all values of a bucket.
func bucket(t *testing.T, n *servicetest.Node, name string) (out []byte) {
	t.Helper()
	js, err := jetstream.New(n.Forge)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		entry, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, key...), entry.Value()...)
	}
	return out
}
