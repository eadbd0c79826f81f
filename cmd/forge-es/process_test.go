package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
)

// noExitSleep: by default a program with the race detector waits a second before
// it ends.
const noExitSleep = "atexit_sleep_ms=0"

// process is a forge-es serve of this test binary, in a process of its own.
type process struct {
	cmd   *exec.Cmd
	ready ready         // after await
	ended chan struct{} // closed when it has ended
}

// startProcess starts one in a directory, on free ports, with its ready file in
// ready.json and, unless it uses an existing server, its data in data.
func startProcess(dir string, stderr io.Writer, flags ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{ended: make(chan struct{})}
	args := []string{"forge-es", "serve", "--http=127.0.0.1:0", "--ready-file=ready.json"}
	if !strings.Contains(strings.Join(flags, " "), "--server") {
		args = append(args, "--data=data", "--listen=127.0.0.1:0")
	}
	p.cmd = &exec.Cmd{
		Path: self, Dir: dir, Stderr: stderr,
		Args: append(args, flags...),
		Env:  []string{"HOME=" + dir, "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "GORACE=" + noExitSleep},
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await waits until the process answers requests.
func (p *process) await() error {
	name := filepath.Join(p.cmd.Dir, "ready.json")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.ended:
			return fmt.Errorf("the service ended: %s", p.cmd.ProcessState)
		default:
		}
		if b, err := os.ReadFile(name); err == nil {
			if err := json.Unmarshal(b, &p.ready); err != nil {
				return err
			}
			if p.ready.PID == p.cmd.Process.Pid { // else it is of one that was killed
				return nil
			}
		}
	}
	return fmt.Errorf("the service is not ready after a minute")
}

// end stops the process in order, or, if it takes too long, by force.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.kill()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// serving starts a process and waits for it. It ends with the test.
func serving(t testing.TB, dir string, flags ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p, err := startProcess(dir, log, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	if err := p.await(); err != nil {
		b, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, b)
	}
	return p
}

// readOnly is how a test opens the log of a process that has ended.
func readOnly(e *eventlog.Embedded) eventlog.Config {
	return eventlog.Config{Embedded: e, ReadOnly: true}
}
