// Package legacytest builds homes of the replaced system for tests: any
// combination of its places, with a database that was closed, that was left by a
// crash, or that a running writer has open.
//
//   - A Home is a directory under construction.
//   - A Gen makes realistic values; the same seed makes the same ones.
//   - A Writer is a process that goes on writing into a home.
//   - A Tree is all that a directory holds, for comparing before and after.
package legacytest

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Names of the places.
const (
	Database = "control-plane.sqlite"

	Claims    = "controller_session_claim_store"
	Identity  = "controller_session_identity"
	Transport = "execution_session"

	ClaimsKey     = "index"
	InstanceScope = "controller"
)

// Home is a home under construction.
type Home struct {
	Dir string

	tb testing.TB
	db *sql.DB
}

// New makes an empty home in a temporary directory of the test.
func New(tb testing.TB) *Home {
	tb.Helper()
	return In(tb, filepath.Join(tb.TempDir(), "controller-home"))
}

// In makes an empty home in the directory dir, which is created.
func In(tb testing.TB, dir string) *Home {
	tb.Helper()
	h := &Home{Dir: dir, tb: tb}
	h.check(os.MkdirAll(dir, 0o700))
	tb.Cleanup(func() {
		if h.db != nil {
			h.db.Close()
		}
	})
	return h
}

func (h *Home) check(err error) {
	h.tb.Helper()
	if err != nil {
		h.tb.Fatalf("legacytest: %v", err)
	}
}

// schema is the form of the database of versions 1.7 and 1.8.
const schema = `
CREATE TABLE IF NOT EXISTS control_plane_schema (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL);
INSERT OR IGNORE INTO control_plane_schema VALUES (1, '2026-01-01T00:00:00.000Z');
CREATE TABLE IF NOT EXISTS control_plane_records (
  namespace TEXT NOT NULL, scope TEXT NOT NULL, record_key TEXT NOT NULL,
  schema_version INTEGER NOT NULL, revision INTEGER NOT NULL, payload TEXT,
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
  PRIMARY KEY (namespace, scope, record_key));
CREATE TABLE IF NOT EXISTS control_plane_audit (
  event_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, scope TEXT NOT NULL, record_key TEXT NOT NULL,
  action TEXT NOT NULL, revision INTEGER NOT NULL, occurred_at TEXT NOT NULL);
`

const upsert = `INSERT INTO control_plane_records VALUES (?, ?, ?, 1, 1, ?, '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')
ON CONFLICT DO UPDATE SET payload = excluded.payload, revision = revision + 1`

func open(name string, autocheckpoint int) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(name), RawQuery: url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(wal)", "synchronous(normal)", fmt.Sprintf("wal_autocheckpoint(%d)", autocheckpoint),
	}}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// DB is the database, created in WAL mode at the first use; nothing is
// checkpointed until Close.
func (h *Home) DB() *sql.DB {
	h.tb.Helper()
	if h.db == nil {
		db, err := open(filepath.Join(h.Dir, Database), 0)
		h.check(err)
		h.db = db
	}
	return h.db
}

// Row writes a row of control_plane_records. The payload is a string in the old
// system; anything else that SQLite takes makes a broken row.
func (h *Home) Row(namespace, scope, key string, payload any) {
	h.tb.Helper()
	_, err := h.DB().Exec(upsert, namespace, scope, key, payload)
	h.check(err)
}

// Row is a row of control_plane_records.
type Row struct {
	Namespace, Scope, Key string
	Payload               any
}

// Rows writes many rows in one transaction.
func (h *Home) Rows(rows []Row) {
	h.tb.Helper()
	tx, err := h.DB().Begin()
	h.check(err)
	defer tx.Rollback()
	for _, r := range rows {
		_, err := tx.Exec(upsert, r.Namespace, r.Scope, r.Key, r.Payload)
		h.check(err)
	}
	h.check(tx.Commit())
}

// Record writes a claim store as the record of a scope.
func (h *Home) Record(scope string, sessions ...Session) {
	h.tb.Helper()
	h.Row(Claims, scope, ClaimsKey, Store(sessions...))
}

// Retain writes the retained identity of a session under its work; released is
// its release time, or "".
func (h *Home) Retain(scope string, s Session, released string) {
	h.tb.Helper()
	h.Row(Identity, scope, s.WorkID, Retained(s, released))
}

// Store writes a claim store as the file of a repository.
func (h *Home) Store(repoID string, sessions ...Session) {
	h.tb.Helper()
	h.File("repositories/"+repoID+"/controller-sessions.json", Store(sessions...))
}

// File writes a file below the home.
func (h *Home) File(name, content string) {
	h.tb.Helper()
	full := filepath.Join(h.Dir, filepath.FromSlash(name))
	h.check(os.MkdirAll(filepath.Dir(full), 0o700))
	h.check(os.WriteFile(full, []byte(content), 0o600))
}

// Close leaves the database as an orderly stop does: checkpointed, no -wal.
func (h *Home) Close() {
	h.tb.Helper()
	if h.db == nil {
		return
	}
	h.check(h.db.Close())
	h.db = nil
}

// Checkpoint moves the content of the -wal into the database.
func (h *Home) Checkpoint() {
	h.tb.Helper()
	_, err := h.DB().Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	h.check(err)
}

// Crash leaves the database as a crash does: what was not checkpointed is only
// in the -wal, and no process has it open.
func (h *Home) Crash() {
	h.tb.Helper()
	if h.db == nil {
		h.tb.Fatal("legacytest: Crash of a home without a database")
	}
	kept := make(map[string][]byte)
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(h.Dir, Database+suffix))
		h.check(err)
		kept[suffix] = b
	}
	h.Close()
	for suffix, b := range kept {
		h.check(os.WriteFile(filepath.Join(h.Dir, Database+suffix), b, 0o600))
	}
}

// Tree is all that a directory holds: for each path mode, size, modification
// time and digest of the content, or the target of a link.
type Tree map[string]string

// ReadTree reads a directory. Links are not followed.
func ReadTree(tb testing.TB, dir string) Tree {
	tb.Helper()
	tree := make(Tree)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		case info.Mode().IsRegular() && info.Mode().Perm() != 0:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			line += " " + hex.EncodeToString(sum[:])
		}
		tree[name] = line
		return nil
	})
	if err != nil {
		tb.Fatalf("legacytest: %v", err)
	}
	return tree
}
