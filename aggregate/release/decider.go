package release

import (
	"encoding/json"
	"slices"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// RulesVersion is the version of the rules in this package. It grows when the
// same state, command and facts would be decided differently.
const RulesVersion = 1

// Facts are what a decision needs from outside the ledger.
type Facts struct {
	// Now is the present time; never before the last commit of the ledger.
	Now events.Time
	// MinimumSoakMs is how long a session must have been soaking before it can
	// become known good, in ms; 0 for no minimum.
	MinimumSoakMs int64
}

// Command is one verb with its input.
type Command interface {
	// Verb is its name on the wire, for example "release.create".
	Verb() string
	// Target is the session or document that it is about, "" if none.
	Target() string
	// Body is what it was parsed from.
	Body() *aggregate.Body
	decide(l Ledger, f Facts) (aggregate.Decision, error)
}

// Decider is the ledger decider.
type Decider struct{}

var _ aggregate.Decider[Ledger, Command, Facts] = Decider{}

// Kind is events.KindRelease.
func (Decider) Kind() string { return events.KindRelease }

// Rules is RulesVersion.
func (Decider) Rules() int { return RulesVersion }

// Initial is a ledger without documents.
func (Decider) Initial(string) Ledger { return Ledger{} }

// Decide applies the rules of a command, then refuses input that no rule looked
// at and that has the wrong type (FORGE_BAD_REQUEST).
func (Decider) Decide(l Ledger, c Command, f Facts) (aggregate.Decision, error) {
	d, err := c.decide(l, f)
	if err != nil {
		return d, err
	}
	if err := c.Body().Malformed(); err != nil {
		return aggregate.Decision{}, err
	}
	return d, nil
}

// Evolve gives the ledger after an event.
func (Decider) Evolve(l Ledger, event events.Payload) (Ledger, error) {
	next, err := l.evolve(event)
	if err == nil {
		next.moved = true
	}
	return next, err
}

// Carries is false: the ledger is folded from its commits.
func (Decider) Carries() bool { return false }

// stateVersion is the version of the encoded ledger.
const stateVersion = 1

// EncodeState writes the whole ledger, for digests.
func (Decider) EncodeState(l Ledger) events.State {
	w := events.NewWriter(4096)
	w.Object()
	w.Array("documents", len(l.docs))
	for _, d := range l.docs {
		text, _ := d.MarshalJSON() // it writes to memory
		w.Object()
		w.Text("name", d.Name)
		w.Bin("text", text)
		w.Uint("incarnation", d.Incarnation)
		w.TimePtr("phaseSince", d.PhaseSince)
		writeGates(w, "passed", d.passed)
		w.OptBool("awaitsCandidate", d.inherited != nil)
		writeGates(w, "inherited", d.inherited)
		w.End()
	}
	w.OptBin("authority", l.Authority)
	w.End()
	return events.State{V: stateVersion, Data: w.Bytes()}
}

func writeGates(w *events.Writer, name string, set map[Gate]bool) {
	gates := make([]string, 0, len(set))
	for g := range set {
		gates = append(gates, g.Kind+" "+g.ID)
	}
	slices.Sort(gates)
	w.Array(name, len(gates))
	for _, g := range gates {
		w.TextItem(g)
	}
}

// DecodeState reads none: commits do not carry the ledger.
func (Decider) DecodeState(string, events.State) (Ledger, bool, error) { return Ledger{}, false, nil }

// command is what all commands share.
type command struct {
	verb string
	body *aggregate.Body
	ID   aggregate.Field[string] // sessionId
}

func newCommand(verb string, b *aggregate.Body) command {
	return command{verb: verb, body: b, ID: b.Text("sessionId")}
}

// Verb is the name on the wire.
func (c command) Verb() string { return c.verb }

// Target is the trimmed session id.
func (c command) Target() string { return aggregate.Trimmed(c.ID) }

// Body is what the command was parsed from.
func (c command) Body() *aggregate.Body { return c.body }

// raw takes a member as it was given; nil when it is missing.
func raw(b *aggregate.Body, name string) json.RawMessage {
	v, ok := b.Raw(name)
	if !ok {
		return nil
	}
	return v
}

// notStrict stands for a value that the log does not take (a duplicate key deep
// inside, for example): it is there, and no check accepts it.
var notStrict = json.RawMessage("false")

// value takes a member that goes to the log as it is.
func value(b *aggregate.Body, name string) json.RawMessage {
	f := aggregate.Decode(b, name, func(v json.RawMessage) (json.RawMessage, bool) {
		_, err := events.CanonicalJSON(v)
		return v, err == nil
	})
	if f.Bad {
		return notStrict
	}
	return f.Value
}

// maxBody is the most bytes of a session without its receipts, so that it fits
// into a reply. A received document may have more; it is shown without what does
// not fit.
const maxBody = 256 << 10

// after gives the session as it will be, as the answer of a command.
func after(l Ledger, id string, list ...events.Payload) (aggregate.Decision, error) {
	next, err := aggregate.Evolve(Decider{}, l, list)
	if err != nil {
		return aggregate.Decision{}, err
	}
	d := aggregate.Decision{Events: list}
	if doc := next.find(id); doc != nil {
		before := 0
		if was := l.find(id); was != nil {
			before = was.bodySize()
		}
		if n := doc.bodySize(); n > maxBody && n > before {
			return aggregate.Decision{}, events.Errorf(events.CodeTooLarge, "the session would have %d bytes without its receipts, the most is %d", n, maxBody).
				With("bytes", n).With("limit", maxBody)
		}
		d.Result = doc
	}
	return d, nil
}
