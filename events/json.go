package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrJSON is what text is that is no strict JSON.
var ErrJSON = errors.New("not strict JSON")

// maxJSONDepth is how deep JSON may nest.
const maxJSONDepth = 64

// CanonicalJSON gives the one form of a JSON value: keys sorted by bytes, no
// white space, numbers by exact decimal value (1.0 and 1e0 are 1). Two values
// are equal exactly when their forms are. Duplicate keys, invalid UTF-8,
// trailing text and nesting beyond 64 are refused (ErrJSON).
func CanonicalJSON(text []byte) ([]byte, error) {
	if err := strictJSON(text); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(text))
	if err := canonicalValue(&out, &scanner{b: text}, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return out.Bytes(), nil
}

// strictJSON refuses text that is not one JSON value in UTF-8.
func strictJSON(text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("%w: not UTF-8", ErrJSON)
	}
	if json.Valid(text) {
		return loneSurrogate(text)
	}
	var v json.RawMessage
	err := json.Unmarshal(text, &v) // says what is wrong, and where
	return fmt.Errorf("%w: %w", ErrJSON, err)
}

// loneSurrogate refuses an escape that is half of a character: encoding/json would
// make one and the same character of all of them, and so one id of many.
func loneSurrogate(text []byte) error {
	for i := bytes.IndexByte(text, '\\'); i >= 0 && i < len(text); {
		half := func(at int) uint64 {
			if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
				return 0
			}
			v, _ := strconv.ParseUint(string(text[at+2:at+6]), 16, 32)
			return v &^ 0x3ff // what both halves begin with
		}
		switch {
		case half(i) == 0xd800 && half(i+6) == 0xdc00:
			i += 12
		case half(i) == 0xd800 || half(i) == 0xdc00:
			return fmt.Errorf("%w: byte %d: half of a surrogate pair", ErrJSON, i)
		default:
			i += 2 // the escaped byte is none that begins an escape
		}
		next := bytes.IndexByte(text[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next
	}
	return nil
}

func canonicalValue(out *bytes.Buffer, s *scanner, depth int) error {
	if depth > maxJSONDepth {
		return fmt.Errorf("nests deeper than %d", maxJSONDepth)
	}
	switch s.peek() {
	case '{':
		return canonicalObject(out, s, depth)
	case '[':
		return canonicalArray(out, s, depth)
	case '"':
		AppendJSONString(out, unquote(s.text()))
		return nil
	case 't', 'f', 'n':
		out.Write(s.value())
		return nil
	}
	n, err := canonicalNumber(string(s.value()))
	out.WriteString(n)
	return err
}

func canonicalArray(out *bytes.Buffer, s *scanner, depth int) error {
	out.WriteByte('[')
	s.i++
	for n := 0; s.peek() != ']'; n++ {
		if n > 0 {
			s.i++ // the comma
			out.WriteByte(',')
		}
		if err := canonicalValue(out, s, depth+1); err != nil {
			return err
		}
	}
	s.i++
	out.WriteByte(']')
	return nil
}

func canonicalObject(out *bytes.Buffer, s *scanner, depth int) error {
	type member struct {
		key   string
		value []byte // canonical
	}
	members := make([]member, 0, 16)
	var values bytes.Buffer
	s.i++
	for n := 0; s.peek() != '}'; n++ {
		if n > 0 {
			s.i++ // the comma
		}
		key := unquote(s.text())
		s.space()
		s.i++ // the colon
		from := values.Len()
		if err := canonicalValue(&values, s, depth+1); err != nil {
			return err
		}
		members = append(members, member{key, values.Bytes()[from:values.Len():values.Len()]})
	}
	s.i++
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				return fmt.Errorf("duplicate key %q", clip(m.key))
			}
			out.WriteByte(',')
		}
		AppendJSONString(out, m.key)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return nil
}

// maxPlainDigits is how many digits an integer may have to be written without an
// exponent.
const maxPlainDigits = 21

// canonicalNumber writes a JSON number as an integer if it is one of at most 21
// digits, else as digits and exponent (d.ddde±n) without trailing zeros.
func canonicalNumber(s string) (string, error) {
	mantissa, exp, _ := strings.Cut(strings.ToLower(s), "e")
	neg := strings.HasPrefix(mantissa, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	e := new(big.Int)
	if exp != "" {
		if _, ok := e.SetString(strings.TrimPrefix(exp, "+"), 10); !ok {
			return "", fmt.Errorf("number %q", clip(s))
		}
	}
	digits := strings.TrimLeft(whole+frac, "0")
	e.Sub(e, big.NewInt(int64(len(frac))))
	trimmed := strings.TrimRight(digits, "0")
	e.Add(e, big.NewInt(int64(len(digits)-len(trimmed))))
	if trimmed == "" {
		return "0", nil
	}
	sign := ""
	if neg {
		sign = "-"
	}
	// Compared before anything is added: an exponent may be close to the bounds of an int64.
	if most := int64(maxPlainDigits - len(trimmed)); e.Sign() >= 0 && most >= 0 && e.IsInt64() && e.Int64() <= most {
		return sign + trimmed + strings.Repeat("0", int(e.Int64())), nil
	}
	e.Add(e, big.NewInt(int64(len(trimmed)-1)))
	out := sign + trimmed[:1]
	if len(trimmed) > 1 {
		out += "." + trimmed[1:]
	}
	return out + "e" + e.String(), nil
}

// maxSafe is the largest integer of the specification: 2^53-1.
const maxSafe = 1<<53 - 1

// ParseInteger reads a JSON number of integral value between -(2^53-1) and
// 2^53-1, however written; ok is false for any other JSON.
func ParseInteger(number []byte) (v int64, ok bool) {
	s := string(bytes.TrimSpace(number))
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return 0, false
	}
	canon, err := canonicalNumber(s)
	if err != nil {
		return 0, false
	}
	v, err = strconv.ParseInt(canon, 10, 64)
	return v, err == nil && v <= maxSafe && v >= -maxSafe
}

// ParseIntegerClamped reads a JSON number of integral value of any size; beyond
// ±(2^53-1) it gives that bound.
func ParseIntegerClamped(number []byte) (v int64, ok bool) {
	if v, ok := ParseInteger(number); ok {
		return v, true
	}
	s := string(bytes.TrimSpace(number))
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return 0, false
	}
	canon, err := canonicalNumber(s)
	if err != nil {
		return 0, false
	}
	mantissa, exp, scientific := strings.Cut(canon, "e")
	_, frac, _ := strings.Cut(mantissa, ".")
	if scientific {
		e, err := strconv.ParseInt(exp, 10, 64)
		if strings.HasPrefix(exp, "-") || err == nil && e < int64(len(frac)) {
			return 0, false
		}
	}
	if s[0] == '-' {
		return -maxSafe, true
	}
	return maxSafe, true
}

// AppendJSONString writes a JSON string with the fewest escapes.
func AppendJSONString(out *bytes.Buffer, s string) {
	const hex = "0123456789abcdef"
	out.WriteByte('"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out.WriteString(s[from:i])
		from = i + 1
		switch c {
		case '"', '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case '\n':
			out.WriteString(`\n`)
		case '\r':
			out.WriteString(`\r`)
		case '\t':
			out.WriteString(`\t`)
		default:
			out.WriteString(`\u00`)
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	out.WriteString(s[from:])
	out.WriteByte('"')
}

// Member is one member of a JSON object, its value as given.
type Member struct {
	Key   string
	Value json.RawMessage
}

// manyMembers is from how many members on a map of their keys pays.
const manyMembers = 32

// ObjectMembers splits a JSON object into its members, in order. It refuses
// (ErrJSON) other values, duplicate keys, invalid UTF-8 and trailing text.
func ObjectMembers(text []byte) ([]Member, error) {
	if err := strictJSON(text); err != nil {
		return nil, err
	}
	sc := &scanner{b: text}
	if sc.peek() != '{' {
		return nil, fmt.Errorf("%w: not an object", ErrJSON)
	}
	sc.i++
	members := make([]Member, 0, 16)
	var keys map[string]struct{} // of members, once there are many: else it would take quadratic time
	for sc.peek() != '}' {
		if len(members) > 0 {
			sc.i++ // the comma
		}
		m := Member{Key: unquote(sc.text())}
		sc.space()
		sc.i++ // the colon
		m.Value = sc.value()
		doubled := false
		if len(members) < manyMembers {
			doubled = slices.ContainsFunc(members, func(o Member) bool { return o.Key == m.Key })
		} else {
			if keys == nil {
				keys = make(map[string]struct{}, 2*manyMembers)
				for _, o := range members {
					keys[o.Key] = struct{}{}
				}
			}
			_, doubled = keys[m.Key]
			keys[m.Key] = struct{}{}
		}
		if doubled {
			return nil, fmt.Errorf("%w: duplicate key %q", ErrJSON, clip(m.Key))
		}
		members = append(members, m)
	}
	return members, nil
}
