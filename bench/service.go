package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// patience is how long a request waits for its answer. Nothing is repeated: a
// request that fails ends the run.
const patience = 20 * time.Second

// heldPerCaller is how many works a caller holds and renews in turn.
const heldPerCaller = 4

// serviceSide is the callers of the service. They speak the wire form themselves,
// and look only for the outcome in a reply: the load costs as little as that of
// the raw side.
type serviceSide struct {
	*target
	fresh    atomic.Int64 // works named so far
	appended atomic.Int64 // commits acknowledged
	held     [][]byte     // bodies of renewals, heldPerCaller of each caller
	turn     []int        // of each caller
}

// workID names works; all names have the same length.
func workID(n int64) string { return fmt.Sprintf("work-%012d", n) }

func principal(caller int) string { return fmt.Sprintf("controller-%04d", caller) }

func controllerInstance(caller int) string { return fmt.Sprintf("runtime-%08d", caller) }

// request sends one message and gives its answer; an error answer is an error.
func request(nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	a, err := nc.RequestMsg(m, patience)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Subject, err)
	}
	if a.Header.Get("Nats-Service-Error-Code") != "" {
		return nil, fmt.Errorf("%s: %s", m.Subject, a.Data)
	}
	return a, nil
}

var outcomeAppended = []byte(`"outcome":"appended"`)

// command sends a command that must append something.
func (s *serviceSide) command(caller int, verb string, body []byte) ([]byte, error) {
	m := nats.NewMsg("forge.cmd." + events.DefaultInstance + "." + principal(caller) + "." + verb)
	m.Header["Forge-Command-Id"] = []string{nuid.Next()}
	m.Data = body
	a, err := request(s.conn(caller), m)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(a.Data, outcomeAppended) {
		return nil, fmt.Errorf("%s: %s", m.Subject, a.Data)
	}
	s.appended.Add(1)
	return a.Data, nil
}

// claimBody is what a controller sends that has its capability from a mint.
func claimBody(caller int, work string) ([]byte, error) {
	digest := sha256.Sum256([]byte(work))
	return json.Marshal(client.Claim{
		WorkID: work, ControllerID: principal(caller), ControllerType: "agent", SessionID: fmt.Sprintf("transport-%08d", caller),
		PrincipalID: principal(caller), ControllerInstanceID: controllerInstance(caller), AuthorityDigest: hex.EncodeToString(digest[:]),
	})
}

// claim claims a work that nobody has heard of.
func (s *serviceSide) claim(caller int) error {
	body, err := claimBody(caller, workID(s.fresh.Add(1)))
	if err == nil {
		_, err = s.command(caller, "work.claim", body)
	}
	return err
}

// hold claims the works that callers renew, and renews each until its commits
// have their full length: they name the last eight.
func (s *serviceSide) hold(caller int) error {
	for range heldPerCaller {
		work := workID(s.fresh.Add(1))
		body, err := claimBody(caller, work)
		if err != nil {
			return err
		}
		reply, err := s.command(caller, "work.claim", body)
		if err != nil {
			return err
		}
		var r struct {
			Result *events.Session `json:"result"`
		}
		if err := json.Unmarshal(reply, &r); err != nil {
			return err
		}
		if r.Result == nil {
			return errors.New("a claim without a session")
		}
		renewal, err := json.Marshal(map[string]any{"workId": work, "authority": client.AuthorityOf(r.Result)})
		if err != nil {
			return err
		}
		at := caller*heldPerCaller + s.turn[caller]
		s.held[at], s.turn[caller] = renewal, (s.turn[caller]+1)%heldPerCaller
		for range events.RecentCommits {
			if _, err := s.command(caller, "work.renew", renewal); err != nil {
				return err
			}
		}
	}
	return nil
}

// renew renews a work that the caller holds.
func (s *serviceSide) renew(caller int) error {
	at := caller*heldPerCaller + s.turn[caller]
	s.turn[caller] = (s.turn[caller] + 1) % heldPerCaller
	_, err := s.command(caller, "work.renew", s.held[at])
	return err
}

// query sends a query.
func (s *serviceSide) query(caller int, verb string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	a, err := request(s.conn(caller), &nats.Msg{Subject: "forge.query." + events.DefaultInstance + "." + verb, Data: data})
	if err != nil {
		return nil, err
	}
	return a.Data, nil
}

// get asks for the live session of a work, which there must be.
func (s *serviceSide) get(caller int, work string) error {
	reply, err := s.query(caller, "works.get", map[string]string{"workId": work})
	if err == nil && !bytes.Contains(reply, []byte(work)) {
		err = fmt.Errorf("works.get %s: %s", work, reply)
	}
	return err
}

// listPage is how many claims a list is asked for.
const listPage = 100

// list asks for a page of claims, beginning after a work.
func (s *serviceSide) list(caller int, after string) error {
	reply, err := s.query(caller, "claims.list", map[string]any{"limit": listPage, "cursor": after})
	if n := bytes.Count(reply, []byte(`"workId"`)); err == nil && n != listPage {
		err = fmt.Errorf("claims.list: %d claims, want %d", n, listPage)
	}
	return err
}
