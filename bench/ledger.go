package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
)

// finishedSessions are how many ended release sessions lie on the ledger while it
// is measured.
var finishedSessions = []int{10, 1000}

// ledger measures commands about releases with few and with many finished
// sessions: one that looks at all of them and is refused (a second create), and
// one that appends (authority.publish).
func (b *bench) ledger(ctx context.Context) (_ *Section, err error) {
	const name = "ledger"
	s := &Section{Name: name, Title: "The release ledger, with few and with many finished sessions"}
	t, err := startTarget(childConfig{Data: filepath.Join(b.dir, name), SyncOff: true}, 1, b.stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	side := &serviceSide{target: t}
	r := &releases{side: side}
	finished := 0
	for _, want := range finishedSessions {
		for ; finished < want; finished++ {
			if err := r.finish(finished); err != nil {
				return nil, err
			}
		}
		if err := r.create("release-active"); err != nil {
			return nil, err
		}
		for _, m := range []struct {
			what string
			do   op
		}{{"create, refused", r.refused}, {"authority.publish", r.publish}} {
			row, err := b.measure(ctx, t, name, fmt.Sprintf("%s, %d finished", m.what, want), 1, m.do, nil)
			if err != nil {
				return nil, err
			}
			s.Rows = append(s.Rows, row)
		}
		if err := r.end("release-active"); err != nil {
			return nil, err
		}
		if err := r.discard("release-active"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// releases sends commands about releases.
type releases struct {
	side     *serviceSide
	revision atomic.Int64
}

// send sends a command; root is cmd or op.
func (r *releases) send(root, verb string, body any) (*nats.Msg, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return r.side.conn(0).Request("forge."+root+"."+events.DefaultInstance+".releaser."+verb, b, patience)
}

func (r *releases) must(root, verb string, body any) error {
	m, err := r.send(root, verb, body)
	if err == nil && m.Header.Get("Nats-Service-Error-Code") != "" {
		err = fmt.Errorf("%s: %s", verb, m.Data)
	}
	if err == nil && bytes.Contains(m.Data, outcomeAppended) {
		r.side.appended.Add(1)
	}
	return err
}

type object = map[string]any

func (r *releases) body(id string) object {
	return object{
		"sessionId": id, "sourceRevision": "rev-" + id,
		"stable": object{"controllerHome": "/srv/stable", "port": 1}, "candidate": object{"controllerHome": "/srv/candidate", "port": 2},
		"stableRelease": object{"authorityRevision": 1, "releaseId": "A", "artifactIdentity": "a", "manifestSha256": "m", "workerProtocolVersion": 1, "releaseFencingTokenSha256": "f"},
	}
}

func (r *releases) create(id string) error { return r.must("cmd", "release.create", r.body(id)) }

func (r *releases) end(id string) error {
	return r.must("op", "release.end", object{"sessionId": id, "reason": "measured"})
}

func (r *releases) discard(id string) error {
	return r.must("op", "release.discard-document", object{"name": id + ".json", "reason": "measured"})
}

// finish makes a session that has ended.
func (r *releases) finish(n int) error {
	id := fmt.Sprintf("release-%06d", n)
	return errors.Join(r.create(id), r.end(id))
}

// refused begins a second session, which is refused after all were looked at.
func (r *releases) refused(int) error {
	m, err := r.send("cmd", "release.create", r.body("release-second"))
	if err == nil && !bytes.Contains(m.Data, []byte("RELEASE_SESSION_ACTIVE_EXISTS")) {
		err = fmt.Errorf("a second session: %s", m.Data)
	}
	return err
}

// publish publishes the next revision of the release authority.
func (r *releases) publish(int) error {
	return r.must("op", "authority.publish", object{"authority": object{"revision": r.revision.Add(1), "active": object{"releaseId": "A"}}})
}
