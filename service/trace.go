package service

import (
	"context"

	"github.com/forge-es/forge-es/events"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headerCarrier reads the traceparent of a request.
type headerCarrier micro.Headers

func (h headerCarrier) Get(key string) string { return micro.Headers(h).Get(key) }
func (h headerCarrier) Set(string, string)    {}
func (h headerCarrier) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

// trace begins the span of a request, below the caller's (header traceparent).
// Without a tracer provider it costs next to nothing.
func (s *Service) trace(ctx context.Context, ep *endpoint, r *request) (context.Context, func(error)) {
	ctx = propagation.TraceContext{}.Extract(ctx, headerCarrier(r.header))
	ctx, span := otel.Tracer("github.com/forge-es/forge-es/service").Start(ctx, ep.verb, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("forge.instance", s.instance), attribute.String("forge.root", ep.root)))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, string(events.AsError(err).Code))
		}
		span.End()
	}
}
