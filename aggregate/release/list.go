package release

import "math"

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
