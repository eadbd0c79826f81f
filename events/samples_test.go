package events

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// samples are values of every payload type: with all optional fields, and with
// none.
func samples() []Payload {
	full := sampleSession()
	bare := Session{WorkID: "w1", ControllerID: "c1", SessionID: "s1", ClaimedAt: -1, LeaseExpiresAt: 0}
	evidence := &Evidence{
		ExpectedGeneration: ptr(int64(-3)),
		Execution: &Execution{
			SessionID: "s1", PrincipalID: ptr(""), ActiveWorkID: ptr("w2"),
			InvalidatedAt: ptr(Time(1767225600001)), LastValidatedAt: ptr(Time(5)), UpdatedAt: ptr(Time(-5)),
		},
		GraceMs: ptr(int64(300000)), Runtime: "runtime-2", RuntimeAnnounced: true,
	}
	return []Payload{
		ClaimGranted{Cause: CauseRecovery, Owner: full, Evidence: evidence},
		ClaimGranted{Cause: CauseFirst, Owner: bare},
		ClaimRenewed{Owner: full, Evidence: evidence},
		ClaimRenewed{Owner: bare, Evidence: &Evidence{Execution: &Execution{}}},
		ClaimReleased{How: ReleasedByForce, Generation: 300, Reason: "gone for good"},
		ClaimReleased{How: ReleasedByController},
		ClaimImported{Source: SourceRecord, Scope: "repo", Standing: StandingHeld, Owner: full},
		ClaimImported{Source: SourceRetained, Standing: StandingIdentity, Owner: bare},
		ClaimImportConflicted{Source: SourceFile, Scope: "repo", Standing: StandingReleased, Owner: full},
		ClaimImportConflicted{Source: SourceFile, Standing: StandingHeld, Owner: bare},
		ClaimImportResolved{Keep: KeepImported, Generation: 70000, Reason: "the other one is gone"},
		WorkStateSet{State: "done", How: SetByOperator, Reason: "said so"},
		WorkStateSet{How: SetByTerminalize},
		ImportStarted{Source: SourceRecord, Scope: "repo", Entries: 70000, Digest: HashOf([]byte("snapshot"))},
		ImportStarted{Source: SourceFile},
		ReleaseOpened{
			SessionID: "release-0001", Stable: JSON(sampleLane), StableRelease: JSON(sampleRelease), Candidate: JSON(sampleLane), SourceRevision: "abc",
			At: 1767225600000,
		},
		ReleaseOpened{SessionID: "release-0001", StableRelease: JSON(`{}`), At: -1},
		ReleaseAdvanced{
			SessionID: "release-0001", From: "source_frozen", To: "failed", CandidateRelease: JSON(sampleRelease), Receipts: JSON(sampleReceipts),
			Cause: CauseOperator, Reason: "it cannot end by itself", At: 1767225600000,
		},
		ReleaseAdvanced{SessionID: "release-0001", From: "built", To: "static_verified"},
		ReleaseReceiptsRecorded{SessionID: "release-0001", Receipts: JSON(sampleReceipts), At: 1767225600000},
		ReleaseReceiptsRecorded{SessionID: "release-0001", Receipts: JSON(`[]`)},
		ReleaseTransactionRecorded{SessionID: "release-0001", Transaction: JSON(sampleRelease), At: 1767225600000},
		ReleaseTransactionRecorded{SessionID: "release-0001", Transaction: JSON(`{}`)},
		ReleaseDocumentReceived{Name: "release-0001", Text: []byte("{\"a\" : 1}\n"), Replaced: true, Reason: "the newer one"},
		ReleaseDocumentReceived{Name: " \n/é", Text: []byte{0xff, 0}},
		ReleaseDocumentReceived{Text: []byte{}},
		ReleaseDocumentDiscarded{Name: "release-0001", Reason: "broken"},
		ReleaseDocumentDiscarded{},
		ReleaseMigrated{
			Document: "release-0001", Outcome: MigratedHistorical, Transaction: JSON(sampleRelease), Previous: JSON(sampleRelease),
			Receipt: JSON(sampleReceipt), At: 1767225600000,
		},
		ReleaseMigrated{Document: "release-0001", Outcome: MigratedConverted},
		AuthorityPublished{Revision: 300, Authority: JSON(sampleRelease)},
		AuthorityPublished{Revision: 1, Authority: JSON(`{}`)},
	}
}

// JSON of others, which is carried as it is: the order of its members and the form
// of its numbers too.
const (
	sampleLane     = `{"port":7420,"controllerHome":"/srv/forge","x":{"b":[],"a":null}}`
	sampleRelease  = `{"releaseId":"r-1","authorityRevision":1.50e1,"é":"\u00e9","big":12345678901234567890123}`
	sampleReceipt  = `{"id":"type","kind":"static_gate","recordedAt":"2026-01-01T00:00:00.000Z","summary":"","outcome":"failed"}`
	sampleReceipts = "[" + sampleReceipt + `,{"id":"b","kind":"build","recordedAt":"2026-01-01T00:00:00.000Z","summary":"ok"}]`
)

// sampleOf is the first, full sample of a type.
func sampleOf(t testing.TB, name string) Payload {
	for _, p := range samples() {
		if n, _ := p.EventType(); n == name {
			return p
		}
	}
	t.Fatalf("no sample of %s: add one to samples", name)
	return nil
}

// Generators. They cover the bounds on purpose: rapid alone finds them seldom.

func anyTime() *rapid.Generator[Time] {
	return rapid.OneOf(
		rapid.SampledFrom([]Time{minTime, maxTime, 0, -1, 1767225600000}),
		rapid.Map(rapid.Int64Range(int64(minTime), int64(maxTime)), func(v int64) Time { return Time(v) }),
	)
}

// edges are the integers beside which the length of an encoding changes.
var edges = []int64{
	0, 1, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<53 - 1, 1<<63 - 1,
	-1, -32, -33, -128, -129, -32768, -32769, -1 << 31, -1<<31 - 1, -1 << 63,
}

func anyInt() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64())
}

func anyUint() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<64 - 1}), rapid.Uint64())
}

func anyText() *rapid.Generator[string] {
	long := rapid.Map(rapid.SampledFrom([]int{31, 32, 255, 256, 65535, 65536}), func(n int) string { return strings.Repeat("x", n) })
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 199).Draw(t, "long") == 0 {
			return long.Draw(t, "text")
		}
		return rapid.String().Draw(t, "text")
	})
}

func maybe[T any](t *rapid.T, g *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, "there") {
		return nil
	}
	return ptr(g.Draw(t, "value"))
}

func oneOf(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "one of") }

func anyHash() *rapid.Generator[Hash] {
	return rapid.Map(rapid.Uint64(), func(v uint64) Hash { return HashOf(fmt.Append(nil, v)) })
}

// anyJSON is the text of a JSON value, not canonical.
func anyJSON(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := []string{"null", "true", "false", "number", "text"}
		if depth > 0 {
			kinds = append(kinds, "array", "object")
		}
		switch k := rapid.SampledFrom(kinds).Draw(t, "kind"); k {
		case "number":
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
		case "text":
			return jsonText(rapid.String().Draw(t, "text"))
		case "array":
			return "[ " + strings.Join(rapid.SliceOfN(anyJSON(depth-1), 0, 4).Draw(t, "items"), " , ") + "]"
		case "object":
			return objectOf(rapid.MapOfN(rapid.String(), anyJSON(depth-1), 0, 4).Draw(t, "members"))
		default:
			return k
		}
	})
}

// anyExtra is a canonical object of members that a session has no field for, or
// nothing.
func anyExtra() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		key := rapid.String().Filter(func(s string) bool { return !slices.Contains(sessionFields, s) })
		text := objectOf(rapid.MapOfN(key, anyJSON(2), 1, 4).Draw(t, "extra"))
		canon, err := CanonicalJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return canon
	})
}

// sessionFields are the members of a session that have a field.
var sessionFields = []string{
	"schemaVersion", "workId", "controllerId", "controllerType", "sessionId", "authorityDigest", "principalId",
	"controllerInstanceId", "claimGeneration", "claimedAt", "leaseExpiresAt",
}

func anySession() *rapid.Generator[Session] {
	return rapid.Custom(func(t *rapid.T) Session {
		text := anyText()
		return Session{
			WorkID: text.Draw(t, "workId"), ControllerID: text.Draw(t, "controllerId"), ControllerType: text.Draw(t, "controllerType"),
			SessionID: text.Draw(t, "sessionId"), AuthorityDigest: maybe(t, text), PrincipalID: maybe(t, text), ControllerInstanceID: maybe(t, text),
			Generation: maybe(t, anyInt()), ClaimedAt: anyTime().Draw(t, "claimedAt"), LeaseExpiresAt: anyTime().Draw(t, "leaseExpiresAt"),
			Extra: anyExtra().Draw(t, "extra"),
		}
	})
}

func anyEvidence() *rapid.Generator[Evidence] {
	return rapid.Custom(func(t *rapid.T) Evidence {
		text := anyText()
		e := Evidence{
			ExpectedGeneration: maybe(t, anyInt()), GraceMs: maybe(t, anyInt()), Runtime: text.Draw(t, "runtime"),
			RuntimeAnnounced: rapid.Bool().Draw(t, "announced"),
		}
		if rapid.Bool().Draw(t, "execution") {
			e.Execution = &Execution{
				SessionID: text.Draw(t, "sessionId"), PrincipalID: maybe(t, text), ActiveWorkID: maybe(t, text),
				InvalidatedAt: maybe(t, anyTime()), LastValidatedAt: maybe(t, anyTime()), UpdatedAt: maybe(t, anyTime()),
			}
		}
		return e
	})
}

// payloads has a generator of every type of the catalogue.
var payloads = map[string]func(t *rapid.T) Payload{
	"claim.granted": func(t *rapid.T) Payload {
		return ClaimGranted{
			Cause: oneOf(t, CauseFirst, CauseAfterRelease, CauseAfterLapse, CauseRecovery, CauseRuntimeChange),
			Owner: anySession().Draw(t, "owner"), Evidence: maybe(t, anyEvidence()),
		}
	},
	"claim.renewed": func(t *rapid.T) Payload {
		return ClaimRenewed{Owner: anySession().Draw(t, "owner"), Evidence: maybe(t, anyEvidence())}
	},
	"claim.released": func(t *rapid.T) Payload {
		return ClaimReleased{
			How:        oneOf(t, ReleasedByController, ReleasedByAuthority, ReleasedObserved, ReleasedByForce, ReleasedAtTerminal),
			Generation: anyInt().Draw(t, "generation"), Reason: anyText().Draw(t, "reason"),
		}
	},
	"claim.imported":          func(t *rapid.T) Payload { return anyImported(t) },
	"claim.import-conflicted": func(t *rapid.T) Payload { return ClaimImportConflicted(anyImported(t)) },
	"claim.import-resolved": func(t *rapid.T) Payload {
		return ClaimImportResolved{
			Keep: oneOf(t, KeepCurrent, KeepImported), Generation: anyInt().Draw(t, "generation"), Reason: anyText().Draw(t, "reason"),
		}
	},
	"work.state-set": func(t *rapid.T) Payload {
		return WorkStateSet{
			State: anyText().Draw(t, "state"), How: oneOf(t, SetByTerminalize, SetByOperator), Reason: anyText().Draw(t, "reason"),
		}
	},
	"import.started": func(t *rapid.T) Payload {
		return ImportStarted{
			Source: oneOf(t, SourceRecord, SourceFile, SourceRetained), Scope: anyText().Draw(t, "scope"),
			Entries: anyInt().Draw(t, "entries"), Digest: anyHash().Draw(t, "digest"),
		}
	},
	"release.opened": func(t *rapid.T) Payload {
		o := anyObject()
		return ReleaseOpened{
			SessionID: anyText().Draw(t, "sessionId"), Stable: maybeJSON(t, o, "stable"), StableRelease: o.Draw(t, "stableRelease"),
			Candidate: maybeJSON(t, o, "candidate"), SourceRevision: anyText().Draw(t, "sourceRevision"), At: anyTime().Draw(t, "at"),
		}
	},
	"release.advanced": func(t *rapid.T) Payload {
		return ReleaseAdvanced{
			SessionID: anyText().Draw(t, "sessionId"), From: anyText().Draw(t, "from"), To: anyText().Draw(t, "to"),
			CandidateRelease: maybeJSON(t, anyObject(), "candidateRelease"), Receipts: maybeJSON(t, anyReceipts(0), "receipts"),
			Cause: oneOf(t, "", CauseOperator), Reason: anyText().Draw(t, "reason"), At: anyTime().Draw(t, "at"),
		}
	},
	"release.receipts-recorded": func(t *rapid.T) Payload {
		return ReleaseReceiptsRecorded{
			SessionID: anyText().Draw(t, "sessionId"), Receipts: anyReceipts(0).Draw(t, "receipts"), At: anyTime().Draw(t, "at"),
		}
	},
	"release.transaction-recorded": func(t *rapid.T) Payload {
		return ReleaseTransactionRecorded{
			SessionID: anyText().Draw(t, "sessionId"), Transaction: anyObject().Draw(t, "transaction"), At: anyTime().Draw(t, "at"),
		}
	},
	"release.document-received": func(t *rapid.T) Payload {
		return ReleaseDocumentReceived{
			Name: anyText().Draw(t, "name"), Text: anyBytes(t), Replaced: rapid.Bool().Draw(t, "replaced"), Reason: anyText().Draw(t, "reason"),
		}
	},
	"release.document-discarded": func(t *rapid.T) Payload {
		return ReleaseDocumentDiscarded{Name: anyText().Draw(t, "name"), Reason: anyText().Draw(t, "reason")}
	},
	"release.migrated": func(t *rapid.T) Payload {
		e := ReleaseMigrated{
			Document: anyText().Draw(t, "document"), Outcome: oneOf(t, MigratedConverted, MigratedReconciled, MigratedHistorical),
			Transaction: maybeJSON(t, anyObject(), "transaction"), Previous: maybeJSON(t, anyObject(), "previous"), At: anyTime().Draw(t, "at"),
		}
		if rapid.Bool().Draw(t, "with a receipt") {
			e.Receipt = anyReceipt(t)
		}
		return e
	},
	"authority.published": func(t *rapid.T) Payload {
		return AuthorityPublished{Revision: anyInt().Draw(t, "revision"), Authority: anyObject().Draw(t, "authority")}
	},
}

// anyObject is a JSON object of somebody else, not canonical.
func anyObject() *rapid.Generator[JSON] {
	return rapid.Map(rapid.MapOfN(rapid.String(), anyJSON(2), 0, 4), func(m map[string]string) JSON { return JSON(objectOf(m)) })
}

// anyReceipts is a list of receipts as they are stored.
func anyReceipts(least int) *rapid.Generator[JSON] {
	return rapid.Custom(func(t *rapid.T) JSON {
		var list []string
		for range rapid.IntRange(least, 3).Draw(t, "receipts") {
			m := map[string]string{
				"id": jsonText(anyText().Draw(t, "id")), "kind": oneOf(t, `"build"`, `"soak"`), "summary": jsonText(anyText().Draw(t, "summary")),
				"recordedAt": jsonText(anyTime().Draw(t, "recordedAt").String()),
			}
			if rapid.Bool().Draw(t, "outcome") {
				m["outcome"] = oneOf(t, `"failed"`, `"inconclusive"`)
			}
			list = append(list, objectOf(m))
		}
		return JSON("[" + strings.Join(list, ", ") + "]")
	})
}

// maybeJSON is a value, or none.
func maybeJSON(t *rapid.T, g *rapid.Generator[JSON], label string) JSON {
	if !rapid.Bool().Draw(t, "there") {
		return nil
	}
	return g.Draw(t, label)
}

func anyReceipt(t *rapid.T) JSON {
	list := anyReceipts(1).Draw(t, "receipt")
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		t.Fatal(err)
	}
	return JSON(items[0])
}

func anyBytes(t *rapid.T) []byte {
	return append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
}

func anyImported(t *rapid.T) ClaimImported {
	return ClaimImported{
		Source: oneOf(t, SourceRecord, SourceFile, SourceRetained), Scope: anyText().Draw(t, "scope"),
		Standing: oneOf(t, StandingHeld, StandingReleased, StandingIdentity), Owner: anySession().Draw(t, "owner"),
	}
}

func anyPayload() *rapid.Generator[Payload] {
	return rapid.Custom(func(t *rapid.T) Payload {
		defs := catalogue.Definitions()
		name := defs[rapid.IntRange(0, len(defs)-1).Draw(t, "type")].Type
		return payloads[name](t)
	})
}

func anyCommit() *rapid.Generator[*Commit] {
	return rapid.Custom(func(t *rapid.T) *Commit {
		text, small := anyText(), rapid.IntRange(1, 0xffff)
		c := &Commit{
			V: EnvelopeVersion, Log: text.Draw(t, "log"), ID: text.Draw(t, "id"), Kind: oneOf(t, KindWork, KindRelease, KindImport),
			AggregateID: text.Draw(t, "aggregateId"), Version: 1, At: anyTime().Draw(t, "at"), Rules: small.Draw(t, "rules"),
			Command: Command{Verb: text.Draw(t, "verb"), RequestDigest: anyHash().Draw(t, "digest")},
			Actor: Actor{
				Principal: text.Draw(t, "principal"), ControllerID: text.Draw(t, "controllerId"), SessionID: text.Draw(t, "sessionId"),
				ControllerInstanceID: text.Draw(t, "instance"), Label: text.Draw(t, "label"),
			},
			Correlation: text.Draw(t, "correlation"), Causation: text.Draw(t, "causation"),
		}
		for range rapid.IntRange(1, 3).Draw(t, "events") {
			c.Events = append(c.Events, Encode(anyPayload().Draw(t, "payload")))
		}
		if rapid.Bool().Draw(t, "first") {
			return c
		}
		c.Version, c.Prev = max(2, anyUint().Draw(t, "version")), max(1, anyUint().Draw(t, "prev"))
		c.PrevHash = anyHash().Draw(t, "prevHash")
		for i := range rapid.IntRange(0, RecentCommits).Draw(t, "recent") {
			c.Recent = append(c.Recent, RecentID{ID: NewMsgID("s", "p", fmt.Sprint(i)), Position: anyUint().Draw(t, "position")})
		}
		if rapid.Bool().Draw(t, "state") {
			s := anySession().Draw(t, "state")
			w := NewWriter(64)
			s.Write(w)
			c.State = &State{V: small.Draw(t, "stateVersion"), Data: w.Bytes()}
		}
		return c
	})
}

func TestSamplesAndGeneratorsAreComplete(t *testing.T) {
	for _, d := range catalogue.Definitions() {
		sampleOf(t, d.Type)
		if payloads[d.Type] == nil {
			t.Errorf("no generator of %s: add one to payloads", d.Type)
		}
	}
}

// jsonText is a JSON string, escaped as the standard library does it.
func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// objectOf is a JSON object whose keys are in the wrong order.
func objectOf(members map[string]string) string {
	keys := slices.Sorted(maps.Keys(members))
	slices.Reverse(keys)
	var list []string
	for _, k := range keys {
		list = append(list, " "+jsonText(k)+" : "+members[k])
	}
	return "{" + strings.Join(list, ",") + "\n}"
}

// diff is what differs, "" for nothing. cmp alone is slow on bytes.
func diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got) + " "
}
