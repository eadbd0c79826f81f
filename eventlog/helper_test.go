package eventlog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
)

// The test binary plays the part of another process when these are set.
const (
	helperRole = "FORGE_TEST_ROLE" // "start": start a server; "append": append to it without end
	helperDir  = "FORGE_TEST_DIR"
)

func helper() bool {
	role := os.Getenv(helperRole)
	if role == "" {
		return false
	}
	e, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: os.Getenv(helperDir), Listen: "127.0.0.1:-1"})
	if err != nil {
		fmt.Println(err)
		return true
	}
	nc, err := e.ForgeConn()
	if err != nil {
		fmt.Println(err)
		return true
	}
	l, err := eventlog.Open(context.Background(), nc, eventlog.Config{Embedded: e})
	if err != nil {
		fmt.Println(err)
		return true
	}
	for i := range 4 {
		go func() {
			c := logtest.WorkChain(l, strconv.Itoa(i)+"-"+strconv.Itoa(os.Getpid()))
			for k := 0; ; k++ {
				a, err := c.Append(context.Background(), strconv.Itoa(k))
				if err != nil {
					return
				}
				fmt.Println(a.Position)
			}
		}()
	}
	time.Sleep(time.Minute)
	return true
}

func helperProcess(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperRole+"="+role, helperDir+"="+dir)
	return cmd
}

// Whatever was acknowledged before a process was killed is there afterwards.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	acked := map[uint64]bool{}
	for round := range max(rounds(5), 2) {
		cmd := helperProcess(t, "append", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			position, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("round %d: the other process says %q", round, lines.Text())
			}
			acked[position] = true
			if n == 50+round*37 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the other process was not killed")
		}
	}
	e := logtest.Embedded(t, logtest.DataDir(dir))
	l := logtest.Open(t, logtest.ForgeConn(t, e), eventlog.Config{Embedded: e})
	for position := range acked {
		if r, err := l.At(t.Context(), position); err != nil || r == nil {
			t.Fatalf("position %d was acknowledged: %v, %v", position, r, err)
		}
	}
	verify(t, l)
	t.Logf("%d acknowledged, %d there", len(acked), l.Durable())
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	e := logtest.Embedded(t, logtest.DataDir(dir))
	_, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1"})
	d := wantCode(t, err, events.CodeBusy).Details
	if d["directory"] != e.DataDir() || d["pid"] != strconv.Itoa(os.Getpid()) {
		t.Errorf("details %v", d)
	}
	out, err := helperProcess(t, "start", dir).Output()
	want := fmt.Sprintf("FORGE_BUSY: data directory %s is in use by process %d\n", e.DataDir(), os.Getpid())
	if string(out) != want || err != nil {
		t.Errorf("the other process says %q (%v), want %q", out, err, want)
	}
	if err := errors.Join(e.Shutdown(), e.Shutdown()); err != nil {
		t.Errorf("shut down, twice: %v", err)
	}
	again, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{DataDir: dir, Listen: "127.0.0.1:-1"})
	if err != nil {
		t.Fatalf("start after the first has gone: %v", err)
	}
	if err := again.Shutdown(); err != nil {
		t.Error(err)
	}
}
