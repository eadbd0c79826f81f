package service

import (
	"context"
	"encoding/json"
	"math"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/release"
	"github.com/forge-es/forge-es/events"
)

// ledger brings commands and queries to the release ledger of an instance.
type ledger struct {
	*keeper[release.Ledger, release.Command, release.Facts]
	subject       string
	instance      string
	clock         Clock
	minimumSoakMs int64
}

// facts are what decisions about the ledger need.
func (l *ledger) facts(_ context.Context, _ release.Ledger, now events.Time) (release.Facts, error) {
	return release.Facts{Now: now, MinimumSoakMs: l.minimumSoakMs}, nil
}

// ledgerCommands are the verbs about releases.
func (s *Service) ledgerCommands() []endpoint {
	return []endpoint{
		s.ledgerCommand(RootCommand, release.VerbCreate, "begin a release session"),
		s.ledgerCommand(RootCommand, release.VerbAdvance, "move a release session to another phase"),
		s.ledgerCommand(RootCommand, release.VerbReceipts, "record evidence as it arrives"),
		s.ledgerCommand(RootCommand, release.VerbTransaction, "record the rollback authority of a cutover"),
		s.ledgerCommand(RootOperator, release.VerbReceiveDocument, "take over a document of another system"),
		s.ledgerCommand(RootOperator, release.VerbDiscardDocument, "remove a document, with a reason"),
		s.ledgerCommand(RootOperator, release.VerbEnd, "take a session to failed, with a reason"),
		s.ledgerCommand(RootOperator, release.VerbMigrate, "bring stored documents to the present form, all or none"),
		s.ledgerCommand(RootOperator, release.VerbPublish, "say which release is live"),
	}
}

// ledgerReply is the reply of a command about the ledger.
type ledgerReply struct {
	reply
	// Incarnation tells apart sessions of one id: the position where this one was
	// opened or received. Commands may expect it.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// ReceiptsOmitted is how many of the oldest receipts were left out of the
	// result, to keep the reply small; releases.receipts pages all.
	ReceiptsOmitted int `json:"receiptsOmitted,omitempty"`
}

func (s *Service) ledgerCommand(root, verb, description string) endpoint {
	return endpoint{
		root: root, verb: verb, description: description,
		boundary: func(*request) string { return s.ledger.subject },
		handle: func(ctx context.Context, r *request) (any, error) {
			c, err := release.Parse(r.verb, r.body)
			if err != nil {
				return nil, err
			}
			o := order[release.Command, release.Facts]{command: c}
			if o.envelope, err = r.envelope(); err != nil {
				return nil, err
			}
			o.subject, o.id = s.ledger.subject, s.instance
			// A release session names no principal; a body that does is compared.
			if err := r.caller.Proves(aggregate.Of(r.body.Peek("principalId")), aggregate.Of(r.body.Peek("controllerId"))); err != nil {
				return named(nil, err, o.commandID)
			}
			out, err := s.ledger.execute(ctx, o, s.clock, s.ledger.facts)
			if err != nil {
				return named(nil, err, o.commandID)
			}
			full := ledgerReply{reply: out}
			if d, ok := out.Result.(*release.Document); ok {
				if full.Incarnation = d.Incarnation; full.Incarnation == 0 {
					full.Incarnation = out.Position // this command opened it
				}
				full.Result, full.ReceiptsOmitted = d.Reduced(replyRoom)
			}
			return full, nil
		},
	}
}

// current is the ledger as of this call, and the time that counts for it.
func (l *ledger) current(ctx context.Context) (aggregate.Folded[release.Ledger], events.Time, error) {
	f, err := l.load(ctx, l.subject, l.instance, confirmed)
	return f, max(l.clock.Now(), f.Head.At), err
}

// ledgerQuery makes the endpoint of a question about the ledger.
func (s *Service) ledgerQuery(verb, description string, ask func(r *request, l release.Ledger, now events.Time, a *LedgerAnswer) error) endpoint {
	return endpoint{root: RootQuery, verb: verb, description: description, handle: func(ctx context.Context, r *request) (any, error) {
		f, now, err := s.ledger.current(ctx)
		if err != nil {
			return nil, err
		}
		a := LedgerAnswer{Answer: Answer{Position: f.Head.Position, AsOf: now}}
		if err := ask(r, f.State, now, &a); err != nil {
			return nil, err
		}
		return a, r.body.Malformed()
	}}
}

// LedgerAnswer is the reply of a query about the ledger.
type LedgerAnswer struct {
	Answer
	Incarnation     uint64 `json:"incarnation,omitempty"`
	ReceiptsOmitted int    `json:"receiptsOmitted,omitempty"`
}

func (s *Service) ledgerQueries() []endpoint {
	return []endpoint{
		s.ledgerQuery("releases.get", "a release session, null without one", func(r *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			d, err := release.Read(l, r.body.Text("sessionId"))
			if err != nil || d == nil {
				return err
			}
			a.Incarnation = d.Incarnation
			a.Result, a.ReceiptsOmitted = d.Reduced(replyRoom)
			return nil
		}),
		s.ledgerQuery("releases.info", "a release session at a glance: phase, gates, next step", func(r *request, l release.Ledger, now events.Time, a *LedgerAnswer) error {
			info, err := s.releaseInfo(r, l, now)
			a.Result = info
			return err
		}),
		s.ledgerQuery("releases.explain", "what the next phase waits for, since when, and what would unblock it", func(r *request, l release.Ledger, now events.Time, a *LedgerAnswer) error {
			d, err := found(l, r)
			if err != nil {
				return err
			}
			a.Incarnation, a.Result = d.Incarnation, d.Explain(release.Facts{Now: now, MinimumSoakMs: s.ledger.minimumSoakMs})
			return nil
		}),
		s.ledgerQuery("releases.receipts", "the receipts of a release session, paged", func(r *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			d, err := found(l, r)
			if err != nil {
				return err
			}
			limit, err := listLimit(r.body.Int("limit"))
			if err != nil {
				return err
			}
			page := d.ReceiptPage(int(min(r.body.Int("from").Value, math.MaxInt32)), limit)
			size := 0
			for i, receipt := range page.Receipts {
				if size += len(receipt) + 1; size > replyRoom {
					page.Receipts = page.Receipts[:max(i, 1)]
					break
				}
			}
			a.Incarnation, a.Result, a.Truncated = d.Incarnation, page, page.From+len(page.Receipts) < page.Total
			return nil
		}),
		s.ledgerQuery("releases.list", "release sessions, bounded", func(r *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			most := math.NaN()
			if raw, ok := r.body.Raw("maxEntries"); ok && json.Unmarshal(raw, &most) != nil {
				most = math.NaN()
			}
			return listed(r, l, most, a)
		}),
		s.ledgerQuery("releases.list-complete", "all release sessions", func(r *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			return listed(r, l, math.MaxInt32, a)
		}),
		s.ledgerQuery("releases.predicates", "a predicate about a release session", func(r *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			yes, err := release.Predicate(l, aggregate.Trimmed(r.body.Text("predicate")), r.body)
			a.Result = yes
			return err
		}),
		s.ledgerQuery("authority.info", "the published release authority, null without one", func(_ *request, l release.Ledger, _ events.Time, a *LedgerAnswer) error {
			a.Result = l.AuthorityInfo()
			return nil
		}),
	}
}

// found is the session that a query is about.
func found(l release.Ledger, r *request) (*release.Document, error) {
	id := r.body.Text("sessionId")
	d, err := release.Read(l, id)
	if err == nil && d == nil {
		err = events.Errorf(events.CodeReleaseMissing, "%s", aggregate.Trimmed(id)).With("sessionId", aggregate.Trimmed(id))
	}
	return d, err
}

// ReleaseInfo is a release session at a glance.
type ReleaseInfo struct {
	release.Explanation
	SourceRevision string            `json:"sourceRevision"`
	CreatedAt      string            `json:"createdAt"`
	UpdatedAt      string            `json:"updatedAt"`
	Candidate      json.RawMessage   `json:"candidateRelease,omitempty"`
	Transaction    json.RawMessage   `json:"transaction,omitempty"`
	Receipts       int               `json:"receipts"`
	Newest         []json.RawMessage `json:"newestReceipts"`
	Incarnation    uint64            `json:"incarnation"`
}

// newestReceipts is how many receipts an info shows.
const newestReceipts = 10

func (s *Service) releaseInfo(r *request, l release.Ledger, now events.Time) (any, error) {
	d, err := found(l, r)
	if err != nil {
		return nil, err
	}
	total := d.ReceiptPage(0, 1).Total
	text := func(name string) string { return d.Text(name) }
	return ReleaseInfo{
		Explanation:    d.Explain(release.Facts{Now: now, MinimumSoakMs: s.ledger.minimumSoakMs}),
		SourceRevision: text("sourceRevision"), CreatedAt: text("createdAt"), UpdatedAt: text("updatedAt"),
		Candidate: d.Raw("candidateRelease"), Transaction: d.Raw("transaction"),
		Receipts: total, Newest: d.ReceiptPage(total-newestReceipts, newestReceipts).Receipts, Incarnation: d.Incarnation,
	}, nil
}

// listed answers with a page of release sessions: in document order after a
// cursor, or active ones first.
func listed(r *request, l release.Ledger, maxEntries float64, a *LedgerAnswer) error {
	order, cursor := aggregate.Trimmed(r.body.Text("order")), r.body.Text("cursor").Value
	var page release.Page
	switch {
	case order == "active-first" && cursor != "":
		return events.Errorf(events.CodeBadRequest, "a cursor goes with document order").With("field", "cursor")
	case order == "active-first":
		page = l.ActiveFirst(maxEntries, replyRoom)
	case order == "" || order == "document":
		page = l.After(cursor).Page(maxEntries, replyRoom)
	default:
		return events.Errorf(events.CodeBadRequest, "order is neither document nor active-first").With("field", "order")
	}
	a.Result, a.Cursor, a.ReceiptsOmitted = page.List, page.Cursor, page.ReceiptsOmitted
	a.Truncated = page.Truncated
	return nil
}
