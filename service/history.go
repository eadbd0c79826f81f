package service

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// HistoryEntry is one commit of a boundary.
type HistoryEntry struct {
	Position uint64         `json:"position"`
	Commit   *events.Commit `json:"commit"`
}

// history gives the commits of a work from a position on, as many as a reply
// holds; next is where to go on.
func (s *Service) history(ctx context.Context, r *request) (any, error) {
	id := aggregate.Trimmed(r.body.Text("workId"))
	from := r.body.Int("from")
	limit, err := listLimit(r.body.Int("limit"))
	if err := r.body.Malformed(); err != nil {
		return nil, err
	}
	if err := events.CheckID("workId", id); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	a := Answer{AsOf: s.clock.Now()}
	entries, size := []json.RawMessage{}, 0
	err = s.opts.Log.History(ctx, events.WorkSubject(s.instance, id), uint64(max(from.Value, 0)), func(rec events.Record, c *events.Commit) error {
		b, err := json.Marshal(HistoryEntry{Position: rec.Position, Commit: c})
		if err != nil {
			return poisoned(rec, err)
		}
		if size += len(b) + 1; len(entries) > 0 && (len(entries) >= limit || size > replyRoom) {
			a.Truncated, a.Next = true, rec.Position
			return errEnough
		}
		entries = append(entries, b)
		a.Position, a.AsOf = rec.Position, max(a.AsOf, c.At)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	a.Result = entries
	return a, nil
}
