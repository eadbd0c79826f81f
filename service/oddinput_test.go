package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/forge-es/forge-es/service"
	"github.com/forge-es/forge-es/service/servicetest"
	"github.com/vmihailenco/msgpack/v5"
)

// odd is a request that must fail in one way.
type odd struct {
	name    string
	subject string
	body    any
	headers []string
	code    events.Code
	field   string // in the details, "" for any
}

// TestOddInput: what is wrong is answered by its code and names its field; the
// connection stays usable, and nothing is appended.
func TestOddInput(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c"))
	op(t, nc, session.VerbSetState, fields{"workId": "closed", "state": "done", "reason": "test"})
	last := position(t, s)

	claim, resume, bind := servicetest.Cmd("p-c", session.VerbClaim), servicetest.Cmd("p-c", session.VerbResume), servicetest.Cmd("p-c", session.VerbBind)
	renew, release := servicetest.Cmd("p-c", session.VerbRenew), servicetest.Cmd("p-c", session.VerbReleaseWithAuthority)
	terminalize := servicetest.Cmd("p-c", session.VerbTerminalize)
	report, announce := servicetest.Cmd("p-c", "activity.report"), servicetest.Op("runtime.announce")
	good := claimOf("w", "c")
	long, huge := strings.Repeat("x", 513), strings.Repeat("x", 1_000_000)
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	deepList := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	raw := func(text string) []byte { return []byte(text) }
	packed := []string{service.HeaderContentType, service.ContentMsgpack}
	pack := func(v any) []byte {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	cases := []odd{
		// Bodies.
		{"no body", claim, raw(""), nil, events.CodeIdentityRequired, "workId"},
		{"an empty object", claim, fields{}, nil, events.CodeIdentityRequired, "workId"},
		{"null", claim, raw("null"), nil, events.CodeBadRequest, "body"},
		{"a list", claim, raw("[]"), nil, events.CodeBadRequest, "body"},
		{"a text", claim, raw(`"w"`), nil, events.CodeBadRequest, "body"},
		{"half an object", claim, raw(`{"workId":"w"`), nil, events.CodeBadRequest, "body"},
		{"two objects", claim, raw(`{}{}`), nil, events.CodeBadRequest, "body"},
		{"duplicate keys", claim, raw(`{"workId":"w","workId":"v"}`), nil, events.CodeBadRequest, "body"},
		{"no UTF-8", claim, raw("{\"workId\":\"\xff\"}"), nil, events.CodeBadRequest, "body"},
		{"no UTF-8 in a name", claim, raw("{\"\xc3\x28\":1}"), nil, events.CodeBadRequest, "body"},
		{"NUL bytes", claim, make([]byte, 1000), nil, events.CodeBadRequest, "body"},
		{"nested", claim, raw(deep), nil, events.CodeIdentityRequired, "workId"},
		{"nested lists", claim, raw(`{"workId":` + deepList + `}`), nil, events.CodeBadRequest, "body"},
		{"1 MB of zeros", claim, bytes.Repeat([]byte("0"), 1_000_000), nil, events.CodeBadRequest, "body"},
		{"a 1 MB id", claim, good.with("workId", huge), nil, events.CodeIDInvalid, "workId"},
		{"a 1 MB type", claim, claimOf("new", "c").with("controllerType", huge), nil, events.CodeTooLarge, ""},
		{"a 1 MB digest", claim, claimOf("new", "c").with("authorityDigest", huge), nil, events.CodeTooLarge, ""},
		{"a 1 MB reason", servicetest.Op(session.VerbForceRelease), fields{"workId": "w", "reason": huge}, nil, events.CodeTooLarge, ""},
		{"a 1 MB label", claim, claimOf("new", "c").with("actor", huge), nil, events.CodeTooLarge, ""},

		// Ids.
		{"a blank work", claim, good.with("workId", " \t\n "), nil, events.CodeIdentityRequired, "workId"},
		{"a blank controller", claim, good.with("controllerId", " "), nil, events.CodeIdentityRequired, "controllerId"},
		{"a blank session", claim, good.with("sessionId", ""), nil, events.CodeIdentityRequired, "sessionId"},
		{"no session", claim, good.with("sessionId", nil), nil, events.CodeIdentityRequired, "sessionId"},
		{"a long work", claim, good.with("workId", long), nil, events.CodeIDInvalid, "workId"},
		{"a long controller", claim, good.with("controllerId", long), nil, events.CodeIDInvalid, "controllerId"},
		{"a long session", claim, good.with("sessionId", long), nil, events.CodeIDInvalid, "sessionId"},
		{"a long principal", claim, good.with("principalId", long), nil, events.CodeIDInvalid, "principalId"},
		{"a long instance", claim, good.with("controllerInstanceId", long), nil, events.CodeIDInvalid, "controllerInstanceId"},
		{"a line break in an id", claim, good.with("workId", "a\nb"), nil, events.CodeIDInvalid, "workId"},
		{"NUL in an id", claim, good.with("sessionId", "a\x00b"), nil, events.CodeIDInvalid, "sessionId"},
		{"DEL in an id", renew, shown("a\x7fb", "c", 1), nil, events.CodeIDInvalid, "workId"},
		{"a long work to release", release, shown(long, "c", 1), nil, events.CodeIDInvalid, "workId"},
		{"a long work to close", terminalize, shown(long, "c", 1).with("state", "done"), nil, events.CodeIDInvalid, "workId"},
		{"a long work to set", servicetest.Op(session.VerbSetState), fields{"workId": long, "state": "x", "reason": "r"}, nil, events.CodeIDInvalid, "workId"},
		{"no work to set", servicetest.Op(session.VerbSetState), fields{"state": "x", "reason": "r"}, nil, events.CodeIDInvalid, "workId"},
		{"a long work to free", servicetest.Op(session.VerbRelease), fields{"workId": long, "controllerId": "c"}, nil, events.CodeIDInvalid, "workId"},
		{"a long work to ask for", servicetest.Query("works.get"), fields{"workId": long}, nil, events.CodeIDInvalid, "workId"},
		{"a long work's history", servicetest.Query("works.history"), fields{"workId": long}, nil, events.CodeIDInvalid, "workId"},
		{"a blank transport session", report, fields{"sessionId": " "}, nil, events.CodeIdentityRequired, "sessionId"},
		{"a long transport session", report, fields{"sessionId": long}, nil, events.CodeIDInvalid, "sessionId"},
		{"a long active work", report, fields{"sessionId": "s", "activeWorkId": long}, nil, events.CodeIDInvalid, "activeWorkId"},
		{"no runtime", announce, fields{}, nil, events.CodeBadRequest, "controllerInstanceId"},
		{"a long runtime", announce, fields{"controllerInstanceId": long}, nil, events.CodeIDInvalid, "controllerInstanceId"},

		// Wrong types: each fails the check that it is for.
		{"a work that is a number", claim, good.with("workId", 7), nil, events.CodeIdentityRequired, "workId"},
		{"a controller that is a list", claim, good.with("controllerId", []int{1}), nil, events.CodeIdentityRequired, "controllerId"},
		{"a session that is true", claim, good.with("sessionId", true), nil, events.CodeIdentityRequired, "sessionId"},
		{"a principal that is a number", claim, good.with("principalId", 7), nil, events.CodeCallerMismatch, ""},
		{"a type that is a number", claim, good.with("controllerType", 7), nil, events.CodeTypeMismatch, "controllerType"},
		{"a type that is a number, unclaimed", claim, claimOf("new", "c").with("controllerType", 7), nil, events.CodeBadRequest, "controllerType"},
		{"no type", claim, claimOf("new", "c").with("controllerType", nil), nil, events.CodeBadRequest, "controllerType"},
		{"an instance that is a number", claim, good.with("controllerInstanceId", 7), nil, events.CodeInstanceMismatch, "controllerInstanceId"},
		{"a digest that is a number", claim, claimOf("new", "c").with("authorityDigest", 7), nil, events.CodeBadRequest, "authorityDigest"},
		{"a generation that is a text", claim, good.with("expectedClaimGeneration", "1"), nil, events.CodeClaimGenerationMismatch, ""},
		{"half a generation", claim, good.with("expectedClaimGeneration", 1.5), nil, events.CodeClaimGenerationMismatch, ""},
		{"a huge generation", claim, raw(`{"workId":"w","controllerId":"c","controllerType":"agent","sessionId":"s-c","principalId":"p-c","controllerInstanceId":"i-c","expectedClaimGeneration":1e400}`), nil, events.CodeClaimGenerationMismatch, ""},
		{"a lease that is a text", claim, claimOf("new", "c").with("leaseMs", "1000"), nil, events.CodeBadRequest, "leaseMs"},
		{"half a millisecond", claim, claimOf("new", "c").with("leaseMs", 0.5), nil, events.CodeBadRequest, "leaseMs"},
		{"recovery that is 1", resume, good.with("allowStaleRecovery", 1), nil, events.CodeBadRequest, "allowStaleRecovery"},
		{"a missing claim allowed by a text", bind, claimOf("new", "c").with("allowClaimIfMissing", "true"), nil, events.CodeOwnerRequired, ""},
		{"resume without an instance", resume, good.with("controllerInstanceId", 7), nil, events.CodeResumeAuthorityRequired, ""},
		{"an authority that is a text", renew, fields{"workId": "w", "authority": "c"}, nil, events.CodeIdentityRequired, ""},
		{"an authority without controller", renew, fields{"workId": "w", "authority": fields{}}, nil, events.CodeIdentityRequired, ""},
		{"a lease that is a list", renew, shown("w", "c", 1).with("leaseMs", []int{}), nil, events.CodeBadRequest, "leaseMs"},
		{"a capability that is a number", renew, shown("w", "c", 1).with("authorityId", 7), nil, events.CodeBadRequest, "authorityId"},
		{"a state that is a number", terminalize, shown("w", "c", 1).with("state", 7), nil, events.CodeBadRequest, "state"},
		{"a blank state", terminalize, shown("w", "c", 1).with("state", " "), nil, events.CodeBadRequest, "state"},
		{"a release that is a text", terminalize, shown("w", "c", 1).with("state", "done", "release", "yes"), nil, events.CodeBadRequest, "release"},
		{"a reason that is a number", servicetest.Op(session.VerbForceRelease), fields{"workId": "w", "reason": 7}, nil, events.CodeReasonRequired, "reason"},
		{"a blank reason", servicetest.Op(session.VerbForceRelease), fields{"workId": "w", "reason": "\t"}, nil, events.CodeReasonRequired, "reason"},
		{"set-state without reason", servicetest.Op(session.VerbSetState), fields{"workId": "w", "state": "x"}, nil, events.CodeReasonRequired, "reason"},
		{"set-state to a number", servicetest.Op(session.VerbSetState), fields{"workId": "w", "state": 1, "reason": "r"}, nil, events.CodeBadRequest, "state"},
		{"set-state to nothing", servicetest.Op(session.VerbSetState), fields{"workId": "w", "state": " ", "reason": "r"}, nil, events.CodeBadRequest, "state"},
		{"keep neither", servicetest.Op(session.VerbResolveImport), fields{"workId": "w", "keep": "both", "reason": "r"}, nil, events.CodeBadRequest, "keep"},
		{"grace that is a text", servicetest.Query("works.blocks-recovery"), fields{"workId": "w", "graceMs": "1"}, nil, events.CodeBadRequest, "graceMs"},
		{"an expected owner that is a list", servicetest.Query("works.check-authority"), fields{"workId": "w", "expected": []int{}}, nil, events.CodeBadRequest, "expected"},
		{"a limit that is a text", servicetest.Query("claims.list"), fields{"limit": "9"}, nil, events.CodeBadRequest, "limit"},
		{"a cursor that is a number", servicetest.Query("claims.list"), fields{"cursor": 9}, nil, events.CodeBadRequest, "cursor"},
		{"a position that is half", servicetest.Query("works.history"), fields{"workId": "w", "from": 1.5}, nil, events.CodeBadRequest, "from"},

		// Times.
		{"an unreadable time", servicetest.Op("activity.set"), fields{"sessionId": "s", "session": fields{"updatedAt": "soon"}}, nil, events.CodeBadRequest, "updatedAt"},
		{"a time that is a number", servicetest.Op("activity.set"), fields{"sessionId": "s", "session": fields{"invalidatedAt": 5}}, nil, events.CodeBadRequest, "invalidatedAt"},
		{"the 31st of February", servicetest.Op("activity.set"), fields{"sessionId": "s", "session": fields{"lastValidatedAt": "2026-02-31T00:00:00.000Z"}}, nil, events.CodeBadRequest, "lastValidatedAt"},

		// Imports.
		{"no source", servicetest.Op(session.VerbImport), fields{}, nil, events.CodeBadRequest, "source"},
		{"an unknown source", servicetest.Op(session.VerbImport), fields{"source": "hearsay"}, nil, events.CodeBadRequest, "source"},
		{"no store", servicetest.Op(session.VerbImport), fields{"source": "record"}, nil, events.CodeBadRequest, "store"},
		{"sessions that are an object", servicetest.Op(session.VerbImport), fields{"source": "record", "store": fields{"sessions": fields{}}}, nil, events.CodeBadRequest, "store.sessions"},
		{"another schema", servicetest.Op(session.VerbImport), fields{"source": "record", "store": fields{"schemaVersion": 2, "sessions": []int{}}}, nil, events.CodeBadRequest, "store.schemaVersion"},
		{"a long scope", servicetest.Op(session.VerbImport), snapshot("record", long), nil, events.CodeIDInvalid, "scope"},

		// Roots and verbs.
		{"an unknown verb", servicetest.Cmd("p-c", "work.steal"), good, nil, events.CodeUnknownVerb, ""},
		{"an unknown aggregate", servicetest.Cmd("p-c", "house.claim"), good, nil, events.CodeUnknownVerb, ""},
		{"a verb too long", servicetest.Cmd("p-c", "work.claim.now"), good, nil, events.CodeUnknownVerb, ""},
		{"no principal", "forge.cmd.main.work.claim", good, nil, events.CodeUnknownVerb, ""},
		{"nothing at all", "forge.op.main.x", good, nil, events.CodeUnknownVerb, ""},
		{"an unknown query", servicetest.Query("works.burn"), fields{}, nil, events.CodeUnknownVerb, ""},
		{"an operator's verb as a command", servicetest.Cmd("p-c", session.VerbForceRelease), fields{"workId": "w", "reason": "r"}, nil, events.CodeForbidden, ""},
		{"set-state as a command", servicetest.Cmd("p-c", session.VerbSetState), fields{"workId": "w", "state": "x", "reason": "r"}, nil, events.CodeForbidden, ""},
		{"a command as an operator's", servicetest.Op(session.VerbClaim), good, nil, events.CodeForbidden, ""},
		{"a query as a command", servicetest.Cmd("p-c", "works.get"), fields{"workId": "w"}, nil, events.CodeForbidden, ""},
		{"a command as a query", servicetest.Query(session.VerbClaim), good, nil, events.CodeForbidden, ""},
		{"close without an authority", terminalize, fields{"workId": "w", "state": "done"}, nil, events.CodeForbidden, "authority"},
		{"close with a null authority", terminalize, fields{"workId": "w", "state": "done", "authority": json.RawMessage("null")}, nil, events.CodeForbidden, "authority"},

		// Headers.
		{"an unknown content type", claim, good, []string{service.HeaderContentType, "text/xml"}, events.CodeBadRequest, service.HeaderContentType},
		{"a version that is none", claim, good, []string{service.HeaderExpectedVersion, "x"}, events.CodeBadRequest, service.HeaderExpectedVersion},
		{"a negative version", claim, good, []string{service.HeaderExpectedVersion, "-1"}, events.CodeBadRequest, service.HeaderExpectedVersion},
		{"a version beyond all", claim, good, []string{service.HeaderExpectedVersion, "18446744073709551615"}, events.CodeBadRequest, service.HeaderExpectedVersion},
		{"another version", claim, good, []string{service.HeaderExpectedVersion, "7"}, events.CodeVersionConflict, ""},
		{"another version of nothing", claim, claimOf("new", "c"), []string{service.HeaderExpectedVersion, "1"}, events.CodeVersionConflict, ""},
		{"another version before the rules", claim, claimOf("closed", "c"), []string{service.HeaderExpectedVersion, "9"}, events.CodeVersionConflict, ""},
		{"a long command id", claim, good, []string{service.HeaderCommandID, strings.Repeat("x", 600)}, events.CodeIDInvalid, service.HeaderCommandID},
		{"a long correlation id", claim, good, []string{service.HeaderCorrelationID, long}, events.CodeIDInvalid, service.HeaderCorrelationID},
		{"a long causation id", claim, good, []string{service.HeaderCausationID, long}, events.CodeIDInvalid, service.HeaderCausationID},
		{"a command id without UTF-8", claim, good, []string{service.HeaderCommandID, "a\xff"}, events.CodeIDInvalid, service.HeaderCommandID},

		// Who asks.
		{"another principal", servicetest.Cmd("p-d", session.VerbClaim), good, nil, events.CodeCallerMismatch, ""},
		{"another principal, by controller", servicetest.Cmd("p-d", session.VerbClaim), good.with("principalId", nil), nil, events.CodeCallerMismatch, ""},
		{"another principal's authority", servicetest.Cmd("p-d", session.VerbRenew), shown("w", "c", 1), nil, events.CodeCallerMismatch, ""},
		{"another principal's release", servicetest.Cmd("p-d", session.VerbReleaseWithAuthority), shown("w", "c", 1), nil, events.CodeCallerMismatch, ""},
		{"another principal's close", servicetest.Cmd("p-d", session.VerbTerminalize), shown("w", "c", 1).with("state", "done"), nil, events.CodeCallerMismatch, ""},
		{"blank before principal", servicetest.Cmd("p-d", session.VerbClaim), good.with("sessionId", ""), nil, events.CodeIdentityRequired, "sessionId"},
		{"principal before the rules", servicetest.Cmd("p-d", session.VerbClaim), claimOf("closed", "c"), nil, events.CodeCallerMismatch, ""},
		{"a wildcard for a principal", "forge.cmd.main.*.work.claim", good, nil, events.CodeIDInvalid, "principal"},
		{"no token", "forge.cmd.main.a=b.work.claim", good, nil, events.CodeIDInvalid, "principal"},
		{"a token that shows nothing", "forge.cmd.main.=!.work.claim", good, nil, events.CodeIDInvalid, "principal"},
		{"half a hash", "forge.op.main.==abc.work.force-release", fields{"workId": "w", "reason": "r"}, nil, events.CodeIDInvalid, "principal"},
		{"a token of what needs none", "forge.op.main.=YQ.work.force-release", fields{"workId": "w", "reason": "r"}, nil, events.CodeIDInvalid, "principal"},

		// msgpack.
		{"an extension", claim, []byte{0x81, 0xa6, 'w', 'o', 'r', 'k', 'I', 'd', 0xd4, 0x01, 0x00}, packed, events.CodeBadRequest, "body"},
		{"a time extension", claim, pack(map[string]any{"workId": time.Unix(0, 0)}), packed, events.CodeBadRequest, "body"},
		{"not a number", claim, pack(map[string]any{"leaseMs": math.NaN()}), packed, events.CodeBadRequest, "body"},
		{"infinity", claim, pack(map[string]any{"leaseMs": math.Inf(1)}), packed, events.CodeBadRequest, "body"},
		{"trailing bytes", claim, append(pack(map[string]any{"workId": "w"}), 0xc0), packed, events.CodeBadRequest, "body"},
		{"cut off", claim, pack(good)[:20], packed, events.CodeBadRequest, "body"},
		{"a key that is a number", claim, pack(map[int]int{1: 1}), packed, events.CodeBadRequest, "body"},
		{"doubled keys", claim, []byte{0x82, 0xa1, 'a', 1, 0xa1, 'a', 2}, packed, events.CodeBadRequest, "body"},
		{"a huge length", claim, []byte{0xdf, 0xff, 0xff, 0xff, 0xff}, packed, events.CodeBadRequest, "body"},
		{"a huge list", claim, []byte{0x81, 0xa1, 'a', 0xdd, 0x7f, 0xff, 0xff, 0xff}, packed, events.CodeBadRequest, "body"},
		{"a huge text", claim, []byte{0x81, 0xdb, 0x7f, 0xff, 0xff, 0xff}, packed, events.CodeBadRequest, "body"},
		{"nested deeply", claim, append(bytes.Repeat([]byte{0x91}, 900_000), 0xc0), packed, events.CodeBadRequest, "body"},
		{"a text that is no UTF-8", claim, pack(map[string]any{"workId": "a\xff"}), packed, events.CodeBadRequest, "body"},
		{"JSON said to be msgpack", claim, raw(`{"workId":"w"}`), packed, events.CodeBadRequest, "body"},
		{"msgpack said to be JSON", claim, pack(good), nil, events.CodeBadRequest, "body"},
		{"msgpack list", claim, pack([]int{1}), packed, events.CodeBadRequest, "body"},
		{"msgpack with nothing", claim, raw(""), packed, events.CodeIdentityRequired, "workId"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := servicetest.MustAsk(t, nc, c.subject, c.body, c.headers...)
			want(t, r, c.code)
			if len(c.headers) == 2 && c.headers[1] == service.ContentMsgpack {
				if got := r.Header.Get(service.HeaderContentType); got != service.ContentMsgpack {
					t.Errorf("answered as %q", got)
				}
				return
			}
			if got := r.Header.Get(service.HeaderContentType); got != service.ContentJSON {
				t.Errorf("answered as %q", got)
			}
			if c.field != "" && r.Details["field"] != c.field {
				t.Errorf("it names %v, not %s: %s", r.Details["field"], c.field, r.Data)
			}
			if len(r.Data) > 8<<10 {
				t.Errorf("%d bytes of error", len(r.Data))
			}
			if after := position(t, s); after != last {
				last = after
				t.Error("something was appended")
			}
		})
	}
	if after := position(t, s); after != last {
		t.Error("something was appended")
	}
	if !nc.IsConnected() || nc.Stats().Reconnects != 0 {
		t.Error("the connection broke")
	}
	wantOutcome(t, cmd(t, nc, "c", session.VerbClaim, good), appended)
}

// TestOddIDs: ids of all kinds are one work each, for all verbs, and no wildcard.
func TestOddIDs(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	ids := []string{
		"*", ">", ".", "a.b", "work.>", "a*b", " w", "=", "==", "=dw", "%", "/", `\`, `"`, "a b", "äöü", "日本語", "🦊", "a\u00a0b",
		"..", "$SYS", "$KV.forge-activity-main.runtime", "forge.log.main.release", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("ü", 32),
		strings.Repeat("x", 512), strings.Repeat("日", 170), "e\u0301", "é", "W", "w", "null", "0", "-1", "{}",
	}
	owners := map[string]uint64{}
	for i, id := range ids {
		r := cmd(t, nc, "c", session.VerbClaim, claimOf(id, "c"))
		wantOutcome(t, r, appended)
		name := strings.TrimSpace(id)
		if before := owners[name]; before == 0 && r.Version != 1 || before != 0 && r.Version != 2 {
			t.Errorf("%q is the same work as another one: version %d", id, r.Version)
		}
		owners[name] = r.Position
		if o := owner(t, r); o.WorkID != name {
			t.Errorf("%q became %q", id, o.WorkID)
		}
		for _, spelling := range []string{id, " " + id + "\t", id + "\n"} {
			want(t, cmd(t, nc, "d", session.VerbClaim, claimOf(spelling, "d")), events.CodeAlreadyClaimed)
			if got := owner(t, query(t, nc, "works.get", fields{"workId": spelling})); got.WorkID != name {
				t.Errorf("%q is %q", spelling, got.WorkID)
			}
		}
		rec, err := s.Log().At(t.Context(), r.Position)
		if err != nil || rec == nil {
			t.Fatal(err)
		}
		if strings.Count(rec.Subject, ".") != 4 || strings.ContainsAny(rec.Subject, "*> ") || len(rec.Subject) > 120 {
			t.Errorf("%d: %q is on subject %q", i, id, rec.Subject)
		}
		var history []json.RawMessage
		mustInto(t, query(t, nc, "works.history", fields{"workId": id}), &history)
		if len(history) == 0 {
			t.Errorf("%q has no history", id)
		}
	}
	var list []json.RawMessage
	mustInto(t, query(t, nc, "claims.list", fields{"limit": 1000, "minPosition": position(t, s)}), &list)
	if len(list) != len(owners) {
		t.Errorf("%d works are claimed, %d are listed", len(owners), len(list))
	}
}

// TestBlankTargets: a blank id names a work that does not exist.
func TestBlankTargets(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	for _, id := range []any{"", " ", nil, 7} {
		for _, what := range []string{"works.get", "works.retained"} {
			if r := query(t, nc, what, fields{"workId": id}); r.Code == "" && string(r.Result) != "null" || r.Code != "" && (id != 7 || r.Code != events.CodeBadRequest) {
				t.Errorf("%s of %v: %s", what, id, r.Data)
			}
		}
		if r := op(t, nc, session.VerbRelease, fields{"workId": id, "controllerId": "c"}); id != 7 && r.Outcome != unchanged {
			t.Errorf("release of %v: %s", id, r.Data)
		}
		if r := cmd(t, nc, "c", session.VerbReleaseWithAuthority, fields{"workId": id, "authority": authorityOf("c", 1)}); r.Outcome != refused {
			t.Errorf("release of %v: %s", id, r.Data)
		}
	}
	if p := position(t, s); p != 0 {
		t.Errorf("the log ends at %d", p)
	}
}

// TestLeases: a lease is an hour if none is given, and between a second and an
// hour; numbers may be written in any way.
func TestLeases(t *testing.T) {
	s := servicetest.SiteR1(t)
	for i, c := range []struct {
		lease string
		ms    int64
	}{
		{"null", 3_600_000},
		{"0", 1000},
		{"-1", 1000},
		{"-1e300", 1000},
		{"-9223372036854775809", 1000},
		{"999", 1000},
		{"1000", 1000},
		{"1001", 1001},
		{"6e4", 60_000},
		{"60000.0", 60_000},
		{"3600000", 3_600_000},
		{"3600001", 3_600_000},
		{"9223372036854775807", 3_600_000},
		{"18446744073709551616", 3_600_000},
		{"1e400", 3_600_000},
	} {
		body := fmt.Sprintf(`{"workId":"w%d","controllerId":"c","controllerType":"t","sessionId":"s","leaseMs":%s}`, i, c.lease)
		r := servicetest.MustAsk(t, s.Caller(0), servicetest.Cmd("c", session.VerbClaim), []byte(body))
		wantOutcome(t, r, appended)
		if o := owner(t, r); int64(o.LeaseExpiresAt-o.ClaimedAt) != c.ms {
			t.Errorf("a lease of %s is %d ms, not %d", c.lease, o.LeaseExpiresAt-o.ClaimedAt, c.ms)
		}
	}
}

// TestIgnoredFields: fields that no rule knows are named in a header, and stop
// nothing.
func TestIgnoredFields(t *testing.T) {
	s := servicetest.SiteR1(t)
	r := cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c").with("colour", "blue", "nested", fields{"workId": 7}, "leasems", 5, "actor", "me"))
	wantOutcome(t, r, appended)
	if got := strings.Split(r.Header.Get(service.HeaderIgnoredFields), ","); strings.Join(sorted(got), " ") != "colour leasems nested" {
		t.Errorf("ignored: %v", got)
	}
	if got := cmd(t, s.Caller(0), "c", session.VerbClaim, claimOf("w", "c")).Header.Get(service.HeaderIgnoredFields); got != "" {
		t.Errorf("ignored: %v", got)
	}
	many := claimOf("w", "c")
	for i := range 10_000 {
		many[fmt.Sprintf("field-%d\r\nNats-Service-Error: x", i)] = i
	}
	r = cmd(t, s.Caller(0), "c", session.VerbClaim, many)
	wantOutcome(t, r, appended)
	if got := r.Header.Get(service.HeaderIgnoredFields); got == "" || len(got) > 4096 || r.Header.Get("Nats-Service-Error") != "" {
		t.Errorf("%d bytes of header, error %q", len(got), r.Header.Get("Nats-Service-Error"))
	}
}

// TestPrincipals: who is recorded is who the subject proves, as far as it can be
// told.
func TestPrincipals(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	long := strings.Repeat("p", 100)
	recorded := func(r *servicetest.Reply) string {
		t.Helper()
		wantOutcome(t, r, appended)
		rec, err := s.Log().At(t.Context(), r.Position)
		if err != nil || rec == nil {
			t.Fatal(err)
		}
		c, err := events.DecodeCommit(rec.Payload)
		if err != nil {
			t.Fatal(err)
		}
		return c.Actor.Principal
	}
	ask := func(principal, verb string, body any) *servicetest.Reply {
		return servicetest.MustAsk(t, nc, "forge.cmd.main."+principal+"."+verb, body)
	}
	for _, c := range []struct {
		name string
		r    *servicetest.Reply
		want string
	}{
		{"the principal", ask("p", session.VerbClaim, claimOf("w1", "c").with("principalId", " p ")), "p"},
		{"the controller", ask("c", session.VerbClaim, claimOf("w2", "c").with("principalId", nil)), "c"},
		{"an encoded one", ask(events.Token("ä b"), session.VerbClaim, claimOf("w3", "c").with("principalId", "ä b")), "ä b"},
		{"a hashed one", ask(events.Token(long), session.VerbClaim, claimOf("w4", "c").with("principalId", long)), long},
		{"of an authority", ask("p", session.VerbRenew, fields{"workId": "w1", "authority": authorityOf("c", 1).with("principalId", "p")}), "p"},
		{"not what stands beside it", ask("p", session.VerbRenew, fields{"workId": "w1", "authority": authorityOf("c", 1).with("principalId", "p"), "principalId": "victim", "controllerId": "victim"}), "p"},
		{
			"nor beside a release",
			ask("p", session.VerbReleaseWithAuthority, fields{"workId": "w1", "authority": authorityOf("c", 1).with("principalId", "p"), "principalId": "victim"}), "p",
		},
		{"the operator", op(t, nc, session.VerbRelease, fields{"workId": "w2", "controllerId": "c", "principalId": "victim"}), "operator"},
		{"a hashed operator", servicetest.MustAsk(t, nc, "forge.op.main."+events.Token(long)+"."+session.VerbForceRelease, fields{"workId": "w3", "reason": "r"}), events.Token(long)},
	} {
		if got := recorded(c.r); got != c.want {
			t.Errorf("%s: recorded %q, want %q", c.name, got, c.want)
		}
	}
	// A body that names nobody is not compared; there is nobody to refuse.
	if _, reason := fenceOf(t, ask("anybody", session.VerbReleaseWithAuthority, fields{"workId": "w4", "authority": fields{"controllerId": "c"}})); reason != session.ReasonStaleAuthority {
		t.Errorf("refused for %q", reason)
	}
}

// TestMsgpack: a body in msgpack is the same request, and is answered in msgpack.
func TestMsgpack(t *testing.T) {
	s := servicetest.SiteR1(t)
	nc := s.Caller(0)
	packed := func(body any) []byte {
		b, err := msgpack.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ask := func(subject string, body any, headers ...string) (map[string]any, *servicetest.Reply) {
		t.Helper()
		r := servicetest.MustAsk(t, nc, subject, packed(body), append(headers, service.HeaderContentType, service.ContentMsgpack)...)
		if got := r.Header.Get(service.HeaderContentType); got != service.ContentMsgpack {
			t.Fatalf("answered as %q", got)
		}
		var m map[string]any
		if err := msgpack.Unmarshal(r.Data, &m); err != nil {
			t.Fatal(err)
		}
		return m, r
	}
	body := map[string]any{}
	for k, v := range claimOf("w", "c") {
		body[k] = v
	}
	body["leaseMs"], body["expectedClaimGeneration"] = uint16(60_000), int8(0)
	m, _ := ask(servicetest.Cmd("p-c", session.VerbClaim), body, service.HeaderCommandID, "one")
	result, _ := m["result"].(map[string]any)
	if m["outcome"] != appended || result["workId"] != "w" || fmt.Sprint(result["claimGeneration"]) != "1" {
		t.Fatalf("claimed: %v", m)
	}
	// The same request as JSON is the same request.
	delete(body, "leaseMs")
	if r := cmd(t, nc, "c", session.VerbClaim, claimOf("w", "c").with("leaseMs", 60_000, "expectedClaimGeneration", 0), service.HeaderCommandID, "one"); r.Outcome != already {
		t.Errorf("as JSON: %s", r.Data)
	}
	m, r := ask(servicetest.Cmd("p-d", session.VerbClaim), claimOf("w", "d"))
	want(t, r, events.CodeAlreadyClaimed)
	if details, _ := m["details"].(map[string]any); details["controllerId"] != "c" {
		t.Errorf("refused: %v", m)
	}
	if m, _ = ask(servicetest.Query("works.get"), map[string]any{"workId": "w"}); m["result"].(map[string]any)["controllerId"] != "c" {
		t.Errorf("get: %v", m)
	}
	if m, r = ask(servicetest.Cmd("p-c", "work.nonsense"), body); r.Number != 404 || m["code"] != string(events.CodeUnknownVerb) {
		t.Errorf("an unknown verb: %v", m)
	}
}
