package release

import (
	"cmp"
	"math"
	"slices"
)

// DefaultMaxEntries bounds a list when nothing else is asked for.
const DefaultMaxEntries = 512

// List is an inventory of documents.
type List struct {
	Sessions            []*Document `json:"sessions"`
	InvalidSessionFiles []string    `json:"invalidSessionFiles"`
	Inspected           int         `json:"inspected"`
	Truncated           bool        `json:"truncated"` // more documents exist
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

// ActiveFirst gives the list with the sessions that are not terminal first, each
// part in document order.
func (l List) ActiveFirst() List {
	sorted := slices.Clone(l.Sessions)
	slices.SortStableFunc(sorted, func(a, b *Document) int {
		return cmp.Compare(rank(a), rank(b))
	})
	l.Sessions = sorted
	return l
}

func rank(d *Document) int {
	if d.active() {
		return 0
	}
	return 1
}

// Fit shortens the sessions of a list so that they have at most the given bytes
// together: first by leaving out old receipts (omitted of them), then sessions
// (all = false, and the list says truncated).
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
			d, size = short, short.size()
			omitted += n
		}
		if room -= size + 1; room < 0 {
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
