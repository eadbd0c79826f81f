package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Dump writes everything that a ledger holds, so that a test can tell whether it
// was changed.
func Dump(l Ledger) string {
	var b strings.Builder
	fmt.Fprintf(&b, "authority %d %s previous %s touched %q\n", l.AuthorityRevision, l.Authority, l.previous, l.touched)
	for _, d := range l.docs {
		fmt.Fprintf(&b, "%q incarnation %d text %q valid %v phase %s revision %d listed %v commands %v\n", d.Name, d.Incarnation, d.text, d.valid, d.phase,
			d.revision, d.listed, d.commands)
		if d.PhaseSince != nil {
			fmt.Fprintf(&b, "  since %s\n", d.PhaseSince)
		}
		for _, m := range d.body.members {
			fmt.Fprintf(&b, "  %q: %s\n", m.Key, m.Value)
		}
		for i := range d.receipts.len() {
			fmt.Fprintf(&b, "  %s\n", d.receipts.at(i))
		}
		fmt.Fprintf(&b, "  passed %v inherited %v %v\n", gateSet(d.passed), d.inherited != nil, gateSet(d.inherited))
	}
	return b.String()
}

func gateSet(set map[Gate]bool) []string {
	var list []string
	for _, g := range slices.Collect(maps.Keys(set)) {
		list = append(list, g.Kind+" "+g.ID)
	}
	slices.Sort(list)
	return list
}

// Passed are the gates of a session that count.
func (d *Document) Passed() []string { return gateSet(d.passed) }

// Why says why a document is no valid session.
func (d *Document) Why() error { return d.valid }

// Find gives a document, valid or not.
func (l Ledger) Find(name string) *Document { return l.find(name) }

// Size is the length of the document as JSON, as it is computed.
func (d *Document) Size() int { return d.size() }

// Order is the way of a release that succeeds.
func Order() []string { return order }
