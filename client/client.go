package client

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/oklog/ulid/v2"
)

// Options say who is calling, and how long to try.
type Options struct {
	// Instance of forge-es. Default: events.DefaultInstance.
	Instance string

	// Principal is who sends commands, as text; it becomes a subject token.
	// Commands need it, queries do not.
	Principal string

	// Attempt is how long one message waits for its reply. Default: 5 s.
	Attempt time.Duration

	// Patience is how long a request is repeated while its outcome is in doubt or
	// the service is busy, when the context has no deadline. Default: 30 s.
	Patience time.Duration

	// Retrying, if set, is told why a request is about to be sent again.
	Retrying func(err error)
}

// Client sends requests. It is for concurrent use.
type Client struct {
	nc   *nats.Conn
	opts Options
}

// New makes a client over a connection, which it does not close.
func New(nc *nats.Conn, opts Options) (*Client, error) {
	if opts.Instance == "" {
		opts.Instance = events.DefaultInstance
	}
	if err := events.ValidInstance(opts.Instance); err != nil {
		return nil, err
	}
	if opts.Attempt <= 0 {
		opts.Attempt = 5 * time.Second
	}
	if opts.Patience <= 0 {
		opts.Patience = 30 * time.Second
	}
	return &Client{nc: nc, opts: opts}, nil
}

// Kind is the root of a request's subject.
type Kind string

// The roots.
const (
	Command  Kind = "cmd"   // proves ownership, or needs none
	Operator Kind = "op"    // overrides
	Query    Kind = "query" // asks
)

// Request is one command or query.
type Request struct {
	Kind Kind
	Verb string // for example "work.claim" or "works.get"
	Body any    // marshals to a JSON object; json.RawMessage is sent as it is

	// CommandID makes repeating the command safe, also by another process.
	// Default: a new one. Queries have none.
	CommandID string

	// Correlation and Causation are carried into the commit.
	Correlation, Causation string

	// ExpectedVersion, if set, is the version that the boundary must have.
	ExpectedVersion *uint64
}

// Reply is what a request was answered.
type Reply struct {
	Result    json.RawMessage `json:"result"`
	Position  uint64          `json:"position"`
	Version   uint64          `json:"version,omitempty"`
	CommandID string          `json:"commandId,omitempty"`
	Outcome   string          `json:"outcome,omitempty"` // appended, already-applied, unchanged, refused
	AsOf      string          `json:"asOf,omitempty"`    // queries: the time that counted
	Truncated bool            `json:"truncated,omitempty"`
	Cursor    string          `json:"cursor,omitempty"` // where a list goes on
	Next      uint64          `json:"next,omitempty"`   // position at which a history goes on

	// Incarnation tells release sessions of one id apart; commands may expect it.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// ReceiptsOmitted is how many of the oldest receipts the result leaves out.
	ReceiptsOmitted int `json:"receiptsOmitted,omitempty"`

	// Ignored names the fields of the body that the service does not know.
	Ignored string `json:"-"`
}

// Refused reports whether a fence did not let the command through.
func (r *Reply) Refused() bool { return r.Outcome == "refused" }

// Into decodes the result; a null result leaves v as it is.
func (r *Reply) Into(v any) error { return json.Unmarshal(r.Result, v) }

// subject is where a request goes.
func (c *Client) subject(r Request) (string, error) {
	if r.Kind == Query {
		return "forge.query." + c.opts.Instance + "." + r.Verb, nil
	}
	if c.opts.Principal == "" {
		return "", events.Errorf(events.CodeBadRequest, "a command needs a principal").With("field", "principal")
	}
	return "forge." + string(r.Kind) + "." + c.opts.Instance + "." + events.Token(c.opts.Principal) + "." + r.Verb, nil
}

// Do sends a request and waits for its reply. While the service does not answer,
// is busy, or cannot tell the outcome, the same request is sent again, with the
// same command id, until the context ends (or Options.Patience, if it has no
// deadline). Errors are *events.Error; FORGE_UNAVAILABLE means that the outcome
// of a command is in doubt.
func (c *Client) Do(ctx context.Context, r Request) (*Reply, error) {
	subject, err := c.subject(r)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(subject)
	if m.Data, err = encode(r.Body); err != nil {
		return nil, events.Errorf(events.CodeBadRequest, "body: %w", err)
	}
	if r.Kind != Query {
		if r.CommandID == "" {
			r.CommandID = NewCommandID()
		}
		m.Header.Set("Forge-Command-Id", r.CommandID)
	}
	for name, v := range map[string]string{"Forge-Correlation-Id": r.Correlation, "Forge-Causation-Id": r.Causation} {
		if v != "" {
			m.Header.Set(name, v)
		}
	}
	if r.ExpectedVersion != nil {
		m.Header.Set("Forge-Expected-Version", strconv.FormatUint(*r.ExpectedVersion, 10))
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Patience)
		defer cancel()
	}
	var before error
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		reply, err := c.once(ctx, m)
		if before != nil && ctx.Err() != nil && errors.Is(err, events.ErrUnavailable) {
			// The time was up during this attempt: those before say more.
			e := events.AsError(err)
			err = &events.Error{Code: e.Code, Message: e.Message + "; before that: " + events.AsError(before).Message, Err: e.Err}
		}
		if err == nil || !again(err) || ctx.Err() != nil {
			return reply, err
		}
		before = err
		if c.opts.Retrying != nil {
			c.opts.Retrying(err)
		}
		if !sleep(ctx, wait/2+rand.N(wait)) {
			return nil, err
		}
	}
}

// NewCommandID makes an id for a command: a ULID, from the system's randomness.
func NewCommandID() string {
	return ulid.MustNew(ulid.Now(), crand.Reader).String()
}

func encode(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return b, nil
	}
	return json.Marshal(body)
}

// once sends a message and takes its reply apart.
func (c *Client) once(ctx context.Context, m *nats.Msg) (*Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Attempt)
	defer cancel()
	answer, err := c.nc.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, events.Errorf(events.CodeUnavailable, "no service answers for instance %q", c.opts.Instance)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, events.Errorf(events.CodeTooLarge, "the body has %d bytes, the server takes %d", len(m.Data), c.nc.MaxPayload())
	case err != nil:
		return nil, events.Errorf(events.CodeUnavailable, "no reply: %w", err)
	}
	if answer.Header.Get(micro.ErrorCodeHeader) != "" {
		return nil, decodeError(answer)
	}
	r := &Reply{Ignored: answer.Header.Get("Forge-Ignored-Fields")}
	if err := json.Unmarshal(answer.Data, r); err != nil {
		return nil, events.Errorf(events.CodeUnavailable, "the reply is unreadable: %w", err)
	}
	return r, nil
}

func decodeError(m *nats.Msg) error {
	var body struct {
		Code    events.Code    `json:"code"`
		Message string         `json:"message"`
		Details map[string]any `json:"details"`
	}
	if err := json.Unmarshal(m.Data, &body); err != nil || body.Code == "" {
		return events.Errorf(events.CodeUnavailable, "%s", m.Header.Get(micro.ErrorHeader))
	}
	return &events.Error{Code: body.Code, Message: body.Message, Details: body.Details}
}

// again reports whether sending the same request once more may help.
func again(err error) bool {
	return errors.Is(err, events.ErrUnavailable) || errors.Is(err, events.ErrBusy)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
