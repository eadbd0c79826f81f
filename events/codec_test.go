package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// decodeAll reads a commit with all that is known of its content.
func decodeAll(b []byte) (*Commit, error) {
	c, err := DecodeCommit(b)
	if err != nil {
		return nil, err
	}
	for _, e := range c.Events {
		if _, err := Decode(e); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func TestPayloadComesBackAsWritten(t *testing.T) {
	check := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, p Payload,
	) {
		t.Helper()
		e := Encode(p)
		got, err := Decode(e)
		if err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
		if d := diff(p, got); d != "" {
			t.Fatalf("%s differs (-want +got):\n%s", e.Type, d)
		}
		if again := Encode(got); !bytes.Equal(again.Data, e.Data) || again.V != e.V || again.Type != e.Type {
			t.Fatalf("%s: encoding again gives other bytes\n%x\n%x", e.Type, e.Data, again.Data)
		}
	}
	for _, p := range samples() {
		check(t, p)
	}
	for name, g := range payloads {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) { check(t, g(t)) }))
	}
}

func TestRandomCommitComesBackAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCommit().Draw(t, "commit")
		b := c.Encode()
		got, err := decodeAll(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(c, got); d != "" {
			t.Fatalf("differs (-want +got):\n%s", d)
		}
		if !bytes.Equal(got.Encode(), b) {
			t.Fatal("encoding again gives other bytes")
		}
	})
}

// One changed byte makes another value, whose encoding that is, or no commit.
func TestChangedByteIsAnotherCommitOrNone(t *testing.T) {
	b := sampleCommit().Encode()
	for i := range b {
		for _, x := range []byte{0x01, 0x80, 0xff, 0xc1} {
			changed := bytes.Clone(b)
			changed[i] ^= x
			if c, err := DecodeCommit(changed); err == nil && !bytes.Equal(c.Encode(), changed) {
				t.Errorf("byte %d ^ %#x is accepted and encodes as other bytes", i, x)
			}
		}
	}
}

// The traps of msgpack v5 (facts, section 13), each with what it would do.

func TestTrapMapOrderIsRandom(t *testing.T) {
	want := sampleCommit().Encode()
	for range 100 {
		if got := sampleCommit().Encode(); !bytes.Equal(got, want) {
			t.Fatalf("one commit has two encodings:\n%x\n%x", want, got)
		}
	}
}

func TestTrapSmallerIntegerWraps(t *testing.T) {
	encoded := func(write func(w *Writer)) *Object {
		w := NewWriter(8)
		w.Object()
		write(w)
		w.End()
		return NewReader(w.Bytes()).Object("it")
	}
	for name, o := range map[string]*Object{
		"70000 as a version":   encoded(func(w *Writer) { w.Uint("n", 70000) }),
		"0 as a version":       encoded(func(w *Writer) { w.Uint("n", 0) }),
		"-1 as a version":      encoded(func(w *Writer) { w.Int("n", -1) }),
		"2^64-1 as a version":  encoded(func(w *Writer) { w.Uint("n", math.MaxUint64) }),
		"a version as a float": encoded(func(w *Writer) { w.Key("n"); _ = w.enc.EncodeFloat64(1) }),
	} {
		if v := o.Small("n"); o.r.err == nil {
			t.Errorf("%s is read as %d", name, v)
		}
	}
	for _, v := range []int64{-1, -32, -33, -128, -129, math.MinInt64} {
		o := encoded(func(w *Writer) { w.Int("n", v) })
		if got := o.Uint("n"); o.r.err == nil {
			t.Errorf("%d is read as unsigned %d", v, got)
		}
	}
	for _, v := range []uint64{1 << 63, math.MaxUint64} {
		o := encoded(func(w *Writer) { w.Uint("n", v) })
		if got := o.Int("n"); o.r.err == nil {
			t.Errorf("%d is read as signed %d", v, got)
		}
	}
	for _, v := range []Time{minTime - 1, maxTime + 1, math.MaxInt64, math.MinInt64} {
		o := encoded(func(w *Writer) { w.Time("n", v) })
		if got := o.Time("n"); o.r.err == nil {
			t.Errorf("time %d is read as %d", int64(v), int64(got))
		}
		o = encoded(func(w *Writer) { w.Time("n", v) })
		if o.TimePtr("n"); o.r.err == nil {
			t.Errorf("optional time %d is read", int64(v))
		}
	}
}

func TestTrapTrailingBytesAreAccepted(t *testing.T) {
	for _, tail := range []string{"\x00", "\x80", "\xc0", "\xc1", "x", string(sampleCommit().Encode())} {
		if _, err := DecodeCommit(append(sampleCommit().Encode(), tail...)); !errors.Is(err, ErrEncoding) {
			t.Errorf("tail %.20x: %v", tail, err)
		}
		for _, p := range samples() {
			e := Encode(p)
			e.Data = append(e.Data, tail...)
			if _, err := Decode(e); !errors.Is(err, ErrEncoding) {
				t.Errorf("%s with tail %.20x: %v", e.Type, tail, err)
			}
		}
	}
}

func TestTrapTruncatedInputIsHalfSet(t *testing.T) {
	for _, p := range samples() {
		e := Encode(p)
		for n := range e.Data {
			cut := e
			cut.Data = e.Data[:n:n]
			if got, err := Decode(cut); !errors.Is(err, ErrEncoding) || got != nil {
				t.Errorf("%s cut at %d of %d: %v, %v", e.Type, n, len(e.Data), got, err)
			}
		}
	}
}

func TestTrapTimeZonesAreLost(t *testing.T) {
	// No time travels as text or as the timestamp extension.
	if tm := NewReader([]byte("\xd7\xff\x00\x00\x00\x00\x69\x55\xc0\x00")); tm.Int() != 0 || tm.err == nil {
		t.Error("the timestamp extension is read as an integer")
	}
	for _, text := range []string{"2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z", "2025-12-31T19:00:00-05:00"} {
		if v, err := ParseTime(text); err != nil || v != 1767225600000 {
			t.Errorf("%s is %d, %v", text, v, err)
		}
	}
}

// Renamed, unknown, doubled, missing and reordered fields, in every structure of
// a commit; and values of other forms and types in every place.
func TestTrapOtherFieldsAreDropped(t *testing.T) {
	for _, p := range samples() {
		c := sampleCommit()
		c.Events = []Event{Encode(p)}
		b := c.Encode()
		root := parseNode(t, b)
		if got := root.encode(); !bytes.Equal(got, b) {
			t.Fatalf("the test's own tree does not give the bytes back:\n%x\n%x", b, got)
		}
		root.walk("", func(path string, n *node) {
			if strings.HasPrefix(path, "/state/data") {
				return // opaque to the envelope
			}
			refuse := func(change string) {
				if _, err := decodeAll(root.encode()); !errors.Is(err, ErrEncoding) {
					t.Errorf("%s: %s at %s: %v", c.Events[0].Type, change, path, err)
				}
			}
			was := *n
			for _, other := range []struct{ what, bytes string }{
				{"nil", "\xc0"},
				{"a float", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"},
				{"a short float", "\xca\x3f\x80\x00\x00"},
				{"an extension", "\xd4\x01\x00"},
				{"a timestamp", "\xd6\xff\x69\x55\xc0\x00"},
				{"a byte that is never used", "\xc1"},
				{"a huge array", "\xdd\xff\xff\xff\xff"},
				{"a huge map", "\xdf\xff\xff\xff\xff"},
				{"a huge text", "\xdb\xff\xff\xff\xff"},
			} {
				*n = node{leaf: []byte(other.bytes)}
				refuse(other.what)
			}
			*n = was
			for _, width := range []int{1, 2, 4, 8} {
				if wide := was.widened(width); wide != nil {
					*n = *wide
					refuse(fmt.Sprintf("a form of %d more bytes", width))
				}
			}
			*n = was
			for i := range was.keys {
				at := func(keys []string, kids []*node) {
					n.keys, n.kids = keys, kids
				}
				swap := func(k int) {
					keys, kids := append([]string{}, was.keys...), append([]*node{}, was.kids...)
					keys[i], keys[k], kids[i], kids[k] = keys[k], keys[i], kids[k], kids[i]
					at(keys, kids)
					refuse(fmt.Sprintf("%s and %s swapped", was.keys[i], was.keys[k]))
				}
				if i > 0 {
					swap(i - 1)
				}
				keys, kids := append([]string{}, was.keys...), was.kids
				keys[i] += "x"
				at(keys, kids)
				refuse(was.keys[i] + " renamed")
				at(insert(was.keys, i, was.keys[i]), insert(was.kids, i, was.kids[i]))
				refuse(was.keys[i] + " twice")
				at(insert(was.keys, i, "zz"), insert(was.kids, i, &node{leaf: []byte{1}}))
				refuse("an unknown field before " + was.keys[i])
				// Without a field there is an error, or another commit.
				at(append(append([]string{}, was.keys[:i]...), was.keys[i+1:]...), append(append([]*node{}, was.kids[:i]...), was.kids[i+1:]...))
				if got, err := decodeAll(root.encode()); err == nil && !bytes.Equal(got.Encode(), root.encode()) {
					t.Errorf("%s: without %s/%s it is accepted and encodes as other bytes", c.Events[0].Type, path, was.keys[i])
				} else if err == nil && !optional[was.keys[i]] {
					t.Errorf("%s: without %s/%s it is accepted", c.Events[0].Type, path, was.keys[i])
				}
			}
			if was.keys != nil {
				n.keys, n.kids = append(was.keys[:len(was.keys):len(was.keys)], "zz"), append(was.kids[:len(was.kids):len(was.kids)], &node{leaf: []byte{1}})
				refuse("an unknown last field")
			}
			*n = was
		})
	}
}

// optional are the names of fields that may be left out somewhere.
var optional = map[string]bool{
	"controllerId": true, "sessionId": true, "controllerInstanceId": true, "label": true, "correlation": true, "causation": true, "state": true,
	"authorityDigest": true, "principalId": true, "claimGeneration": true, "extra": true, "evidence": true, "expectedGeneration": true,
	"execution": true, "activeWorkId": true, "invalidatedAt": true, "lastValidatedAt": true, "updatedAt": true, "graceMs": true,
	"runtime": true, "runtimeAnnounced": true, "reason": true, "scope": true,
	"stable": true, "candidate": true, "candidateRelease": true, "receipts": true, "cause": true, "replaced": true, "transaction": true,
	"previous": true, "receipt": true,
}

func insert[T any](list []T, i int, v T) []T {
	return append(append(append([]T{}, list[:i]...), v), list[i:]...)
}

// node is a msgpack value with its fields in order, read and written by the
// library, not by our own codec.
type node struct {
	leaf []byte // the whole value, unless it is a map or an array
	head []byte // of a map or array, when it is not the shortest one
	keys []string
	kids []*node
	list bool
}

func parseNode(t *testing.T, b []byte) *node {
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	var read func() *node
	read = func() *node {
		c, err := dec.PeekCode()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c >= 0x80 && c <= 0x8f || c == 0xde:
			n, _ := dec.DecodeMapLen()
			m := &node{keys: []string{}}
			for range n {
				key, err := dec.DecodeString()
				if err != nil {
					t.Fatal(err)
				}
				m.keys, m.kids = append(m.keys, key), append(m.kids, read())
			}
			return m
		case c >= 0x90 && c <= 0x9f || c == 0xdc:
			n, _ := dec.DecodeArrayLen()
			m := &node{list: true}
			for range n {
				m.kids = append(m.kids, read())
			}
			return m
		}
		raw, err := dec.DecodeRaw()
		if err != nil {
			t.Fatal(err)
		}
		return &node{leaf: raw}
	}
	return read()
}

func (n *node) encode() []byte {
	if n.leaf != nil {
		return n.leaf
	}
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	switch {
	case n.head != nil:
		b.Write(n.head)
	case n.list:
		_ = enc.EncodeArrayLen(len(n.kids))
	default:
		_ = enc.EncodeMapLen(len(n.kids))
	}
	for i, kid := range n.kids {
		if !n.list {
			_ = enc.EncodeString(n.keys[i])
		}
		b.Write(kid.encode())
	}
	return b.Bytes()
}

func (n *node) walk(path string, visit func(path string, n *node)) {
	visit(path, n)
	for i, kid := range n.kids {
		name := fmt.Sprint(i)
		if !n.list {
			name = n.keys[i]
		}
		kid.walk(path+"/"+name, visit)
	}
}

// widened gives the same value in a longer form whose number or length takes
// width bytes, nil if there is none.
func (n *node) widened(width int) *node {
	number := func(code map[int]byte, v uint64) []byte {
		c, ok := code[width]
		if !ok {
			return nil
		}
		b := binary.BigEndian.AppendUint64([]byte{c}, v)
		return append(b[:1], b[9-width:]...)
	}
	longer := func(b []byte) *node {
		if b == nil || len(b) <= len(n.leaf) {
			return nil
		}
		return &node{leaf: b}
	}
	if n.leaf == nil {
		code := map[int]byte{2: 0xde, 4: 0xdf}
		if n.list {
			code = map[int]byte{2: 0xdc, 4: 0xdd}
		}
		head := number(code, uint64(len(n.kids)))
		if head == nil || width == 2 && len(n.kids) > 15 {
			return nil
		}
		wide := *n
		wide.head = head
		return &wide
	}
	dec := msgpack.NewDecoder(bytes.NewReader(n.leaf))
	switch c := n.leaf[0]; {
	case c <= 0x7f || c >= 0xcc && c <= 0xcf:
		v, _ := dec.DecodeUint64()
		return longer(number(map[int]byte{1: 0xcc, 2: 0xcd, 4: 0xce, 8: 0xcf}, v))
	case c >= 0xe0 || c >= 0xd0 && c <= 0xd3:
		v, _ := dec.DecodeInt64()
		return longer(number(map[int]byte{1: 0xd0, 2: 0xd1, 4: 0xd2, 8: 0xd3}, uint64(v)))
	case c >= 0xa0 && c <= 0xbf || c >= 0xd9 && c <= 0xdb:
		v, _ := dec.DecodeString()
		head := number(map[int]byte{1: 0xd9, 2: 0xda, 4: 0xdb}, uint64(len(v)))
		if head == nil {
			return nil
		}
		return longer(append(head, v...))
	case c >= 0xc4 && c <= 0xc6:
		v, _ := dec.DecodeBytes()
		head := number(map[int]byte{2: 0xc5, 4: 0xc6}, uint64(len(v)))
		if head == nil {
			return nil
		}
		return longer(append(head, v...))
	}
	return nil
}

// Positive numbers in signed forms have the same value, and are refused too.
func TestSignedFormsOfPositiveNumbersAreRefused(t *testing.T) {
	for _, b := range []string{"\xd0\x05", "\xd0\x7f", "\xd1\x00\x80", "\xd2\x00\x01\x00\x00", "\xd3\x00\x00\x00\x01\x00\x00\x00\x00"} {
		r := NewReader([]byte(b))
		if v := r.Int(); r.Done() == nil {
			t.Errorf("%x is read as %d", b, v)
		}
	}
}

func TestIntegersTakeTheirShortestForm(t *testing.T) {
	for _, v := range edges {
		w := NewWriter(16)
		_ = w.enc.EncodeInt(v)
		r := NewReader(w.Bytes())
		if got := r.Int(); r.Done() != nil || got != v {
			t.Errorf("%d comes back as %d, %v", v, got, r.Done())
		}
		if r := NewReader(w.Bytes()); !bytes.Equal(r.Raw(), w.Bytes()) {
			t.Errorf("%d is not passed over: %v", v, r.err)
		}
	}
}

func TestTextsAreUTF8(t *testing.T) {
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"} {
		b := append([]byte{0xa0 | byte(len(text))}, text...)
		if r := NewReader(b); r.Text() != "" || !errors.Is(r.Done(), ErrEncoding) {
			t.Errorf("text %x is read", text)
		}
		if r := NewReader(b); r.Raw() != nil || !errors.Is(r.Done(), ErrEncoding) {
			t.Errorf("text %x is passed over", text)
		}
	}
}

func TestRawRefusesWhatNoWriterMakes(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":            "",
		"nil":                "\xc0",
		"nil in an array":    "\x91\xc0",
		"a float":            "\xcb\x00\x00\x00\x00\x00\x00\x00\x00",
		"an extension":       "\xc7\x01\x01\x00",
		"a number as key":    "\x81\x01\x01",
		"a long length":      "\xd9\x01x",
		"a long array":       "\xdc\x00\x01\x01",
		"a long map":         "\xde\x00\x01\xa1x\x01",
		"a long number":      "\xcd\x00\x01",
		"a cut array":        "\x92\x01",
		"a cut map":          "\x81\xa1x",
		"a huge array":       "\xdd\xff\xff\xff\xff\x01",
		"an endless nesting": strings.Repeat("\x91", 40) + "\x01",
	} {
		r := NewReader([]byte(b))
		if v := r.Raw(); v != nil || !errors.Is(r.Done(), ErrEncoding) {
			t.Errorf("%s is passed over: %x", name, v)
		}
	}
	deep := strings.Repeat("\x91", maxDepth) + "\x01"
	if r := NewReader([]byte(deep)); string(r.Raw()) != deep || r.Done() != nil {
		t.Errorf("nesting of %d is refused: %v", maxDepth, r.err)
	}
}

func TestStructuresOfManyFields(t *testing.T) {
	for _, n := range []int{0, 15, 16, 300} {
		w := NewWriter(0)
		w.Object()
		for i := range n {
			w.Int(fmt.Sprintf("f%03d", i), int64(i))
		}
		w.End()
		r := NewReader(w.Bytes())
		o := r.Object("many")
		for i := range n {
			if got := o.Int(fmt.Sprintf("f%03d", i)); got != int64(i) {
				t.Fatalf("field %d of %d is %d: %v", i, n, got, r.err)
			}
		}
		o.End()
		if err := r.Done(); err != nil {
			t.Errorf("%d fields: %v", n, err)
		}
		var generic map[string]any
		if err := msgpack.Unmarshal(w.Bytes(), &generic); err != nil || len(generic) != n {
			t.Errorf("%d fields: the library reads %d, %v", n, len(generic), err)
		}
	}
}

// Values that are left out when empty must not be written empty.
func TestEmptyOptionalValuesAreRefused(t *testing.T) {
	object := func(write func(w *Writer)) *Object {
		w := NewWriter(8)
		w.Object()
		write(w)
		w.End()
		return NewReader(w.Bytes()).Object("it")
	}
	o := object(func(w *Writer) { w.Text("f", "") })
	if o.OptText("f"); o.r.err == nil {
		t.Error("an empty text is read")
	}
	o = object(func(w *Writer) { w.Bin("f", nil) })
	if o.OptBin("f"); o.r.err == nil {
		t.Error("empty bytes are read")
	}
	o = object(func(w *Writer) { w.Bool("f", false) })
	if o.OptBool("f"); o.r.err == nil {
		t.Error("false is read")
	}
}

func TestErrorsSayWhere(t *testing.T) {
	b := sampleCommit().Encode()
	for name, broken := range map[string][]byte{
		fmt.Sprintf("byte %d: 1 trailing bytes", len(b)): append(bytes.Clone(b), 0),
		`0xc0 is no map`:                          {0xc0},
		`field "w" where "v" belongs`:             bytes.Replace(b, []byte("\xa1v"), []byte("\xa1w"), 1),
		`field "agg" where "aggregateId" belongs`: bytes.Replace(b, []byte("\xabaggregateId"), []byte("\xa3agg"), 1),
	} {
		if _, err := DecodeCommit(broken); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %s", err, name)
		}
	}
}
