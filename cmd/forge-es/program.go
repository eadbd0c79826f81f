package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/forge-es/forge-es/client"
	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/jsm.go/natscontext"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// program is what all verbs share: the streams, the flags of the connection, and
// the connection once it is there.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	connection
	instance   string
	principal  string
	timeout    time.Duration
	json       bool
	noProgress bool

	nc *nats.Conn
}

// connection is how to reach a NATS server, with the words of the nats command.
type connection struct {
	server, creds, context    string
	user                      string
	tlsCert, tlsKey, tlsCA    string
	passwordFile, inboxPrefix string
}

// env gives an environment variable, or else a default.
func env(name, otherwise string) string { return cmp.Or(os.Getenv(name), otherwise) }

// stringFlag adds a flag whose default is an environment variable. The help shows
// the default without it: what the variable holds may be a secret.
func stringFlag(f *pflag.FlagSet, v *string, name, variable, otherwise, usage string) {
	f.StringVar(v, name, otherwise, usage)
	*v = env(variable, otherwise)
}

func (p *program) connectionFlags(f *pflag.FlagSet) {
	f.StringVarP(&p.server, "server", "s", "", "NATS server `URL` (env NATS_URL; default "+nats.DefaultURL+")")
	p.server = env("NATS_URL", "")
	stringFlag(f, &p.context, "context", "NATS_CONTEXT", "", "NATS `context` (env NATS_CONTEXT)")
	stringFlag(f, &p.creds, "creds", "NATS_CREDS", "", "credentials `file` (env NATS_CREDS)")
	stringFlag(f, &p.user, "user", "NATS_USER", "", "user `name` (env NATS_USER)")
	f.StringVar(&p.passwordFile, "password-file", "", "`file` that holds the password (else env NATS_PASSWORD)")
	stringFlag(f, &p.tlsCert, "tlscert", "NATS_CERT", "", "TLS certificate `file` (env NATS_CERT)")
	stringFlag(f, &p.tlsKey, "tlskey", "NATS_KEY", "", "TLS key `file` (env NATS_KEY)")
	stringFlag(f, &p.tlsCA, "tlsca", "NATS_CA", "", "TLS certificate authority `file` (env NATS_CA)")
	stringFlag(f, &p.inboxPrefix, "inbox-prefix", "NATS_INBOX_PREFIX", "", "`prefix` of reply subjects; must begin with _INBOX (env NATS_INBOX_PREFIX)")
	f.DurationVar(&p.timeout, "timeout", 10*time.Second, "how long to try")
	stringFlag(f, &p.instance, "instance", "FORGE_INSTANCE", events.DefaultInstance, "forge `instance` (env FORGE_INSTANCE)")
	stringFlag(f, &p.principal, "principal", "FORGE_PRINCIPAL", "", "who is asking: the `principal` in the subject (env FORGE_PRINCIPAL)")
	f.BoolVarP(&p.json, "json", "j", false, "print JSON")
	f.BoolVar(&p.noProgress, "no-progress", false, "no progress bars")
}

// prepare checks what all verbs need.
func (p *program) prepare() error {
	if err := events.ValidInstance(p.instance); err != nil {
		return err
	}
	if p.timeout <= 0 {
		return usagef("--timeout must be positive")
	}
	return nil
}

// options are the connection's options without a context.
func (c *connection) options() ([]nats.Option, error) {
	var opts []nats.Option
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.user != "" {
		password := os.Getenv("NATS_PASSWORD")
		if c.passwordFile != "" {
			var err error
			if password, err = secretFile(c.passwordFile); err != nil {
				return nil, err
			}
		}
		opts = append(opts, nats.UserInfo(c.user, password))
	}
	if c.tlsCert != "" || c.tlsKey != "" {
		opts = append(opts, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	if c.tlsCA != "" {
		opts = append(opts, nats.RootCAs(c.tlsCA))
	}
	if c.inboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.inboxPrefix))
	}
	return opts, nil
}

// dial connects by a context, or by the flags.
func (c *connection) dial(name string, more ...nats.Option) (*nats.Conn, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, nats.Name(name)), more...)
	if c.context == "" {
		server := cmp.Or(c.server, nats.DefaultURL)
		nc, err := nats.Connect(server, opts...)
		return nc, notConnected(server, err)
	}
	var ctxOpts []natscontext.Option
	if c.server != "" {
		ctxOpts = append(ctxOpts, natscontext.WithServerURL(c.server))
	}
	nctx, err := natscontext.New(c.context, true, ctxOpts...)
	if err != nil {
		return nil, hinted{usagef("context %q: %w", c.context, err), known(natscontext.KnownContexts())}
	}
	nc, err := nctx.Connect(opts...)
	return nc, notConnected("context "+c.context, err)
}

// notConnected says where nobody answered; passwords in an address stay out.
func notConnected(to string, err error) error {
	if err == nil {
		return nil
	}
	return hinted{
		events.Errorf(events.CodeUnavailable, "cannot connect to %s: %w", redacted(to), err),
		"is the service running (forge-es serve), and is --server (or NATS_URL) its address?",
	}
}

// redacted takes the passwords out of a list of addresses.
func redacted(addresses string) string {
	list := strings.Split(addresses, ",")
	for i, a := range list {
		if u, err := url.Parse(strings.TrimSpace(a)); err == nil && u.User != nil {
			list[i] = u.Scheme + "://…@" + u.Host
		} else if at := strings.LastIndexByte(a, '@'); at >= 0 {
			list[i] = "…" + a[at:]
		}
	}
	return strings.Join(list, ",")
}

// known says which contexts there are.
func known(contexts []string) string {
	if len(contexts) == 0 {
		return "there are no contexts; make one with: nats context add"
	}
	return "there are: " + strings.Join(contexts, ", ")
}

// close ends the connection, if there is one.
func (p *program) close() {
	if p.nc != nil {
		p.nc.Close()
	}
}

// client connects as a principal.
func (p *program) client(principal string) (*client.Client, error) {
	if p.nc == nil {
		nc, err := p.dial("forge-es cli", nats.Timeout(p.timeout))
		if err != nil {
			return nil, err
		}
		p.nc = nc
	}
	told := false
	return client.New(p.nc, client.Options{
		Instance: p.instance, Principal: principal, Attempt: min(p.timeout, 5*time.Second), Patience: p.timeout,
		Retrying: func(err error) {
			if !told {
				p.notef("%v; trying for %s", err, p.timeout)
			}
			told = true
		},
	})
}

// do sends one request. The principal is the one of --principal, or else what the
// verb suggests.
func (p *program) do(ctx context.Context, r client.Request, suggested string) (*client.Reply, error) {
	c, err := p.client(cmp.Or(p.principal, suggested))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	reply, err := c.Do(ctx, r)
	if err == nil && reply.Ignored != "" {
		p.notef("the service does not know these fields: %s", reply.Ignored)
	}
	return reply, p.advise(err)
}

// flagOf says which flag sets a field of a body.
var flagOf = map[string]string{
	"controllerId":             "--controller (or FORGE_CONTROLLER)",
	"controllerType":           "--type (or FORGE_CONTROLLER_TYPE)",
	"controllerInstanceId":     "--controller-instance (or FORGE_CONTROLLER_INSTANCE)",
	"sessionId":                "--session (or FORGE_SESSION)",
	"principalId":              "--principal (or FORGE_PRINCIPAL)",
	"principal":                "--principal (or FORGE_PRINCIPAL)",
	"authorityId":              "--capability-file (or FORGE_CAPABILITY)",
	"authorityDigest":          "--digest",
	"leaseMs":                  "--lease",
	"expectedClaimGeneration":  "--expect-generation",
	"currentRuntimeInstanceId": "--current-runtime",
	"keep":                     "--keep",
	"reason":                   "--reason",
	"limit":                    "--limit",
	"cursor":                   "--cursor",
	"actor":                    "--label",
	"sourceRevision":           "--source",
	"outcome":                  "--outcome",
	"Forge-Command-Id":         "--id",
	"Forge-Correlation-Id":     "--correlation",
	"Forge-Causation-Id":       "--causation",
	"Forge-Expected-Version":   "--expect-version",
}

// advise adds to a mistake of the caller's which flag to set.
func (p *program) advise(err error) error {
	e, ok := errors.AsType[*events.Error](err)
	if !ok || e.Code.Info().Exit != events.ExitUsage {
		return err
	}
	if e.Code == events.CodeReleaseIDInvalid {
		return err // its sessionId is the argument
	}
	field, _ := e.Details["field"].(string)
	if flag := flagOf[field]; flag != "" {
		return hinted{err, "see " + flag}
	}
	return err
}

// operator is who acts as operator when --principal does not say it.
func operator() string { return env("USER", "operator") }

// secretFile reads a secret from a file, without the line end.
func secretFile(name string) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return "", errors.New("the secret file is empty")
	}
	return string(b), nil
}

// commandFlags are what all commands take.
type commandFlags struct {
	id, correlation, causation string
	expect                     uint64
	label                      string

	flags *pflag.FlagSet
}

// addID is add for commands that record no commit.
func (f *commandFlags) addID(c *cobra.Command) {
	f.flags = c.Flags()
	c.Flags().StringVar(&f.id, "id", "", "command `id`: repeating a command with its id is safe (default: a new one)")
}

func (f *commandFlags) add(c *cobra.Command) {
	f.addID(c)
	c.Flags().StringVar(&f.correlation, "correlation", "", "correlation `id` for the commit")
	c.Flags().StringVar(&f.causation, "causation", "", "causation `id` for the commit")
	c.Flags().Uint64Var(&f.expect, "expect-version", 0, "`version` that the work (or the ledger) must have, 0 if nothing was recorded")
	c.Flags().StringVar(&f.label, "label", "", "free `text` about who asks, for the commit")
}

// request makes a request of a body.
func (f *commandFlags) request(kind client.Kind, verb string, body map[string]any) client.Request {
	r := client.Request{Kind: kind, Verb: verb, Body: body, CommandID: f.id, Correlation: f.correlation, Causation: f.causation}
	if f.flags.Changed("expect-version") {
		r.ExpectedVersion = &f.expect
	}
	if f.label != "" {
		body["actor"] = f.label
	}
	return r
}
