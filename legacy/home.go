package legacy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"time"
)

// Names in a home.
const (
	databaseName     = "control-plane.sqlite"
	repositoriesName = "repositories"
	storeFileName    = "controller-sessions.json"

	namespaceClaims   = "controller_session_claim_store"
	namespaceIdentity = "controller_session_identity"
	namespaceActivity = "execution_session"
	claimsKey         = "index"
	activityScope     = "controller"
)

// maxStoreFile is the largest claim store file that is read, in bytes. A store
// of 100 000 sessions has about 60 MiB.
const maxStoreFile = 512 << 20

var (
	// ErrLegacy is the parent of the errors of this package.
	ErrLegacy = errors.New("legacy")
	// ErrNotHome is returned for a directory that cannot be read as a home.
	ErrNotHome = fmt.Errorf("%w: not a home", ErrLegacy)
	// ErrStore is returned for a claim store file that cannot be read as one.
	ErrStore = fmt.Errorf("%w: unusable claim store", ErrLegacy)
	// ErrAuthority is returned for a file that cannot be read as a release authority.
	ErrAuthority = fmt.Errorf("%w: unusable release authority", ErrLegacy)
)

// Home is the controller home of an existing installation. It holds no open
// file; nothing in it is ever written, created, locked or removed.
type Home struct {
	// InstanceScope is the scope of the records that belong to the whole
	// installation. OpenHome sets the default; change it before the first read.
	InstanceScope string

	dir string
}

// OpenHome checks that dir is a directory that can be listed. It says ErrNotHome
// otherwise. A home may lack any of its places, so even an empty directory is one.
func OpenHome(dir string) (*Home, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	d, err := os.Open(abs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	defer d.Close()
	if _, err := d.ReadDir(1); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	return &Home{InstanceScope: InstanceScope, dir: abs}, nil
}

// Dir is the absolute path of the home.
func (h *Home) Dir() string { return h.dir }

// Sessions is all that a home knows about controller sessions.
type Sessions struct {
	From     string    // the home or file
	Groups   []*Group  // records, files, retained, activity; each by scope, the instance-wide one first
	Problems []Problem // what could not be read, by location within each place
	Missing  []string  // places that the home lacks: file, folder or namespace names
}

// Sessions reads the claims, retained identities and transport sessions.
//
// The database is read without locking it: as it lies there if it has no -wal
// file, else from a copy of database and -wal in a private temporary directory
// (in os.TempDir, for the owner only, removed before the return; it needs as
// much space as both files). Reading is repeated until it was not disturbed by a writer.
//
// What is broken, unreadable or out of the home is a Problem or a dropped entry;
// the error is only that of a cancelled context, of a home that vanished, or of
// the temporary directory.
func (h *Home) Sessions(ctx context.Context) (*Sessions, error) {
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	defer root.Close()

	s := &Sessions{From: h.dir}
	rows, err := h.readDatabase(ctx)
	if err != nil {
		return nil, err
	}
	h.newestFirst(rows.records)
	h.newestFirst(rows.retained)
	s.Groups = append(s.Groups, rows.records...)
	s.Problems = append(s.Problems, rows.problems...)
	s.Missing = append(s.Missing, rows.missing...)
	if err := s.readFiles(ctx, root, rows.silences(h.InstanceScope)); err != nil {
		return nil, err
	}
	s.Groups = append(s.Groups, rows.retained...)
	s.Groups = append(s.Groups, rows.activity...)
	for _, g := range s.Groups {
		g.Wide = g.Place != PlaceFile && g.Scope == h.InstanceScope
	}
	return s, nil
}

// newestFirst puts the instance-wide scope before those of repositories, which are
// from earlier versions: an older claim that comes after a newer one is left
// alone, while the other order would be a conflict.
func (h *Home) newestFirst(groups []*Group) {
	sort.SliceStable(groups, func(i, j int) bool {
		return groups[i].Scope == h.InstanceScope && groups[j].Scope != h.InstanceScope
	})
}

// readFiles reads repositories/<repoId>/controller-sessions.json. silenced says
// why the file of a scope does not count, "" when it does.
func (s *Sessions) readFiles(ctx context.Context, root *os.Root, silenced func(scope string) string) error {
	problem := func(scope, location string, err error) {
		s.Problems = append(s.Problems, Problem{Place: PlaceFile, Scope: scope, Location: location, Reason: pathless(err)})
	}
	dir, err := root.Open(repositoriesName)
	if errors.Is(err, fs.ErrNotExist) && !isLink(root, repositoriesName) {
		s.Missing = append(s.Missing, repositoriesName)
		return nil
	}
	if err != nil {
		problem("", repositoriesName, err)
		return nil
	}
	defer dir.Close()
	repos, err := dir.ReadDir(-1)
	if err != nil {
		problem("", repositoriesName, err)
	}
	sort.Slice(repos, func(i, j int) bool { return repos[i].Name() < repos[j].Name() })
	for _, repo := range repos {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !repo.IsDir() && repo.Type()&fs.ModeSymlink == 0 {
			continue
		}
		scope := repo.Name()
		name := path.Join(repositoriesName, scope, storeFileName)
		raw, err := readQuiet(ctx, maxStoreFile, func() (*os.File, error) { return root.Open(name) }, func() (fs.FileInfo, error) { return root.Stat(name) })
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return err
		case errors.Is(err, fs.ErrNotExist) && !isLink(root, path.Dir(name)) && !isLink(root, name):
			continue // a repository without an old store
		case err == nil:
			err = checkScope(scope)
		}
		g := &Group{Place: PlaceFile, Scope: scope, Location: name, Ignored: silenced(scope)}
		if err == nil {
			g.UpdatedAt, g.Entries, err = parseStore(raw)
		}
		switch {
		case err != nil && g.Ignored == "":
			problem(visible(scope), name, err)
			continue
		case err != nil: // broken, but it does not count anyway
			g.Ignored += "; the file cannot be read: " + pathless(err)
		}
		s.Groups = append(s.Groups, g)
	}
	return nil
}

// ReadStoreFile reads a single claim store file as the file snapshot of a scope
// (a repository id). A broken session is a dropped entry; a file that cannot be
// read, or is no claim store, is ErrStore.
func ReadStoreFile(ctx context.Context, name, scope string) (*Sessions, error) {
	if err := checkScope(scope); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	raw, err := readQuiet(ctx, maxStoreFile, func() (*os.File, error) { return os.Open(name) }, func() (fs.FileInfo, error) { return os.Stat(name) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	g := &Group{Place: PlaceFile, Scope: scope, Location: filepath.Base(name)}
	if g.UpdatedAt, g.Entries, err = parseStore(raw); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStore, name, err)
	}
	return &Sessions{From: name, Groups: []*Group{g}}, nil
}

// readQuiet reads a regular file of at most so many bytes as it was at one moment:
// again, if it was written meanwhile.
func readQuiet(ctx context.Context, most int64, open func() (*os.File, error), stat func() (fs.FileInfo, error)) ([]byte, error) {
	for try := 0; ; try++ {
		before, err := stat()
		if err != nil {
			return nil, err
		}
		if err := checkRegular(before, most); err != nil {
			return nil, err
		}
		raw, err := readAll(open, most)
		if err != nil {
			return nil, err
		}
		after, err := stat()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && !fresh(before) && unchanged(before, after) && int64(len(raw)) == before.Size() {
			return raw, nil
		}
		if try == quietTries {
			return nil, errRestless
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

func readAll(open func() (*os.File, error), most int64) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

func checkRegular(info fs.FileInfo, most int64) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case most > 0 && info.Size() > most:
		return fmt.Errorf("has %d bytes, the most is %d", info.Size(), most)
	}
	return nil
}

const (
	// quietTries is how often reading is repeated beside a writer; with the
	// pauses between them that takes about 15 s.
	quietTries = 60
	// settled is the age in real time from which a change of the modification
	// time cannot hide a second one: file systems stamp with the clock tick of the
	// kernel, at most 10 ms.
	settled = 25 * time.Millisecond
)

var errRestless = errors.New("it is written all the time and could not be read undisturbed; stop the writer, or import from a copy of the home")

// unchanged reports whether a file stayed the same file with the same content
// between two looks at it.
func unchanged(before, after fs.FileInfo) bool {
	return os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
}

// fresh reports whether a file was written so recently that its modification
// time would not show another write.
func fresh(info fs.FileInfo) bool {
	age := time.Since(info.ModTime())
	return age >= 0 && age < settled
}

// pause waits a little longer each time, up to 1/4 s.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(min(settled+time.Duration(try)*10*time.Millisecond, 250*time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func isLink(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// pathless is the text of an error without operation and path, which the
// problem has in its location.
func pathless(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
