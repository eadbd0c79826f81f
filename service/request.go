package service

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/forge-es/forge-es/aggregate"
	"github.com/forge-es/forge-es/aggregate/session"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/oklog/ulid/v2"
)

// Headers of requests and replies.
const (
	HeaderCommandID       = "Forge-Command-Id"
	HeaderCorrelationID   = "Forge-Correlation-Id"
	HeaderCausationID     = "Forge-Causation-Id"
	HeaderExpectedVersion = "Forge-Expected-Version"
	HeaderIgnoredFields   = "Forge-Ignored-Fields"
	HeaderContentType     = "Content-Type"
)

// Roots of the subjects, the first two tokens.
const (
	RootCommand  = "forge.cmd"
	RootOperator = "forge.op"
	RootQuery    = "forge.query"
)

// maxReply is the most bytes of a reply.
const maxReply = 512 << 10

// request is one message, taken apart.
type request struct {
	root    string // RootCommand …
	verb    string // for example "work.claim"
	caller  session.Caller
	body    *aggregate.Body
	text    []byte // the body as JSON
	header  micro.Headers
	reply   string
	msgpack bool
}

// parse takes a message apart. What it refuses was not looked at by any rule.
func parse(ep *endpoint, m micro.Request) (*request, error) {
	r := &request{root: ep.root, verb: ep.verb, header: m.Headers(), reply: m.Reply(), text: m.Data()}
	r.caller = session.Caller{Operator: ep.root == RootOperator}
	if ep.root != RootQuery {
		r.caller.Token = strings.Split(m.Subject(), ".")[principalToken]
	}
	contentType, _, _ := strings.Cut(r.headerText(HeaderContentType), ";")
	switch strings.ToLower(strings.TrimSpace(contentType)) {
	case "", ContentJSON:
	case ContentMsgpack:
		r.msgpack = true
		if len(r.text) > 0 {
			text, err := msgpackToJSON(r.text)
			if err != nil {
				return r, events.Errorf(events.CodeBadRequest, "%w", err).With("field", "body")
			}
			r.text = text
		}
	default:
		return r, events.Errorf(events.CodeBadRequest, "content type %q is neither %s nor %s", contentType, ContentJSON, ContentMsgpack).With("field", HeaderContentType)
	}
	if r.caller.Token != "" && !validToken(r.caller.Token) {
		return r, events.Errorf(events.CodeIDInvalid, "the principal in the subject is no token; forge-es token TEXT makes one").With("field", "principal")
	}
	var err error
	r.body, err = aggregate.ParseBody(r.text)
	return r, err
}

// principalToken is the place of the principal in a command's subject:
// forge.cmd.<instance>.<principal>.<aggregate>.<verb>.
const principalToken = 3

// validToken reports whether a subject token is one that events.Token makes.
func validToken(token string) bool {
	if id, ok := events.ParseToken(token); ok {
		return events.CheckID("principal", id) == nil
	}
	hash, hashed := strings.CutPrefix(token, "==")
	return hashed && len(hash) == 64 && strings.Trim(hash, "0123456789abcdef") == ""
}

func (r *request) headerText(name string) string {
	return strings.TrimSpace(r.header.Get(name))
}

// commandID is the id of the command, a new ULID unless the caller gave one.
func (r *request) commandID() (string, error) {
	id := r.headerText(HeaderCommandID)
	if id == "" {
		return ulid.Make().String(), nil
	}
	return id, events.CheckID(HeaderCommandID, id)
}

// gaveCommandID: the caller chose the id, so that it may have come before.
func (r *request) gaveCommandID() bool { return r.headerText(HeaderCommandID) != "" }

// expectedVersion is the version that the boundary must have, nil for any.
func (r *request) expectedVersion() (*uint64, error) {
	text := r.headerText(HeaderExpectedVersion)
	if text == "" {
		return nil, nil
	}
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "%s is no version", HeaderExpectedVersion).With("field", HeaderExpectedVersion)
	}
	return &v, nil
}

// principal is the caller as text: what the body says of it (the subject proved
// it), else what the subject token shows, else the token itself.
func (r *request) principal() string {
	if !r.caller.Operator {
		if p := r.named(); p != "" {
			return p
		}
	}
	if id, ok := events.ParseToken(r.caller.Token); ok {
		return id
	}
	return r.caller.Token
}

// named is the principal that the body names where the rules compare it with the
// subject: in the authority, if the verb shows one. What stands elsewhere proves
// nothing.
func (r *request) named() string {
	switch r.verb {
	case session.VerbRenew, session.VerbReleaseWithAuthority, session.VerbTerminalize:
		if a := r.body.Object("authority"); a.Set {
			return aggregate.Trimmed(a.Value.Text("principalId"))
		}
		return ""
	}
	if p := aggregate.Trimmed(r.body.Text("principalId")); p != "" {
		return p
	}
	return aggregate.Trimmed(r.body.Text("controllerId"))
}

// actor is who asks, for the commit.
func (r *request) actor() events.Actor {
	return events.Actor{
		Principal:            r.principal(),
		ControllerID:         r.body.Peek("controllerId"),
		SessionID:            r.body.Peek("sessionId"),
		ControllerInstanceID: r.body.Peek("controllerInstanceId"),
		Label:                r.body.Peek("actor"),
	}
}

// envelope reads what a commit will say about a command, except the boundary.
func (r *request) envelope() (e envelope, err error) {
	if e.commandID, err = r.commandID(); err != nil {
		return e, err
	}
	if e.expectedVersion, err = r.expectedVersion(); err != nil {
		return e, err
	}
	if e.correlation, err = r.label(HeaderCorrelationID); err != nil {
		return e, err
	}
	if e.causation, err = r.label(HeaderCausationID); err != nil {
		return e, err
	}
	e.given, e.principalToken, e.verb, e.digest, e.actor = r.gaveCommandID(), r.caller.Token, r.verb, r.digest(), r.actor()
	return e, nil
}

// label reads a header that is carried along.
func (r *request) label(name string) (string, error) {
	v := r.headerText(name)
	return v, events.CheckID(name, v)
}

// digest is the request digest: SHA-256 of verb, a zero byte, and the canonical
// body. A body that has no canonical form (a duplicate key deep inside) counts as
// it stands.
func (r *request) digest() events.Hash {
	canon, err := events.CanonicalJSON(r.text)
	if err != nil {
		canon = r.text
	}
	return events.HashOf(append([]byte(r.verb+"\x00"), canon...))
}

// respond publishes a reply. It is called from any goroutine, which the micro
// framework's own Respond does not allow beside its statistics.
func (s *Service) respond(r *request, result any, err error) {
	if r.reply == "" {
		return
	}
	m := nats.NewMsg(r.reply)
	b, encodeErr := json.Marshal(result)
	if err == nil && encodeErr != nil {
		err = events.Errorf(events.CodeUnavailable, "reply: %w", encodeErr)
	}
	if err == nil && len(b) > maxReply {
		err = events.Errorf(events.CodeTooLarge, "the reply has %d bytes, the most is %d", len(b), maxReply)
	}
	if err != nil {
		b = errorReply(m, err)
	}
	m.Header.Set(HeaderContentType, ContentJSON)
	if r.msgpack {
		if packed, err := jsonToMsgpack(b); err == nil {
			b = packed
			m.Header.Set(HeaderContentType, ContentMsgpack)
		}
	}
	if r.body != nil {
		if ignored := r.body.Ignored(); len(ignored) > 0 {
			m.Header.Set(HeaderIgnoredFields, headerSafe(strings.Join(ignored, ",")))
		}
	}
	m.Data = b
	if err := s.app.PublishMsg(m); err != nil {
		s.log.Warn().Err(err).Str("verb", r.verb).Msg("reply not sent")
	}
}

// errorReply sets the error headers and gives the body {code, message, details}.
func errorReply(m *nats.Msg, err error) []byte {
	e := events.AsError(err)
	m.Header.Set(micro.ErrorHeader, headerSafe(e.Error()))
	m.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(e.Code.Info().Number))
	b, _ := json.Marshal(ErrorBody{Code: e.Code, Message: e.Message, Details: e.Details})
	return b
}

// ErrorBody is the body of an error reply.
type ErrorBody struct {
	Code    events.Code    `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// headerSafe makes a text fit for a header line: no line breaks, a bounded
// length.
func headerSafe(s string) string {
	const most = 2048
	if len(s) > most {
		s = s[:most]
	}
	return string(bytes.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, []byte(s)))
}

// mayReply reports whether a reply subject is one that callers receive on. Any
// other would let a caller write through the service.
func mayReply(subject string) bool {
	return subject == "" || strings.HasPrefix(subject, "_INBOX") || strings.HasPrefix(subject, "_R_")
}

// contextOf bounds the work on a request.
func (s *Service) contextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.life, s.opts.CommandTimeout)
}
