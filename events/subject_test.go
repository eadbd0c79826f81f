package events

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var oddIDs = []string{
	"w1", "W-1_x", "", " ", "a b", "*", ">", "a.b", "a*", "work.>", "é", "日本", "=", "==", "=dzE", "a/b", "$", "w\x00", "\x7f",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("é", 32), strings.Repeat("é", 33), strings.Repeat("*", 512),
}

func TestToken(t *testing.T) {
	for id, want := range map[string]string{
		"w1": "w1", "A_b-9": "A_b-9", strings.Repeat("x", 64): strings.Repeat("x", 64),
		"": "=", "a.b": "=YS5i", ">": "=Pg", "*": "=Kg", "é": "=w6k", "=": "=PQ",
		strings.Repeat("x", 65): "==9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9",
	} {
		if got := Token(id); got != want {
			t.Errorf("Token(%q) = %q, want %q", id, got, want)
		}
	}
	seen := map[string]string{}
	for _, id := range oddIDs {
		token := Token(id)
		if other, taken := seen[token]; taken && other != id {
			t.Errorf("%q and %q have the token %s", id, other, token)
		}
		seen[token] = id
		checkToken(t, id)
	}
	for _, token := range []string{
		"a.b", " ", "", "=*", "=dzE", "==", "==abc", Token(strings.Repeat("x", 65)), "=YS5i=", "=YS5j\n", "=YS5", "é", "=/w", "=+w", strings.Repeat("x", 65),
	} {
		if id, ok := ParseToken(token); ok {
			t.Errorf("ParseToken(%q) = %q", token, id)
		}
	}
}

// checkToken checks what every token promises.
func checkToken(t testing.TB, id string) {
	t.Helper()
	token := Token(id)
	if token == "" || len(token) > 87 || strings.ContainsAny(token, ".*> \t\r\n\x00") {
		t.Errorf("Token(%q) = %q is no subject token", id, token)
	}
	for _, c := range []byte(token) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=", rune(c)) {
			t.Errorf("Token(%q) = %q holds %q", id, token, c)
		}
	}
	got, ok := ParseToken(token)
	if ok != (len(id) <= 64) || ok && got != id {
		t.Errorf("Token(%q) = %q, which shows %q, %t", id, token, got, ok)
	}
}

func TestSubjects(t *testing.T) {
	for id, want := range map[string]string{
		"w1": "forge.log.main.work.w1", "a.b": "forge.log.main.work.=YS5i", "*": "forge.log.main.work.=Kg", ">": "forge.log.main.work.=Pg",
	} {
		if got := WorkSubject("main", id); got != want {
			t.Errorf("WorkSubject(%q) = %s, want %s", id, got, want)
		}
	}
	for subject, want := range map[string]string{
		"forge.log.main.release": KindRelease, "forge.log.main.import": KindImport, "forge.log.main.work.w1": KindWork, "forge.log.main.work.=Kg": KindWork,
		"forge.log.main.work": "", "forge.log.main.work.": "", "forge.log.main.work.*": "", "forge.log.main.work.>": "", "forge.log.main.work.a.b": "",
		"forge.log.main.work.a b": "", "forge.log.main.work.a\n": "", "forge.log.main.release.x": "", "forge.log.main.releases": "", "forge.log.main": "",
		"forge.log.other.release": "", "forge.log.main2.release": "", "forge.cmd.main.work.w1": "", "forge.log.main.>": "", "": "",
		"forge.log.main.WORK.w1": "", "x.forge.log.main.release": "",
	} {
		kind, ok := SubjectKind("main", subject)
		if ok != (want != "") || ok && kind != want {
			t.Errorf("SubjectKind(%q) = %q, %t; want %q", subject, kind, ok, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		instance := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,31}`).Draw(t, "instance")
		id := rapid.OneOf(rapid.String(), rapid.SampledFrom(oddIDs)).Draw(t, "id")
		for _, c := range []*Commit{{Kind: KindWork, AggregateID: id}, {Kind: KindRelease, AggregateID: instance}, {Kind: KindImport, AggregateID: instance}} {
			subject := CommitSubject(instance, c)
			kind, ok := SubjectKind(instance, subject)
			if !ok || kind != c.Kind {
				t.Fatalf("the subject %s of kind %s is one of kind %q, %t", subject, c.Kind, kind, ok)
			}
			if strings.Count(subject, ".") > 4 || strings.ContainsAny(subject, "*>") {
				t.Fatalf("%s is no literal subject of the log", subject)
			}
			if _, ok := SubjectKind(instance+"x", subject); ok {
				t.Fatalf("%s belongs to another instance, too", subject)
			}
		}
	})
}

func TestInstanceNames(t *testing.T) {
	for _, name := range []string{"main", "a", "0", "a-b", strings.Repeat("a", 32)} {
		if err := ValidInstance(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "A", "a_b", "a.b", "a b", "*", ">", "é", "main\n", strings.Repeat("a", 33)} {
		if err := ValidInstance(name); !errors.Is(err, &Error{Code: CodeIDInvalid}) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := StreamName("my-forge-1"); got != "FORGE_MY_FORGE_1" {
		t.Errorf("got %s", got)
	}
	want := []string{"forge.log.main.work.*", "forge.log.main.release", "forge.log.main.import"}
	if got := LogSubjects("main"); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v", got)
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"", "w1", "a b", "*", ">", "日本", strings.Repeat("x", 512), strings.Repeat("é", 256), "\u2028", "a\u00a0b"} {
		if err := CheckID("workId", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"\x00", "a\nb", "a\tb", "\x7f", "\u0085", "\xff", "a\xc3", strings.Repeat("x", 513), strings.Repeat("é", 257)} {
		err := CheckID("workId", id)
		if CodeOf(err) != CodeIDInvalid || AsError(err).Details["field"] != "workId" {
			t.Errorf("%.20q: %v", id, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the message holds the control character", id)
		}
	}
}

func TestMsgID(t *testing.T) {
	// The definition, by hand: the first 16 bytes of SHA-256(subject 0 token 0 id).
	want := HashOf([]byte("forge.log.main.work.w1\x00p\x0001ABC"))
	if got := NewMsgID("forge.log.main.work.w1", "p", "01ABC"); got.String() != want.String()[:32] {
		t.Errorf("got %s, want %s", got, want.String()[:32])
	}
	seen := map[MsgID][3]string{}
	for _, k := range [][3]string{{"s", "p", "i"}, {"s", "p", "j"}, {"s", "q", "i"}, {"t", "p", "i"}, {"s", "pi", ""}, {"sp", "", "i"}, {"", "s", "pi"}} {
		id := NewMsgID(k[0], k[1], k[2])
		if other, taken := seen[id]; taken {
			t.Errorf("%q and %q have one message id", k, other)
		}
		seen[id] = k
	}
	id := NewMsgID("s", "p", "i")
	header := func(v ...string) Record { return Record{Header: map[string][]string{MsgIDHeader: v}} }
	if got, ok := header(id.String()).MsgID(); !ok || got != id {
		t.Errorf("got %s, %t", got, ok)
	}
	for name, r := range map[string]Record{
		"no header": {}, "none": header(), "two": header(id.String(), id.String()), "short": header(id.String()[:30]), "long": header(id.String() + "00"),
		"no hex": header(strings.Repeat("x", 32)), "upper case": header(strings.ToUpper(id.String())),
	} {
		if got, ok := r.MsgID(); ok {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestHashText(t *testing.T) {
	h := HashOf([]byte("x"))
	b, err := h.MarshalText()
	if err != nil || string(b) != h.String() || len(b) != 64 {
		t.Fatalf("%s, %v", b, err)
	}
	var got Hash
	if err := got.UnmarshalText(b); err != nil || got != h {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "ab", string(b[:63]) + "x", string(b) + "00"} {
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	if h.IsZero() || !(Hash{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}
