package aggregate

import (
	"encoding/json"
	"strings"

	"github.com/forge-es/forge-es/events"
)

// Field is a member of a command: absent (or null), well-formed, or malformed:
// there, but of the wrong type.
type Field[T any] struct {
	Value T
	Set   bool // there and well-formed
	Bad   bool // there and malformed
}

// Of makes a well-formed field.
func Of[T any](v T) Field[T] { return Field[T]{Value: v, Set: true} }

// Trimmed is the text without surrounding white space, "" when absent or
// malformed.
func Trimmed(f Field[string]) string { return strings.TrimSpace(f.Value) }

// Body is the members of a command or query, decoded one by one.
type Body struct {
	members []events.Member
	asked   map[string]bool
	bad     []string
}

// ParseBody splits a JSON object. No text at all counts as an empty object; anything
// else is FORGE_BAD_REQUEST.
func ParseBody(text []byte) (*Body, error) {
	b := &Body{asked: map[string]bool{}}
	if len(text) == 0 {
		return b, nil
	}
	members, err := events.ObjectMembers(text)
	if err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "body: %w", err).With("field", "body")
	}
	b.members = members
	return b, nil
}

// Raw gives a member as it was sent; ok is false when it is absent or null.
func (b *Body) Raw(name string) (value json.RawMessage, ok bool) {
	b.asked[name] = true
	for _, m := range b.members {
		if m.Key == name {
			return m.Value, string(m.Value) != "null"
		}
	}
	return nil, false
}

// Peek gives a trimmed text, of a member or of a member of a member, without
// claiming it: whether the verb knows it, and judges its type, stays open. "" when
// it is absent or no text.
func (b *Body) Peek(path ...string) string {
	for _, m := range b.members {
		if m.Key != path[0] {
			continue
		}
		if len(path) > 1 {
			inner, err := ParseBody(m.Value)
			if err != nil {
				return ""
			}
			return inner.Peek(path[1:]...)
		}
		s, _ := events.DecodeText(m.Value)
		return strings.TrimSpace(s)
	}
	return ""
}

// Text, Int, Millis, Bool and Object each read one member.
func (b *Body) Text(name string) Field[string] {
	return Decode(b, name, events.DecodeText)
}

// Int reads an integer between -(2^53-1) and 2^53-1, however written.
func (b *Body) Int(name string) Field[int64] {
	return Decode(b, name, func(raw json.RawMessage) (int64, bool) { return events.ParseInteger(raw) })
}

// Millis reads an integer of any size, cut to ±(2^53-1): a duration that will be
// clamped anyway.
func (b *Body) Millis(name string) Field[int64] {
	return Decode(b, name, func(raw json.RawMessage) (int64, bool) { return events.ParseIntegerClamped(raw) })
}

// Bool reads true or false.
func (b *Body) Bool(name string) Field[bool] {
	return Decode(b, name, func(raw json.RawMessage) (v, ok bool) { return v, json.Unmarshal(raw, &v) == nil })
}

// Object reads an object. Its members are not counted among the ignored ones.
func (b *Body) Object(name string) Field[*Body] {
	return Decode(b, name, func(raw json.RawMessage) (*Body, bool) {
		o, err := ParseBody(raw)
		return o, err == nil
	})
}

// Decode reads one member with a function of its own; ok is false for a malformed one.
func Decode[T any](b *Body, name string, read func(json.RawMessage) (T, bool)) Field[T] {
	raw, ok := b.Raw(name)
	if !ok {
		return Field[T]{}
	}
	v, ok := read(raw)
	if !ok {
		var none T
		b.bad = append(b.bad, name)
		return Field[T]{Value: none, Bad: true}
	}
	return Field[T]{Value: v, Set: true}
}

// TooLong is FORGE_TOO_LARGE naming the first of some texts that has more than a
// number of bytes, or nil.
func (b *Body) TooLong(most int, names ...string) error {
	if b == nil {
		return nil
	}
	for _, name := range names {
		if n := len(b.Peek(name)); n > most {
			return events.Errorf(events.CodeTooLarge, "%s has %d bytes, the most is %d", name, n, most).With("field", name)
		}
	}
	return nil
}

// Ignored names the members that nobody asked for, in order.
func (b *Body) Ignored() []string {
	var names []string
	for _, m := range b.members {
		if !b.asked[m.Key] {
			names = append(names, m.Key)
		}
	}
	return names
}

// Malformed is FORGE_BAD_REQUEST naming the first member that was asked for and
// had the wrong type, or nil. It is due after the checks of the rules.
func (b *Body) Malformed() error {
	if b == nil || len(b.bad) == 0 {
		return nil
	}
	return events.Errorf(events.CodeBadRequest, "%s has the wrong type", b.bad[0]).With("field", b.bad[0])
}
