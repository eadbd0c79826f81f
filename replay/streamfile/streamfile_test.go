package streamfile_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/replay"
	"github.com/forge-es/forge-es/replay/streamfile"
	"github.com/google/go-cmp/cmp"
)

var header = streamfile.Header{Format: streamfile.Format, Name: "small", Title: "Two works & <one> day.", Instance: "main", Log: "log-1"}

// records are a log of n works.
func records(ids ...string) replay.Memory {
	var log replay.Memory
	for i, id := range ids {
		e := events.WorkStateSet{State: "open", How: events.SetByOperator, Reason: "it was found"}
		state := session.Decider{}.EncodeState(session.State{WorkID: id, Work: "open"})
		c := &events.Commit{
			V: 1, Log: header.Log, ID: "c", Kind: events.KindWork, AggregateID: id, Version: 1, At: 5, Rules: 1,
			Command: events.Command{Verb: "work.set-state"}, Actor: events.Actor{Principal: "operator"},
			Events: []events.Event{events.Encode(e)}, State: &state,
		}
		r := events.Record{Position: uint64(i + 1), Subject: events.CommitSubject(header.Instance, c), Payload: c.Encode()}
		if i == 0 {
			r.Header = map[string][]string{events.MsgIDHeader: {events.NewMsgID(r.Subject, "operator", "c").String()}}
			r.StoredAt = time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
		}
		log = append(log, r)
	}
	return log
}

func write(t testing.TB, log replay.Memory, digest events.Hash) string {
	t.Helper()
	var b bytes.Buffer
	w, err := streamfile.NewWriter(&b, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range log {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(digest); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(t testing.TB, text string, from uint64) (streamfile.Header, replay.Memory, *streamfile.Trailer, error) {
	t.Helper()
	r, err := streamfile.NewReader(iotest.OneByteReader(strings.NewReader(text)))
	if err != nil {
		return streamfile.Header{}, nil, nil, err
	}
	var log replay.Memory
	for rec, err := range r.Records(t.Context(), from) {
		if err != nil {
			return r.Header(), log, r.Trailer(), err
		}
		log = append(log, rec)
	}
	return r.Header(), log, r.Trailer(), nil
}

func TestWriteAndRead(t *testing.T) {
	log := records("w1", "w 2", "ü")
	text := write(t, log, events.HashOf(nil))
	h, got, trailer, err := read(t, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(header, h); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(log, got); d != "" {
		t.Error(d)
	}
	if trailer == nil || trailer.Records != 3 || trailer.Digest != events.HashOf(nil) {
		t.Errorf("trailer %+v", trailer)
	}
	lines := strings.SplitAfter(text, "\n")
	if want := events.HashOf([]byte(strings.Join(lines[:4], ""))); trailer.SHA256 != want {
		t.Errorf("checksum %s, want %s", trailer.SHA256, want)
	}
	if _, got, _, err = read(t, text, 3); err != nil || len(got) != 1 || got[0].Position != 3 {
		t.Errorf("from position 3: %v, %v", got, err)
	}
	if text != write(t, log, events.HashOf(nil)) {
		t.Error("the same log is written differently the second time")
	}
}

func TestCheck(t *testing.T) {
	log := records("w1", "w 2", "ü")
	want, err := replay.Check(t.Context(), header.Instance, header.Log, log, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, report, err := streamfile.Check(t.Context(), strings.NewReader(write(t, log, want.Digest)), replay.Options{Twice: true})
	if err != nil || h != header {
		t.Fatalf("%+v, %v", h, err)
	}
	if d := cmp.Diff(want, report); d != "" {
		t.Error(d)
	}
	if _, _, err := streamfile.Check(t.Context(), strings.NewReader(write(t, log, events.HashOf(nil))), replay.Options{}); !errors.Is(err, streamfile.ErrFormat) {
		t.Errorf("another digest: %v", err)
	}
	log[1].Subject += "x"
	var v *replay.Violation
	if _, _, err := streamfile.Check(t.Context(), strings.NewReader(write(t, log, want.Digest)), replay.Options{}); !errors.As(err, &v) || v.Position != 2 {
		t.Errorf("a bad log in a good file: %v", err)
	}
}

// Damage is found, and the line named.
func TestDamage(t *testing.T) {
	good := write(t, records("w1", "w2"), events.Hash{})
	lines := strings.SplitAfter(good, "\n")
	join := func(parts ...string) string { return strings.Join(parts, "") }
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "line 0: the file is empty"},
		{"no JSON", "forge\n", "line 1:"},
		{"another format", strings.Replace(good, "stream/1", "stream/2", 1), `line 1: the format is "forge-es/stream/2"`},
		{"a member of another format", strings.Replace(good, `"title"`, `"color"`, 1), "line 1:"},
		{"the header alone", lines[0], "line 1: the file ends without a trailer"},
		{"no trailer", join(lines[:3]...), "line 3: the file ends without a trailer"},
		{"a cut record", good[:len(lines[0])+20], "line 2: the line is cut"},
		{"a cut trailer", strings.TrimSuffix(good, "\n"), "line 4: the line is cut"},
		{"a record left out", join(lines[0], lines[2], lines[3]), "line 3: there are 1 records, the trailer says 2"},
		{"records swapped", join(lines[0], lines[2], lines[1], lines[3]), "line 4: the lines before have SHA-256"},
		{"a byte of a payload", strings.Replace(good, "payload\":\"j", "payload\":\"k", 1), "line 4: the lines before have SHA-256"},
		{"another title", strings.Replace(good, "Two", "Ten", 1), "line 4: the lines before have SHA-256"},
		{"something behind", good + "\n", "line 5: something comes after the trailer"},
		{"something behind, cut", good + "{", "line 5: something comes after the trailer"},
		{"two values in a line", join(lines[0], strings.TrimSuffix(lines[1], "\n"), lines[2], lines[3]), "line 2: more than one value"},
		{"no base64", strings.Replace(good, "payload\":\"j", "payload\":\"!", 1), "line 2:"},
		{"no position", strings.Replace(good, `"position":1`, `"position":0`, 1), "line 2: a record needs"},
		{"a blank line", join(lines[0], "\n", lines[1], lines[2], lines[3]), "line 2:"},
		{"a line without end", lines[0] + `{"position":1,"subject":"` + strings.Repeat("x", 4<<20), "line 2: the line has more than"},
	} {
		_, _, trailer, err := read(t, tt.text, 0)
		if !errors.Is(err, streamfile.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if trailer != nil {
			t.Errorf("%s: there is a trailer", tt.name)
		}
	}
}

func TestReaderFails(t *testing.T) {
	good, broken := write(t, records("w1"), events.Hash{}), errors.New("the disk is dead")
	for n := range len(good) {
		r, err := streamfile.NewReader(iotest.DataErrReader(&cut{text: good[:n], err: broken}))
		if err == nil {
			for _, err = range r.Records(t.Context(), 0) {
			}
		}
		if !errors.Is(err, broken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// cut gives a text, then an error.
type cut struct {
	text string
	err  error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, c.err
	}
	n := copy(p, c.text)
	c.text = c.text[n:]
	return n, nil
}

func TestReadsOnce(t *testing.T) {
	r, err := streamfile.NewReader(strings.NewReader(write(t, records("w1", "w2"), events.Hash{})))
	if err != nil {
		t.Fatal(err)
	}
	for range r.Records(t.Context(), 0) {
		break
	}
	for _, err = range r.Records(t.Context(), 0) {
	}
	if err == nil || r.Trailer() != nil {
		t.Errorf("got %v, trailer %v", err, r.Trailer())
	}
}
