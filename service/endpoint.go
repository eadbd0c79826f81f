package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go/micro"
)

// endpoint is one verb on one root.
type endpoint struct {
	root, verb  string
	description string
	// boundary gives the lane of a request: commands on one boundary come one
	// after another. Empty: none.
	boundary func(r *request) string
	handle   func(ctx context.Context, r *request) (any, error)
}

// subject is what the endpoint listens to.
func (e *endpoint) subject(instance string) string {
	if e.root == RootQuery {
		return e.root + "." + instance + "." + e.verb
	}
	return e.root + "." + instance + ".*." + e.verb
}

// name is the endpoint's name in the services framework.
func (e *endpoint) name() string {
	return strings.TrimPrefix(e.root, "forge.") + "-" + strings.ReplaceAll(e.verb, ".", "-")
}

// ServiceName is the name of the service in the NATS services framework.
const ServiceName = "forge-es"

// listen registers all endpoints, and one catch-all per root.
func (s *Service) listen() error {
	version := s.opts.Version
	if version == "" {
		version = "0.0.0"
	}
	svc, err := micro.AddService(s.app, micro.Config{
		Name: ServiceName, Version: version,
		Description: "decides who owns a piece of work and which release is live",
		Metadata:    map[string]string{"instance": s.instance, "log": s.opts.Log.ID()},
		QueueGroup:  ServiceName,
	})
	if err != nil {
		return unavailable("service endpoints", err)
	}
	s.svc = svc
	for i := range s.endpoints {
		ep := &s.endpoints[i]
		err := svc.AddEndpoint(ep.name(), micro.HandlerFunc(func(m micro.Request) { s.serve(ep, m) }),
			micro.WithEndpointSubject(ep.subject(s.instance)), micro.WithEndpointPendingLimits(-1, s.opts.PendingBytes),
			micro.WithEndpointMetadata(map[string]string{"description": ep.description}))
		if err != nil {
			return unavailable("endpoint "+ep.name(), err)
		}
	}
	for _, root := range []string{RootCommand, RootOperator, RootQuery} {
		err := svc.AddEndpoint(strings.TrimPrefix(root, "forge.")+"-unknown", micro.HandlerFunc(func(m micro.Request) { s.unknown(root, m) }),
			micro.WithEndpointSubject(root+"."+s.instance+".>"), micro.WithEndpointQueueGroup(ServiceName+"-unknown"),
			micro.WithEndpointMetadata(map[string]string{"description": "answers verbs that are not known here"}))
		if err != nil {
			return unavailable("endpoint", err)
		}
	}
	return s.app.Flush()
}

// serve takes one message, hands it to its lane, and answers.
func (s *Service) serve(ep *endpoint, m micro.Request) {
	if !mayReply(m.Reply()) || ep.root == RootQuery && m.Reply() == "" {
		s.metrics.dropped.Inc()
		return
	}
	began := time.Now()
	r, err := parse(ep, m)
	if err != nil {
		s.finish(ep, r, nil, err, began)
		return
	}
	lane := ""
	if ep.boundary != nil {
		lane = ep.boundary(r)
	}
	taken := s.lanes.run(lane, func() {
		ctx, cancel := s.contextOf()
		defer cancel()
		ctx, end := s.trace(ctx, ep, r)
		result, err := ep.handle(ctx, r)
		end(err)
		s.finish(ep, r, result, err, began)
	})
	if !taken {
		err := events.Errorf(events.CodeBusy, "%d requests are being worked on", s.opts.MaxPending).With("retryAfterMs", busyRetryMs)
		s.finish(ep, r, nil, err, began)
	}
}

// busyRetryMs is what callers are told to wait when there is too much to do.
const busyRetryMs = 100

func (s *Service) finish(ep *endpoint, r *request, result any, err error, began time.Time) {
	s.metrics.served(ep, result, err, time.Since(began))
	if err != nil {
		e := events.AsError(err)
		if id := r.headerText(HeaderCommandID); id != "" && ep.root != RootQuery && e.Details["commandId"] == nil {
			e = e.With("commandId", id)
		}
		if e.Code.Info().Number >= 500 && e.Code != events.CodeViewBehind {
			s.trouble.Error().Str("verb", ep.verb).Str("code", string(e.Code)).Msg(e.Message)
		}
		err = e
	}
	s.respond(r, result, err)
}

// unknown answers what no endpoint listens to, and is silent for the rest.
func (s *Service) unknown(root string, m micro.Request) {
	tokens := strings.Split(m.Subject(), ".")
	at := principalToken
	if root != RootQuery {
		at++
	}
	verb := strings.Join(tokens[min(at, len(tokens)):], ".")
	known := s.roots[verb]
	if known[root] {
		return
	}
	r := &request{root: root, verb: verb, reply: m.Reply(), header: m.Headers(), msgpack: strings.HasPrefix(m.Headers().Get(HeaderContentType), ContentMsgpack)}
	if !mayReply(m.Reply()) || m.Reply() == "" {
		return
	}
	err := events.Errorf(events.CodeUnknownVerb, "%q is no verb of %s", verb, root).With("subject", m.Subject())
	for other := range known {
		err = events.Errorf(events.CodeForbidden, "%s is a verb of %s, not of %s", verb, other, root).With("root", other)
	}
	s.metrics.unknown.Inc()
	s.respond(r, nil, err)
}

// check refuses two endpoints of one name, which would answer at random.
func (s *Service) check() error {
	s.roots = map[string]map[string]bool{}
	for _, ep := range s.endpoints {
		if s.roots[ep.verb] == nil {
			s.roots[ep.verb] = map[string]bool{}
		}
		if s.roots[ep.verb][ep.root] {
			return fmt.Errorf("%s twice on %s", ep.verb, ep.root)
		}
		s.roots[ep.verb][ep.root] = true
	}
	return nil
}
