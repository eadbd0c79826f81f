package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// Three versions of one event, of a registry of the test's own. The second split
// the name, the third counts in another unit.
type (
	movedV1 struct{ Name string }
	movedV2 struct {
		First, Last string
		Metres      int64
	}
	movedV3 struct {
		First, Last string
		Millimetres int64
	}
)

func (movedV1) EventType() (string, int) { return "test.moved", 1 }
func (e movedV1) write(w *Writer)        { w.Text("name", e.Name) }
func (movedV2) EventType() (string, int) { return "test.moved", 2 }

func (e movedV2) write(w *Writer) {
	w.Text("first", e.First)
	w.Text("last", e.Last)
	w.Int("metres", e.Metres)
}
func (movedV3) EventType() (string, int) { return "test.moved", 3 }
func (e movedV3) write(w *Writer) {
	w.Text("first", e.First)
	w.Text("last", e.Last)
	w.Int("millimetres", e.Millimetres)
}

func moved() (v1, v2, v3 Definition) {
	v1 = Definition{
		Type: "test.moved", V: 1, read: func(o *Object) Payload { return movedV1{o.Text("name")} },
		lift: func(p Payload) Payload {
			first, last, _ := strings.Cut(p.(movedV1).Name, " ")
			return movedV2{First: first, Last: last}
		},
	}
	v2 = Definition{
		Type: "test.moved", V: 2, read: func(o *Object) Payload { return movedV2{o.Text("first"), o.Text("last"), o.Int("metres")} },
		lift: func(p Payload) Payload {
			e := p.(movedV2)
			return movedV3{e.First, e.Last, e.Metres * 1000}
		},
	}
	v3 = Definition{
		Type: "test.moved", V: 3, read: func(o *Object) Payload { return movedV3{o.Text("first"), o.Text("last"), o.Int("millimetres")} },
	}
	return v1, v2, v3
}

func TestOldVersionsAreLifted(t *testing.T) {
	v1, v2, v3 := moved()
	r := NewRegistry(v1, v2, v3)
	for _, c := range []struct{ written, want Payload }{
		{movedV1{"Ada Lovelace"}, movedV3{"Ada", "Lovelace", 0}},
		{movedV2{"Ada", "Lovelace", 7}, movedV3{"Ada", "Lovelace", 7000}},
		{movedV3{"Ada", "Lovelace", 7}, movedV3{"Ada", "Lovelace", 7}},
	} {
		got, err := r.Decode(Encode(c.written))
		if err != nil || got != c.want {
			t.Errorf("%+v becomes %+v, %v; want %+v", c.written, got, err, c.want)
		}
	}
	if len(r.Definitions()) != 3 {
		t.Errorf("%d definitions", len(r.Definitions()))
	}
	// An old version is judged by its own fields, not by those of the newest.
	for _, e := range []Event{
		{Type: "test.moved", V: 1, Data: Encode(movedV3{}).Data},
		{Type: "test.moved", V: 3, Data: Encode(movedV1{}).Data},
		{Type: "test.moved", V: 2, Data: Encode(movedV3{}).Data},
	} {
		if got, err := r.Decode(e); !errors.Is(err, ErrEncoding) || got != nil {
			t.Errorf("version %d with fields of another: %v, %v", e.V, got, err)
		}
	}
}

func TestUnknownEvents(t *testing.T) {
	v1, v2, v3 := moved()
	r := NewRegistry(v1, v2, v3)
	for _, e := range []Event{{Type: "test.moved", V: 4}, {Type: "test.moved", V: 0}, {Type: "test.moved", V: -1}, {Type: "test.Moved", V: 1}, {Type: "", V: 1}, {}} {
		e.Data = Encode(movedV3{}).Data
		if got, err := r.Decode(e); !errors.Is(err, ErrUnknownEvent) || got != nil {
			t.Errorf("%q version %d: %v, %v", e.Type, e.V, got, err)
		}
	}
	long := Event{Type: strings.Repeat("x", 10_000), V: 1, Data: Raw{0x80}}
	if _, err := Decode(long); !errors.Is(err, ErrUnknownEvent) || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

func TestRegistryPanicsOnMistakes(t *testing.T) {
	v1, v2, v3 := moved()
	withoutLift, last := v2, v3
	withoutLift.lift = nil
	last.lift = v2.lift
	zero, four := v1, v3
	zero.V, four.V = 0, 4
	for name, defs := range map[string][]Definition{
		"no first version":   {v2, v3},
		"a hole":             {v1, v3},
		"a version twice":    {v1, v2, v2, v3},
		"the wrong order":    {v2, v1},
		"version 0":          {zero},
		"version 4 of two":   {v1, v2, four},
		"no lift":            {v1, withoutLift, v3},
		"a lift to nowhere":  {v1, v2, last},
		"only an old one":    {v1},
		"another in between": {v1, {Type: "test.other", V: 2}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			NewRegistry(defs...)
		}()
	}
	other := v3
	other.Type, other.V = "test.other", 1
	NewRegistry(v1, other, v2, v3) // types may be mixed
}

func TestDefinitions(t *testing.T) {
	for _, d := range catalogue.Definitions() {
		if d.Description == "" || !strings.HasSuffix(d.Description, ".") {
			t.Errorf("%s: description %q", d.Type, d.Description)
		}
		p := sampleOf(t, d.Type)
		if name, v := p.EventType(); name != d.Type || v > d.V {
			t.Errorf("the sample of %s is written as %s version %d", d.Type, name, v)
		}
	}
	if Catalogue() != catalogue {
		t.Error("Catalogue is another registry")
	}
}

func compileSchema(t testing.TB, d Definition) *jsonschema.Schema {
	t.Helper()
	text, err := d.Schema()
	if err != nil {
		t.Fatalf("%s: %v", d.Type, err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", d.Type, err)
	}
	if title := doc.(map[string]any)["title"]; title != d.Type {
		t.Errorf("the schema of %s has the title %v", d.Type, title)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	url := "https://forge-es.invalid/" + schemaFile(d.Type, d.V)
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url)
	if err != nil {
		t.Fatalf("%s: %v", d.Type, err)
	}
	return s
}

func TestEverySchemaFileBelongsToADefinition(t *testing.T) {
	files, err := fs.Glob(schemas, "schema/*")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, d := range catalogue.Definitions() {
		want[schemaFile(d.Type, d.V)] = true
		compileSchema(t, d)
	}
	for _, f := range files {
		if !want[f] {
			t.Errorf("%s belongs to no definition", f)
		}
		delete(want, f)
	}
	for f := range want {
		t.Errorf("%s is missing", f)
	}
}

// newest are the definitions of what is written now.
func newest() map[string]Definition {
	m := map[string]Definition{}
	for _, d := range catalogue.Definitions() {
		m[d.Type] = d
	}
	return m
}

func TestSchemasDescribeTheJSON(t *testing.T) {
	for name, d := range newest() {
		schema := compileSchema(t, d)
		valid := func(v any) error { return schema.Validate(v) }
		for _, p := range samples() {
			if n, _ := p.EventType(); n != name {
				continue
			}
			v := asJSON(t, p)
			if err := valid(v); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			eachObject(v, "", func(path string, o map[string]any) {
				if inForeign(path) {
					return
				}
				// A session carries unknown members along, and what lies in them.
				if !inSession(path) {
					o["zz"] = 1
					if valid(v) == nil {
						t.Errorf("%s: an extra field in %q is valid", name, path)
					}
					delete(o, "zz")
				}
				for key, was := range o {
					if inSession(path) && path != "/owner" || inSession(path) && !slices.Contains(sessionFields, key) {
						continue
					}
					if must := required[key] && !optionalOf[name+path+"/"+key] || path == "" && requiredOf[name+"/"+key] || path == "/owner" && (key == "controllerId" || key == "sessionId"); must {
						delete(o, key)
						if valid(v) == nil {
							t.Errorf("%s: without %s/%s it is valid", name, path, key)
						}
						o[key] = was
					}
					if key == "claimGeneration" {
						continue // an imported one is carried along as it was
					}
					o[key] = []any{}
					if key == "receipts" {
						o[key] = map[string]any{}
					}
					if valid(v) == nil {
						t.Errorf("%s: %v as %s/%s is valid", name, o[key], path, key)
					}
					o[key] = was
				}
			})
			if err := valid(v); err != nil {
				t.Fatalf("the test changed the sample: %v", err)
			}
		}
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			p := payloads[name](t)
			if inSchemaRange(p) {
				if err := valid(asJSON(t, p)); err != nil {
					t.Fatalf("%v", err)
				}
			}
		}))
	}
}

// required are the fields that are always there, wherever they occur; requiredOf
// those that are optional in other types, optionalOf the other way round.
var (
	required = map[string]bool{
		"cause": true, "owner": true, "how": true, "generation": true, "source": true, "standing": true, "keep": true, "entries": true, "digest": true,
		"schemaVersion": true, "workId": true, "controllerType": true, "claimedAt": true, "leaseExpiresAt": true,
		"at": true, "stableRelease": true, "sourceRevision": true, "from": true, "to": true, "name": true, "text": true, "document": true, "outcome": true,
		"id": true, "kind": true, "recordedAt": true, "summary": true, "revision": true, "authority": true,
	}
	requiredOf = map[string]bool{
		"claim.import-resolved/reason": true, "release.opened/sessionId": true, "release.advanced/sessionId": true, "release.receipts-recorded/sessionId": true,
		"release.receipts-recorded/receipts": true, "release.transaction-recorded/sessionId": true, "release.transaction-recorded/transaction": true,
		"release.document-discarded/reason": true,
	}
	// optionalOf are those of required that may be left out in one place.
	optionalOf = map[string]bool{
		"release.advanced/cause": true, "release.advanced/receipts/*/outcome": true, "release.receipts-recorded/receipts/*/outcome": true,
		"release.migrated/receipt/outcome": true,
	}
)

// inForeign is JSON of others, of which a schema says nothing but that it is an
// object.
func inForeign(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"stable", "stableRelease", "candidate", "candidateRelease", "transaction", "previous", "authority"}, first)
}

func inSession(path string) bool { return path == "/owner" || strings.HasPrefix(path, "/owner/") }

// inSchemaRange leaves out values that no decider writes: the schemas bound them,
// the codec need not.
func inSchemaRange(p Payload) bool {
	grace := func(e *Evidence) bool {
		return e == nil || e.GraceMs == nil || *e.GraceMs >= 60_000 && *e.GraceMs <= 3_600_000
	}
	switch e := p.(type) {
	case ClaimGranted:
		return grace(e.Evidence)
	case ClaimRenewed:
		return grace(e.Evidence)
	case ImportStarted:
		return e.Entries >= 0
	case AuthorityPublished:
		return e.Revision >= 1
	}
	return true
}

func asJSON(t interface{ Fatal(...any) }, v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func eachObject(v any, path string, visit func(path string, o map[string]any)) {
	switch x := v.(type) {
	case map[string]any:
		visit(path, x)
		for k, w := range x {
			eachObject(w, path+"/"+k, visit)
		}
	case []any:
		for _, w := range x {
			eachObject(w, path+"/*", visit)
		}
	}
}

// The JSON of an event says all that its encoding says.
func TestJSONOfEventsComesBack(t *testing.T) {
	for _, p := range samples() {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Payload
		switch p.(type) {
		case ClaimGranted:
			got, err = fromJSON[ClaimGranted](b)
		case ClaimRenewed:
			got, err = fromJSON[ClaimRenewed](b)
		case ClaimReleased:
			got, err = fromJSON[ClaimReleased](b)
		case ClaimImported:
			got, err = fromJSON[ClaimImported](b)
		case ClaimImportConflicted:
			got, err = fromJSON[ClaimImportConflicted](b)
		case ClaimImportResolved:
			got, err = fromJSON[ClaimImportResolved](b)
		case WorkStateSet:
			got, err = fromJSON[WorkStateSet](b)
		case ImportStarted:
			got, err = fromJSON[ImportStarted](b)
		case ReleaseOpened:
			got, err = fromJSON[ReleaseOpened](b)
		case ReleaseAdvanced:
			got, err = fromJSON[ReleaseAdvanced](b)
		case ReleaseReceiptsRecorded:
			got, err = fromJSON[ReleaseReceiptsRecorded](b)
		case ReleaseTransactionRecorded:
			got, err = fromJSON[ReleaseTransactionRecorded](b)
		case ReleaseDocumentReceived:
			got, err = fromJSON[ReleaseDocumentReceived](b)
		case ReleaseDocumentDiscarded:
			got, err = fromJSON[ReleaseDocumentDiscarded](b)
		case ReleaseMigrated:
			got, err = fromJSON[ReleaseMigrated](b)
		case AuthorityPublished:
			got, err = fromJSON[AuthorityPublished](b)
		default:
			t.Fatalf("%T has no case", p)
		}
		if err != nil {
			t.Errorf("%s: %v", b, err)
		} else if d := cmp.Diff(p, got); d != "" {
			t.Errorf("%s differs (-want +got):\n%s", b, d)
		}
	}
}

func fromJSON[T Payload](b []byte) (Payload, error) {
	var v T
	err := json.Unmarshal(b, &v)
	return v, err
}
