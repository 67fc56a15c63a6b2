package tocsinotel_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
)

// seen is a span, as an exporter got it.
type seen struct {
	Process, Name, Kind, Trace, ID, Parent, Status, Text string
	Attributes                                           map[string]string
	Links                                                []link
}

// link is one of a span.
type link struct {
	Trace, ID  string
	Attributes map[string]string
}

// recorder keeps the spans and metrics of a process in memory.
type recorder struct {
	process  string
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider
}

func newRecorder(process string) *recorder {
	exporter, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	return &recorder{
		process, exporter, sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)),
		reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	}
}

func (r *recorder) config() tocsinotel.Config {
	return tocsinotel.Config{TracerProvider: r.provider, MeterProvider: r.meters}
}

// telemetry is that of a config with the recorder's providers.
func (r *recorder) telemetry(t *testing.T, cfg tocsinotel.Config) *tocsinotel.Telemetry {
	t.Helper()
	cfg.TracerProvider, cfg.MeterProvider = r.provider, r.meters
	telemetry, err := tocsinotel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return telemetry
}

// spans returns all spans that have ended, in the order of their ends.
func (r *recorder) spans() (all []seen) {
	for _, s := range r.exporter.GetSpans() {
		one := seen{
			Process: r.process, Name: s.Name, Kind: s.SpanKind.String(), Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(),
			Status: s.Status.Code.String(), Text: s.Status.Description, Attributes: texts(s.Attributes),
		}
		if s.Parent.IsValid() {
			one.Parent = s.Parent.SpanID().String()
		}
		for _, l := range s.Links {
			one.Links = append(one.Links, link{l.SpanContext.TraceID().String(), l.SpanContext.SpanID().String(), texts(l.Attributes)})
		}
		all = append(all, one)
	}
	return all
}

func texts(all []attribute.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, a := range all {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

// measured returns the sums and counts of all metrics, by name and attributes.
func (r *recorder) measured(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[m.Name+written(texts(p.Attributes.ToSlice()))] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[m.Name+written(texts(p.Attributes.ToSlice()))] += int64(p.Count)
				}
			}
		}
	}
	return sums
}

// written are attributes as a text, in order, without messaging.system.
func written(attributes map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if key != "messaging.system" {
			parts = append(parts, key+"="+attributes[key])
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// show logs spans, a trace after the other, with children below their parents.
func show(t *testing.T, all []seen) {
	t.Helper()
	var lines strings.Builder
	var below func(trace, parent string, depth int)
	below = func(in, parent string, depth int) {
		for _, s := range all {
			if s.Trace != in || s.Parent != parent {
				continue
			}
			fmt.Fprintf(&lines, "%s%s  [%s, %s] span %s %s\n", strings.Repeat("  ", depth), s.Name, s.Kind, s.Process, s.ID, written(s.Attributes))
			for _, l := range s.Links {
				fmt.Fprintf(&lines, "%s  link to span %s of trace %s %s\n", strings.Repeat("  ", depth), l.ID, l.Trace, written(l.Attributes))
			}
			below(in, s.ID, depth+1)
		}
	}
	var traces []string
	for _, s := range all {
		if !slices.Contains(traces, s.Trace) {
			traces = append(traces, s.Trace)
		}
	}
	for _, in := range traces {
		fmt.Fprintf(&lines, "trace %s\n", in)
		below(in, "", 1)
	}
	t.Log("\n" + lines.String())
}

// find returns the span of a process with this name.
func find(t *testing.T, all []seen, process, name string) seen {
	t.Helper()
	var found []seen
	for _, s := range all {
		if s.Process == process && s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q of %s among %+v", len(found), name, process, all)
	}
	return found[0]
}

// holds checks attributes of a span.
func holds(t *testing.T, s seen, want map[string]string) {
	t.Helper()
	for key, text := range want {
		if s.Attributes[key] != text {
			t.Errorf("%s: %s is %q, want %q", s.Name, key, s.Attributes[key], text)
		}
	}
}

// remote is the context of a span of another process.
func remote(flags trace.TraceFlags) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3, 4}, TraceFlags: flags, Remote: true})
}

// showTrace prints the trace of a context, for an example.
func showTrace(ctx context.Context) { fmt.Println(trace.SpanContextFromContext(ctx).TraceID()) }
