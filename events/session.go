package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Session is one claim: a lease by which one controller owns one work. It is the
// owner as the log keeps it and as results show it.
type Session struct {
	WorkID         string
	ControllerID   string
	ControllerType string
	SessionID      string // transport session
	// Optional. A command stores them trimmed and leaves blank ones out; an
	// imported session keeps them as given, blank or padded too.
	AuthorityDigest      *string
	PrincipalID          *string
	ControllerInstanceID *string
	// Generation is the fencing token; at least 1 unless imported, nil if the
	// imported session had none.
	Generation     *int64
	ClaimedAt      Time
	LeaseExpiresAt Time
	// Extra are the members of an imported session that have no field above, as
	// one canonical JSON object; empty if there are none.
	Extra []byte
}

// MaxExtra is the most bytes of Session.Extra.
const MaxExtra = 16 << 10

// sessionSchema is the schemaVersion of a session.
const sessionSchema = 1

// Gen is the generation as comparisons take it: 0 when missing.
func (s *Session) Gen() int64 {
	if s == nil || s.Generation == nil {
		return 0
	}
	return *s.Generation
}

// Digest, Principal and Instance are the optional fields trimmed, "" when
// missing. Principal falls back to the controller id.
func (s *Session) Digest() string   { return trimPtr(s.AuthorityDigest) }
func (s *Session) Instance() string { return trimPtr(s.ControllerInstanceID) }

// Principal is the trimmed principalId, or else the controllerId.
func (s *Session) Principal() string {
	if p := trimPtr(s.PrincipalID); p != "" {
		return p
	}
	return s.ControllerID
}

func trimPtr(p *string) string {
	if p == nil {
		return ""
	}
	return strings.TrimSpace(*p)
}

// Equal compares all fields, unknown ones included. A null member, here or inside
// an unknown one, counts as missing. No session equals no session.
func (s *Session) Equal(o *Session) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.WorkID == o.WorkID && s.ControllerID == o.ControllerID && s.ControllerType == o.ControllerType &&
		s.SessionID == o.SessionID && eqPtr(s.AuthorityDigest, o.AuthorityDigest) && eqPtr(s.PrincipalID, o.PrincipalID) &&
		eqPtr(s.ControllerInstanceID, o.ControllerInstanceID) && eqPtr(s.Generation, o.Generation) &&
		s.ClaimedAt == o.ClaimedAt && s.LeaseExpiresAt == o.LeaseExpiresAt && equalExtra(s.Extra, o.Extra)
}

func equalExtra(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	null := []byte("null")
	if !bytes.Contains(a, null) && !bytes.Contains(b, null) {
		return false
	}
	x, errA := withoutNulls(a)
	y, errB := withoutNulls(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// withoutNulls drops the null members of canonical JSON, at every depth.
func withoutNulls(text []byte) ([]byte, error) {
	if len(text) == 0 {
		text = []byte("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	dropNulls(v)
	return json.Marshal(v)
}

func dropNulls(v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, member := range x {
			if member == nil {
				delete(x, k)
			} else {
				dropNulls(member)
			}
		}
	case []any:
		for _, item := range x {
			dropNulls(item)
		}
	}
}

func eqPtr[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// MarshalJSON writes the session as results show it: its fields in the order of
// the specification, then the unknown members.
func (s Session) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"schemaVersion":1`)
	text := func(name, v string) {
		b.WriteString(`,"` + name + `":`)
		AppendJSONString(&b, v)
	}
	ptr := func(name string, v *string) {
		if v != nil {
			text(name, *v)
		}
	}
	text("workId", s.WorkID)
	text("controllerId", s.ControllerID)
	text("controllerType", s.ControllerType)
	text("sessionId", s.SessionID)
	ptr("authorityDigest", s.AuthorityDigest)
	ptr("principalId", s.PrincipalID)
	ptr("controllerInstanceId", s.ControllerInstanceID)
	if s.Generation != nil {
		b.WriteString(`,"claimGeneration":` + strconv.FormatInt(*s.Generation, 10))
	}
	text("claimedAt", s.ClaimedAt.String())
	text("leaseExpiresAt", s.LeaseExpiresAt.String())
	if len(s.Extra) > 2 {
		b.WriteByte(',')
		b.Write(s.Extra[1 : len(s.Extra)-1])
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// ParseSession reads a session as another system stored it. workId, controllerId
// and sessionId are trimmed; everything else stays as given, unknown members and
// null ones in Extra. It refuses, with FORGE_BAD_REQUEST naming the field, what
// cannot be a fact here: a blank or wrongly typed id, a controllerType that is no
// text, an unreadable time, another schemaVersion, too many unknown members. A claimGeneration
// that is no integer counts as missing and is carried along.
func ParseSession(text []byte) (*Session, error) {
	members, err := ObjectMembers(text)
	if err != nil {
		return nil, Errorf(CodeBadRequest, "session: %w", err)
	}
	bad := func(field, why string) error {
		return Errorf(CodeBadRequest, "session: %s %s", field, why).With("field", field)
	}
	s := &Session{}
	var extra []Member
	seen := make(map[string]bool, 12)
	for _, m := range members {
		null := string(m.Value) == "null"
		seen[m.Key] = !null
		switch m.Key {
		case "schemaVersion":
			if v, ok := ParseInteger(m.Value); !null && (!ok || v != sessionSchema) {
				return nil, bad(m.Key, "is not 1")
			}
		case "workId", "controllerId", "sessionId", "controllerType", "claimedAt", "leaseExpiresAt":
			var v string
			if null || json.Unmarshal(m.Value, &v) != nil {
				return nil, bad(m.Key, "is no text")
			}
			switch m.Key {
			case "workId":
				s.WorkID = strings.TrimSpace(v)
			case "controllerId":
				s.ControllerID = strings.TrimSpace(v)
			case "sessionId":
				s.SessionID = strings.TrimSpace(v)
			case "controllerType":
				s.ControllerType = v
			case "claimedAt":
				s.ClaimedAt, err = ParseTime(v)
			case "leaseExpiresAt":
				s.LeaseExpiresAt, err = ParseTime(v)
			}
			if err != nil {
				return nil, bad(m.Key, "is unreadable: "+err.Error())
			}
		case "authorityDigest", "principalId", "controllerInstanceId":
			v := new(string)
			if null || json.Unmarshal(m.Value, v) != nil {
				extra = append(extra, m)
				continue
			}
			switch m.Key {
			case "authorityDigest":
				s.AuthorityDigest = v
			case "principalId":
				s.PrincipalID = v
			case "controllerInstanceId":
				s.ControllerInstanceID = v
			}
		case "claimGeneration":
			if v, ok := ParseInteger(m.Value); ok {
				s.Generation = &v
			} else {
				extra = append(extra, m)
			}
		default:
			extra = append(extra, m)
		}
	}
	for _, id := range []struct{ field, v string }{{"workId", s.WorkID}, {"controllerId", s.ControllerID}, {"sessionId", s.SessionID}} {
		if id.v == "" {
			return nil, bad(id.field, "is blank")
		}
		if err := CheckID(id.field, id.v); err != nil {
			return nil, err
		}
	}
	for _, field := range []string{"controllerType", "claimedAt", "leaseExpiresAt"} {
		if !seen[field] {
			return nil, bad(field, "is missing")
		}
	}
	if s.Extra, err = extraJSON(extra); err != nil {
		return nil, Errorf(CodeBadRequest, "session: %w", err)
	}
	if len(s.Extra) > MaxExtra {
		return nil, Errorf(CodeTooLarge, "session: unknown members have %d bytes, the most is %d", len(s.Extra), MaxExtra)
	}
	return s, nil
}

// extraJSON makes one canonical object of members, or nothing of none.
func extraJSON(members []Member) ([]byte, error) {
	if len(members) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		AppendJSONString(&b, m.Key)
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return CanonicalJSON(b.Bytes())
}

// Write encodes the session as an object.
func (s *Session) Write(w *Writer) {
	w.Object()
	w.Text("workId", s.WorkID)
	w.Text("controllerId", s.ControllerID)
	w.Text("controllerType", s.ControllerType)
	w.Text("sessionId", s.SessionID)
	w.TextPtr("authorityDigest", s.AuthorityDigest)
	w.TextPtr("principalId", s.PrincipalID)
	w.TextPtr("controllerInstanceId", s.ControllerInstanceID)
	w.IntPtr("claimGeneration", s.Generation)
	w.Time("claimedAt", s.ClaimedAt)
	w.Time("leaseExpiresAt", s.LeaseExpiresAt)
	w.OptBin("extra", s.Extra)
	w.End()
}

// ReadSession decodes what Write wrote.
func ReadSession(r *Reader) *Session {
	o := r.Object("session")
	s := &Session{
		WorkID:               o.Text("workId"),
		ControllerID:         o.Text("controllerId"),
		ControllerType:       o.Text("controllerType"),
		SessionID:            o.Text("sessionId"),
		AuthorityDigest:      o.TextPtr("authorityDigest"),
		PrincipalID:          o.TextPtr("principalId"),
		ControllerInstanceID: o.TextPtr("controllerInstanceId"),
		Generation:           o.IntPtr("claimGeneration"),
		ClaimedAt:            o.Time("claimedAt"),
		LeaseExpiresAt:       o.Time("leaseExpiresAt"),
		Extra:                o.OptBin("extra"),
	}
	o.End()
	if r.err == nil && len(s.Extra) > 0 {
		if canon, err := CanonicalJSON(s.Extra); err != nil || !slices.Equal(canon, s.Extra) || len(s.Extra) < 5 || s.Extra[0] != '{' {
			r.Fail("session: extra is no canonical JSON object")
		}
	}
	return s
}

// Fence names the owner epoch of a session in messages: controller and
// generation.
func (s *Session) Fence() string {
	return fmt.Sprintf("%s generation %d", s.ControllerID, s.Gen())
}

// UnmarshalJSON reads what MarshalJSON writes, and whatever ParseSession takes.
func (s *Session) UnmarshalJSON(b []byte) error {
	p, err := ParseSession(b)
	if err != nil {
		return err
	}
	*s = *p
	return nil
}
