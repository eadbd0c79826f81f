package release

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/forge-es/forge-es/events"
)

// object is a JSON object whose members keep their order and their bytes. The
// zero value is one that is missing: it has no members. Reading takes null as
// missing.
type object struct {
	members []events.Member
	there   bool // present and an object
	given   bool // present, perhaps no object
}

// parseObject reads a value that may be missing (nil or null) or no object.
func parseObject(raw json.RawMessage) object {
	if missing(raw) {
		return object{}
	}
	members, err := events.ObjectMembers(raw)
	if err != nil {
		return object{given: true}
	}
	return object{members: members, there: true, given: true}
}

func missing(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// raw gives the bytes of a member, nil when it is missing.
func (o object) raw(name string) json.RawMessage {
	for _, m := range o.members {
		if m.Key == name && !missing(m.Value) {
			return m.Value
		}
	}
	return nil
}

// text gives a text; ok is false when it is missing or of another type.
func (o object) text(name string) (v string, ok bool) {
	raw := o.raw(name)
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	return v, true
}

// filled reports whether a member is a text of at least one character.
func (o object) filled(name string) bool {
	v, ok := o.text(name)
	return ok && v != ""
}

// integer gives an integer; ok is false when it is missing or none.
func (o object) integer(name string) (v int64, ok bool) {
	return events.ParseInteger(o.raw(name))
}

// instant gives a readable time.
func (o object) instant(name string) (events.Time, bool) {
	v, ok := o.text(name)
	if !ok {
		return 0, false
	}
	t, err := events.ParseTime(v)
	return t, err == nil
}

// object gives a member that may be missing or no object.
func (o object) object(name string) object { return parseObject(o.raw(name)) }

// with gives a copy in which members have new values, each in its place; those
// that were not there go last.
func (o object) with(patch ...events.Member) object {
	o.members = slices.Clone(o.members)
	for _, p := range patch {
		i := slices.IndexFunc(o.members, func(m events.Member) bool { return m.Key == p.Key })
		if i < 0 {
			o.members = append(o.members, p)
			continue
		}
		o.members[i] = p
	}
	o.there, o.given = true, true
	return o
}

// text of an object: its members as they are.
func (o object) append(b *bytes.Buffer, replace func(name string) (json.RawMessage, bool)) {
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		events.AppendJSONString(b, m.Key)
		b.WriteByte(':')
		value := m.Value
		if v, ok := replace(m.Key); ok {
			value = v
		}
		b.Write(value)
	}
	b.WriteByte('}')
}

// only gives a copy with some of the members.
func (o object) only(names ...string) object {
	var kept []events.Member
	for _, m := range o.members {
		if slices.Contains(names, m.Key) {
			kept = append(kept, m)
		}
	}
	o.members = kept
	return o
}

// member makes a member of JSON, a text or an integer.
func member(name string, v any) events.Member {
	if raw, ok := v.(json.RawMessage); ok {
		return events.Member{Key: name, Value: raw}
	}
	if text, ok := v.(string); ok {
		var b bytes.Buffer
		events.AppendJSONString(&b, text)
		return events.Member{Key: name, Value: b.Bytes()}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic("release: " + err.Error()) // only integers come here
	}
	return events.Member{Key: name, Value: raw}
}

// equal compares two values: keys in any order, numbers by value, null members
// as missing, missing equal to missing.
func equal(a, b json.RawMessage) bool { return events.EqualJSON(a, b) }

// agree reports whether two objects have equal values of some members.
func agree(a, b object, names ...string) bool {
	for _, name := range names {
		if !equal(a.raw(name), b.raw(name)) {
			return false
		}
	}
	return true
}

// releaseIdentity are the members that say which release one is.
var releaseIdentity = []string{"releaseId", "artifactIdentity", "manifestSha256"}
