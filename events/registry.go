package events

import (
	"embed"
	"errors"
	"fmt"
	"strings"
)

// Payload is what an event says: one of the structures of this package whose
// names are in the past tense.
type Payload interface {
	// EventType gives the type and version that this structure is written as.
	EventType() (name string, version int)
	write(w *Writer)
}

// Encode makes an event of what it says.
func Encode(p Payload) Event {
	name, v := p.EventType()
	w := NewWriter(512)
	w.Object()
	p.write(w)
	w.End()
	return Event{Type: name, V: v, Data: w.Bytes()}
}

// Definition describes one version of one event type.
type Definition struct {
	Type        string
	V           int
	Description string
	// read decodes the fields of this version.
	read func(o *Object) Payload
	// lift, set on old versions only, turns what read gives into the next
	// version.
	lift func(Payload) Payload
}

// Schema is the JSON Schema of the event as JSON shows it.
func (d Definition) Schema() ([]byte, error) {
	return schemas.ReadFile(schemaFile(d.Type, d.V))
}

func schemaFile(name string, v int) string {
	return fmt.Sprintf("schema/%s.v%d.json", name, v)
}

//go:embed schema/*.json
var schemas embed.FS

// Registry knows event types. It never changes after it was made.
type Registry struct {
	ordered []Definition
	byKey   map[eventKey]Definition
	newest  map[string]int
}

type eventKey struct {
	name string
	v    int
}

// NewRegistry makes a registry of definitions; versions of a type are 1, 2, 3 …
// and every one but the last has a lift. Anything else is a mistake of the
// programmer and panics.
func NewRegistry(defs ...Definition) *Registry {
	r := &Registry{byKey: map[eventKey]Definition{}, newest: map[string]int{}}
	for _, d := range defs {
		if d.V != r.newest[d.Type]+1 || d.V > 1 && r.byKey[eventKey{d.Type, d.V - 1}].lift == nil {
			panic(fmt.Sprintf("event %s version %d: versions must be 1, 2, 3 … with a lift from each to the next", d.Type, d.V))
		}
		r.newest[d.Type] = d.V
		r.byKey[eventKey{d.Type, d.V}] = d
		r.ordered = append(r.ordered, d)
	}
	for name, v := range r.newest {
		if r.byKey[eventKey{name, v}].lift != nil {
			panic(fmt.Sprintf("event %s version %d: the newest version has a lift", name, v))
		}
	}
	return r
}

// Definitions lists all versions of all types, in order of declaration.
func (r *Registry) Definitions() []Definition { return r.ordered }

// ErrUnknownEvent is what an event of a type or version is that the registry
// does not know: written by a newer release, or not by this system.
var ErrUnknownEvent = errors.New("unknown event")

// Decode gives what an event says, lifted to the newest version of its type. It
// wraps ErrUnknownEvent or ErrEncoding.
func (r *Registry) Decode(e Event) (Payload, error) {
	d, ok := r.byKey[eventKey{e.Type, e.V}]
	if !ok {
		return nil, fmt.Errorf("%w: %s version %d", ErrUnknownEvent, clip(e.Type), e.V)
	}
	rd := NewReader(e.Data)
	o := rd.Object(e.Type)
	p := d.read(o)
	o.End()
	if err := rd.Done(); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Type, err)
	}
	for d.lift != nil {
		p = d.lift(p)
		d = r.byKey[eventKey{d.Type, d.V + 1}]
	}
	return p, nil
}

// Decode uses the Catalogue.
func Decode(e Event) (Payload, error) { return catalogue.Decode(e) }

// Catalogue is the registry of all events of forge-es.
func Catalogue() *Registry { return catalogue }

var catalogue = NewRegistry(
	Definition{
		Type: "claim.granted", V: 1, read: readClaimGranted,
		Description: "A work has a new owner epoch. The generation advanced; cause says why, evidence what was relied on beyond the work itself.",
	},
	Definition{
		Type: "claim.renewed", V: 1, read: readClaimRenewed,
		Description: "The owner of a work goes on in the same generation, with a new lease end and perhaps another transport session or capability digest.",
	},
	Definition{
		Type: "claim.released", V: 1, read: readClaimReleased,
		Description: "The last known owner no longer holds the work. The next claim advances the generation, whoever makes it.",
	},
	Definition{
		Type: "claim.imported", V: 1, read: readClaimImported,
		Description: "A claim of another system became the last known owner, as it was given.",
	},
	Definition{
		Type: "claim.import-conflicted", V: 1, read: readClaimImportConflicted,
		Description: "An imported claim contradicts the last known owner. The work is quarantined until an operator resolves it.",
	},
	Definition{
		Type: "claim.import-resolved", V: 1, read: readClaimImportResolved,
		Description: "An operator lifted the quarantine of a work and said which of the two owners counts.",
	},
	Definition{
		Type: "work.state-set", V: 1, read: readWorkStateSet,
		Description: "The state of a work is open, a terminal state, or unknown (absent).",
	},
	Definition{
		Type: "import.started", V: 1, read: readImportStarted,
		Description: "A snapshot of another system's claims is being taken over; one commit per entry follows on the works.",
	},
	Definition{
		Type: "release.opened", V: 1, read: readReleaseOpened,
		Description: "A release session began, with its source frozen beside a stable release.",
	},
	Definition{
		Type: "release.advanced", V: 1, read: readReleaseAdvanced,
		Description: "A release session moved to another phase, perhaps with a candidate and with evidence.",
	},
	Definition{
		Type: "release.receipts-recorded", V: 1, read: readReleaseReceiptsRecorded,
		Description: "Evidence about a release session arrived.",
	},
	Definition{
		Type: "release.transaction-recorded", V: 1, read: readReleaseTransactionRecorded,
		Description: "The rollback authority of a cutover was recorded, once.",
	},
	Definition{
		Type: "release.document-received", V: 1, read: readReleaseDocumentReceived,
		Description: "A document of another system was taken over as it was; it may be no JSON.",
	},
	Definition{
		Type: "release.document-discarded", V: 1, read: readReleaseDocumentDiscarded,
		Description: "An operator removed a document.",
	},
	Definition{
		Type: "release.migrated", V: 1, read: readReleaseMigrated,
		Description: "A stored document was brought to the present form.",
	},
	Definition{
		Type: "authority.published", V: 1, read: readAuthorityPublished,
		Description: "Which release is live, by whoever owns that. A fencing token is only there as its digest.",
	},
)

// OneOf reads a text that is one of the given ones.
func (o *Object) OneOf(name string, allowed ...string) string {
	v := o.Text(name)
	if o.r.err != nil {
		return ""
	}
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	o.r.Fail("%s: %q is %q, not one of %s", o.name, name, clip(v), strings.Join(allowed, ", "))
	return ""
}
