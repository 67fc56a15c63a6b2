package bench

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// given are Options on the servers of the tests.
func given(t *testing.T, l tocsin.Layout) Options {
	t.Helper()
	return Options{
		Layout: l, Servers: []tocsin.Server{{Name: "test", DSN: devtest.DSN(t)}},
		Etcd: node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}},
	}
}

// open makes the tables of a run, which go when the test or benchmark ends.
func open(tb testing.TB, o Options, paused bool) *site {
	tb.Helper()
	s, err := openSite(tb.Context(), o, paused)
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.close()) })
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// fill stores rows and returns when those that are due soon are.
func fill(t *testing.T, s *site, n int, due time.Duration) {
	t.Helper()
	all, err := s.fill(t.Context(), n, at(due))
	must(t, err)
	if due < time.Second {
		must(t, loop.WaitUntil(t.Context(), all))
	}
}

// report prints the figures of a benchmark, by their units. An iteration is a whole measure, and its time means nothing.
func report(b *testing.B, figures map[string]float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for unit, figure := range figures {
		b.ReportMetric(figure, unit)
	}
}

// Each benchmark runs with little work. An unbounded peek walks over settled rows that can't be purged, a regular peek does not. The
// benchmarks run one after another: while one keeps the server from purging, the others would wait for the purge.
func TestTheGoBenchmarksMeasure(t *testing.T) {
	for name, measure := range map[string]func(*testing.T) map[string]float64{
		"peek": func(t *testing.T) map[string]float64 {
			figures := measurePeek(t, open(t, given(t, tocsin.Layout{Databases: 1, Tables: 1}), true), 60_000, 30*time.Second, 200*time.Millisecond)
			if figures["unbounded-p50-ms"] < 5*figures["p50-ms"] {
				t.Errorf("the entries were purged: %v", figures)
			}
			return figures
		},
		"outbox": func(t *testing.T) map[string]float64 {
			return measureOutbox(t, open(t, given(t, tocsin.Layout{Databases: 2, Tables: 4}), false), 1000, 100, time.Second)
		},
		"history": func(t *testing.T) map[string]float64 {
			s := open(t, given(t, tocsin.Layout{Databases: 2, Tables: 4}), true)
			return measureHistory(t, s, 400, 1, []int{300})[1].figures()
		},
	} {
		t.Run(name, func(t *testing.T) {
			figures := measure(t)
			for unit, figure := range figures {
				if figure < 0 {
					t.Errorf("%g %s", figure, unit)
				}
			}
			if len(figures) == 0 {
				t.Error("no figures")
			}
		})
	}
}
