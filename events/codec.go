package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// The canonical encoding. A structure is a map whose keys are its declared
// fields in declared order, absent ones left out; integers and lengths take the
// shortest form; there are no floats. The reader refuses everything else, so
// that equal values have equal bytes and one hash.

// ErrEncoding is what undecodable or not canonical bytes are.
var ErrEncoding = errors.New("not a canonical encoding")

// Raw is one encoded value, kept as it stands.
type Raw []byte

// Writer builds an encoding. Errors cannot happen: it writes to memory.
type Writer struct {
	buf  sliceWriter
	enc  *msgpack.Encoder
	open []openObject
}

type openObject struct {
	at     int
	fields int
}

// sliceWriter lets the Writer patch what msgpack already wrote.
type sliceWriter struct{ b []byte }

func (s *sliceWriter) Write(p []byte) (int, error) { s.b = append(s.b, p...); return len(p), nil }
func (s *sliceWriter) WriteByte(c byte) error      { s.b = append(s.b, c); return nil }

// NewWriter makes a Writer; size is a guess of the bytes to come.
func NewWriter(size int) *Writer {
	w := &Writer{buf: sliceWriter{b: make([]byte, 0, size)}}
	w.enc = msgpack.NewEncoder(&w.buf)
	return w
}

// Bytes is what was written so far.
func (w *Writer) Bytes() []byte { return w.buf.b }

// Object begins a structure; End closes it and fills in the number of fields.
func (w *Writer) Object() {
	w.open = append(w.open, openObject{at: len(w.buf.b)})
	w.buf.b = append(w.buf.b, 0x80)
}

func (w *Writer) End() {
	o := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	if o.fields < 16 {
		w.buf.b[o.at] |= byte(o.fields)
		return
	}
	w.buf.b = append(w.buf.b, 0, 0)
	copy(w.buf.b[o.at+3:], w.buf.b[o.at+1:])
	w.buf.b[o.at] = 0xde // map 16
	binary.BigEndian.PutUint16(w.buf.b[o.at+1:], uint16(o.fields))
}

func (w *Writer) Key(name string) {
	w.open[len(w.open)-1].fields++
	_ = w.enc.EncodeString(name)
}

// Text, Int, Uint, Bool, Bin, Time and Raw each write one field that is always
// there; Array writes the length of a list whose elements follow.
func (w *Writer) Text(name, v string) { w.Key(name); _ = w.enc.EncodeString(v) }

func (w *Writer) Int(name string, v int64) {
	w.Key(name)
	_ = w.enc.EncodeInt(v)
}
func (w *Writer) Uint(name string, v uint64) { w.Key(name); _ = w.enc.EncodeUint(v) }
func (w *Writer) Bool(name string, v bool)   { w.Key(name); _ = w.enc.EncodeBool(v) }
func (w *Writer) Bin(name string, v []byte) {
	w.Key(name)
	_ = w.enc.EncodeBytes(append([]byte{}, v...))
}
func (w *Writer) Time(name string, v Time) { w.Int(name, int64(v)) }
func (w *Writer) Array(name string, n int) { w.Key(name); _ = w.enc.EncodeArrayLen(n) }
func (w *Writer) Raw(name string, v Raw)   { w.Key(name); w.buf.b = append(w.buf.b, v...) }

// TextItem and BinItem write one element of an Array.
func (w *Writer) TextItem(v string) { _ = w.enc.EncodeString(v) }
func (w *Writer) BinItem(v []byte)  { _ = w.enc.EncodeBytes(append([]byte{}, v...)) }

// OptText writes a text unless it is empty.
func (w *Writer) OptText(name, v string) {
	if v != "" {
		w.Text(name, v)
	}
}

// OptBin writes bytes unless there are none.
func (w *Writer) OptBin(name string, v []byte) {
	if len(v) > 0 {
		w.Bin(name, v)
	}
}

// OptBool writes true, and nothing for false.
func (w *Writer) OptBool(name string, v bool) {
	if v {
		w.Bool(name, v)
	}
}

// TextPtr writes a text, an empty one too, if it is there.
func (w *Writer) TextPtr(name string, v *string) {
	if v != nil {
		w.Text(name, *v)
	}
}

// TimePtr writes a time if it is there.
func (w *Writer) TimePtr(name string, v *Time) {
	if v != nil {
		w.Time(name, *v)
	}
}

// IntPtr writes an integer if it is there.
func (w *Writer) IntPtr(name string, v *int64) {
	if v != nil {
		w.Int(name, *v)
	}
}

// Reader walks an encoding. The first error sticks; reads after it give zero
// values.
type Reader struct {
	b   []byte
	off int
	err error
}

// NewReader reads one encoding from b; what it gives may share memory with b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: byte %d: %s", ErrEncoding, r.off, fmt.Sprintf(format, args...))
	}
}

// Done reports the sticky error, or trailing bytes.
func (r *Reader) Done() error {
	if r.err == nil && r.off != len(r.b) {
		r.Fail("%d trailing bytes", len(r.b)-r.off)
	}
	return r.err
}

func (r *Reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.off {
		r.Fail("ends early")
		return nil
	}
	p := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return p
}

func (r *Reader) code() byte {
	p := r.take(1)
	if p == nil {
		return 0xc1 // never used by msgpack
	}
	return p[0]
}

// bigEndian reads an n-byte number.
func (r *Reader) bigEndian(n int) uint64 {
	var v uint64
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

// shortest checks that a number of n bytes needed them: v is over the most that
// the next shorter form holds.
func (r *Reader) shortest(v, most uint64) uint64 {
	if r.err == nil && v <= most {
		r.Fail("%d is not in its shortest form", v)
	}
	return v
}

// number reads an integer of any width: neg tells whether it is below zero, in
// which case v is its two's complement.
func (r *Reader) number() (v uint64, neg bool) {
	switch c := r.code(); {
	case c <= 0x7f:
		return uint64(c), false
	case c >= 0xe0:
		return uint64(int64(int8(c))), true
	case c == 0xcc:
		return r.shortest(r.bigEndian(1), 0x7f), false
	case c == 0xcd:
		return r.shortest(r.bigEndian(2), 0xff), false
	case c == 0xce:
		return r.shortest(r.bigEndian(4), 0xffff), false
	case c == 0xcf:
		return r.shortest(r.bigEndian(8), 0xffffffff), false
	case c == 0xd0:
		return r.negative(int64(int8(r.bigEndian(1))), -32)
	case c == 0xd1:
		return r.negative(int64(int16(r.bigEndian(2))), -128)
	case c == 0xd2:
		return r.negative(int64(int32(r.bigEndian(4))), -32768)
	case c == 0xd3:
		return r.negative(int64(r.bigEndian(8)), -2147483648)
	default:
		r.Fail("0x%02x is no integer", c)
		return 0, false
	}
}

func (r *Reader) negative(v, least int64) (uint64, bool) {
	if r.err == nil && v >= least {
		r.Fail("%d is not in its shortest form", v)
	}
	return uint64(v), true
}

func (r *Reader) Int() int64 {
	v, neg := r.number()
	if !neg && v > 1<<63-1 {
		r.Fail("%d does not fit", v)
		return 0
	}
	return int64(v)
}

func (r *Reader) Uint() uint64 {
	v, neg := r.number()
	if neg {
		r.Fail("%d is negative", int64(v))
		return 0
	}
	return v
}

func (r *Reader) Bool() bool {
	switch c := r.code(); c {
	case 0xc2:
		return false
	case 0xc3:
		return true
	default:
		r.Fail("0x%02x is no boolean", c)
		return false
	}
}

func (r *Reader) Text() string {
	var n int
	switch c := r.code(); {
	case c >= 0xa0 && c <= 0xbf:
		n = int(c & 0x1f)
	case c == 0xd9:
		n = int(r.shortest(r.bigEndian(1), 31))
	case c == 0xda:
		n = int(r.shortest(r.bigEndian(2), 0xff))
	case c == 0xdb:
		n = int(r.shortest(r.bigEndian(4), 0xffff))
	default:
		r.Fail("0x%02x is no text", c)
		return ""
	}
	p := r.take(n)
	if !utf8.Valid(p) {
		r.Fail("text is not UTF-8")
		return ""
	}
	return string(p)
}

func (r *Reader) Bin() []byte {
	var n int
	switch c := r.code(); c {
	case 0xc4:
		n = int(r.bigEndian(1))
	case 0xc5:
		n = int(r.shortest(r.bigEndian(2), 0xff))
	case 0xc6:
		n = int(r.shortest(r.bigEndian(4), 0xffff))
	default:
		r.Fail("0x%02x is no binary", c)
		return nil
	}
	return r.take(n)
}

func (r *Reader) ArrayLen() int {
	switch c := r.code(); {
	case c >= 0x90 && c <= 0x9f:
		return int(c & 0x0f)
	case c == 0xdc:
		return int(r.shortest(r.bigEndian(2), 15))
	case c == 0xdd:
		return int(r.shortest(r.bigEndian(4), 0xffff))
	default:
		r.Fail("0x%02x is no array", c)
		return 0
	}
}

func (r *Reader) mapLen() int {
	switch c := r.code(); {
	case c >= 0x80 && c <= 0x8f:
		return int(c & 0x0f)
	case c == 0xde:
		return int(r.shortest(r.bigEndian(2), 15))
	case c == 0xdf:
		return int(r.shortest(r.bigEndian(4), 0xffff))
	default:
		r.Fail("0x%02x is no map", c)
		return 0
	}
}

// maxDepth is how deep values may nest.
const maxDepth = 32

// Raw passes over one value, which must be canonical in its lengths and
// numbers, and gives its bytes.
func (r *Reader) Raw() Raw {
	from := r.off
	r.skipValue(0)
	if r.err != nil {
		return nil
	}
	return Raw(r.b[from:r.off:r.off])
}

func (r *Reader) skipValue(depth int) {
	if r.err != nil {
		return
	}
	if depth > maxDepth {
		r.Fail("nests deeper than %d", maxDepth)
		return
	}
	if r.off >= len(r.b) {
		r.Fail("ends early")
		return
	}
	switch c := r.b[r.off]; {
	case c >= 0x80 && c <= 0x8f, c == 0xde, c == 0xdf:
		for n := r.mapLen(); n > 0 && r.err == nil; n-- {
			r.Text()
			r.skipValue(depth + 1)
		}
	case c >= 0x90 && c <= 0x9f, c == 0xdc, c == 0xdd:
		for n := r.ArrayLen(); n > 0 && r.err == nil; n-- {
			r.skipValue(depth + 1)
		}
	case c >= 0xa0 && c <= 0xbf, c >= 0xd9 && c <= 0xdb:
		r.Text()
	case c >= 0xc4 && c <= 0xc6:
		r.Bin()
	case c == 0xc2, c == 0xc3:
		r.Bool()
	default:
		r.number()
	}
}

// Object reads a structure: its fields are asked for in declared order.
type Object struct {
	r    *Reader
	name string
	left int    // fields not read yet
	next string // key already read, its value not
	have bool
}

func (r *Reader) Object(name string) *Object {
	return &Object{r: r, name: name, left: r.mapLen()}
}

// Has moves to the value of a field if that is the next one.
func (o *Object) Has(name string) bool {
	if o.r.err != nil {
		return false
	}
	if !o.have {
		if o.left == 0 {
			return false
		}
		o.next, o.have = o.r.Text(), true
		o.left--
	}
	if o.r.err != nil || o.next != name {
		return false
	}
	o.have = false
	return true
}

// Need is Has for a field that must be there.
func (o *Object) Need(name string) bool {
	if o.Has(name) {
		return true
	}
	if o.have {
		o.r.Fail("%s: field %q where %q belongs", o.name, clip(o.next), name)
	} else {
		o.r.Fail("%s: field %q is missing", o.name, name)
	}
	return false
}

// End refuses fields that nobody asked for.
func (o *Object) End() {
	if o.r.err == nil && (o.have || o.left > 0) {
		if !o.have {
			o.next = o.r.Text()
		}
		o.r.Fail("%s: unknown field %q, or out of order", o.name, clip(o.next))
	}
}

func (o *Object) Text(name string) string {
	if !o.Need(name) {
		return ""
	}
	return o.r.Text()
}

// OptText reads a text that is left out when empty.
func (o *Object) OptText(name string) string {
	if !o.Has(name) {
		return ""
	}
	v := o.r.Text()
	if v == "" {
		o.r.Fail("%s: empty %q is written", o.name, name)
	}
	return v
}

// TextPtr reads a text, an empty one too, if it is there.
func (o *Object) TextPtr(name string) *string {
	if !o.Has(name) {
		return nil
	}
	v := o.r.Text()
	return &v
}

func (o *Object) Int(name string) int64 {
	if !o.Need(name) {
		return 0
	}
	return o.r.Int()
}

func (o *Object) IntPtr(name string) *int64 {
	if !o.Has(name) {
		return nil
	}
	v := o.r.Int()
	return &v
}

func (o *Object) Uint(name string) uint64 {
	if !o.Need(name) {
		return 0
	}
	return o.r.Uint()
}

// Small reads a version number: 1 to 65535.
func (o *Object) Small(name string) int {
	v := o.Uint(name)
	if o.r.err == nil && (v < 1 || v > 0xffff) {
		o.r.Fail("%s: %q is %d", o.name, name, v)
	}
	return int(v)
}

func (o *Object) Time(name string) Time {
	t := Time(o.Int(name))
	if o.r.err == nil && !t.Valid() {
		o.r.Fail("%s: %q is out of range", o.name, name)
	}
	return t
}

func (o *Object) TimePtr(name string) *Time {
	if !o.Has(name) {
		return nil
	}
	t := Time(o.r.Int())
	if o.r.err == nil && !t.Valid() {
		o.r.Fail("%s: %q is out of range", o.name, name)
	}
	return &t
}

func (o *Object) OptBool(name string) bool {
	if !o.Has(name) {
		return false
	}
	v := o.r.Bool()
	if o.r.err == nil && !v {
		o.r.Fail("%s: false %q is written", o.name, name)
	}
	return v
}

func (o *Object) Bin(name string) []byte {
	if !o.Need(name) {
		return nil
	}
	return o.r.Bin()
}

func (o *Object) OptBin(name string) []byte {
	if !o.Has(name) {
		return nil
	}
	v := o.r.Bin()
	if o.r.err == nil && len(v) == 0 {
		o.r.Fail("%s: empty %q is written", o.name, name)
	}
	return bytes.Clone(v)
}

func (o *Object) Hash(name string) (h Hash) {
	if o.Need(name) {
		h = o.r.Hash()
	}
	return h
}

// Len reads the length of a list whose elements follow; 0 after an error. A list cannot
// be longer than the bytes that are left.
func (o *Object) Len(name string) int {
	if !o.Need(name) {
		return 0
	}
	n := o.r.ArrayLen()
	if o.r.err == nil && n > len(o.r.b)-o.r.off {
		o.r.Fail("%s: %q ends early", o.name, name)
	}
	if o.r.err != nil {
		return 0
	}
	return n
}

// Hash reads 32 bytes.
func (r *Reader) Hash() (h Hash) {
	p := r.Bin()
	if r.err == nil && len(p) != len(h) {
		r.Fail("a hash of %d bytes, not %d", len(p), len(h))
	}
	copy(h[:], p)
	return h
}
