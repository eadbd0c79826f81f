package legacy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	_ "modernc.org/sqlite" // the driver "sqlite", without cgo
)

// maxScope is the longest scope in bytes: that of every id.
const maxScope = 512

// databaseRows is what control-plane.sqlite holds for us.
type databaseRows struct {
	records, retained, activity []*Group
	problems                    []Problem
	missing                     []string

	broken     map[string]bool // scopes whose claim record exists and cannot be read
	unreadable string          // why it is unknown which records exist, "" when known
}

// readDatabase reads the database; one that cannot be read is a problem, not an
// error.
func (h *Home) readDatabase(ctx context.Context) (*databaseRows, error) {
	name := filepath.Join(h.dir, databaseName)
	resolved, err := filepath.EvalSymlinks(name) // -wal lies beside the real file
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return &databaseRows{missing: []string{databaseName}}, nil
		}
	}
	if err != nil {
		return unreadableDatabase(err), nil
	}
	for try := 0; ; try++ {
		rows, err := readDatabaseOnce(ctx, resolved)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			return rows, nil
		case errors.Is(err, errTemp):
			return nil, err
		case !errors.Is(err, errDisturbed):
			return unreadableDatabase(err), nil
		case try == quietTries:
			return unreadableDatabase(errRestless), nil
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

func unreadableDatabase(err error) *databaseRows {
	reason := pathless(err)
	return &databaseRows{
		problems:   []Problem{{Place: PlaceRecord, Location: databaseName, Reason: reason}},
		unreadable: reason,
	}
}

var (
	errDisturbed = errors.New("a writer came between")
	errTemp      = fmt.Errorf("%w: temporary copy of the database", ErrLegacy)
)

// readDatabaseOnce reads the database, or says errDisturbed when a writer came
// between.
func readDatabaseOnce(ctx context.Context, name string) (*databaseRows, error) {
	before, err := lookAt(name)
	if err != nil {
		return nil, err
	}
	if fresh(before.db) {
		return nil, errDisturbed
	}
	if before.wal == nil && before.journal == nil {
		rows, err := readRows(ctx, name, url.Values{"mode": {"ro"}, "immutable": {"1"}})
		after, lookErr := lookAt(name)
		switch {
		case lookErr != nil:
			return nil, lookErr
		case after.wal != nil || after.journal != nil || !unchanged(before.db, after.db):
			return nil, errDisturbed
		}
		return rows, err
	}
	dir, err := os.MkdirTemp("", "forge-es-import-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTemp, err)
	}
	defer os.RemoveAll(dir)
	private := filepath.Join(dir, databaseName)
	if err := before.copyTo(ctx, name, private); err != nil {
		return nil, err
	}
	// mode=rw lets SQLite recover the -wal; only the copy is touched.
	return readRows(ctx, private, url.Values{"mode": {"rw"}})
}

// files is one look at a database and what lies beside it; nil where there is
// nothing.
type files struct{ db, wal, journal fs.FileInfo }

func lookAt(name string) (files, error) {
	var f files
	var err error
	if f.db, err = os.Stat(name); err != nil {
		return f, err
	}
	if err := checkRegular(f.db, 0); err != nil {
		return f, err
	}
	for suffix, info := range map[string]*fs.FileInfo{"-wal": &f.wal, "-journal": &f.journal} {
		found, err := os.Stat(name + suffix)
		if err == nil {
			err = checkRegular(found, 0)
			*info = found
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return f, nil
}

// copyTo copies a database with its log, such that the copy is the database at
// one moment, or says errDisturbed.
//
// Why this suffices in WAL mode: commits only append to the -wal, and a prefix
// of it is an earlier state. What could hurt is a checkpoint, which writes the
// database, and a restart of the -wal, which gives it new salts in its header (or
// shortens or removes it). Both are looked for after the copy.
func (f files) copyTo(ctx context.Context, name, to string) error {
	disturbed := func(err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return errDisturbed
		}
		return err
	}
	if err := copyFile(ctx, name, to, f.db.Size()); err != nil {
		return disturbed(err)
	}
	if f.wal != nil {
		if err := copyFile(ctx, name+"-wal", to+"-wal", f.wal.Size()); err != nil {
			return disturbed(err)
		}
	}
	if f.journal != nil {
		if err := copyFile(ctx, name+"-journal", to+"-journal", f.journal.Size()); err != nil {
			return disturbed(err)
		}
	}
	after, err := lookAt(name)
	if err != nil {
		return disturbed(err)
	}
	switch {
	case !unchanged(f.db, after.db),
		(f.wal == nil) != (after.wal == nil),
		(f.journal == nil) != (after.journal == nil),
		f.journal != nil && (fresh(f.journal) || !unchanged(f.journal, after.journal)):
		return errDisturbed
	case f.wal == nil:
		return nil
	case !os.SameFile(f.wal, after.wal), after.wal.Size() < f.wal.Size():
		return errDisturbed
	}
	return sameHead(to+"-wal", name+"-wal")
}

// sameHead compares the header of a copied -wal with that of the original now.
func sameHead(copied, original string) error {
	const walHeader = 32
	read := func(name string) ([]byte, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		head := make([]byte, walHeader)
		n, err := io.ReadFull(f, head)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = nil
		}
		return head[:n], err
	}
	a, err := read(copied)
	if err != nil {
		return fmt.Errorf("%w: %w", errTemp, err)
	}
	b, err := read(original)
	if errors.Is(err, fs.ErrNotExist) {
		return errDisturbed
	}
	if err != nil {
		return err
	}
	// A -wal that was empty when it was copied is the checkpointed database.
	if len(a) > 0 && string(a) != string(b) {
		return errDisturbed
	}
	return nil
}

// copyFile copies the first size bytes.
func copyFile(ctx context.Context, from, to string, size int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", errTemp, err)
	}
	const step = 4 << 20
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			out.Close()
			return err
		}
		n, err := io.CopyN(out, in, min(left, step))
		left -= n
		if err == io.EOF {
			out.Close()
			return errDisturbed // it became shorter
		}
		if err != nil {
			out.Close()
			return fmt.Errorf("%w: %w", errTemp, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("%w: %w", errTemp, err)
	}
	return nil
}

// readRows reads the three namespaces of one database file.
func readRows(ctx context.Context, name string, params url.Values) (*databaseRows, error) {
	params.Set("_pragma", "busy_timeout(5000)")
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(name), RawQuery: params.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// One transaction: one state for all three.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()

	r := &databaseRows{broken: make(map[string]bool)}
	var tables int
	err = tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'control_plane_records'`).Scan(&tables)
	if err != nil {
		return nil, err
	}
	if tables == 0 {
		r.missing = append(r.missing, databaseName+" table control_plane_records")
		return r, nil
	}
	if err := r.readClaims(ctx, tx); err != nil {
		// Which records exist is unknown now; what was read counts.
		r.problems = append(r.problems, Problem{Place: PlaceRecord, Location: at(namespaceClaims), Reason: err.Error()})
		r.unreadable = err.Error()
	}
	if err := r.readRetained(ctx, tx); err != nil {
		r.problems = append(r.problems, Problem{Place: PlaceRetained, Location: at(namespaceIdentity), Reason: err.Error()})
	}
	if err := r.readActivity(ctx, tx); err != nil {
		r.problems = append(r.problems, Problem{Place: PlaceActivity, Location: at(namespaceActivity), Reason: err.Error()})
	}
	return r, ctx.Err()
}

// at names a place in the database.
func at(parts ...string) string {
	for i, p := range parts {
		parts[i] = visible(p)
	}
	return databaseName + " " + strings.Join(parts, "/")
}

// row is a row of control_plane_records. The payload is valid until the next row.
type row struct {
	scope, key string
	payload    []byte
}

// errPayload is why a payload is no text; the row is nevertheless there.
var errPayload = errors.New("the payload is no text")

// each streams the rows of a namespace by scope and key. The error of a payload
// that is no text is given to visit.
func each(ctx context.Context, tx *sql.Tx, namespace string, visit func(r row, err error)) error {
	rows, err := tx.QueryContext(ctx,
		`SELECT scope, record_key, typeof(payload), payload FROM control_plane_records WHERE namespace = ? ORDER BY scope, record_key`, namespace)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var scope, key, payload sql.RawBytes
		var kind string
		if err := rows.Scan(&scope, &key, &kind, &payload); err != nil {
			return err
		}
		var bad error
		if kind != "text" && kind != "blob" {
			bad = fmt.Errorf("%w but %s", errPayload, kind)
		}
		visit(row{scope: string(scope), key: string(key), payload: payload}, bad)
	}
	return rows.Err()
}

func (r *databaseRows) readClaims(ctx context.Context, tx *sql.Tx) error {
	seen := false
	err := each(ctx, tx, namespaceClaims, func(row row, err error) {
		seen = true
		location := at(namespaceClaims, row.scope, row.key)
		if row.key != claimsKey {
			err = fmt.Errorf("unknown key, want %s", claimsKey)
		} else {
			g := &Group{Place: PlaceRecord, Scope: row.scope, Location: location}
			if err == nil {
				err = checkScope(row.scope)
			}
			if err == nil {
				g.UpdatedAt, g.Entries, err = parseStore(row.payload)
			}
			if err == nil {
				r.records = append(r.records, g)
				return
			}
			r.broken[row.scope] = true
		}
		r.problems = append(r.problems, Problem{Place: PlaceRecord, Scope: visible(row.scope), Location: location, Reason: err.Error()})
	})
	if err == nil && !seen {
		r.missing = append(r.missing, at(namespaceClaims))
	}
	return err
}

func (r *databaseRows) readRetained(ctx context.Context, tx *sql.Tx) error {
	seen := false
	var g *Group
	refused := make(map[string]bool)
	err := each(ctx, tx, namespaceIdentity, func(row row, err error) {
		seen = true
		if refused[row.scope] {
			return
		}
		if scopeErr := checkScope(row.scope); scopeErr != nil {
			refused[row.scope] = true
			r.problems = append(r.problems, Problem{Place: PlaceRetained, Scope: visible(row.scope), Location: at(namespaceIdentity, row.scope), Reason: scopeErr.Error()})
			return
		}
		if g == nil || g.Scope != row.scope {
			g = &Group{Place: PlaceRetained, Scope: row.scope, Location: at(namespaceIdentity, row.scope)}
			r.retained = append(r.retained, g)
		}
		g.add(row, err, parseRetained)
	})
	if err == nil && !seen {
		r.missing = append(r.missing, at(namespaceIdentity))
	}
	return err
}

func (r *databaseRows) readActivity(ctx context.Context, tx *sql.Tx) error {
	g := &Group{Place: PlaceActivity, Scope: activityScope, Location: at(namespaceActivity, activityScope)}
	seen, foreign := false, 0
	err := each(ctx, tx, namespaceActivity, func(row row, err error) {
		seen = true
		if row.scope != activityScope {
			foreign++
			return
		}
		g.add(row, err, parseActivity)
	})
	if len(g.Entries) > 0 {
		r.activity = append(r.activity, g)
	}
	if foreign > 0 {
		r.problems = append(r.problems, Problem{
			Place: PlaceActivity, Location: at(namespaceActivity),
			Reason: fmt.Sprintf("%d rows are in another scope than %s and were not read", foreign, activityScope),
		})
	}
	if err == nil && !seen {
		r.missing = append(r.missing, at(namespaceActivity))
	}
	return err
}

// add reads a row as the next entry of the group.
func (g *Group) add(row row, err error, parse func(index int, key string, raw []byte) Entry) {
	index := len(g.Entries)
	if err == nil && !utf8.ValidString(row.key) {
		err = errors.New("the key is not UTF-8")
	}
	if err != nil {
		g.Entries = append(g.Entries, Entry{Index: index, Key: visible(row.key)}.drop(err))
		return
	}
	g.Entries = append(g.Entries, parse(index, row.key, row.payload))
}

// silences tells for a scope why its file does not count.
func (r *databaseRows) silences(instance string) func(scope string) string {
	present := make(map[string]bool, len(r.records))
	for _, g := range r.records {
		present[g.Scope] = true
	}
	return func(scope string) string {
		switch {
		case present[scope]:
			return "a record of the same scope exists"
		case r.broken[scope]:
			return "a record of the same scope exists, but cannot be read"
		case present[instance]:
			return "the record of the whole instance exists"
		case r.broken[instance]:
			return "the record of the whole instance exists, but cannot be read"
		case r.unreadable != "":
			return "it is unknown whether a record exists: " + r.unreadable
		}
		return ""
	}
}

// checkScope refuses a scope that no command can carry.
func checkScope(scope string) error {
	if strings.TrimSpace(scope) == "" {
		return errors.New("the scope is blank")
	}
	if len(scope) > maxScope {
		return fmt.Errorf("the scope has %d bytes, the most is %d", len(scope), maxScope)
	}
	for _, c := range scope {
		if c < 0x20 || c >= 0x7f && c < 0xa0 || c == utf8.RuneError {
			return errors.New("the scope holds a control character or is not UTF-8")
		}
	}
	return nil
}

// visible is a text that can stand in a report and on a terminal.
func visible(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	return quote(s)
}
