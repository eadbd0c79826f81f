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

// FuzzStrictObject compares the reading of objects with the standard library's.
func FuzzStrictObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"b":[{"c":null},[],"x,]}"],"\u0061":2}`, `{"a":{"\"":1,"\\":[1.5e+7,true]},"b":-0}`, `{"a":"\\\"","b":""}`, `[{"a":1}]`, `{"a":{"b":1,"b":2}}`, ` { "a" : [ 1 , 2 ] } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		compact, members, err := strictObject(raw)
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(raw, &want) != nil || want == nil || !utf8.Valid(raw) || twice(t, raw)
		if (err != nil) != wantErr {
			t.Fatalf("strictObject(%q): %v, want an error: %v", raw, err, wantErr)
		}
		if err != nil {
			return
		}
		var buf bytes.Buffer
		if err := json.Compact(&buf, raw); err != nil || !bytes.Equal(buf.Bytes(), compact) {
			t.Errorf("compact %q, want %q (%v)", compact, buf.Bytes(), err)
		}
		if len(members) != len(want) {
			t.Errorf("%d members, want %d", len(members), len(want))
		}
		for key, value := range want {
			buf.Reset()
			if err := json.Compact(&buf, value); err != nil || !bytes.Equal(buf.Bytes(), members[key]) {
				t.Errorf("member %q is %q, want %q (%v)", key, members[key], buf.Bytes(), err)
			}
			if members[key][0] != '[' {
				continue
			}
			var items []json.RawMessage
			if err := json.Unmarshal(members[key], &items); err != nil {
				t.Fatal(err)
			}
			got := splitArray(members[key])
			if len(got) != len(items) {
				t.Fatalf("%d items, want %d", len(got), len(items))
			}
			for i := range items {
				if !bytes.Equal(got[i], items[i]) {
					t.Errorf("item %d is %q, want %q", i, got[i], items[i])
				}
			}
		}
	})
}

// twice reports, by the tokens of the standard library, whether a key of valid JSON
// comes twice in its object, or it nests too deep.
func twice(t *testing.T, raw []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var walk func(depth int) bool
	walk = func(depth int) bool {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		if open, ok := tok.(json.Delim); ok {
			found = depth >= maxDepth
			keys := make(map[string]bool)
			for dec.More() {
				if open == '{' {
					key, err := dec.Token()
					if err != nil {
						t.Fatal(err)
					}
					found = found || keys[key.(string)]
					keys[key.(string)] = true
				}
				found = walk(depth+1) || found
			}
			if _, err := dec.Token(); err != nil {
				t.Fatal(err)
			}
		}
		return found
	}
	return walk(0)
}
