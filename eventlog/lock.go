package eventlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forge-es/forge-es/events"
	"golang.org/x/sys/unix"
)

// lockFile lies in the data directory. Its lock, not its existence, is what
// counts; it goes with the process, however that ends.
const lockFile = "LOCK"

// A dirLock is the sole right to a data directory.
type dirLock struct{ f *os.File }

// lockDir takes it, or says which process has it, with FORGE_BUSY. (Two servers
// on one directory would both start, and both acknowledge the same position.)
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := flock(f); err != nil {
		holder := "unknown"
		if b, rerr := os.ReadFile(path); rerr == nil && len(b) > 0 {
			holder = strings.TrimSpace(string(b))
		}
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		return nil, events.Errorf(events.CodeBusy, "data directory %s is in use by process %s", dir, holder).
			With("directory", dir).With("pid", holder)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &dirLock{f}, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// unlock gives the directory back; the file stays.
func (l *dirLock) unlock() error { return l.f.Close() }

// freeBytes is the space of the file system of dir that this process may use.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
