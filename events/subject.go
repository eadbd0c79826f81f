package events

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultInstance is the name of the instance when none is given.
const DefaultInstance = "main"

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// ValidInstance says whether name can name an instance: 1 to 32 characters of
// a-z, 0-9 and '-', the first no '-'. The error has code FORGE_ID_INVALID.
func ValidInstance(name string) error {
	if !instanceName.MatchString(name) {
		return Errorf(CodeIDInvalid, "instance name %q: want [a-z0-9][a-z0-9-]{0,31}", clip(name)).With("field", "instance")
	}
	return nil
}

// StreamName names the JetStream stream of an instance's log.
func StreamName(instance string) string {
	return "FORGE_" + strings.ToUpper(strings.ReplaceAll(instance, "-", "_"))
}

// Log subjects. Each literal subject is one consistency boundary.
const logRoot = "forge.log."

// WorkSubject is the boundary of one work: its claims and its state.
func WorkSubject(instance, workID string) string {
	return logRoot + instance + ".work." + Token(workID)
}

// ReleaseSubject is the boundary of the ledger.
func ReleaseSubject(instance string) string { return logRoot + instance + ".release" }

// ImportSubject is the boundary that remembers which legacy snapshots were
// taken over.
func ImportSubject(instance string) string { return logRoot + instance + ".import" }

// LogSubjects lists what the stream of an instance listens to.
func LogSubjects(instance string) []string {
	return []string{logRoot + instance + ".work.*", ReleaseSubject(instance), ImportSubject(instance)}
}

// Boundary kinds, as they stand in Commit.Kind.
const (
	KindWork    = "work"
	KindRelease = "release"
	KindImport  = "import"
)

// SubjectKind tells which boundary kind a log subject of the instance belongs to; ok is
// false for a subject that is none.
func SubjectKind(instance, subject string) (kind string, ok bool) {
	rest, ok := strings.CutPrefix(subject, logRoot+instance+".")
	if !ok {
		return "", false
	}
	if rest == KindRelease || rest == KindImport {
		return rest, true
	}
	token, ok := strings.CutPrefix(rest, "work.")
	return KindWork, ok && token != "" && !strings.ContainsAny(token, ".*> \t\r\n")
}

// CommitSubject is the subject that a commit of the instance belongs on.
func CommitSubject(instance string, c *Commit) string {
	if c.Kind == KindWork {
		return WorkSubject(instance, c.AggregateID)
	}
	return logRoot + instance + "." + c.Kind
}

// maxToken is the longest id, in bytes, that a token shows.
const maxToken = 64

// Token makes an id fit for a subject and a key: an id of 1 to 64 characters
// A-Z a-z 0-9 _ - stands as it is; another id of at most 64 bytes becomes '='
// and unpadded base64url; a longer one '==' and hex SHA-256. Different ids have
// different tokens, and no token is a wildcard or holds a dot.
func Token(id string) string {
	switch {
	case len(id) > maxToken:
		sum := sha256.Sum256([]byte(id))
		return "==" + hex.EncodeToString(sum[:])
	case plainToken(id):
		return id
	default:
		return "=" + base64.RawURLEncoding.EncodeToString([]byte(id))
	}
}

// ParseToken gives the id that a token shows. ok is false for a hashed token
// (its id cannot be told) and for a text that Token never makes.
func ParseToken(token string) (id string, ok bool) {
	if plainToken(token) {
		return token, true
	}
	enc, found := strings.CutPrefix(token, "=")
	if !found || strings.HasPrefix(enc, "=") {
		return "", false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(enc)
	if err != nil || Token(string(b)) != token {
		return "", false
	}
	return string(b), true
}

func plainToken(id string) bool {
	if id == "" || len(id) > maxToken {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// MaxID is the longest id in bytes.
const MaxID = 512

// CheckID refuses an id that is too long, holds control characters or is not
// UTF-8, with FORGE_ID_INVALID naming the field. The id is already trimmed;
// an empty one passes.
func CheckID(field, id string) error {
	if len(id) > MaxID {
		return Errorf(CodeIDInvalid, "%s has %d bytes, the most is %d", field, len(id), MaxID).With("field", field)
	}
	if !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return Errorf(CodeIDInvalid, "%s holds a control character or is not UTF-8", field).With("field", field)
	}
	return nil
}

// MsgIDLen is the length of a message id in bytes; its text has twice as many
// hex digits.
const MsgIDLen = 16

// MsgID identifies a command on a boundary: the first 16 bytes of
// SHA-256(subject 0 principal token 0 command id).
type MsgID [MsgIDLen]byte

// NewMsgID computes the message id of a command of a principal (as its subject
// token) on a log subject.
func NewMsgID(subject, principalToken, commandID string) MsgID {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s", subject, principalToken, commandID)
	var id MsgID
	copy(id[:], h.Sum(nil))
	return id
}

// String is the text of the Nats-Msg-Id header: 32 lower-case hex digits.
func (id MsgID) String() string { return hex.EncodeToString(id[:]) }
