package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/service"
	"github.com/nats-io/nats.go"
)

// readyz asks a process whether it is ready.
func readyz(p *process) (r service.Ready, status int, err error) {
	answer, err := http.Get(p.ready.HTTP + "/readyz")
	if err != nil {
		return r, 0, err
	}
	defer answer.Body.Close()
	return r, answer.StatusCode, json.NewDecoder(answer.Body).Decode(&r)
}

// TestExistingServer: on a NATS server that is there already the service says
// what cannot be relied on; it waits while the server is away, and goes on.
func TestExistingServer(t *testing.T) {
	servers := logtest.Single(t, false)
	dir := t.TempDir()
	address := strings.TrimPrefix(servers.URL(), "nats://")
	p := serving(t, dir, "--server=nats://forge:test-forge@"+address, "--replicas=1", "--log-max-bytes=1000000000", "--log-format=json")
	r, status, err := readyz(p)
	if err != nil || status != http.StatusOK {
		t.Fatalf("readyz: %d, %+v, %v", status, r, err)
	}
	if want := (service.Setup{Accounts: "shared", Durability: "unverified", Authentication: "by the server"}); r.Setup != want || p.ready.Setup != want {
		t.Errorf("readyz says %+v, the ready file %+v", r.Setup, p.ready.Setup)
	}
	if strings.Contains(p.ready.NATS, "test-forge") {
		t.Errorf("the ready file has a password: %s", p.ready.NATS)
	}

	nc, err := nats.Connect("nats://forge:test-forge@"+address, nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := client.New(nc, client.Options{Principal: "c1", Attempt: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	in := client.Claim{WorkID: "W1", ControllerID: "c1", ControllerType: "codex", SessionID: "s1"}
	if _, err := c.Claim(t.Context(), in); err != nil {
		t.Fatal(err)
	}

	servers.Stop(0)
	logtest.Eventually(t, 20*time.Second, "readyz says that the server is away", func() bool {
		r, status, err := readyz(p)
		return err == nil && status == http.StatusServiceUnavailable && len(r.Reasons) > 0
	})
	servers.Restart(0)
	in.WorkID = "W2"
	if _, err := c.Claim(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	logtest.Eventually(t, 20*time.Second, "readyz says that all is well", func() bool {
		_, status, err := readyz(p)
		return err == nil && status == http.StatusOK
	})
	p.end()
	if !p.cmd.ProcessState.Success() {
		t.Errorf("the service ended with %s", p.cmd.ProcessState)
	}
	b, err := os.ReadFile(filepath.Join(dir, "serve.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "test-forge") {
		t.Errorf("the log of the service has a password:\n%s", b)
	}
	if !strings.Contains(string(b), `"message":"callers share the account of the log: only the check of reply subjects protects it"`) {
		t.Errorf("the log of the service does not warn:\n%s", b)
	}
}
