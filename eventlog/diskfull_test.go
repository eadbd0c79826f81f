//go:build linux

package eventlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/eventlog"
	"github.com/forge-es/forge-es/eventlog/logtest"
	"github.com/forge-es/forge-es/events"
	"golang.org/x/sys/unix"
)

// A disk that takes no more bytes: the server answers nothing, the appender stops
// for good, and what was acknowledged is still there.
func TestDiskFull(t *testing.T) {
	for _, opts := range [][]logtest.Option{nil, {logtest.SyncAlways}} {
		dir := t.TempDir()
		e := logtest.Embedded(t, append(opts, logtest.DataDir(dir))...)
		states := make(chan error, 10)
		l := logtest.Open(t, logtest.ForgeConn(t, e), eventlog.Config{
			Embedded: e, MaxBytes: 1 << 26, AppendTimeout: 300 * time.Millisecond, OnState: func(err error) { states <- err },
		})
		c := logtest.WorkChain(l, "w1")
		c.Fill(t, 5)

		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		replaced := 0
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
			if err != nil || !strings.HasPrefix(target, dir) || !strings.HasSuffix(target, ".blk") {
				continue
			}
			n, err := strconv.Atoi(fd.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Dup2(int(full.Fd()), n); err != nil {
				t.Fatal(err)
			}
			replaced++
		}
		if replaced == 0 {
			t.Fatal("no open block file found")
		}

		begin := time.Now()
		entry := c.Next("full")
		_, err = l.Append(t.Context(), entry)
		wantCode(t, err, events.CodeUnavailable)
		wantCode(t, l.Err(), events.CodeUnavailable)
		t.Logf("after %s: %v; %v; %v", time.Since(begin), err, l.Err(), errors.Unwrap(l.Err()))
		if strings.Contains(err.Error()+l.Err().Error(), dir) || !strings.Contains(errors.Unwrap(l.Err()).Error(), "no space") {
			t.Errorf("callers see %v; the cause is %v", l.Err(), errors.Unwrap(l.Err()))
		}
		select {
		case err := <-states:
			wantCode(t, err, events.CodeUnavailable)
		case <-time.After(5 * time.Second):
			t.Fatal("nobody was told")
		}
		l.Close()
		if err := e.Shutdown(); err != nil {
			t.Fatal(err)
		}

		e = logtest.Embedded(t, append(opts, logtest.DataDir(dir))...)
		l = logtest.Open(t, logtest.ForgeConn(t, e), eventlog.Config{Embedded: e})
		b, err := l.Load(t.Context(), c.Subject, c.Head, eventlog.Leader)
		if err != nil || b.Head.Position != c.Head.Position {
			t.Fatalf("after the restart: %+v, %v", b, err)
		}
		c.Log = l
		if a, err := l.Append(t.Context(), entry); err != nil || a.AlreadyApplied {
			t.Fatalf("the command again: %+v, %v", a, err)
		}
	}
}
