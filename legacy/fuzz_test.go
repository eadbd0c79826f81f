package legacy

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/forge-es/forge-es/legacy/legacytest"
)

// FuzzEntries: whatever lies in a place, what is kept is strict JSON that reads
// the same again.
func FuzzEntries(f *testing.F) {
	s := legacytest.NewGen(1).Sessions(2)
	for _, seed := range []string{
		legacytest.Store(s...), legacytest.Retained(s[0], ""), `{"schemaVersion":1,"sessions":[{"workId":"w","x":1e999}]}`,
		`{"schemaVersion":1,"updatedAt":"\ud800","sessions":[null,{"a":{"b":[]}}]}`, `{"workId":"w","state":"open"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		stamp, entries, err := parseStore(raw)
		if err != nil && entries != nil {
			t.Error("entries and an error")
		}
		if stamp != nil && (!json.Valid(stamp) || !utf8.Valid(stamp)) {
			t.Errorf("updatedAt %q", stamp)
		}
		entries = append(entries, parseRetained(0, "key", raw), parseActivity(0, "key", raw))
		if e, err := parseWork(1, raw); err == nil {
			entries = append(entries, Entry{WorkID: e.WorkID, Raw: []byte(`{"state":` + string(e.Raw) + `}`)})
		}
		for _, e := range entries {
			if (e.Raw == nil) != (e.Dropped != "") {
				t.Errorf("entry %+v is neither kept nor dropped", e)
			}
			if e.Raw == nil {
				continue
			}
			compact, _, err := strictObject(e.Raw)
			if err != nil || !bytes.Equal(compact, e.Raw) || !json.Valid(e.Raw) {
				t.Errorf("kept %q, which reads as %q (%v)", e.Raw, compact, err)
			}
		}
	})
}
