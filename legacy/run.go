package legacy

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// inFlight is how many commands of activity and works are under way at a time.
// Snapshots go one after another, since their order matters, and release documents,
// since the ledger takes one command at a time anyway.
const inFlight = 16

// Run sends a plan and reports what became of each entry.
//
// A refusal of one command (see Sender) is noted and the run goes on. Any other
// error ends it: the report, complete up to there, is returned with the error;
// the entries that did not get their turn are not-sent. Running the same plan, or a new
// plan of the same home, again is safe and continues where it ended.
//
// progress, which may be nil, is called first with (0, total) and then after each
// answered command, one call at a time; both numbers count entries.
func Run(ctx context.Context, p *Plan, sender Sender, progress func(done, total int)) (*Report, error) {
	r := &run{plan: p, report: p.Report(), progress: progress}
	r.report.DryRun = false
	for i := range r.report.Entries {
		if e := &r.report.Entries[i]; e.Outcome == OutcomeToSend {
			e.Outcome = OutcomeNotSent
		}
	}
	r.tell(0)
	err := r.all(ctx, sender)
	r.report.Complete = err == nil
	r.report.count()
	return r.report, err
}

// run is a plan under way.
type run struct {
	plan     *Plan
	progress func(done, total int)

	mu     sync.Mutex // guards what follows
	report *Report
	done   int
}

func (r *run) all(ctx context.Context, sender Sender) error {
	steps := r.plan.steps
	for len(steps) > 0 {
		n := 0
		for n < len(steps) && steps[n].group == steps[0].group {
			n++
		}
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(inFlight)
		if steps[0].group.ordered() {
			g.SetLimit(1)
		}
		for i := range steps[:n] {
			if gctx.Err() != nil {
				break
			}
			g.Go(func() error { return r.one(gctx, sender, &steps[i]) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// one sends the command of a step and notes the answer.
func (r *run) one(ctx context.Context, sender Sender, s *step) error {
	if ctx.Err() != nil {
		return ctx.Err() // it stays not-sent
	}
	reply, err := sender.Send(ctx, r.plan.command(s))
	r.mu.Lock()
	defer r.mu.Unlock()
	refused, ok := refusal(err)
	switch {
	case err != nil && !ok:
		r.set(s, OutcomeFailed, err.Error())
		return fmt.Errorf("%w: %s of %s: %w", ErrLegacy, s.group.Place, s.group.Location, err)
	case s.group.Place == PlaceAuthority && older(refused, s.entry().revision):
		r.set(s, OutcomeOlder, "a later revision is published")
	case err != nil:
		r.set(s, OutcomeRefused, refused.Error())
	case reply.Outcome == "refused":
		r.set(s, OutcomeRefused, reasonOf(reply.Result))
	case s.group.Place == PlaceActivity || s.group.Place == PlaceWorks:
		outcome := OutcomeSet
		if reply.Outcome == "unchanged" {
			outcome = OutcomeUnchanged
		}
		r.set(s, outcome, "")
	case s.group.Place == PlaceRelease:
		r.received(s, reply)
	case s.group.Place == PlaceAuthority:
		r.set(s, taken(reply), "")
	default:
		r.merge(s, reply.Result)
	}
	r.tell(len(s.picks))
	return nil
}

// entry is the entry of a command that has only one.
func (s *step) entry() *Entry { return &s.group.Entries[s.picks[0]] }

// set gives all entries of a step one outcome.
func (r *run) set(s *step, outcome Outcome, reason string) {
	for _, i := range s.picks {
		e := &r.report.Entries[s.first+i]
		e.Outcome, e.Reason = outcome, reason
	}
}

// taken is the outcome of an entry that has a command of its own.
func taken(reply Reply) Outcome {
	if reply.Outcome == "unchanged" {
		return OutcomeUnchanged
	}
	return OutcomeImported
}

// received notes the result of release.receive-document.
func (r *run) received(s *step, reply Reply) {
	var result struct {
		Form string `json:"form"`
		Why  string `json:"why"`
	}
	if err := json.Unmarshal(reply.Result, &result); err != nil {
		r.set(s, OutcomeUnknown, "the reply cannot be read: "+err.Error())
		return
	}
	r.set(s, taken(reply), "")
	if result.Form == FormInvalid {
		r.set(s, OutcomeInvalid, result.Why)
	}
	r.report.Entries[s.first+s.picks[0]].Form = result.Form
}

// importResult is the result of work.import.
type importResult struct {
	Snapshot string `json:"snapshot"`
	Entries  []struct {
		Index   int     `json:"index"` // within the command
		WorkID  string  `json:"workId"`
		Outcome Outcome `json:"outcome"`
		Reason  string  `json:"reason"`
	} `json:"entries"`
}

// merge notes the result of work.import. What it says about single entries goes
// before what it says about the snapshot.
func (r *run) merge(s *step, raw json.RawMessage) {
	var result importResult
	if err := json.Unmarshal(raw, &result); err != nil {
		r.set(s, OutcomeUnknown, "the reply cannot be read: "+err.Error())
		return
	}
	r.snapshot(s, result.Snapshot)
	for _, e := range result.Entries {
		if e.Index < 0 || e.Index >= len(s.picks) {
			r.report.Problems = append(r.report.Problems, Problem{
				Place: s.group.Place, Scope: s.group.Scope, Location: s.group.Location,
				Reason: fmt.Sprintf("the reply names entry %d of a command with %d", e.Index, len(s.picks)),
			})
			continue
		}
		line := &r.report.Entries[s.first+s.picks[e.Index]]
		if line.Outcome, line.Reason = e.Outcome, e.Reason; e.Outcome == "" {
			line.Outcome = OutcomeUnknown
		}
		if e.WorkID != "" && e.WorkID != line.WorkID {
			line.Note = joinNotes(line.Note, "the reply calls its work "+quote(e.WorkID))
		}
	}
}

// snapshot notes what the reply says about the snapshot; it is also the outcome of
// entries that the reply does not name.
func (r *run) snapshot(s *step, said string) {
	switch said {
	case "ignored":
		r.set(s, OutcomeIgnored, "the service ignores the snapshot: a record of the scope was imported")
	case "already-imported":
		r.set(s, OutcomeAlreadyImported, "")
	default:
		r.set(s, OutcomeUnknown, "the reply does not name it")
	}
	place := &r.report.Places[s.place]
	if place.Snapshot == "" || said == "imported" {
		place.Snapshot = said
	}
}

// reasonOf gives the reason of a refused fence.
func reasonOf(result json.RawMessage) string {
	var refused struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(result, &refused) != nil || refused.Reason == "" {
		return "refused"
	}
	return refused.Reason
}

// tell reports progress after n more entries.
func (r *run) tell(n int) {
	r.done += n
	if r.progress != nil {
		r.progress(r.done, r.plan.entries)
	}
}
