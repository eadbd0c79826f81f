package service

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
)

// ImportResult is the answer of work.import.
type ImportResult struct {
	// Snapshot is imported, already-imported or ignored (a file of a scope whose
	// record was taken over).
	Snapshot string        `json:"snapshot"`
	Entries  []ImportEntry `json:"entries"`
}

// ImportEntry is what became of one claim of a snapshot.
type ImportEntry struct {
	Index    int    `json:"index"` // from 0, in the snapshot
	WorkID   string `json:"workId,omitempty"`
	Outcome  string `json:"outcome"` // imported, unchanged, older, quarantined, dropped
	Reason   string `json:"reason,omitempty"`
	Position uint64 `json:"position,omitempty"` // of its commit, if there is one
}

// takeOver imports a snapshot: import.started first, then one commit per entry.
// What a crash leaves out is taken over when the snapshot is imported again.
func (s *Service) takeOver(ctx context.Context, r *request) (any, error) {
	head, err := r.envelope()
	if err != nil {
		return nil, err
	}
	fail := func(err error) (any, error) { return named(nil, err, head.commandID) }
	snapshot, err := session.ParseSnapshot(r.body)
	if err != nil {
		return fail(err)
	}
	if n := len(snapshot.Entries); n > maxImportEntries {
		return fail(events.Errorf(events.CodeTooLarge, "a snapshot of %d claims, the most is %d: send it in parts", n, maxImportEntries).
			With("entries", n).With("limit", maxImportEntries))
	}
	start := order[*session.Snapshot, session.Facts]{envelope: head, command: snapshot}
	start.subject, start.id = events.ImportSubject(s.instance), s.instance
	out, err := s.imports.execute(ctx, start, s.clock, func(_ context.Context, _ session.ImportState, now events.Time) (session.Facts, error) {
		return session.Facts{Now: now, Caller: r.caller}, nil
	})
	if err != nil {
		return fail(err)
	}
	result := ImportResult{Entries: make([]ImportEntry, len(snapshot.Entries))}
	result.Snapshot, _ = out.Result.(string)
	if result.Snapshot == session.SnapshotIgnored {
		result.Entries = result.Entries[:0]
		out.Result = result
		return out, nil
	}
	failed := s.takeEntries(ctx, r.caller, snapshot, head, result.Entries)
	if failed != nil {
		return fail(failed)
	}
	for _, e := range result.Entries {
		if e.Position > 0 {
			out.Position = max(out.Position, e.Position)
			if out.Outcome == OutcomeUnchanged {
				out.Outcome = OutcomeAppended
			}
		}
	}
	if b, err := json.Marshal(result); err == nil && len(b) > replyRoom {
		for i := range result.Entries { // the index says which it is
			result.Entries[i].WorkID, result.Entries[i].Reason = "", ""
		}
	}
	out.Result = result
	return out, nil
}

// maxImportEntries bounds the claims of one snapshot, so that its answer fits
// into a reply.
const maxImportEntries = 5000

// recallImport answers an import that was started before; its entries are brought
// to their works again, each of which tells what became of it.
func recallImport(*events.Commit, []events.Payload, session.ImportState) any {
	return session.SnapshotImported
}

// takeEntries brings every entry to its work, in order per work, side by side
// over works. It gives the first failure.
func (s *Service) takeEntries(ctx context.Context, caller session.Caller, snapshot *session.Snapshot, head envelope, out []ImportEntry) error {
	errs := make(chan error, len(snapshot.Entries))
	// The import itself holds one place of the lanes; its entries have their own.
	lanes := newLanes(len(snapshot.Entries) + 1) // room bounds them
	room := make(chan struct{}, importAtOnce)
	defer lanes.close()
	for i, e := range snapshot.Entries {
		out[i] = ImportEntry{Index: i, WorkID: e.WorkID}
		if e.Dropped != nil {
			out[i].Outcome, out[i].Reason = session.EntryDropped, e.Dropped.Error()
			errs <- nil
			continue
		}
		o := order[session.Command, session.Facts]{envelope: head, command: snapshot.Entry(e)}
		o.subject, o.id = events.WorkSubject(s.instance, e.WorkID), e.WorkID
		o.commandID, o.correlation, o.expectedVersion = fmt.Sprintf("%s/%d", head.commandID, i), head.commandID, nil
		room <- struct{}{}
		lanes.run(o.subject, func() {
			defer func() { <-room }()
			done := make(chan struct{})
			entry := func() {
				defer close(done)
				reply, err := s.works.run(ctx, o, caller)
				if err == nil {
					out[i].Outcome, _ = reply.Result.(string)
					if reply.Outcome == OutcomeAppended || reply.Outcome == OutcomeAlreadyApplied {
						out[i].Position = reply.Position
					}
				}
				errs <- err
			}
			if !s.lanes.run(o.subject, entry) {
				errs <- events.Errorf(events.CodeBusy, "too much else to do").With("retryAfterMs", busyRetryMs)
				return
			}
			<-done
		})
	}
	var first error
	for range snapshot.Entries {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// importAtOnce bounds the entries of one import that are being decided.
const importAtOnce = 64
