package main

import (
	"cmp"
	"encoding/json"

	"github.com/forge-es/forge-es/client"
	"github.com/spf13/cobra"
)

func (p *program) activityCommand() *cobra.Command {
	return group("activity", "What is known of transport sessions", p.activityReport(), p.activityInvalidate(), p.activitySet())
}

// fact sends a request whose result is shown as it is.
func (p *program) fact(c *cobra.Command, r client.Request, suggested string) error {
	reply, err := p.do(c.Context(), r, suggested)
	if err != nil {
		return err
	}
	return p.done(reply, func() error {
		p.printf("%s: %s\n", reply.Outcome, reply.Result)
		return nil
	})
}

// whose adds the flag that says whose session it is, when --principal does not.
func whose(c *cobra.Command, controller *string) {
	stringFlag(c.Flags(), controller, "controller", "FORGE_CONTROLLER", "", "controller `id`, the principal unless --principal is given (env FORGE_CONTROLLER)")
}

func (p *program) activityReport() *cobra.Command {
	var work, controller string
	var common commandFlags
	c := &cobra.Command{Use: "report SESSION", Short: "A transport session is alive", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"sessionId": args[0]}
		optional(body, "activeWorkId", work)
		return p.fact(c, common.request(client.Command, "activity.report", body), cmp.Or(controller, operator()))
	}}
	common.addID(c)
	whose(c, &controller)
	c.Flags().StringVar(&work, "work", "", "`work` that it is busy with")
	return c
}

func (p *program) activityInvalidate() *cobra.Command {
	var controller string
	var common commandFlags
	c := &cobra.Command{Use: "invalidate SESSION", Short: "A transport session ended", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		return p.fact(c, common.request(client.Command, "activity.invalidate", map[string]any{"sessionId": args[0]}), cmp.Or(controller, operator()))
	}}
	common.addID(c)
	whose(c, &controller)
	return c
}

func (p *program) activitySet() *cobra.Command {
	var common commandFlags
	c := &cobra.Command{
		Use: "set SESSION JSON", Short: "Set what is known of a transport session, as operator; null forgets it", Args: cobra.ExactArgs(2),
		Long: "JSON is {principalId?, activeWorkId?, invalidatedAt?, lastValidatedAt?, updatedAt?}, or null.",
		RunE: func(c *cobra.Command, args []string) error {
			if !json.Valid([]byte(args[1])) {
				return usagef("%q is no JSON", args[1])
			}
			body := map[string]any{"sessionId": args[0], "session": json.RawMessage(args[1])}
			return p.fact(c, common.request(client.Operator, "activity.set", body), operator())
		},
	}
	common.addID(c)
	return c
}

func (p *program) runtimeCommand() *cobra.Command {
	var common commandFlags
	announce := &cobra.Command{Use: "announce INSTANCE", Short: "Say which controller instance is the present runtime", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
		return p.fact(c, common.request(client.Operator, "runtime.announce", map[string]any{"controllerInstanceId": args[0]}), operator())
	}}
	common.addID(announce)
	return group("runtime", "The present runtime", announce)
}
