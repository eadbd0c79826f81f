package release

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// PublishAuthority says which release is live, by whoever owns that.
type PublishAuthority struct {
	command
	Authority json.RawMessage
	Expected  aggregate.Field[int64]
}

func newPublishAuthority(verb string, b *aggregate.Body) Command {
	return &PublishAuthority{command: command{verb: verb, body: b}, Authority: value(b, "authority"), Expected: b.Int("expectedRevision")}
}

// Authority is the answer of authority.publish and authority.info.
type Authority struct {
	Revision  int64           `json:"revision"`
	Authority json.RawMessage `json:"authority"`
}

func (c *PublishAuthority) decide(l Ledger, _ Facts) (aggregate.Decision, error) {
	o := parseObject(c.Authority)
	if !o.there {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "authority is no object").With("field", "authority")
	}
	revision, ok := o.integer("revision")
	if !ok || revision < 1 {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "authority.revision is no integer from 1").With("field", "authority.revision")
	}
	if !o.object("active").there {
		return aggregate.Decision{}, events.Errorf(events.CodeBadRequest, "authority.active is no object").With("field", "authority.active")
	}
	stored := withoutToken(o).bytes()
	if n := len(stored); n > maxBody {
		return aggregate.Decision{}, events.Errorf(events.CodeTooLarge, "authority has %d bytes, the most is %d", n, maxBody).With("field", "authority")
	}
	answer := Authority{Revision: revision, Authority: stored}
	conflict := func(why string) error {
		return events.Errorf(events.CodeVersionConflict, "the published authority is at revision %d: %s", l.AuthorityRevision, why).With("revision", l.AuthorityRevision)
	}
	if c.Expected.Bad || c.Expected.Set && c.Expected.Value != l.AuthorityRevision {
		return aggregate.Decision{}, conflict("another one was expected")
	}
	if l.Authority != nil && equal(stored, l.Authority) {
		return aggregate.Decision{Result: answer}, nil
	}
	if revision <= l.AuthorityRevision {
		return aggregate.Decision{}, conflict("the revision must grow")
	}
	return aggregate.Decision{Events: []events.Payload{events.AuthorityPublished{Revision: revision, Authority: events.JSON(stored)}}, Result: answer}, nil
}

// withoutToken keeps fencing tokens only as their digests, at any depth and however
// their name is written.
func withoutToken(o object) object {
	kept := object{there: true, given: true}
	digest := ""
	for _, m := range o.members {
		switch name := strings.ToLower(strings.ReplaceAll(m.Key, "_", "")); {
		case name == "fencingtoken" && !missing(m.Value):
			text, ok := events.DecodeText(m.Value)
			if !ok {
				text = string(m.Value)
			}
			digest = events.HashOf([]byte(text)).String()
			continue
		case name == "fencingtokensha256" && o.hasToken():
			continue // the token itself says it
		}
		if inner := parseObject(m.Value); inner.there {
			m.Value = withoutToken(inner).bytes()
		}
		kept.members = append(kept.members, m)
	}
	if digest != "" {
		kept = kept.with(member("fencingTokenSha256", digest))
	}
	return kept
}

// hasToken reports whether an object holds a fencing token itself.
func (o object) hasToken() bool {
	return slices.ContainsFunc(o.members, func(m events.Member) bool {
		return strings.ToLower(strings.ReplaceAll(m.Key, "_", "")) == "fencingtoken" && !missing(m.Value)
	})
}

// AuthorityInfo is the published authority as an answer, nil if none was.
func (l Ledger) AuthorityInfo() any {
	if l.Authority == nil {
		return nil
	}
	return Authority{Revision: l.AuthorityRevision, Authority: l.Authority}
}
