package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/spf13/cobra"
)

func (p *program) workCommand() *cobra.Command {
	return group("work", "Claims of works",
		p.claimCommand("claim", "Claim a work under a lease"),
		p.claimCommand("resume", "Claim a work, or come back to it, showing principal and controller instance"),
		p.claimCommand("bind", "Rebind a work to the present transport session and runtime"),
		p.renewCommand(), p.releaseCommand(), p.forceReleaseCommand(), p.terminalizeCommand(), p.setStateCommand(),
		p.resolveImportCommand(), p.mintCommand(), p.infoCommand(), p.listCommand(),
	)
}

// ownerFlags name an owner.
type ownerFlags struct {
	controller, kind, session, instance string
}

func (f *ownerFlags) add(c *cobra.Command) {
	stringFlag(c.Flags(), &f.controller, "controller", "FORGE_CONTROLLER", "", "controller `id` (env FORGE_CONTROLLER)")
	stringFlag(c.Flags(), &f.kind, "type", "FORGE_CONTROLLER_TYPE", "", "controller `type`, for example codex (env FORGE_CONTROLLER_TYPE)")
	stringFlag(c.Flags(), &f.instance, "controller-instance", "FORGE_CONTROLLER_INSTANCE", "", "controller instance, the runtime epoch (env FORGE_CONTROLLER_INSTANCE)")
}

func (f *ownerFlags) addSession(c *cobra.Command) {
	stringFlag(c.Flags(), &f.session, "session", "FORGE_SESSION", "", "transport session `id` (env FORGE_SESSION)")
}

// claimCommand makes work claim, resume and bind.
func (p *program) claimCommand(verb, short string) *cobra.Command {
	var owner ownerFlags
	var common commandFlags
	var digest, runtime string
	var lease time.Duration
	var expect int64
	var recover, ifMissing bool
	c := &cobra.Command{Use: verb + " WORK", Short: short, Args: cobra.ExactArgs(1), Example: example(verb), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{
			"workId": args[0], "controllerId": owner.controller, "controllerType": owner.kind, "sessionId": owner.session,
		}
		optional(body, "principalId", p.principal)
		optional(body, "controllerInstanceId", owner.instance)
		optional(body, "authorityDigest", digest)
		optional(body, "currentRuntimeInstanceId", runtime)
		if err := leaseOf(c, lease, body); err != nil {
			return err
		}
		if c.Flags().Changed("expect-generation") {
			body["expectedClaimGeneration"] = expect
		}
		if recover {
			body["allowStaleRecovery"] = true
		}
		if ifMissing {
			body["allowClaimIfMissing"] = true
		}
		r, err := p.do(c.Context(), common.request(client.Command, "work."+verb, body), cmp.Or(owner.controller, operator()))
		if err != nil {
			return owner.advise(err)
		}
		return p.done(r, func() error {
			var s events.Session
			if err := r.Into(&s); err != nil {
				return err
			}
			p.showSession(&s)
			p.showOutcome(r)
			return nil
		})
	}}
	owner.add(c)
	owner.addSession(c)
	common.add(c)
	c.Flags().StringVar(&digest, "digest", "", "`digest` of the capability to bind to (work mint)")
	c.Flags().DurationVar(&lease, "lease", time.Hour, "length of the lease, 1s to 1h")
	c.Flags().Int64Var(&expect, "expect-generation", 0, "`generation` that the live owner must have, 0 for nobody")
	c.Flags().BoolVar(&recover, "recover", false, "take the work from a live owner that is silent (needs --expect-generation)")
	if verb == "bind" {
		c.Flags().StringVar(&runtime, "current-runtime", "", "controller `instance` that is the present runtime")
		c.Flags().BoolVar(&ifMissing, "claim-if-missing", false, "claim the work if nobody owns it")
	}
	return c
}

// example shows a verb of claimCommand at work.
func example(verb string) string {
	text := "  forge-es work " + verb + " W1 --controller c1 --type codex --session s1"
	if verb == "resume" {
		return text + " --principal c1 --controller-instance i1"
	}
	return text + " --lease 10m -j >claim.json"
}

// advise names all flags of an owner that were not given, when one is missed.
func (f *ownerFlags) advise(err error) error {
	e, ok := errors.AsType[*events.Error](err)
	if !ok || e.Code != events.CodeIdentityRequired {
		return err
	}
	var missing []string
	for field, v := range map[string]string{"controllerId": f.controller, "controllerType": f.kind, "sessionId": f.session} {
		if strings.TrimSpace(v) == "" {
			missing = append(missing, flagOf[field])
		}
	}
	if len(missing) == 0 {
		return err
	}
	slices.Sort(missing)
	return hinted{e, "give " + strings.Join(missing, ", ")}
}

func optional(body map[string]any, name, v string) {
	if v != "" {
		body[name] = v
	}
}

// authorityFlags say which owner epoch is shown: by its parts, or by the claim as
// it was answered.
type authorityFlags struct {
	ownerFlags
	generation int64
	claim      string
	capability string
}

func (f *authorityFlags) add(c *cobra.Command) {
	f.ownerFlags.add(c)
	c.Flags().Int64Var(&f.generation, "generation", 0, "`generation` of the claim")
	c.Flags().StringVar(&f.claim, "claim", "", "`file` with the claim as work claim -j printed it (- for stdin), instead of its parts")
	c.Flags().StringVar(&f.capability, "capability-file", "", "`file` that holds the capability (else env FORGE_CAPABILITY)")
}

// into puts the authority into a body, and gives its principal.
func (f *authorityFlags) into(p *program, body map[string]any) (principal string, err error) {
	a := client.Authority{
		ControllerID: f.controller, ControllerType: f.kind, ControllerInstanceID: f.instance, ClaimGeneration: f.generation,
		PrincipalID: cmp.Or(p.principal, f.controller),
	}
	if f.claim != "" {
		s, err := p.readClaim(f.claim)
		if err != nil {
			return "", err
		}
		a = client.AuthorityOf(s)
	} else if f.controller == "" {
		return "", usagef("whose authority? Give --claim with a file that holds what work claim -j printed, or --controller, --type and --generation")
	}
	body["authority"] = a
	capability := os.Getenv("FORGE_CAPABILITY")
	if f.capability != "" {
		if capability, err = secretFile(f.capability); err != nil {
			return "", usagef("--capability-file: %w", err)
		}
	}
	optional(body, "authorityId", capability)
	return cmp.Or(a.PrincipalID, operator()), nil
}

// readClaim reads a session, alone or as the result of a reply.
func (p *program) readClaim(name string) (*events.Session, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(io.LimitReader(p.stdin, maxInput))
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, usagef("--claim: %w", err)
	}
	var reply struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(b, &reply) == nil && len(reply.Result) > 0 {
		b = reply.Result
		// work renew and the other fenced verbs answer with the fence around it.
		var fence struct {
			Owner json.RawMessage `json:"owner"`
		}
		if json.Unmarshal(b, &fence) == nil && len(fence.Owner) > 0 {
			b = fence.Owner
		}
	}
	s, err := events.ParseSession(b)
	if err != nil {
		return nil, usagef("--claim: %s holds no claim: %w", name, err)
	}
	return s, nil
}

// maxInput is the most bytes that are read from stdin.
const maxInput = 16 << 20

// leaseOf puts --lease into a body, if it was given.
func leaseOf(c *cobra.Command, lease time.Duration, body map[string]any) error {
	if lease <= 0 {
		return usagef("--lease must be positive")
	}
	if c.Flags().Changed("lease") {
		body["leaseMs"] = lease.Milliseconds()
	}
	return nil
}

func (p *program) renewCommand() *cobra.Command {
	var authority authorityFlags
	var common commandFlags
	var lease time.Duration
	c := &cobra.Command{Use: "renew WORK", Short: "Extend the lease, showing the authority", Example: "  forge-es work renew W1 --claim claim.json", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"workId": args[0]}
		if err := leaseOf(c, lease, body); err != nil {
			return err
		}
		return p.fenced(c, &authority, &common, "work.renew", body)
	}}
	authority.add(c)
	common.add(c)
	c.Flags().DurationVar(&lease, "lease", time.Hour, "length of the lease, 1s to 1h")
	return c
}

// fenced sends a command that shows an authority.
func (p *program) fenced(c *cobra.Command, a *authorityFlags, common *commandFlags, verb string, body map[string]any) error {
	principal, err := a.into(p, body)
	if err != nil {
		return err
	}
	r, err := p.do(c.Context(), common.request(client.Command, verb, body), principal)
	if err != nil {
		return err
	}
	return p.done(r, func() error { return p.sayFence(r, verb) })
}

func (p *program) releaseCommand() *cobra.Command {
	var authority authorityFlags
	var common commandFlags
	var asOperator bool
	c := &cobra.Command{Use: "release WORK", Short: "Give up a work, showing the authority", Example: "  forge-es work release W1 --claim claim.json", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"workId": args[0]}
		if !asOperator {
			return p.fenced(c, &authority, &common, "work.release-with-authority", body)
		}
		body["controllerId"] = authority.controller
		r, err := p.do(c.Context(), common.request(client.Operator, "work.release", body), operator())
		if err != nil {
			return err
		}
		return p.done(r, func() error { p.showOutcome(r); return nil })
	}}
	authority.add(c)
	common.add(c)
	c.Flags().BoolVar(&asOperator, "as-operator", false, "end the claim of --controller, live or expired, without its authority")
	return c
}

func (p *program) forceReleaseCommand() *cobra.Command {
	return p.reasoned("force-release WORK", "End a claim, live or expired, as operator", "work.force-release", 1, func(*cobra.Command, map[string]any, []string) error { return nil })
}

// reasoned makes an operator verb that needs a reason.
func (p *program) reasoned(use, short, verb string, args int, fill func(c *cobra.Command, body map[string]any, args []string) error) *cobra.Command {
	var common commandFlags
	var reason string
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"workId": args[0], "reason": reason}
		if err := fill(c, body, args); err != nil {
			return err
		}
		r, err := p.do(c.Context(), common.request(client.Operator, verb, body), operator())
		if err != nil {
			return err
		}
		return p.done(r, func() error {
			var s *events.Session
			if verb != "work.set-state" {
				if err := r.Into(&s); err != nil {
					return err
				}
			}
			switch {
			case s != nil && verb == "work.force-release":
				p.printf("released: %s no longer holds %s\n", s.Fence(), s.WorkID)
			case s != nil:
				p.showSession(s)
			}
			p.showOutcome(r)
			return nil
		})
	}}
	common.add(c)
	c.Flags().StringVar(&reason, "reason", "", "why (required, recorded)")
	return c
}

func (p *program) terminalizeCommand() *cobra.Command {
	var authority authorityFlags
	var common commandFlags
	var asOperator, release bool
	c := &cobra.Command{Use: "terminalize WORK STATE", Short: "Set a work's state under the owner's authority", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"workId": args[0], "state": args[1]}
		if release {
			body["release"] = true
		}
		if !asOperator {
			return p.fenced(c, &authority, &common, "work.terminalize", body)
		}
		r, err := p.do(c.Context(), common.request(client.Operator, "work.terminalize", body), operator())
		if err != nil {
			return err
		}
		return p.done(r, func() error { return p.sayFence(r, "work.terminalize") })
	}}
	authority.add(c)
	common.add(c)
	c.Flags().BoolVar(&release, "release", false, "also end the claim, in the same commit")
	c.Flags().BoolVar(&asOperator, "as-operator", false, "without an authority; refused while somebody owns the work")
	return c
}

func (p *program) setStateCommand() *cobra.Command {
	var forget bool
	c := p.reasoned("set-state WORK [STATE]", "Set or forget a work's state, as operator", "work.set-state", 1, func(_ *cobra.Command, body map[string]any, args []string) error {
		switch {
		case forget == (len(args) == 2):
			return usagef("give a state, or --forget")
		case forget:
			body["state"] = nil
		default:
			body["state"] = args[1]
		}
		return nil
	})
	c.Args = cobra.RangeArgs(1, 2)
	c.Flags().BoolVar(&forget, "forget", false, "the work becomes unknown, which counts as open")
	return c
}

func (p *program) resolveImportCommand() *cobra.Command {
	var keep string
	c := p.reasoned("resolve-import WORK", "Lift a quarantine, as operator", "work.resolve-import", 1, func(_ *cobra.Command, body map[string]any, _ []string) error {
		body["keep"] = keep
		return nil
	})
	c.Flags().StringVar(&keep, "keep", "", "which owner counts: current or imported")
	return c
}

func (p *program) mintCommand() *cobra.Command {
	return &cobra.Command{Use: "mint", Short: "A new capability and its digest; nothing is stored", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		r, err := p.do(c.Context(), client.Request{Kind: client.Query, Verb: "claims.mint"}, "")
		if err != nil {
			return err
		}
		return p.done(r, func() error {
			var m struct{ AuthorityID, AuthorityDigest string }
			if err := r.Into(&m); err != nil {
				return err
			}
			p.facts("capability", m.AuthorityID, "digest", m.AuthorityDigest)
			p.notef("the capability is shown this once; only its digest may be stored")
			return nil
		})
	}}
}
