package legacytest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Session is a claim as the old system stores it.
type Session struct {
	SchemaVersion        int    `json:"schemaVersion"`
	WorkID               string `json:"workId"`
	ControllerID         string `json:"controllerId"`
	ControllerType       string `json:"controllerType"`
	SessionID            string `json:"sessionId"`
	AuthorityDigest      string `json:"authorityDigest,omitempty"`
	PrincipalID          string `json:"principalId,omitempty"`
	ControllerInstanceID string `json:"controllerInstanceId,omitempty"`
	ClaimGeneration      int64  `json:"claimGeneration,omitempty"`
	ClaimedAt            string `json:"claimedAt"`
	LeaseExpiresAt       string `json:"leaseExpiresAt"`
}

// JSON is the session as JSON text.
func (s Session) JSON() string { return text(s) }

// Store is a claim store as JSON text.
func Store(sessions ...Session) string {
	if sessions == nil {
		sessions = []Session{}
	}
	return text(struct {
		SchemaVersion int       `json:"schemaVersion"`
		UpdatedAt     string    `json:"updatedAt"`
		Sessions      []Session `json:"sessions"`
	}{1, stamp(0), sessions})
}

// Retained is a retained identity as JSON text; released "" means none.
func Retained(s Session, released string) string {
	return text(struct {
		SchemaVersion int     `json:"schemaVersion"`
		Session       Session `json:"session"`
		RetainedAt    string  `json:"retainedAt"`
		ReleasedAt    string  `json:"releasedAt,omitempty"`
	}{1, s, s.ClaimedAt, released})
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", "  ") // as the old system writes files
	if err != nil {
		panic(err)
	}
	return string(b)
}

// stamp is a time of the old system, ms milliseconds after the start of 2026.
func stamp(ms int64) string {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
}

// Gen makes realistic values. It is not safe for concurrent use.
type Gen struct{ r *rand.Rand }

// NewGen makes a generator; the same seed gives the same values.
func NewGen(seed uint64) *Gen { return &Gen{r: rand.New(rand.NewPCG(seed, 1))} }

func (g *Gen) hex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[g.r.IntN(len(digits))]
	}
	return string(b)
}

// Session makes a claim of a work, with the optional fields sometimes missing, as
// older versions left them out.
func (g *Gen) Session(workID string) Session {
	types := []string{"chatgpt", "codex", "grok", "claude", "human"}
	at := g.r.Int64N(30 * 24 * 3600 * 1000)
	s := Session{
		SchemaVersion: 1, WorkID: workID,
		ControllerType: types[g.r.IntN(len(types))],
		SessionID:      "sess_" + g.hex(32),
		ClaimedAt:      stamp(at), LeaseExpiresAt: stamp(at + 3600_000),
	}
	s.ControllerID = s.ControllerType + "-" + g.hex(8)
	if g.r.IntN(4) > 0 {
		s.PrincipalID = "principal-" + g.hex(6)
	}
	switch g.r.IntN(3) {
	case 0:
		s.ControllerInstanceID = fmt.Sprintf("controller-%d-%s", 100+g.r.IntN(60000), g.hex(12))
	case 1:
		s.ControllerInstanceID = "runtime_" + g.hex(32)
	}
	if g.r.IntN(3) > 0 {
		s.AuthorityDigest = g.hex(64)
	}
	if g.r.IntN(5) > 0 {
		s.ClaimGeneration = 1 + g.r.Int64N(40)
	}
	return s
}

// Sessions makes n claims of n works.
func (g *Gen) Sessions(n int) []Session {
	out := make([]Session, n)
	for i := range out {
		out[i] = g.Session(fmt.Sprintf("WORK-%06d", i))
	}
	return out
}

// Transport makes the transport session of a claim as JSON text, with fields
// that are nobody's business.
func (g *Gen) Transport(s Session) string {
	v := map[string]any{
		"sessionId": s.SessionID, "activeWorkId": s.WorkID, "controllerInstanceId": s.ControllerInstanceID,
		"createdAt": s.ClaimedAt, "updatedAt": s.ClaimedAt, "userAgent": "agent/1." + g.hex(2), "csrfToken": g.hex(24),
	}
	if s.PrincipalID != "" {
		v["principalId"] = s.PrincipalID
	}
	switch g.r.IntN(3) {
	case 0:
		v["lastValidatedAt"] = s.ClaimedAt
	case 1:
		v["invalidatedAt"], v["invalidationReason"] = s.LeaseExpiresAt, "idle"
	}
	return text(v)
}
