package service

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/forge-es/forge-es/events"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what Prometheus reads. They count verbs and outcomes; they name no
// work, no controller and no secret.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	dropped  prometheus.Counter
	unknown  prometheus.Counter
}

func newMetrics(s *Service) *metrics {
	labels := prometheus.Labels{"instance_name": s.instance}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forge_requests_total", Help: "Requests, by root, verb and outcome (or error code).", ConstLabels: labels,
		}, []string{"root", "verb", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forge_request_seconds", Help: "Time from taking a request to its reply.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18),
		}, []string{"root", "verb"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forge_requests_dropped_total", Help: "Requests whose reply subject is not one that callers receive on, and queries without one.", ConstLabels: labels,
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forge_requests_unknown_total", Help: "Requests with an unknown verb, or on the wrong root.", ConstLabels: labels,
		}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	m.registry.MustRegister(m.requests, m.seconds, m.dropped, m.unknown,
		gauge("forge_requests_pending", "Requests that wait or are worked on.", func() float64 { return float64(s.lanes.size()) }),
		gauge("forge_log_position", "Position of the newest commit known to be durable.", func() float64 { return float64(s.opts.Log.Durable()) }),
		gauge("forge_log_writable", "1 while commits are appended, 0 when the log is unsafe or stopped.", func() float64 { return yes(s.opts.Log.Err() == nil) }),
		gauge("forge_ready", "1 while readyz says ready.", func() float64 { return yes(s.Ready().Ready) }),
		gauge("forge_leader_clock_offset_seconds", "Clock of the stream leader minus this one.", func() float64 { return s.opts.Log.LeaderOffset().Seconds() }),
		gauge("forge_works_cached", "Works kept folded in memory.", func() float64 { return float64(s.works.cache.Len()) }),
		gauge("forge_claims_held", "Held claims, lapsed ones included.", func() float64 { return float64(s.liveClaims.Len()) }),
		gauge("forge_projection_position", "Position up to which lists know the log.", func() float64 { return float64(s.runner.Position()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// served counts a request that was answered.
func (m *metrics) served(ep *endpoint, result any, err error, took time.Duration) {
	outcome := "answered"
	if r, ok := result.(interface{ outcome() string }); ok && r.outcome() != "" {
		outcome = r.outcome()
	}
	if err != nil {
		outcome = string(events.AsError(err).Code)
	}
	m.requests.WithLabelValues(ep.root, ep.verb, outcome).Inc()
	m.seconds.WithLabelValues(ep.root, ep.verb).Observe(took.Seconds())
}

// HTTP serves /healthz, /readyz and /metrics.
func (s *Service) HTTP() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	// Healthy: the process need not be restarted. A log that stopped for good
	// needs it; one that is unsafe needs an operator.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.life.Err() != nil {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := s.Ready()
		w.Header().Set("Content-Type", ContentJSON)
		if !r.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(r)
	})
	return secureHeaders(mux)
}

// secureHeaders keeps browsers from doing anything with what is served here.
func secureHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
