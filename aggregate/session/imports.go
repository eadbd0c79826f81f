package session

import (
	"fmt"
	"slices"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// ImportState is the boundary that remembers which snapshots were taken over.
type ImportState struct {
	// Records are the scopes whose record snapshot has started, sorted.
	Records []string
	// Last are the digests of the latest snapshots, at most rememberedSnapshots,
	// oldest first: one of them that comes again is not started again.
	Last []events.Hash
}

// rememberedSnapshots bounds ImportState.Last; importing an older one again is
// started again, which changes nothing but the history.
const rememberedSnapshots = 64

// VerbImport's answer about the snapshot as a whole.
const (
	SnapshotImported = "imported"
	SnapshotAlready  = "already-imported"
	SnapshotIgnored  = "ignored" // a file, and a record of its scope was taken over
)

// Imports decides whether a snapshot is started. Its result is one of the
// Snapshot… texts.
type Imports struct{}

var _ aggregate.Decider[ImportState, *Snapshot, Facts] = Imports{}

// Kind is events.KindImport.
func (Imports) Kind() string { return events.KindImport }

// Rules is RulesVersion.
func (Imports) Rules() int { return RulesVersion }

// Initial is an instance that took over nothing.
func (Imports) Initial(string) ImportState { return ImportState{} }

// Decide ignores a file snapshot once a record snapshot of its scope, or of the
// whole instance, has started.
func (Imports) Decide(s ImportState, c *Snapshot, _ Facts) (aggregate.Decision, error) {
	if c.Source == events.SourceFile && (slices.Contains(s.Records, c.Scope) || slices.Contains(s.Records, "")) {
		return aggregate.Decision{Result: SnapshotIgnored}, nil
	}
	id := snapshotID(c.Source, c.Scope, c.Digest)
	if slices.Contains(s.Last, id) {
		return aggregate.Decision{Result: SnapshotAlready}, nil
	}
	return aggregate.Decision{
		Result: SnapshotImported,
		Events: []events.Payload{events.ImportStarted{Source: c.Source, Scope: c.Scope, Entries: int64(len(c.Entries)), Digest: c.Digest}},
	}, nil
}

func snapshotID(source, scope string, digest events.Hash) events.Hash {
	return events.HashOf(fmt.Appendf(nil, "%s\x00%s\x00%s", source, scope, digest))
}

// Evolve gives the state after an event.
func (Imports) Evolve(s ImportState, event events.Payload) (ImportState, error) {
	e, ok := event.(events.ImportStarted)
	if !ok {
		name, _ := event.EventType()
		return s, fmt.Errorf("%w: %s on the import boundary", events.ErrEncoding, name)
	}
	if e.Source == events.SourceRecord && !slices.Contains(s.Records, e.Scope) {
		s.Records = append(slices.Clone(s.Records), e.Scope)
		slices.Sort(s.Records)
	}
	s.Last = append(slices.Clone(s.Last), snapshotID(e.Source, e.Scope, e.Digest))
	if extra := len(s.Last) - rememberedSnapshots; extra > 0 {
		s.Last = s.Last[extra:]
	}
	return s, nil
}

// Carries is true: little is remembered.
func (Imports) Carries() bool { return true }

// EncodeState gives what a commit carries.
func (Imports) EncodeState(s ImportState) events.State {
	w := events.NewWriter(256)
	w.Object()
	w.Array("records", len(s.Records))
	for _, scope := range s.Records {
		w.TextItem(scope)
	}
	w.Array("last", len(s.Last))
	for _, id := range s.Last {
		w.BinItem(id[:])
	}
	w.End()
	return events.State{V: stateVersion, Data: w.Bytes()}
}

// DecodeState reads it.
func (Imports) DecodeState(_ string, carried events.State) (ImportState, bool, error) {
	if carried.V != stateVersion {
		return ImportState{}, false, nil
	}
	r := events.NewReader(carried.Data)
	o := r.Object("import state")
	var s ImportState
	for n := o.Len("records"); n > 0; n-- {
		s.Records = append(s.Records, r.Text())
	}
	for n := o.Len("last"); n > 0; n-- {
		s.Last = append(s.Last, r.Hash())
	}
	o.End()
	return s, true, r.Done()
}
