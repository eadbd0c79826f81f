package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrJSON)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var out bytes.Buffer
	out.Grow(len(text))
	tok, err := dec.Token()
	if err == nil {
		err = canonicalValue(&out, dec, tok, 0)
	}
	if err == nil {
		if _, end := dec.Token(); end != io.EOF {
			err = errors.New("trailing text")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return out.Bytes(), nil
}

func canonicalValue(out *bytes.Buffer, dec *json.Decoder, tok json.Token, depth int) error {
	if depth > maxJSONDepth {
		return fmt.Errorf("nests deeper than %d", maxJSONDepth)
	}
	switch v := tok.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case json.Number:
		n, err := canonicalNumber(string(v))
		if err != nil {
			return err
		}
		out.WriteString(n)
	case string:
		AppendJSONString(out, v)
	case json.Delim:
		if v == '[' {
			return canonicalArray(out, dec, depth)
		}
		return canonicalObject(out, dec, depth)
	}
	return nil
}

func canonicalArray(out *bytes.Buffer, dec *json.Decoder, depth int) error {
	out.WriteByte('[')
	for i := 0; ; i++ {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if tok == json.Delim(']') {
			out.WriteByte(']')
			return nil
		}
		if i > 0 {
			out.WriteByte(',')
		}
		if err := canonicalValue(out, dec, tok, depth+1); err != nil {
			return err
		}
	}
}

func canonicalObject(out *bytes.Buffer, dec *json.Decoder, depth int) error {
	type member struct {
		key   string
		value []byte
	}
	var members []member
	for {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if tok == json.Delim('}') {
			break
		}
		key := tok.(string) // the decoder allows nothing else here
		if tok, err = dec.Token(); err != nil {
			return err
		}
		var value bytes.Buffer
		if err := canonicalValue(&value, dec, tok, depth+1); err != nil {
			return err
		}
		members = append(members, member{key, value.Bytes()})
	}
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
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrJSON)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	if tok != json.Delim('{') {
		return nil, fmt.Errorf("%w: not an object", ErrJSON)
	}
	var members []Member
	var keys map[string]struct{} // of members, once there are many: else it would take quadratic time
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrJSON, err)
		}
		m := Member{Key: tok.(string)}
		if err := dec.Decode(&m.Value); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrJSON, err)
		}
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
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: trailing text", ErrJSON)
	}
	return members, nil
}
