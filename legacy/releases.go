package legacy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Names of what a home knows about releases.
const (
	releasesName  = "recovery/state/release-sessions"
	authorityName = "runtime/releases/authority.json"

	documentExtension = ".json"
	statusCommitted   = "committed"
)

const (
	// MaxDocument is the most bytes of a release document, as in the service.
	MaxDocument = 512 << 10
	// MaxDocumentBody is the most bytes of a body that carries one: what a NATS
	// server takes by default, less room for headers.
	MaxDocumentBody = 1<<20 - 8<<10
)

// Releases is all that a home, or a folder, knows about releases.
type Releases struct {
	From     string    // the home, folder or file
	Groups   []*Group  // documents in byte order of their file names; the authority
	Problems []Problem // what could not be read, by location
	Missing  []string  // places that the home lacks
}

// IsHome reports whether a directory has one of the places of a home. A folder
// that only holds release documents has none.
func IsHome(dir string) bool {
	for _, name := range []string{databaseName, repositoriesName, releasesName, authorityName} {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			return true
		}
	}
	return false
}

// Releases reads the release documents and the release authority.
//
// A document is taken as the bytes it has, which may be no JSON: what it is worth
// is for the service to say. In place of one that is too large, cannot be read (a
// Problem as well, as is one that lies out of the home), or has a name that is not
// UTF-8 stands a line that says so. The error is only that of a cancelled context
// or of a home that vanished.
func (h *Home) Releases(ctx context.Context) (*Releases, error) {
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	defer root.Close()
	r := &Releases{From: h.dir}
	if err := r.readDocuments(ctx, root, releasesName); err != nil {
		return nil, err
	}
	return r, r.readAuthority(ctx, root)
}

// ReadReleaseFolder reads a bare folder of release documents, as Home.Releases
// does with that of a home. A directory that cannot be opened is ErrNotHome.
func ReadReleaseFolder(ctx context.Context, dir string) (*Releases, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHome, err)
	}
	defer root.Close()
	r := &Releases{From: dir}
	return r, r.readDocuments(ctx, root, ".")
}

// SetAuthority takes the release authority from a file, in place of the one that
// was found. A file that cannot be read, or holds no authority, is ErrAuthority.
func (r *Releases) SetAuthority(ctx context.Context, name string) error {
	raw, err := readQuiet(ctx, MaxBody, func() (*os.File, error) { return os.Open(name) }, func() (fs.FileInfo, error) { return os.Stat(name) })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	e, err := parseAuthority(raw)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrAuthority, name, err)
	}
	of := func(place Place) bool { return place == PlaceAuthority }
	r.Groups = slices.DeleteFunc(r.Groups, func(g *Group) bool { return of(g.Place) })
	r.Problems = slices.DeleteFunc(r.Problems, func(p Problem) bool { return of(p.Place) })
	r.Missing = slices.DeleteFunc(r.Missing, func(name string) bool { return name == authorityName })
	r.Groups = append(r.Groups, &Group{Place: PlaceAuthority, Location: filepath.Base(name), Entries: []Entry{e}})
	return nil
}

// readDocuments reads the files of a folder whose names end in .json.
func (r *Releases) readDocuments(ctx context.Context, root *os.Root, folder string) error {
	dir, err := root.Open(folder)
	if errors.Is(err, fs.ErrNotExist) && !linked(root, folder) {
		r.Missing = append(r.Missing, folder)
		return nil
	}
	problem := func(location string, err error) {
		r.Problems = append(r.Problems, Problem{Place: PlaceRelease, Location: visible(location), Reason: pathless(err)})
	}
	if err != nil {
		problem(folder, err)
		return nil
	}
	defer dir.Close()
	files, err := dir.ReadDir(-1)
	if err != nil {
		problem(folder, err)
	}
	// In byte order of the whole file name, as the old system lists them.
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	g := &Group{Place: PlaceRelease, Location: folder}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !strings.HasSuffix(file.Name(), documentExtension) {
			continue
		}
		name := path.Join(folder, file.Name())
		e := Entry{Index: len(g.Entries), Key: visible(file.Name())}
		stat := func() (fs.FileInfo, error) { return root.Stat(name) }
		info, err := stat()
		if err == nil && info.Mode().IsRegular() && info.Size() > MaxDocument {
			g.Entries = append(g.Entries, e.standIn(file.Name(), fmt.Sprintf("it has %d bytes, the most of a document is %d", info.Size(), MaxDocument)))
			continue
		}
		content, err := readQuiet(ctx, MaxDocument, func() (*os.File, error) { return root.Open(name) }, stat)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist) && !isLink(root, name):
			continue // removed meanwhile
		case err != nil:
			problem(name, err)
			g.Entries = append(g.Entries, e.standIn(file.Name(), "it could not be read: "+pathless(err)))
		case !utf8.ValidString(file.Name()):
			g.Entries = append(g.Entries, e.standIn(file.Name(), "its name is not UTF-8"))
		default:
			g.Entries = append(g.Entries, e.document(file.Name(), content))
		}
	}
	r.Groups = append(r.Groups, g)
	return nil
}

// standIn takes a line that says why a file was not taken as the entry. That is no
// session, so that no release is created until somebody looked at the file.
func (e Entry) standIn(name, why string) Entry {
	e = e.document(strings.ToValidUTF8(name, "\ufffd"), []byte("not imported: "+why+"\n"))
	e.Note = "no session: " + why
	return e
}

// document takes a file as the entry. What will be no session is noted, as far
// as that can be told without the rules.
func (e Entry) document(name string, content []byte) Entry {
	if _, _, err := strictObject(content); err != nil {
		e.Note = "no session: " + err.Error()
	}
	b := appendText([]byte(`{"name":`), name)
	if utf8.Valid(content) {
		e.Raw = append(appendText(append(b, `,"text":`...), string(content)), '}')
	}
	// Much to be escaped makes the text longer than base64 is.
	if encoded := base64.StdEncoding.EncodedLen(len(content)); e.Raw == nil || len(e.Raw) > len(b)+len(`,"textBase64":""}`)+encoded {
		b = append(b, `,"textBase64":"`...)
		e.Raw = append(base64.StdEncoding.AppendEncode(b, content), `"}`...)
	}
	return e
}

// readAuthority reads runtime/releases/authority.json.
func (r *Releases) readAuthority(ctx context.Context, root *os.Root) error {
	raw, err := readQuiet(ctx, MaxBody, func() (*os.File, error) { return root.Open(authorityName) }, func() (fs.FileInfo, error) { return root.Stat(authorityName) })
	var e Entry
	if err == nil {
		e, err = parseAuthority(raw)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist) && !linked(root, authorityName):
		r.Missing = append(r.Missing, authorityName)
	case err != nil:
		r.Problems = append(r.Problems, Problem{Place: PlaceAuthority, Location: authorityName, Reason: pathless(err)})
	default:
		r.Groups = append(r.Groups, &Group{Place: PlaceAuthority, Location: authorityName, Entries: []Entry{e}})
	}
	return nil
}

// parseAuthority reads a release authority. Whether its releases make sense is
// for the service to say; one that is not committed is none.
func parseAuthority(raw []byte) (Entry, error) {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return Entry{}, errors.New("it is null: no authority")
	}
	compact, members, err := strictObject(raw)
	if err != nil {
		return Entry{}, err
	}
	if v := members["status"]; !isNull(v) {
		if status, _ := textOf(v); status != statusCommitted {
			return Entry{}, fmt.Errorf("status is %s, want %q", clip(string(v)), statusCommitted)
		}
	}
	e := Entry{Raw: compact}
	if v := members["revision"]; json.Unmarshal(v, &e.revision) == nil {
		e.Key = "revision " + clip(string(v))
	}
	return e, nil
}

// linked reports whether a part of the way to a place is a link.
func linked(root *os.Root, name string) bool {
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if isLink(root, name) {
			return true
		}
	}
	return false
}

// PlanReleases plans the import of releases: one receive-document for each
// document, in byte order of the file names, none of which replaces anything; then
// the authority.
func PlanReleases(r *Releases) *Plan {
	p := newPlan("releases", r.From, r.Problems, r.Missing)
	p.addReleases(r)
	return p.done()
}

// PlanHome plans the import of all that a home knows: sessions as PlanSessions
// does, works as PlanWorks does if there is a works file (works is not nil), and
// releases as PlanReleases does.
func PlanHome(s *Sessions, works *Works, reason string, r *Releases) *Plan {
	p := newPlan("home", s.From, slices.Concat(s.Problems, r.Problems), slices.Concat(s.Missing, r.Missing))
	p.addSessions(s, works)
	if works != nil {
		p.base.Problems = append(p.base.Problems, works.Problems...)
		p.addWorks(works, reason)
	}
	p.addReleases(r)
	return p.done()
}

func (p *Plan) addReleases(r *Releases) {
	for _, place := range []Place{PlaceRelease, PlaceAuthority} {
		for _, g := range r.Groups {
			if g.Place == place {
				p.add(g)
			}
		}
	}
}
