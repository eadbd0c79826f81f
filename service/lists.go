package service

import (
	"context"
	"encoding/json"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/projections"
)

// claims reads a page of live claims, after waiting for minPosition if that is
// asked for, and in any case for what was on the log when the service started: a
// list that is still being filled would look like claims that are gone.
func (s *Service) claims(ctx context.Context, r *request) (projections.Page, error) {
	b := r.body
	text := func(name string) string { return aggregate.Trimmed(b.Text(name)) }
	f := projections.Filter{
		ControllerID: text("controllerId"), ControllerType: text("controllerType"), PrincipalID: text("principalId"),
		ControllerInstanceID: text("controllerInstanceId"),
	}
	now := s.now()
	if within := b.Millis("expiresWithinMs"); within.Set {
		by := now.Add(within.Value)
		f.ExpiresBy = &by
	}
	limit, limitErr := listLimit(b.Int("limit"))
	cursor, position := b.Text("cursor").Value, b.Int("minPosition")
	if err := b.Malformed(); err != nil {
		return projections.Page{}, err
	}
	if limitErr != nil {
		return projections.Page{}, limitErr
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ViewTimeout)
	defer cancel()
	if err := s.runner.Wait(ctx, projections.ClaimsName, max(uint64(max(position.Value, 0)), s.began)); err != nil {
		return projections.Page{}, err
	}
	return s.liveClaims.List(now, f, cursor, limit), nil
}

func (s *Service) claimsList(ctx context.Context, r *request) (any, error) {
	return s.claimsAnswer(ctx, r, func(owner *events.Session) *events.Session { return withoutDigest(owner) })
}

func (s *Service) claimsListFull(ctx context.Context, r *request) (any, error) {
	return s.claimsAnswer(ctx, r, func(owner *events.Session) *events.Session { return owner })
}

// replyRoom is what of a reply may be list entries, in bytes.
const replyRoom = maxReply - 4<<10

// claimsAnswer makes a reply of a page, cut to what a reply may hold.
func (s *Service) claimsAnswer(ctx context.Context, r *request, show func(*events.Session) *events.Session) (any, error) {
	page, err := s.claims(ctx, r)
	if err != nil {
		return nil, err
	}
	a := Answer{Position: page.Position, AsOf: page.AsOf, Cursor: page.Next, Truncated: page.Next != "", Unreadable: page.Unreadable}
	list, size := make([]json.RawMessage, 0, len(page.Sessions)), 0
	for i, owner := range page.Sessions {
		b, err := json.Marshal(show(owner))
		if err != nil {
			return nil, err
		}
		if size += len(b) + 1; size > replyRoom {
			a.Truncated, a.Cursor = true, page.Sessions[max(i-1, 0)].WorkID
			break
		}
		list = append(list, b)
	}
	a.Result = list
	return a, nil
}
