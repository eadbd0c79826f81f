package legacy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine is the longest line of a works file in bytes.
const maxLine = 64 << 10

// Works is what a works file says.
type Works struct {
	From string // what was read, for the report

	// Entries holds one entry per work, in the order of their first lines: the
	// last line of a work wins, Note says which ones it replaced. Index is the
	// line, from 1; Raw is the state: a JSON text, or null for unknown.
	Entries []Entry

	Problems []Problem // lines that could not be read; Location is "line N"
}

// ReadWorks reads a works file: one JSON object {"workId": ..., "state": ...} a
// line, the state "open", the text of a terminal state, or null for unknown.
// Blank lines and other members do not matter. A line that cannot be read is a
// Problem; the error is only that of the reader. from names the file in the
// report.
func ReadWorks(r io.Reader, from string) (*Works, error) {
	w := &Works{From: from}
	byWork := make(map[string]int)
	in := bufio.NewReaderSize(r, maxLine)
	for line := 1; ; line++ {
		text, err := readLine(in)
		if err == io.EOF {
			return w, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrTooLong) {
			return nil, fmt.Errorf("%w: %s, line %d: %w", ErrLegacy, from, line, err)
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var e Entry
		if err == nil {
			e, err = parseWork(line, text)
		} else {
			err = fmt.Errorf("longer than %d bytes", maxLine)
		}
		if err != nil {
			w.Problems = append(w.Problems, Problem{Place: PlaceWorks, Location: fmt.Sprintf("line %d", line), Reason: err.Error()})
			continue
		}
		i, known := byWork[e.WorkID]
		if !known {
			byWork[e.WorkID] = len(w.Entries)
			w.Entries = append(w.Entries, e)
			continue
		}
		e.Note = joinNotes(w.Entries[i].replaced(), e.Note)
		w.Entries[i] = e
	}
}

// readLine reads one line without its end. A line that is too long is read to
// its end and is bufio.ErrTooLong.
func readLine(in *bufio.Reader) ([]byte, error) {
	text, err := in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		for err == bufio.ErrBufferFull {
			_, err = in.ReadSlice('\n')
		}
		if err == nil || err == io.EOF {
			err = bufio.ErrTooLong
		}
		return nil, err
	}
	if err == io.EOF && len(text) > 0 {
		err = nil // the last line may lack its end
	}
	return text, err
}

// contractStates are statuses of the old system that are no semantic states: a
// work in one of them is still open.
var contractStates = map[string]bool{"running": true, "blocked": true, "ready": true, "failed": true}

func parseWork(line int, text []byte) (Entry, error) {
	e := Entry{Index: line}
	_, members, err := strictObject(text)
	if err != nil {
		return e, err
	}
	id, ok := textOf(members["workId"])
	if e.WorkID = strings.TrimSpace(id); !ok || e.WorkID == "" {
		return e, errors.New("workId is missing, blank or no text")
	}
	raw, ok := members["state"]
	if !ok {
		return e, errors.New("state is missing; null says unknown")
	}
	if isNull(raw) {
		e.Raw = json.RawMessage("null")
		return e, nil
	}
	state, ok := textOf(raw)
	if !ok || strings.TrimSpace(state) == "" {
		return e, errors.New("state is neither a text nor null")
	}
	e.Raw = raw
	if contractStates[state] {
		e.Note = fmt.Sprintf("%s is a contract status of the old system, whose works are still open; here it is taken as a terminal state", quote(state))
	}
	return e, nil
}

// replaced notes that a later line replaces this one.
func (e Entry) replaced() string {
	earlier, _, _ := strings.Cut(e.Note, noteSeparator)
	if !strings.HasPrefix(earlier, replacesLine) {
		return fmt.Sprintf("%s%d", replacesLine, e.Index)
	}
	return fmt.Sprintf("%s, %d", earlier, e.Index)
}

const (
	replacesLine  = "replaces line "
	noteSeparator = "; "
)

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + noteSeparator + b
}

// known reports for a work whether the file gives it a state; a nil Works knows
// none.
func (w *Works) known() map[string]bool {
	states := make(map[string]bool)
	if w != nil {
		for _, e := range w.Entries {
			states[e.WorkID] = string(e.Raw) != "null"
		}
	}
	return states
}
