package release

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Migrate brings stored documents to the present form, all or none
// (specification 2.5).
type Migrate struct {
	command
	Authority json.RawMessage
	DryRun    aggregate.Field[bool]
}

func newMigrate(verb string, b *aggregate.Body) Command {
	return &Migrate{command: command{verb: verb, body: b}, Authority: value(b, "authority"), DryRun: b.Bool("dryRun")}
}

// Migration is the answer of migrate.
type Migration struct {
	MigratedSessionIDs []string `json:"migratedSessionIds"`
	CurrentSessionIDs  []string `json:"currentSessionIds"`
	Inspected          int      `json:"inspected"`
	// Plan says what would be done, of a dry run only.
	Plan []Migrated `json:"plan,omitempty"`
}

// Migrated is what a migration does to one document.
type Migrated struct {
	SessionID string `json:"sessionId"`
	Outcome   string `json:"outcome"` // current, converted, reconciled, historical
	From      string `json:"from"`    // phase before
	To        string `json:"to"`      // phase afterwards
}

// currentForm reports whether a document is of schema 1 and epoch 2.
func (d *Document) currentForm() bool {
	schema, okSchema := d.body.integer("schemaVersion")
	epoch, okEpoch := d.body.integer("semanticEpoch")
	return okSchema && schema == sessionSchema && okEpoch && epoch == sessionEpoch
}

// supported reports whether a document has a shape that a migration understands.
func (d *Document) supported() bool {
	schema, ok := d.body.integer("schemaVersion")
	epoch, hasEpoch := d.body.integer("semanticEpoch")
	absent := d.body.raw("semanticEpoch") == nil
	if !ok || !(schema == 1 && (absent || hasEpoch && (epoch == 1 || epoch == 2)) || schema == 2 && absent) {
		return false
	}
	id, ok := d.body.text("sessionId")
	_, created := d.body.instant("createdAt")
	_, updated := d.body.instant("updatedAt")
	return ok && id == d.Name && knownPhase(d.Phase()) && created && updated
}

// identityKey tells releases apart across documents, "" for none.
func identityKey(release object) string {
	parts := make([]string, len(releaseIdentity))
	for i, name := range releaseIdentity {
		v, _ := release.text(name)
		if parts[i] = strings.TrimSpace(v); parts[i] == "" {
			return ""
		}
	}
	return strings.Join(parts, "\x00")
}

// cutover is what a migration knows of the present release authority.
type cutover struct {
	authority, active, previous object
	previousShared              bool // an event of this migration brought it
}

func (c *Migrate) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	answer := Migration{MigratedSessionIDs: []string{}, CurrentSessionIDs: []string{}, Inspected: len(l.docs)}
	for _, d := range l.docs {
		if !validID(d.Name) {
			return aggregate.Decision{}, events.Errorf(events.CodeReleaseIDInvalid, "document %q", d.Name+extension).With("name", d.Name+extension)
		}
		if !d.isJSON() {
			return aggregate.Decision{}, events.Errorf(events.CodeReleaseMigrationJSON, "document %q", d.Name+extension).With("name", d.Name+extension)
		}
	}
	authority := parseObject(c.Authority)
	m := migration{ledger: l, now: f.Now, cutover: cutover{authority: authority, active: authority.object("active"), previous: authority.object("previous")}}
	m.index()
	var list []events.Payload
	for _, d := range l.docs {
		e, err := m.document(d)
		if err != nil {
			return aggregate.Decision{}, err
		}
		step := Migrated{SessionID: d.Name, Outcome: FormCurrent, From: d.Phase(), To: d.Phase()}
		if e == nil {
			answer.CurrentSessionIDs = append(answer.CurrentSessionIDs, d.Name)
		} else {
			answer.MigratedSessionIDs = append(answer.MigratedSessionIDs, d.Name)
			list = append(list, *e)
			step.Outcome = e.Outcome
			if e.Outcome == events.MigratedHistorical {
				step.To = KnownGood
			}
		}
		if c.DryRun.Value {
			answer.Plan = append(answer.Plan, step)
		}
	}
	if c.DryRun.Value {
		list = nil
	}
	return aggregate.Decision{Events: list, Result: answer}, nil
}

// migration is a migration under way.
type migration struct {
	cutover
	ledger Ledger
	now    events.Time
	users  map[string][]*Document // documents of supported shape, by the key of their stable release
}

func (m *migration) index() {
	m.users = map[string][]*Document{}
	for _, d := range m.ledger.docs {
		if key := identityKey(d.stable()); key != "" && d.supported() {
			m.users[key] = append(m.users[key], d)
		}
	}
}

// document decides what becomes of one document; nil: it is current.
func (m *migration) document(d *Document) (*events.ReleaseMigrated, error) {
	if d.currentForm() {
		return m.current(d)
	}
	if !d.supported() {
		return nil, events.Errorf(events.CodeReleaseMigrationSchema, "document %q", d.Name+extension).With("name", d.Name+extension)
	}
	e := &events.ReleaseMigrated{Document: d.Name, Outcome: events.MigratedConverted, At: m.now}
	phase, candidate := d.Phase(), d.candidate()
	key, active := identityKey(candidate), identityKey(m.active)
	updatedAt, _ := d.body.text("updatedAt")
	switch {
	case d.body.raw("transaction") != nil, phase != CutoverAttempting && phase != CutoverCommitted && phase != Soaking && phase != KnownGood:
	case key != "" && key == active && m.previousIsStableOf(d):
		e.Transaction = m.rebuilt("migration", d, updatedAt)
	case phase == KnownGood:
	case phase == Soaking && key != "" && key != active:
		proof := m.proof(d, key)
		if proof == "" {
			return nil, events.Errorf(events.CodeReleaseMigrationUnproven, "%s", d.Name).With("sessionId", d.Name)
		}
		e.Outcome = events.MigratedHistorical
		id := "migration:historical-known-good:" + d.Name
		if !d.hasReceipt(id) {
			if !d.listed {
				return nil, events.Errorf(events.CodeReleaseInvalid, "%s: its receipts are no list", d.Name).With("sessionId", d.Name)
			}
			made := parseObject(receipt(id, kindKnownGood, "Legacy soaking state reconciled as known-good from exact durable release lineage: "+proof+".", "", m.now))
			e.Receipt = events.JSON(made.with(member("recordedAt", updatedAt)).bytes())
		}
	default:
		return nil, events.Errorf(events.CodeReleaseMigrationAuthority, "%s", d.Name).With("sessionId", d.Name).With("phase", phase)
	}
	return m.apply(d, e)
}

// current reconciles a session whose cutover happened but was not recorded; any
// other current document stays.
func (m *migration) current(d *Document) (*events.ReleaseMigrated, error) {
	candidate := d.candidate()
	if d.body.raw("transaction") == nil && d.Phase() == CutoverAttempting && candidate.there && m.active.there &&
		literally(candidate, m.active) && m.previousIsStableOf(d) {
		committedAt, _ := m.authority.text("committedAt")
		e := &events.ReleaseMigrated{Document: d.Name, Outcome: events.MigratedReconciled, At: m.now, Transaction: m.rebuilt("reconcile", d, committedAt)}
		if d.Revision() >= maxRevision {
			return nil, events.Errorf(events.CodeReleaseInvalid, "%s: the revision cannot grow", d.Name).With("sessionId", d.Name)
		}
		return m.apply(d, e)
	}
	return nil, d.valid
}

// literally reports whether two releases have the same identity, as written.
func literally(a, b object) bool {
	for _, name := range releaseIdentity {
		if a.raw(name) == nil || !equal(a.raw(name), b.raw(name)) {
			return false
		}
	}
	return true
}

// previousIsStableOf reports whether the authority can be rolled back to a
// session's stable release.
func (m *migration) previousIsStableOf(d *Document) bool {
	return m.previous.there && m.previous.raw("databaseBackup") != nil && literally(m.previous, d.stable())
}

// rebuilt is the transaction of a cutover that had happened, without its
// rollback release, which is authority.previous.
func (m *migration) rebuilt(word string, d *Document, startedAt string) events.JSON {
	revision := m.authority.raw("revision")
	text := strings.Trim(string(revision), `"`)
	if v, ok := m.authority.integer("revision"); ok {
		text = strconv.FormatInt(v, 10)
	}
	body := object{members: []events.Member{
		member("schemaVersion", 1), member("operationId", fmt.Sprintf("%s:%s:%s", word, d.Name, text)),
		member("candidateReleaseId", orNull(d.candidate().raw("releaseId"))), member("cutoverAuthorityRevision", orNull(revision)),
		member("startedAt", startedAt),
	}}
	return events.JSON(body.bytes())
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// apply checks that the document will be a valid session, and lets the first
// event that needs it bring the rollback release.
func (m *migration) apply(d *Document, e *events.ReleaseMigrated) (*events.ReleaseMigrated, error) {
	previous := m.authority.raw("previous")
	if after := d.migrated(*e, previous); after.valid != nil {
		return nil, after.valid
	}
	if len(e.Transaction) > 0 && !m.previousShared {
		e.Previous, m.previousShared = events.JSON(previous), true
	}
	return e, nil
}

// proof says why a soaking session must have been accepted, "" if it cannot be
// told.
func (m *migration) proof(d *Document, key string) string {
	updated, _ := d.body.instant("updatedAt")
	n, firstID := 0, ""
	for _, user := range m.users[key] {
		if created, _ := user.body.instant("createdAt"); user != d && created >= updated {
			if n++; n == 1 {
				firstID = user.Name
			}
		}
	}
	switch {
	case n > 0:
		return fmt.Sprintf("%d later ReleaseSession attempt(s) use exact Candidate B as Stable A; first=%s", n, firstID)
	case key == identityKey(m.previous):
		return "current RuntimeReleaseAuthority.previous references Candidate B"
	}
	return ""
}

func (d *Document) hasReceipt(id string) bool {
	for i := range d.receipts.len() {
		if v, ok := parseObject(d.receipts.at(i)).text("id"); ok && v == id {
			return true
		}
	}
	return false
}
