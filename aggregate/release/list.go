package release

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// DefaultMaxEntries bounds a list when nothing else is asked for.
const DefaultMaxEntries = 512

// List is an inventory of documents.
type List struct {
	Sessions            []*Document `json:"sessions"`
	InvalidSessionFiles []string    `json:"invalidSessionFiles"`
	Inspected           int         `json:"inspected"`
	Truncated           bool        `json:"truncated"` // more documents exist

	last string // file name of the last document that was inspected
}

// List inspects the first documents in document order: at most maxEntries, its
// integer part, at least 1; no number (NaN) is DefaultMaxEntries.
func (l Ledger) List(maxEntries float64) List {
	bound := DefaultMaxEntries
	if !math.IsNaN(maxEntries) {
		bound = int(min(max(math.Trunc(maxEntries), 1), math.MaxInt32))
	}
	docs := l.docs[:min(bound, len(l.docs))]
	out := List{Sessions: []*Document{}, InvalidSessionFiles: []string{}, Inspected: len(docs), Truncated: len(docs) < len(l.docs)}
	for _, d := range docs {
		out.last = d.Name + extension
		if d.valid != nil {
			out.InvalidSessionFiles = append(out.InvalidSessionFiles, d.Name+extension)
		} else {
			out.Sessions = append(out.Sessions, d)
		}
	}
	return out
}

// ListComplete inspects all documents.
func (l Ledger) ListComplete() List { return l.List(math.MaxInt32) }

// After gives the ledger without the documents up to a file name, that one
// included: what a list goes on with.
func (l Ledger) After(fileName string) Ledger {
	i, found := slices.BinarySearchFunc(l.docs, fileName, func(d *Document, name string) int { return strings.Compare(d.Name+extension, name) })
	if found {
		i++
	}
	l.docs = l.docs[i:]
	return l
}

// Page is a part of a list that fits into a number of bytes.
type Page struct {
	List
	// Cursor is the file name that the next page goes on after, "" at the end.
	Cursor string
	// ReceiptsOmitted is how many old receipts were left out.
	ReceiptsOmitted int
}

// Page lists documents in document order: at most maxEntries of them, and at most
// the given bytes of sessions, which may lack old receipts, and of names of invalid
// documents. It has one document at least, if there is any.
func (l Ledger) Page(maxEntries float64, most int) Page {
	// Names are not shortened: they end a page at half of it.
	names := 0
	for i, d := range l.docs {
		if d.valid == nil {
			continue
		}
		if names += len(d.Name) + nameExtra; names > most/2 && i > 0 {
			if math.IsNaN(maxEntries) {
				maxEntries = DefaultMaxEntries
			}
			maxEntries = min(maxEntries, float64(i))
			break
		}
	}
	list := l.List(maxEntries)
	for _, name := range list.InvalidSessionFiles {
		most -= len(name) + nameExtra - len(extension)
	}
	fit, omitted, all := list.Fit(most)
	p := Page{List: fit, ReceiptsOmitted: omitted}
	switch {
	case all && list.Truncated:
		p.Cursor = list.last
	case !all: // Fit keeps one at least
		end := fit.Sessions[len(fit.Sessions)-1]
		p.Cursor = end.Name + extension
		p.InvalidSessionFiles = []string{}
		for _, d := range l.docs[:slices.IndexFunc(l.docs, func(d *Document) bool { return d.Name == end.Name })] {
			if d.valid != nil {
				p.InvalidSessionFiles = append(p.InvalidSessionFiles, d.Name+extension)
			}
		}
		p.Inspected = len(p.Sessions) + len(p.InvalidSessionFiles)
	}
	return p
}

// nameExtra is what a name of an invalid document has besides itself in a list:
// its ending, two quotation marks, a comma, and some room for escapes.
const nameExtra = len(extension) + 4

// ActiveFirst lists the sessions that are not terminal before the others, each
// part in document order; at most maxEntries documents, and at most the given bytes.
func (l Ledger) ActiveFirst(maxEntries float64, most int) Page {
	sorted := slices.Clone(l.docs)
	slices.SortStableFunc(sorted, func(a, b *Document) int { return cmp.Compare(rank(a), rank(b)) })
	l.docs = sorted
	p := l.Page(maxEntries, most)
	p.Cursor = "" // it is not in the order that a page goes on in
	return p
}

func rank(d *Document) int {
	if d.active() {
		return 0
	}
	return 1
}

// Fit shortens the sessions of a list so that they have at most the given bytes
// together: first by leaving out old receipts (omitted of them), then sessions but
// the first (all = false, and the list says truncated).
func (l List) Fit(most int) (fit List, omitted int, all bool) {
	share := most / max(len(l.Sessions), 1)
	sizes, total := make([]int, len(l.Sessions)), 0
	for i, d := range l.Sessions {
		sizes[i] = d.size()
		total += sizes[i] + 1
	}
	if total <= most {
		return l, 0, true
	}
	kept := make([]*Document, 0, len(l.Sessions))
	room := most
	for i, d := range l.Sessions {
		size := sizes[i]
		if size > share {
			short, n := d.Shortened(max(share, minSession))
			if short.size() > most/8 {
				short, n = d.Reduced(minSession)
			}
			d, size = short, short.size()
			omitted += n
		}
		if room -= size + 1; room < 0 && len(kept) > 0 {
			l.Sessions, l.Truncated = kept, true
			return l, omitted, false
		}
		kept = append(kept, d)
	}
	l.Sessions = kept
	return l, omitted, true
}

// minSession is what a session in a list may have in any case, in bytes.
const minSession = 2 << 10
