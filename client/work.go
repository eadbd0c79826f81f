package client

import (
	"context"

	"github.com/forge-es/forge-es/events"
)

// Claim is the body of work.claim, work.resume and work.bind. Times are ms.
type Claim struct {
	WorkID               string `json:"workId"`
	ControllerID         string `json:"controllerId"`
	ControllerType       string `json:"controllerType"`
	SessionID            string `json:"sessionId"` // transport session
	PrincipalID          string `json:"principalId,omitempty"`
	ControllerInstanceID string `json:"controllerInstanceId,omitempty"`
	AuthorityDigest      string `json:"authorityDigest,omitempty"`
	// ExpectedGeneration is the generation that the live owner must have (0:
	// nobody), if set.
	ExpectedGeneration *int64 `json:"expectedClaimGeneration,omitempty"`
	LeaseMs            int64  `json:"leaseMs,omitempty"` // default one hour, clamped to 1 s … 1 h
	AllowStaleRecovery bool   `json:"allowStaleRecovery,omitempty"`
	// Of bind only.
	CurrentRuntimeInstanceID string `json:"currentRuntimeInstanceId,omitempty"`
	AllowClaimIfMissing      bool   `json:"allowClaimIfMissing,omitempty"`
}

// Authority is an owner epoch, as it is shown to act for a work.
type Authority struct {
	ControllerID         string `json:"controllerId"`
	ControllerType       string `json:"controllerType"`
	PrincipalID          string `json:"principalId"`
	ControllerInstanceID string `json:"controllerInstanceId"`
	ClaimGeneration      int64  `json:"claimGeneration"`

	// Capability is the secret that the claim is bound to, for a service that asks
	// for it (serve --require-capability). It is sent beside the authority.
	Capability string `json:"-"`
}

// into puts the authority into a body.
func (a Authority) into(body map[string]any) map[string]any {
	body["authority"] = a
	if a.Capability != "" {
		body["authorityId"] = a.Capability
	}
	return body
}

// AuthorityOf is the owner epoch of a session.
func AuthorityOf(s *events.Session) Authority {
	return Authority{
		ControllerID: s.ControllerID, ControllerType: s.ControllerType, PrincipalID: s.Principal(),
		ControllerInstanceID: s.Instance(), ClaimGeneration: s.Gen(),
	}
}

// Fence is the result of a command that shows an authority.
type Fence struct {
	Allowed bool            `json:"allowed"`
	Reason  string          `json:"reason"` // controller_claim_missing, stale_controller_authority, active_controller_claim
	Owner   *events.Session `json:"owner"`
	Value   any             `json:"value"`
}

// Claim claims a work under a lease and gives the session.
func (c *Client) Claim(ctx context.Context, in Claim) (*events.Session, error) {
	return c.session(ctx, "work.claim", in)
}

// Resume claims a work, or comes back to it; principal and controller instance
// are needed.
func (c *Client) Resume(ctx context.Context, in Claim) (*events.Session, error) {
	return c.session(ctx, "work.resume", in)
}

// Bind rebinds a work to the present transport session and runtime.
func (c *Client) Bind(ctx context.Context, in Claim) (*events.Session, error) {
	return c.session(ctx, "work.bind", in)
}

func (c *Client) session(ctx context.Context, verb string, in Claim) (*events.Session, error) {
	r, err := c.Do(ctx, Request{Kind: Command, Verb: verb, Body: in})
	if err != nil {
		return nil, err
	}
	s := new(events.Session)
	return s, r.Into(s)
}

// Renew extends the lease of the owner that shows its authority; 0 ms is the
// default lease. A refused fence is no error: look at Allowed.
func (c *Client) Renew(ctx context.Context, workID string, a Authority, leaseMs int64) (*Fence, error) {
	body := a.into(map[string]any{"workId": workID})
	if leaseMs != 0 {
		body["leaseMs"] = leaseMs
	}
	return c.fence(ctx, "work.renew", body)
}

// Release gives up a work, showing the authority.
func (c *Client) Release(ctx context.Context, workID string, a Authority) (*Fence, error) {
	return c.fence(ctx, "work.release-with-authority", a.into(map[string]any{"workId": workID}))
}

// Terminalize sets the state of a work, showing the authority.
func (c *Client) Terminalize(ctx context.Context, workID, state string, a Authority) (*Fence, error) {
	return c.fence(ctx, "work.terminalize", a.into(map[string]any{"workId": workID, "state": state}))
}

func (c *Client) fence(ctx context.Context, verb string, body any) (*Fence, error) {
	r, err := c.Do(ctx, Request{Kind: Command, Verb: verb, Body: body})
	if err != nil {
		return nil, err
	}
	f := new(Fence)
	return f, r.Into(f)
}

// Get gives the live session of a work, nil if nobody owns it.
func (c *Client) Get(ctx context.Context, workID string) (*events.Session, error) {
	r, err := c.Do(ctx, Request{Kind: Query, Verb: "works.get", Body: map[string]string{"workId": workID}})
	if err != nil {
		return nil, err
	}
	var s *events.Session
	return s, r.Into(&s)
}
