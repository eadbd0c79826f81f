package release

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/events"
)

// MaxDocument is the most bytes of a received document.
const MaxDocument = 512 << 10

// maxDocumentName is the most bytes of the name of a document.
const maxDocumentName = 512

// ReceiveDocument takes over a document of another system, as it is.
type ReceiveDocument struct {
	command
	Name, Text, TextBase64 aggregate.Field[string]
	JSON                   json.RawMessage
	Replace                aggregate.Field[bool]
	Reason                 aggregate.Field[string]
}

func newReceiveDocument(verb string, b *aggregate.Body) Command {
	return &ReceiveDocument{
		command: command{verb: verb, body: b}, Name: b.Text("name"), Text: b.Text("text"), TextBase64: b.Text("textBase64"), JSON: raw(b, "json"),
		Replace: b.Bool("replace"), Reason: b.Text("reason"),
	}
}

// Target is the name of the document without .json.
func (c *ReceiveDocument) Target() string { return strings.TrimSuffix(c.Name.Value, extension) }

// DocumentReceived is the answer of receive-document.
type DocumentReceived struct {
	Name string `json:"name"` // file name
	// Form is current, awaiting-migration or invalid; "" for a name that is no
	// document's.
	Form string `json:"form,omitempty"`
	Why  string `json:"why,omitempty"` // why it is invalid
}

// received is the answer about a document that is there.
func (d *Document) received() DocumentReceived {
	answer := DocumentReceived{Name: d.Name + extension, Form: d.Form()}
	if answer.Form == FormInvalid {
		answer.Why = d.valid.Error()
	}
	return answer
}

// documentName reads a file name: ok is false for one that is no document's
// (it does not end in .json), which is accepted and ignored.
func documentName(f aggregate.Field[string]) (name string, ok bool, err error) {
	if !f.Set || f.Value == "" {
		return "", false, events.Errorf(events.CodeBadRequest, "name is missing").With("field", "name")
	}
	if len(f.Value) > maxDocumentName {
		return "", false, events.Errorf(events.CodeIDInvalid, "name has %d bytes, the most is %d", len(f.Value), maxDocumentName).With("field", "name")
	}
	name, ok = strings.CutSuffix(f.Value, extension)
	return name, ok, nil
}

func (c *ReceiveDocument) decide(l Ledger, _ Facts) (aggregate.Decision, error) {
	name, ok, err := documentName(c.Name)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if !ok {
		return aggregate.Decision{Result: DocumentReceived{Name: c.Name.Value}}, nil
	}
	text, err := c.content()
	if err != nil {
		return aggregate.Decision{}, err
	}
	if len(text) > MaxDocument {
		return aggregate.Decision{}, events.Errorf(events.CodeTooLarge, "the document has %d bytes, the most is %d", len(text), MaxDocument).With("field", "text")
	}
	reason := aggregate.Trimmed(c.Reason)
	if c.Replace.Value && reason == "" {
		return aggregate.Decision{}, events.Errorf(events.CodeReasonRequired, "replacing a document needs a reason").With("field", "reason")
	}
	d := newDocument(name, text)
	answer := d.received()
	known := l.find(name)
	if known != nil {
		if known.sameContent(d) {
			return aggregate.Decision{Result: answer}, nil
		}
		if !c.Replace.Value {
			return aggregate.Decision{}, events.Errorf(events.CodeReleaseAlreadyExists, "%s is known with other content", c.Name.Value).
				With("name", c.Name.Value).With("remedy", "replace it, with a reason, or leave it")
		}
	}
	e := events.ReleaseDocumentReceived{Name: name, Text: text, Replaced: known != nil, Reason: reason}
	return aggregate.Decision{Events: []events.Payload{e}, Result: answer}, nil
}

// content is the document's bytes: text, textBase64 (for what is not UTF-8), or
// json.
func (c *ReceiveDocument) content() ([]byte, error) {
	switch {
	case c.Text.Set:
		return []byte(c.Text.Value), nil
	case c.TextBase64.Set:
		text, err := base64.StdEncoding.DecodeString(c.TextBase64.Value)
		if err != nil {
			return nil, events.Errorf(events.CodeBadRequest, "textBase64: %w", err).With("field", "textBase64")
		}
		return text, nil
	case c.JSON != nil:
		return c.JSON, nil
	}
	if v, ok := c.body.Raw("json"); !ok && v != nil {
		return v, nil // null is a document, too
	}
	return nil, events.Errorf(events.CodeBadRequest, "text is missing").With("field", "text")
}

// sameContent compares two documents byte by byte, or as JSON.
func (d *Document) sameContent(o *Document) bool {
	a, _ := d.MarshalJSON()
	b, _ := o.MarshalJSON()
	if string(a) == string(b) {
		return true
	}
	ca, errA := events.CanonicalJSON(a)
	cb, errB := events.CanonicalJSON(b)
	return errA == nil && errB == nil && string(ca) == string(cb)
}

// Forms of a document.
const (
	FormCurrent  = "current"            // a valid session
	FormAwaiting = "awaiting-migration" // a supported older form
	FormInvalid  = "invalid"
)

// Form classifies a document.
func (d *Document) Form() string {
	switch {
	case d.valid == nil:
		return FormCurrent
	case validID(d.Name) && d.supported() && !d.currentForm():
		return FormAwaiting
	}
	return FormInvalid
}

// DiscardDocument removes a document, because an operator says so.
type DiscardDocument struct {
	command
	Name, Reason aggregate.Field[string]
}

func newDiscardDocument(verb string, b *aggregate.Body) Command {
	return &DiscardDocument{command: command{verb: verb, body: b}, Name: b.Text("name"), Reason: b.Text("reason")}
}

// Target is the name of the document without .json.
func (c *DiscardDocument) Target() string { return strings.TrimSuffix(c.Name.Value, extension) }

func (c *DiscardDocument) decide(l Ledger, _ Facts) (aggregate.Decision, error) {
	name, ok, err := documentName(c.Name)
	if err != nil {
		return aggregate.Decision{}, err
	}
	reason, err := needReason(c.verb, c.Reason)
	if err != nil {
		return aggregate.Decision{}, err
	}
	if !ok || l.find(name) == nil {
		return aggregate.Decision{}, nil
	}
	return aggregate.Decision{Events: []events.Payload{events.ReleaseDocumentDiscarded{Name: name, Reason: reason}}}, nil
}
