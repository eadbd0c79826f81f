package events

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A scanner walks text that is known to be valid JSON: it finds where values end,
// and makes nothing of them. encoding/json has judged the text before, which is
// the expensive and subtle part; its decoder would also copy every value.
type scanner struct {
	b []byte
	i int
}

// space passes over white space.
func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte that is no white space.
func (s *scanner) peek() byte {
	s.space()
	return s.b[s.i]
}

// text gives the bytes of a string, quotes included.
func (s *scanner) text() []byte {
	s.space()
	from := s.i
	for s.i++; s.b[s.i] != '"'; s.i++ {
		if s.b[s.i] == '\\' {
			s.i++
		}
	}
	s.i++
	return s.b[from:s.i:s.i]
}

// value gives the bytes of any value.
func (s *scanner) value() []byte {
	s.space()
	from, depth := s.i, 0
	for {
		switch s.b[s.i] {
		case '"':
			s.text()
			s.i--
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.i++
		if depth == 0 && (s.i == len(s.b) || ends(s.b[s.i-1], s.b[s.i])) {
			return s.b[from:s.i:s.i]
		}
	}
}

// ends reports whether a value that is not inside another one ends between two
// bytes.
func ends(last, next byte) bool {
	switch last {
	case '"', '}', ']':
		return true
	}
	switch next {
	case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// unquote gives the text of a JSON string. Without escapes it is copied as it is.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var v string
	_ = json.Unmarshal(quoted, &v) // it is valid
	return v
}

// DecodeText gives the text of a JSON value; ok is false when that is no text.
func DecodeText(value json.RawMessage) (v string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if value[len(value)-1] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) && bytes.IndexByte(value[1:len(value)-1], '"') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	return v, json.Unmarshal(value, &v) == nil
}
