package tocsinotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package as what makes the spans and metrics.
const scope = "github.com/tocsinhq/tocsin/contrib/tocsinotel"

// Config of a Telemetry. Its zero value is ready.
type Config struct {
	TracerProvider trace.TracerProvider // nil: otel.GetTracerProvider()
	MeterProvider  metric.MeterProvider // nil: otel.GetMeterProvider()

	// Parent makes the delivery of a single task a child of its add's span, beside the link: one trace from add to
	// delivery, however late. Batches keep a trace of their own.
	Parent bool

	// Details gives the spans of single tasks tocsin.biz_id and tocsin.biz_key, and spans that failed the texts of errors.
	Details bool
}

// Telemetry makes the spans and metrics of one process. Safe for concurrent use.
type Telemetry struct {
	cfg     Config
	tracer  trace.Tracer
	metrics *metrics
}

// New makes a Telemetry.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	m, err := newMetrics(cfg.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)))
	if err != nil {
		return nil, fmt.Errorf("tocsinotel: %w", err)
	}
	return &Telemetry{cfg, cfg.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), m}, nil
}
