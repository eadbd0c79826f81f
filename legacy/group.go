package legacy

import "encoding/json"

// Place is where in the old system something was found. The texts stand in
// reports; for the first three they are also the source of a work.import.
type Place string

// The places, in the order in which they are sent.
const (
	PlaceRecord   Place = "record"   // a claim store in control-plane.sqlite
	PlaceFile     Place = "file"     // a claim store as a JSON file
	PlaceRetained Place = "retained" // retained identities in control-plane.sqlite
	PlaceActivity Place = "activity" // transport sessions in control-plane.sqlite
	PlaceWorks    Place = "works"    // a works file

	PlaceRelease   Place = "release"   // release documents
	PlaceAuthority Place = "authority" // the release authority
)

// InstanceScope is the scope under which the old system keeps what belongs to
// the whole installation and not to one repository.
const InstanceScope = "controller"

// Group is what lies in one place under one scope.
type Group struct {
	Place    Place
	Scope    string // a repository id or the instance-wide scope; "" for works and releases
	Location string // where, relative to the home: file, folder, namespace, key

	// Wide: it belongs to the whole installation. Its commands name no scope.
	Wide bool

	// UpdatedAt is the updatedAt of a claim store as JSON text, as found; nil
	// when it has none that is a text of ordinary length.
	UpdatedAt json.RawMessage

	// Ignored says why none of the entries counts; "" when they do.
	Ignored string

	Entries []Entry
}

// Entry is one item of a Group.
type Entry struct {
	Index  int    // position in the group, from 0; in a works file the line, from 1
	Key    string // the key of a row in control-plane.sqlite, the file name of a release document, else ""
	WorkID string // the work, trimmed; "" when unknown (for activity: activeWorkId)

	// Raw is the entry as compact JSON: a session; a retained record; for
	// activity the fields that activity.set takes; for works the state (a text or
	// null); for a release document the body of its command, which carries its
	// bytes; the release authority. Members keep their order and numbers their
	// digits. It is nil when the entry is dropped.
	Raw json.RawMessage

	Dropped string // why the entry cannot be sent; "" when it can
	Note    string // something to know about it, "" mostly

	revision float64 // of a release authority
}

// Problem names a thing that could not be read and is no entry of a group.
type Problem struct {
	Place    Place  `json:"place"`
	Scope    string `json:"scope,omitempty"`
	Location string `json:"location"` // file, row or line
	Reason   string `json:"reason"`
}
