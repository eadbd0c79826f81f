package legacy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deep an entry may nest. The old system nests two levels.
const maxDepth = 100

var errNotObject = errors.New("not a JSON object")

// compactJSON checks that raw is one JSON value, and takes white space out; nothing
// else is changed. What follows works on such bytes only.
func compactJSON(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(raw))
	if err := json.Compact(&out, raw); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	return out.Bytes(), nil
}

// strictObject checks that raw is one JSON object in UTF-8 without duplicate
// keys at any depth, and gives its compact form and its members.
func strictObject(raw []byte) (json.RawMessage, map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, nil, errors.New("not UTF-8")
	}
	compact, err := compactJSON(raw)
	if err != nil {
		return nil, nil, err
	}
	members, err := splitObject(compact)
	if err != nil {
		return nil, nil, err
	}
	if err := checkKeys(compact); err != nil {
		return nil, nil, err
	}
	return compact, members, nil
}

// splitObject gives the members of a compact JSON object, as parts of it. A key
// that comes twice is an error.
func splitObject(compact []byte) (map[string]json.RawMessage, error) {
	if compact[0] != '{' {
		return nil, errNotObject
	}
	members := make(map[string]json.RawMessage)
	for i := 1; compact[i] != '}'; {
		if compact[i] == ',' {
			i++
		}
		colon := skipValue(compact, i)
		key := keyText(compact[i:colon])
		if _, twice := members[key]; twice {
			return nil, duplicate(key)
		}
		i = skipValue(compact, colon+1)
		members[key] = compact[colon+1 : i : i]
	}
	return members, nil
}

// splitArray gives the items of a compact JSON array, as parts of it.
func splitArray(compact []byte) []json.RawMessage {
	var items []json.RawMessage
	for i := 1; compact[i] != ']'; {
		if compact[i] == ',' {
			i++
		}
		end := skipValue(compact, i)
		items = append(items, compact[i:end:end])
		i = end
	}
	return items
}

// checkKeys refuses duplicate keys at any depth of a compact JSON value, and a
// depth beyond maxDepth.
func checkKeys(compact []byte) error {
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // a text is a key
	}
	stack := []level{{}} // the value itself is as in an array
	for i := 0; i < len(compact); {
		top := &stack[len(stack)-1]
		switch compact[i] {
		case '{':
			stack = append(stack, level{keys: make(map[string]bool), key: true})
		case '[':
			stack = append(stack, level{})
		case '}', ']':
			stack = stack[:len(stack)-1]
		case ':':
			top.key = false
		case ',':
			top.key = top.keys != nil
		case '"':
			end := skipText(compact, i)
			if top.key {
				key := keyText(compact[i:end])
				if top.keys[key] {
					return duplicate(key)
				}
				top.keys[key] = true
			}
			i = end
			continue
		}
		if len(stack) > maxDepth+1 {
			return fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
		i++
	}
	return nil
}

// skipText gives the end of the text that begins at i.
func skipText(compact []byte, i int) int {
	for i++; compact[i] != '"'; i++ {
		if compact[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue gives the end of the value (or key) that begins at i.
func skipValue(compact []byte, i int) int {
	for depth := 0; i < len(compact); {
		switch compact[i] {
		case '"':
			if i = skipText(compact, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // after a number or a word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// keyText gives the text of a key.
func keyText(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	key, _ := textOf(raw) // valid JSON always has one
	return key
}

func duplicate(key string) error { return fmt.Errorf("duplicate key %s", quote(key)) }

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
