// Package streamfile is a log as a file: JSON lines that people can read and any
// language can check.
//
//   - The Header says which log it is.
//   - One line per record follows, in stream order, as it lies on the stream.
//   - The Trailer says how many, what they fold to, and what the bytes hash to.
//   - A Reader is a replay.Reader over such lines; a Writer writes them.
//   - Check reads a file and judges the log in it.
//
// Caveat: the checksum finds damage, not intent; who rewrites a file rewrites it,
// too. Where that matters, the checksum or the digest is kept elsewhere.
package streamfile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
)

// Format names the format, in the first line of a file.
const Format = "forge-es/stream/1"

// maxLine is the most bytes of a line: a commit in base64, and as much again.
const maxLine = 3 << 20

// ErrFormat is what a file is that is damaged, or not of this format.
var ErrFormat = errors.New("no intact stream file")

// Header is the first line.
type Header struct {
	Format   string `json:"format"`
	Name     string `json:"name"`
	Title    string `json:"title"` // what happens in it, in a sentence
	Instance string `json:"instance"`
	Log      string `json:"log"` // log id
}

// Trailer is the last line.
type Trailer struct {
	Records uint64      `json:"records"`
	Digest  events.Hash `json:"digest"` // replay.Report.Digest
	SHA256  events.Hash `json:"sha256"` // of all bytes before this line
}

// record is a line in between. Headers are those of the message as stored.
type record struct {
	Position uint64              `json:"position"`
	Subject  string              `json:"subject"`
	Headers  map[string][]string `json:"headers,omitempty"`
	StoredAt *time.Time          `json:"storedAt,omitempty"`
	Payload  []byte              `json:"payload"`
}

// Writer writes one file.
type Writer struct {
	out     io.Writer
	sum     hash.Hash
	records uint64
}

// NewWriter begins a file; Format is filled in.
func NewWriter(out io.Writer, h Header) (*Writer, error) {
	w := &Writer{out: out, sum: sha256.New()}
	h.Format = Format
	return w, w.line(h)
}

// Append writes a record. A zero StoredAt is left out.
func (w *Writer) Append(r events.Record) error {
	line := record{Position: r.Position, Subject: r.Subject, Headers: r.Header, Payload: r.Payload}
	if !r.StoredAt.IsZero() {
		at := r.StoredAt.UTC()
		line.StoredAt = &at
	}
	w.records++
	return w.line(line)
}

// Close writes the trailer. It leaves what was written to open.
func (w *Writer) Close(digest events.Hash) error {
	return w.line(Trailer{Records: w.records, Digest: digest, SHA256: events.Hash(w.sum.Sum(nil))})
}

func (w *Writer) line(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.sum.Write(b.Bytes())
	_, err := w.out.Write(b.Bytes())
	return err
}

// Reader reads one file, once.
type Reader struct {
	in      *bufio.Reader
	sum     hash.Hash
	lines   int
	records uint64
	header  Header
	trailer *Trailer
	begun   bool
}

var _ replay.Reader = (*Reader)(nil)

// NewReader reads the header. Its error, and those of Records, wrap ErrFormat or
// what in gave.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, maxLine), sum: sha256.New()}
	line, err := r.line()
	if errors.Is(err, io.EOF) {
		err = r.wrong("the file is empty")
	}
	if err != nil {
		return nil, err
	}
	if err := r.parse(line, &r.header); err != nil {
		return nil, err
	}
	if r.header.Format != Format {
		return nil, r.wrong("the format is %q, not %q", r.header.Format, Format)
	}
	return r, nil
}

// Header is the first line.
func (r *Reader) Header() Header { return r.header }

// Trailer is the last line, once Records came to it; else nil.
func (r *Reader) Trailer() *Trailer { return r.trailer }

// Records gives the records from a position on. It works once. It ends without
// an error only behind a trailer that agrees with what was read. Whether the
// records are a log is not its business.
func (r *Reader) Records(ctx context.Context, from uint64) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if r.begun {
			yield(events.Record{}, errors.New("streamfile: a reader reads once"))
			return
		}
		r.begun = true
		for {
			rec, err := r.next(ctx)
			if err != nil {
				yield(events.Record{}, err)
				return
			}
			if rec == nil {
				return
			}
			if rec.Position >= from && !yield(*rec, nil) {
				return
			}
		}
	}
}

// next reads one record, nil behind the trailer.
func (r *Reader) next(ctx context.Context) (*events.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	before := events.Hash(r.sum.Sum(nil))
	line, err := r.line()
	if errors.Is(err, io.EOF) {
		return nil, r.wrong("the file ends without a trailer")
	}
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(line, []byte(`{"records":`)) {
		return nil, r.end(line, before)
	}
	var v record
	if err := r.parse(line, &v); err != nil {
		return nil, err
	}
	if v.Position == 0 || v.Subject == "" || len(v.Payload) == 0 {
		return nil, r.wrong("a record needs position, subject and payload")
	}
	r.records++
	rec := &events.Record{Position: v.Position, Subject: v.Subject, Header: v.Headers, Payload: v.Payload}
	if v.StoredAt != nil {
		rec.StoredAt = *v.StoredAt
	}
	return rec, nil
}

// end checks the trailer.
func (r *Reader) end(line []byte, before events.Hash) error {
	var t Trailer
	if err := r.parse(line, &t); err != nil {
		return err
	}
	if t.Records != r.records {
		return r.wrong("there are %d records, the trailer says %d", r.records, t.Records)
	}
	if t.SHA256 != before {
		return r.wrong("the lines before have SHA-256 %s, the trailer says %s", before, t.SHA256)
	}
	if _, err := r.line(); !errors.Is(err, io.EOF) {
		if err != nil && !errors.Is(err, ErrFormat) {
			return err
		}
		return r.wrong("something comes after the trailer")
	}
	r.trailer = &t
	return nil
}

// line reads one line with its end. It is valid until the next call.
func (r *Reader) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, io.EOF
	}
	r.lines++
	switch {
	case errors.Is(err, io.EOF):
		return nil, r.wrong("the line is cut")
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, r.wrong("the line has more than %d bytes", maxLine)
	case err != nil:
		return nil, err
	}
	r.sum.Write(line)
	return line, nil
}

// parse reads a line strictly: members that this format does not have are errors.
func (r *Reader) parse(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return r.wrong("%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return r.wrong("more than one value")
	}
	return nil
}

func (r *Reader) wrong(format string, args ...any) error {
	return fmt.Errorf("%w: line %d: "+format, append([]any{ErrFormat, r.lines}, args...)...)
}

// Check reads a file to its end, checks the log in it (replay.Check), and that it
// folds to the digest that the trailer says. Errors: those of Reader and of
// replay.Check; ErrFormat for another digest.
func Check(ctx context.Context, in io.Reader, opts replay.Options) (Header, *replay.Report, error) {
	r, err := NewReader(in)
	if err != nil {
		return Header{}, nil, err
	}
	report, err := replay.Check(ctx, r.header.Instance, r.header.Log, r, opts)
	if err == nil && r.trailer.Digest != report.Digest {
		err = fmt.Errorf("%w: it folds to digest %s, the trailer says %s", ErrFormat, report.Digest, r.trailer.Digest)
	}
	return r.header, report, err
}
