package release

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Schema and epoch of a session as it is written.
const (
	sessionSchema = 1
	sessionEpoch  = 2
)

// maxRevision is the largest revision: 2^53-1.
const maxRevision = 1<<53 - 1

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{7,119}$`)

// validID reports whether a text can name a release session: 8 to 120 characters
// A-Z a-z 0-9 _ -, the first a letter or digit.
func validID(id string) bool { return idForm.MatchString(id) }

// sessionID is the trimmed id of a request, or RELEASE_SESSION_ID_INVALID.
func sessionID(f aggregate.Field[string]) (string, error) {
	id := aggregate.Trimmed(f)
	if !validID(id) {
		return "", events.Errorf(events.CodeReleaseIDInvalid, "want 8 to 120 characters A-Z a-z 0-9 _ -, the first a letter or digit").With("field", "sessionId")
	}
	return id, nil
}

// Document is one release session as the ledger keeps it: what was received or
// written, and what the rules need to know of it. It is never changed; the
// changing methods give a new one.
type Document struct {
	// Name is the name of the document without .json; that of a session is its id.
	Name string
	// Incarnation is the position of the commit that opened or received it, 0
	// until that commit has one.
	Incarnation uint64
	// PhaseSince is when the present phase began, as far as it is known.
	PhaseSince *events.Time

	text []byte // as received, if it is no object
	body object

	// What the rules ask for all the time, read from body once.
	phase    string
	revision int64
	valid    error // why it is no valid session; nil if it is one

	commands []events.RecentID // the commits that made and changed it: the first, and the latest
	before   []*Document       // its latest forms, this one last

	receipts receipts      // of body, if they are a list
	listed   bool          // they are a list
	passed   map[Gate]bool // required receipts whose latest outcome for the candidate is passed
	// inherited are those of passed that came with a received document that has no
	// candidate yet: they count for the first one. nil for any other document.
	inherited map[Gate]bool
}

// newDocument makes a document of any content.
func newDocument(name string, text []byte) *Document {
	d := &Document{Name: name, text: text}
	if canonical, err := events.CanonicalJSON(text); err == nil && canonical[0] == '{' {
		d.body = parseObject(text)
		d.text = nil
	}
	d.readReceipts()
	d.refresh()
	return d
}

// received makes a document that another system wrote.
func received(name string, text []byte) *Document {
	d := newDocument(name, text)
	if d.body.raw("candidateRelease") == nil {
		d.inherited = maps.Clone(d.passed)
	}
	if since, ok := d.body.instant("updatedAt"); ok {
		d.PhaseSince = &since
	}
	return d
}

// refresh reads again what is kept of the body.
func (d *Document) refresh() {
	d.phase, _ = d.body.text("phase")
	d.revision, _ = d.body.integer("revision")
	d.valid = d.check()
}

// ofBody makes a document of a body that was written here.
func (d *Document) ofBody(body object) *Document {
	c := *d
	c.body = body
	c.refresh()
	return &c
}

// isJSON reports whether the content is JSON at all, and not null.
func (d *Document) isJSON() bool {
	if d.body.there {
		return true
	}
	canonical, err := events.CanonicalJSON(d.text)
	return err == nil && string(canonical) != "null"
}

// readReceipts takes the receipts out of the body, and judges the gates.
func (d *Document) readReceipts() {
	raw := d.body.raw("receipts")
	var list []json.RawMessage
	d.listed = len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil
	d.receipts = receipts{}.with(list)
	d.passed = map[Gate]bool{}
	for _, r := range list {
		d.judge(r)
	}
}

// judge notes what a receipt says about a gate: the latest outcome counts.
func (d *Document) judge(receipt json.RawMessage) {
	r := parseObject(receipt)
	kind, _ := r.text("kind")
	id, _ := r.text("id")
	g := Gate{kind, id}
	if !required(g) {
		return
	}
	if outcome, ok := r.text("outcome"); r.raw("outcome") == nil || ok && outcome == OutcomePassed {
		d.passed[g] = true
	} else {
		delete(d.passed, g)
		delete(d.inherited, g)
	}
}

// Outcomes of a receipt.
const (
	OutcomePassed       = "passed" // the default; it is not written
	OutcomeFailed       = "failed"
	OutcomeInconclusive = "inconclusive"
)

// Phase, Revision and the others read what every valid session has.
func (d *Document) Phase() string { return d.phase }

// Revision of the session, at least 1 if it is valid.
func (d *Document) Revision() int64 { return d.revision }

func (d *Document) candidate() object { return d.body.object("candidateRelease") }
func (d *Document) stable() object    { return d.body.object("stableRelease") }

// active reports whether the session is valid and not terminal.
func (d *Document) active() bool { return d.valid == nil && !Terminal(d.Phase()) }

// MarshalJSON writes the document: members as they were received, except those
// that were changed.
func (d *Document) MarshalJSON() ([]byte, error) {
	if !d.body.there {
		return d.text, nil
	}
	var b bytes.Buffer
	d.body.append(&b, func(name string) (json.RawMessage, bool) {
		if name != "receipts" || !d.listed {
			return nil, false
		}
		return d.receipts.text(), true
	})
	return b.Bytes(), nil
}

// withReceipts adds receipts at the end and judges them.
func (d *Document) withReceipts(list []json.RawMessage) *Document {
	if len(list) == 0 {
		return d
	}
	c := *d
	c.receipts = c.receipts.with(list)
	c.passed, c.inherited = maps.Clone(c.passed), maps.Clone(c.inherited)
	for _, r := range list {
		c.judge(r)
	}
	return &c
}

// withCandidate gives the session a candidate. Gates of another one, and those
// recorded before there was one, do not count for it; those that came with a
// received document count for the first.
func (d *Document) withCandidate(candidate json.RawMessage) *Document {
	c := d.ofBody(d.body.with(member("candidateRelease", candidate)))
	switch stored := d.body.raw("candidateRelease"); {
	case stored == nil && d.inherited != nil:
		c.passed, c.inherited = d.inherited, nil
	case !equal(stored, candidate):
		c.passed = map[Gate]bool{}
	}
	return c
}

// missingGates lists the required receipts of a phase that do not count yet.
func (d *Document) missingGates(phase string) (list []Gate) {
	for _, g := range Gates[phase] {
		if !d.passed[g] {
			list = append(list, g)
		}
	}
	return list
}

// check says why a document is no valid session (specification 2.1).
func (d *Document) check() error {
	invalid := func(why string) error {
		return events.Errorf(events.CodeReleaseInvalid, "%s: %s", d.Name, why).With("sessionId", d.Name)
	}
	if !d.body.there {
		return invalid("no JSON object")
	}
	if v, ok := d.body.integer("schemaVersion"); !ok || v != sessionSchema {
		return invalid("schemaVersion is not 1")
	}
	if v, ok := d.body.integer("semanticEpoch"); !ok || v != sessionEpoch {
		return invalid("semanticEpoch is not 2")
	}
	if id, ok := d.body.text("sessionId"); !ok || id != d.Name || !validID(id) {
		return invalid("sessionId is not the name of the document")
	}
	phase := d.Phase()
	if !knownPhase(phase) {
		return invalid("the phase is not known")
	}
	if v, ok := d.body.integer("revision"); !ok || v < 1 {
		return invalid("revision is no integer from 1")
	}
	if why := d.checkTransaction(d.body.raw("transaction")); why != "" {
		return invalid(why)
	}
	return nil
}

// checkTransaction says why a transaction is not valid for the session, "" if it
// is.
func (d *Document) checkTransaction(raw json.RawMessage) string {
	tx := parseObject(raw)
	if !tx.given {
		if phase := d.Phase(); phase == CutoverCommitted || phase == Soaking {
			return phase + " without a transaction"
		}
		return ""
	}
	candidate, stable := d.candidate(), d.stable()
	version, ok := tx.integer("schemaVersion")
	if !ok || version != 1 {
		return "transaction: schemaVersion is not 1"
	}
	if id, ok := tx.text("operationId"); !ok || strings.TrimSpace(id) == "" {
		return "transaction: operationId is blank"
	}
	if !candidate.there || candidate.raw("releaseId") == nil || !equal(tx.raw("candidateReleaseId"), candidate.raw("releaseId")) {
		return "transaction: candidateReleaseId is not that of the candidate"
	}
	revision, ok := tx.integer("cutoverAuthorityRevision")
	if before, known := stable.integer("authorityRevision"); !ok || !known || revision <= before {
		return "transaction: cutoverAuthorityRevision is not above that of the stable release"
	}
	if _, ok := tx.instant("startedAt"); !ok {
		return "transaction: startedAt is unreadable"
	}
	rollback := tx.object("rollbackRelease")
	switch {
	case !rollback.there || !agree(rollback, stable, "releaseId", "artifactIdentity", "manifestSha256", "workerProtocolVersion"):
		return "transaction: rollbackRelease is not the stable release"
	case !notBlank(rollback, "manifestPath"):
		return "transaction: rollbackRelease.manifestPath is blank"
	}
	if _, ok := rollback.instant("publishedAt"); !ok {
		return "transaction: rollbackRelease.publishedAt is unreadable"
	}
	backup := rollback.object("databaseBackup")
	where, ok := backup.text("path")
	if !ok || !strings.HasPrefix(where, "/") || path.Clean(where) != where {
		return "transaction: databaseBackup.path is no absolute normalized path"
	}
	if v, ok := backup.integer("schemaVersion"); !ok || v < 1 {
		return "transaction: databaseBackup.schemaVersion is no integer above 0"
	}
	if _, ok := backup.instant("createdAt"); !ok {
		return "transaction: databaseBackup.createdAt is unreadable"
	}
	return ""
}

func notBlank(o object, name string) bool {
	v, ok := o.text(name)
	return ok && strings.TrimSpace(v) != ""
}

// sameTransaction compares what makes a cutover: operationId and startedAt do
// not count.
func sameTransaction(a, b object) bool {
	ra, rb := a.object("rollbackRelease"), b.object("rollbackRelease")
	ba, bb := ra.object("databaseBackup"), rb.object("databaseBackup")
	return a.there && b.there && agree(a, b, "schemaVersion", "candidateReleaseId", "cutoverAuthorityRevision") &&
		agree(ra, rb, "releaseId", "artifactIdentity", "manifestPath", "manifestSha256", "workerProtocolVersion") &&
		sameInstant(ra, rb, "publishedAt") &&
		agree(ba, bb, "path", "schemaVersion", "auditEventCount", "recordCount") && sameInstant(ba, bb, "createdAt")
}

// sameInstant compares times as instants if both can be read, else as they are.
func sameInstant(a, b object, name string) bool {
	ta, oka := a.instant(name)
	tb, okb := b.instant(name)
	if oka && okb {
		return ta == tb
	}
	return equal(a.raw(name), b.raw(name))
}

// lanePath is a lane's home without '.', '..', double and trailing slashes; ok is
// false when it is no text.
func lanePath(lane object) (string, bool) {
	home, ok := lane.text("controllerHome")
	if !ok {
		return "", false
	}
	return path.Clean(home), true
}

// Text gives a text of the session, "" when it is missing or none.
func (d *Document) Text(name string) string {
	v, _ := d.body.text(name)
	return v
}

// Raw gives a member of the session as it is, nil when it is missing.
func (d *Document) Raw(name string) json.RawMessage { return d.body.raw(name) }
