package legacytest

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	writerEnv    = "FORGE_LEGACYTEST_WRITER" // the home
	writerPause  = "FORGE_LEGACYTEST_PAUSE"  // between transactions
	writerCommit = "first commit"
)

// Main must be the first call of TestMain in a package that uses StartWriter. In
// the process of a Writer it writes until its input ends, and does not return.
func Main() {
	dir := os.Getenv(writerEnv)
	if dir == "" {
		return
	}
	pause, err := time.ParseDuration(os.Getenv(writerPause))
	if err == nil {
		err = write(dir, pause)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "legacytest: writer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Writer is another process that writes into a home, as a running installation.
//
// Each of its transactions n writes the claim store of the instance, a retained
// identity of work "w" (both with claimGeneration n) and a transport session "t" of
// principal "p-<n>", so that every consistent state has the same n in all three.
// It checkpoints often.
type Writer struct {
	tb    testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
}

// StartWriter starts a writer on dir, with a pause between its transactions, and
// returns after its first commit. It is killed at the end of the test.
func StartWriter(tb testing.TB, dir string, pause time.Duration) *Writer {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), writerEnv+"="+dir, writerPause+"="+pause.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	w := &Writer{tb: tb, cmd: cmd, stdin: stdin}
	tb.Cleanup(w.Kill)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || strings.TrimSpace(line) != writerCommit {
		tb.Fatalf("legacytest: the writer did not start: %q, %v", line, err)
	}
	return w
}

// Stop ends the writer orderly: it closes the database, which removes the -wal.
func (w *Writer) Stop() {
	w.tb.Helper()
	if w.cmd == nil {
		return
	}
	w.stdin.Close()
	if err := w.cmd.Wait(); err != nil {
		w.tb.Errorf("legacytest: writer: %v", err)
	}
	w.cmd = nil
}

// Kill ends the writer with SIGKILL.
func (w *Writer) Kill() {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // the error is that it was killed
	w.cmd = nil
}

func write(dir string, pause time.Duration) error {
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	db, err := open(filepath.Join(dir, Database), 200)
	if err != nil {
		return err
	}
	defer db.Close()
	s := NewGen(7).Session("w")
	for n := int64(1); ; n++ {
		s.ClaimGeneration = n
		if err := writeOnce(db, s, n); err != nil {
			return err
		}
		if n == 1 {
			fmt.Println(writerCommit)
		}
		select {
		case <-end:
			return nil
		case <-time.After(pause):
		}
	}
}

func writeOnce(db *sql.DB, s Session, n int64) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	padding := strings.Repeat("x", 3000)
	for _, r := range []Row{
		{Claims, InstanceScope, ClaimsKey, Store(s)},
		{Identity, InstanceScope, "w", Retained(s, "")},
		{Transport, InstanceScope, "t", text(map[string]any{"sessionId": "t", "principalId": fmt.Sprintf("p-%d", n)})},
		{"padding", InstanceScope, fmt.Sprintf("k%03d", n%300), padding},
	} {
		if _, err := tx.Exec(upsert, r.Namespace, r.Scope, r.Key, r.Payload); err != nil {
			return err
		}
	}
	return tx.Commit()
}
