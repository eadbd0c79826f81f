package legacy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxDepth is how deep an entry may nest. The old system nests two levels.
const maxDepth = 100

var errNotObject = errors.New("not a JSON object")

// splitObject gives the members of a JSON object, unexamined. A key that comes
// twice, and anything after the object, is an error.
func splitObject(raw []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	tok, err := dec.Token()
	if err != nil {
		return nil, invalid(err)
	}
	if tok != json.Delim('{') {
		return nil, errNotObject
	}
	members := make(map[string]json.RawMessage)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, invalid(err)
		}
		key := tok.(string) // the decoder refuses any other key
		if _, twice := members[key]; twice {
			return nil, fmt.Errorf("duplicate key %s", quote(key))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, invalid(err)
		}
		members[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, invalid(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("invalid JSON: something follows the object")
	}
	return members, nil
}

// strictObject checks that raw is one JSON object in UTF-8 without duplicate
// keys at any depth, and gives its compact form and its members. Nothing but
// white space is changed.
func strictObject(raw []byte) (json.RawMessage, map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, nil, errors.New("not UTF-8")
	}
	members, err := splitObject(raw)
	if err != nil {
		return nil, nil, err
	}
	if err := checkKeys(raw); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	out.Grow(len(raw))
	if err := json.Compact(&out, raw); err != nil {
		return nil, nil, invalid(err)
	}
	return out.Bytes(), members, nil
}

// checkKeys refuses duplicate keys at any depth, and a depth beyond maxDepth.
func checkKeys(raw []byte) error {
	type level struct {
		keys  map[string]bool // nil in an array
		value bool            // in an object: a value comes next
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var stack []level
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return invalid(err)
		}
		if tok == json.Delim('}') || tok == json.Delim(']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if !top.value {
				key := tok.(string)
				if top.keys[key] {
					return fmt.Errorf("duplicate key %s", quote(key))
				}
				top.keys[key], top.value = true, true
				continue
			}
			top.value = false
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{keys: make(map[string]bool)})
		case json.Delim('['):
			stack = append(stack, level{})
		}
		if len(stack) > maxDepth {
			return fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
	}
}

// textOf gives the text that raw is; ok is false for anything else.
func textOf(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(raw, &text)
	return text, err == nil
}

// isNull reports whether a member is missing or null, which is the same.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// isOne reports whether raw is the number 1, however written.
func isOne(raw json.RawMessage) bool {
	var n float64
	return len(raw) > 0 && raw[0] != 'n' && json.Unmarshal(raw, &n) == nil && n == 1
}

// checkVersion refuses every schemaVersion but 1.
func checkVersion(raw json.RawMessage) error {
	if isNull(raw) {
		return errors.New("schemaVersion is missing, want 1")
	}
	if !isOne(raw) {
		return fmt.Errorf("schemaVersion is %s, want 1", clip(string(raw)))
	}
	return nil
}

func invalid(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("invalid JSON: it ends too early")
	}
	return fmt.Errorf("invalid JSON: %w", err)
}

// quote shows a text of unknown content in one short line.
func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
