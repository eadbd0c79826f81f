package events

import (
	"bytes"
	"encoding/json"
)

// EqualJSON compares two JSON values: keys in any order, numbers by exact decimal
// value, a null member as a missing one; nothing at all (nil) equals null. Text
// that is no strict JSON (CanonicalJSON) equals only itself.
func EqualJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	va, okA := generic(a)
	vb, okB := generic(b)
	return okA && okB && equalValues(va, vb)
}

func generic(raw json.RawMessage) (v any, ok bool) {
	if len(raw) == 0 {
		return nil, true
	}
	if _, err := CanonicalJSON(raw); err != nil {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil
}

func equalValues(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && covers(a, b) && covers(b, a)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalValues(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		na, errA := canonicalNumber(string(a))
		nb, errB := canonicalNumber(string(b))
		return errA == nil && errB == nil && na == nb
	default:
		return a == b
	}
}

// covers reports whether b has every member of a with an equal value; null is
// missing.
func covers(a, b map[string]any) bool {
	for key, v := range a {
		if v != nil && !equalValues(v, b[key]) {
			return false
		}
	}
	return true
}
