package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/nats-io/nats.go"
)

// TestDrain: a signal stops the service under load, and every command that it
// executed was answered.
func TestDrain(t *testing.T) {
	dir := t.TempDir()
	p := serving(t, dir)
	var lock sync.Mutex
	answered := map[string]bool{}
	loaded := make(chan struct{})
	var done sync.WaitGroup
	// A connection that is lost for good throws away what it did not hand over
	// yet. What has come until shortly after the end counts.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 32 {
		nc, err := nats.Connect(p.ready.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(time.Minute), nats.ReconnectBufSize(-1))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		done.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("c%d-%d", i, n)
				m := nats.NewMsg(servicetest.Cmd("c1", "work.claim"))
				m.Header.Set("Forge-Command-Id", id)
				m.Data, _ = json.Marshal(client.Claim{WorkID: id, ControllerID: "c1", ControllerType: "codex", SessionID: "s1"})
				answer, err := nc.RequestMsgWithContext(ctx, m)
				if err != nil {
					return
				}
				if len(answer.Header.Get("Nats-Service-Error")) > 0 {
					t.Errorf("%s: %s", id, answer.Data)
					return
				}
				lock.Lock()
				answered[id] = true
				if len(answered) == 200 {
					close(loaded)
				}
				lock.Unlock()
			}
		})
	}
	<-loaded
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	time.AfterFunc(300*time.Millisecond, cancel)
	done.Wait()
	if !p.cmd.ProcessState.Success() {
		t.Errorf("the service ended with %s", p.cmd.ProcessState)
	}

	e := logtest.Embedded(t, logtest.DataDir(filepath.Join(dir, "data")))
	l := logtest.Open(t, logtest.ForgeConn(t, e), readOnly(e))
	report := servicetest.CheckLog(t, l)
	for r, err := range servicetest.UpTo(l, report.Last).Records(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := events.DecodeCommit(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if !answered[c.ID] {
			t.Errorf("%s was executed, at position %d, and never answered", c.ID, r.Position)
		}
		delete(answered, c.ID)
	}
	if len(answered) > 0 {
		t.Errorf("%d commands were answered and are not on the log", len(answered))
	}
}

// TestSecondSignal: while the service answers what it took, another signal ends
// the process at once.
func TestSecondSignal(t *testing.T) {
	dir := t.TempDir()
	p := serving(t, dir, "--max-pending=100000")
	nc, err := nats.Connect(p.ready.NATS, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const many = 20_000 // several seconds of work
	for i := range many {
		body, err := json.Marshal(client.Claim{WorkID: fmt.Sprintf("w%d", i), ControllerID: "c1", ControllerType: "codex", SessionID: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(servicetest.Cmd("c1", "work.claim"), nc.NewInbox(), body); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	term := func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term()
	logtest.Eventually(t, 10*time.Second, "the service says that it stops", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "serve.log"))
		return err == nil && bytes.Contains(b, []byte("stopping: answering what was taken"))
	})
	term()
	<-p.ended
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %s", p.cmd.ProcessState)
	}

	e := logtest.Embedded(t, logtest.DataDir(filepath.Join(dir, "data")))
	l := logtest.Open(t, logtest.ForgeConn(t, e), readOnly(e))
	if report := servicetest.CheckLog(t, l); report.Commits >= many {
		t.Errorf("all %d commands were executed: nothing was aborted", many)
	}
}
