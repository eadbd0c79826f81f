package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/golden anew: only for events that no release has written yet")

const goldenDir = "testdata/golden"

// goldenCommit is one commit with the full sample of a type. It must never
// change: its bytes stand for those of every log that exists.
func goldenCommit(p Payload) *Commit {
	c := sampleCommit()
	c.Events = []Event{Encode(p)}
	c.Command.Verb = "golden." + c.Events[0].Type
	return c
}

// show is a commit as a person reads it.
func show(t *testing.T, c *Commit) []byte {
	t.Helper()
	type event struct {
		Type string  `json:"type"`
		V    int     `json:"v"`
		Data Payload `json:"data"`
	}
	type recent struct {
		ID       string `json:"id16"`
		Position uint64 `json:"position"`
	}
	type carried struct {
		V    int    `json:"v"`
		Data string `json:"data"`
	}
	view := struct {
		V           int      `json:"v"`
		Log         string   `json:"log"`
		ID          string   `json:"id"`
		Kind        string   `json:"kind"`
		AggregateID string   `json:"aggregateId"`
		Version     uint64   `json:"version"`
		Prev        uint64   `json:"prev"`
		PrevHash    Hash     `json:"prevHash"`
		At          Time     `json:"at"`
		Rules       int      `json:"rules"`
		Verb        string   `json:"verb"`
		Digest      Hash     `json:"requestDigest"`
		Actor       Actor    `json:"actor"`
		Correlation string   `json:"correlation"`
		Causation   string   `json:"causation"`
		Events      []event  `json:"events"`
		Recent      []recent `json:"recent"`
		State       carried  `json:"state"`
	}{
		c.V, c.Log, c.ID, c.Kind, c.AggregateID, c.Version, c.Prev, c.PrevHash, c.At, c.Rules, c.Command.Verb, c.Command.RequestDigest, c.Actor,
		c.Correlation, c.Causation, nil, nil,
		carried{c.State.V, hex.EncodeToString(c.State.Data)},
	}
	for _, e := range c.Events {
		p, err := Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		view.Events = append(view.Events, event{e.Type, e.V, p})
	}
	for _, r := range c.Recent {
		view.Recent = append(view.Recent, recent{r.ID.String(), r.Position})
	}
	b, err := json.MarshalIndent(view, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// hexLines breaks hex into lines, for diffs that can be read.
func hexLines(b []byte) []byte {
	var out bytes.Buffer
	for len(b) > 0 {
		n := min(len(b), 40)
		fmt.Fprintf(&out, "%x\n", b[:n])
		b = b[n:]
	}
	return out.Bytes()
}

func TestGoldenCommits(t *testing.T) {
	want := map[string]bool{}
	for _, d := range catalogue.Definitions() {
		base := filepath.Join(goldenDir, fmt.Sprintf("%s.v%d", d.Type, d.V))
		want[base+".hex"], want[base+".json"] = true, true
		p := sampleOf(t, d.Type)
		if _, v := p.EventType(); *update && v == d.V {
			c := goldenCommit(p)
			for path, text := range map[string][]byte{base + ".hex": hexLines(c.Encode()), base + ".json": show(t, c)} {
				if err := os.MkdirAll(goldenDir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		lines, err := os.ReadFile(base + ".hex")
		if err != nil {
			t.Errorf("%v: record it with -update", err)
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(string(lines), "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(base + ".json")
		if err != nil {
			t.Fatal(err)
		}
		// Reading: forever, the recorded bytes say what was recorded.
		c, err := DecodeCommit(b)
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		if d := cmp.Diff(string(text), string(show(t, c))); d != "" {
			t.Errorf("%s.hex is read as another commit (-want +got):\n%s", base, d)
		}
		if !bytes.Equal(c.Encode(), b) {
			t.Errorf("%s.hex: encoding again gives other bytes", base)
		}
		// Writing: what is written now in this version has the recorded bytes.
		if _, v := p.EventType(); v == d.V {
			if d := cmp.Diff(string(lines), string(hexLines(goldenCommit(p).Encode()))); d != "" {
				t.Errorf("%s.hex is written in other bytes (-want +got):\n%s", base, d)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f] {
			t.Errorf("%s belongs to no event", f)
		}
	}
}
