package release

import (
	"encoding/json"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// Create begins a release session (specification 2.2).
type Create struct {
	command
	Stable, StableRelease, Candidate json.RawMessage
	SourceRevision                   aggregate.Field[string]
	CheckAuthority                   aggregate.Field[bool]
}

func newCreate(verb string, b *aggregate.Body) Command {
	return &Create{
		command: newCommand(verb, b), Stable: value(b, "stable"), StableRelease: value(b, "stableRelease"), Candidate: value(b, "candidate"),
		SourceRevision: b.Text("sourceRevision"), CheckAuthority: b.Bool("checkAuthority"),
	}
}

func (c *Create) decide(l Ledger, f Facts) (aggregate.Decision, error) {
	id, err := sessionID(c.ID)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if l.find(id) != nil {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseAlreadyExists, "%s", id).With("sessionId", id)
	}
	var invalid, active []string
	for _, d := range l.docs {
		if d.valid != nil {
			invalid = append(invalid, d.Name+extension)
		} else if d.active() {
			active = append(active, d.Name)
		}
	}
	if len(invalid) > 0 {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseInventory, "%d documents are no valid sessions: %s", len(invalid), strings.Join(first(invalid, 8), ", ")).
			With("invalidSessionFiles", first(invalid, 64)).With("remedy", "migrate, replace or discard them")
	}
	revision := aggregate.Trimmed(c.SourceRevision)
	stable := parseObject(c.StableRelease)
	if len(active) > 0 && !(len(active) == 1 && repairSuccessor(l.find(active[0]), stable, revision)) {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseActiveExists, "%s", strings.Join(first(active, 8), ", ")).With("active", first(active, 64))
	}
	a, okA := lanePath(parseObject(c.Stable))
	b, okB := lanePath(parseObject(c.Candidate))
	if !okA || !okB || a == b {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseLaneCollision, "both lanes need homes of their own").With("field", "controllerHome")
	}
	if revision == "" {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseSourceRequired, "sourceRevision is blank").With("field", "sourceRevision")
	}
	if field := stableIdentity(stable); field != "" {
		return aggregate.Decision{}, events.Errorf(events.CodeReleaseStableIdentity, "stableRelease.%s", field).With("field", "stableRelease."+field)
	}
	if c.CheckAuthority.Value {
		if err := l.checkAuthority(stable); err != nil {
			return aggregate.Decision{}, err
		}
	}
	return after(l, id, events.ReleaseOpened{
		SessionID: id, Stable: events.JSON(c.Stable), StableRelease: events.JSON(c.StableRelease), Candidate: events.JSON(c.Candidate),
		SourceRevision: revision, At: f.Now,
	})
}

func first(list []string, most int) []string { return list[:min(len(list), most)] }

// repairSuccessor reports whether a session may begin beside an active one: that
// one soaks, made exactly the stable release, and came from another source.
func repairSuccessor(active *Document, stable object, revision string) bool {
	source, known := active.body.text("sourceRevision")
	return soakingPredecessor(active.body, stable) && (!known || source != revision)
}

// stableIdentity names the first member that keeps a stable release from being
// identified, "" if there is none.
func stableIdentity(o object) string {
	atLeastOne := func(name string) bool { v, ok := o.integer(name); return ok && v >= 1 }
	switch {
	case !atLeastOne("authorityRevision"):
		return "authorityRevision"
	case !atLeastOne("workerProtocolVersion"):
		return "workerProtocolVersion"
	}
	for _, name := range []string{"releaseId", "artifactIdentity", "manifestSha256", "releaseFencingTokenSha256"} {
		if !o.filled(name) {
			return name
		}
	}
	return ""
}

// checkAuthority compares a stable release with the published authority.
func (l Ledger) checkAuthority(stable object) error {
	revision, _ := stable.integer("authorityRevision")
	live := parseObject(l.Authority).object("active")
	published, known := parseObject(l.Authority).text("fencingTokenSha256")
	shown, _ := stable.text("releaseFencingTokenSha256")
	if l.Authority != nil && (!known || published == shown) && revision == l.AuthorityRevision && agree(stable, live, "releaseId", "artifactIdentity", "manifestSha256", "workerProtocolVersion") {
		return nil
	}
	return events.Errorf(events.CodeReleaseStableIdentity, "stableRelease is not the published authority (revision %d)", l.AuthorityRevision).
		With("authorityRevision", l.AuthorityRevision)
}
