package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// answers is a sink that takes 20 ms for its answers.
type answers []error

func (a answers) Deliver(context.Context, []tocsin.Info) []error {
	time.Sleep(20 * time.Millisecond)
	return a
}

func TestTheRecordsOfASinkAreCountedByTheirResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := newLinkMetrics(reg)
		deliver := func(a ...error) {
			t.Helper()
			if got := (&countedSink{answers(a), m, "orders-kafka"}).Deliver(t.Context(), make([]tocsin.Info, len(a))); len(got) != len(a) {
				t.Errorf("%d answers, want %d", len(got), len(a))
			}
		}
		wrong := errors.New("wrong")
		began := time.Now()
		deliver(nil, nil, tocsin.Bury(wrong), sink.Unfit(wrong), wrong, nil)
		time.Sleep(time.Minute)
		deliver(sink.Unavailable(wrong), sink.Unavailable(wrong))
		if err := testutil.CollectAndCompare(m.records, strings.NewReader(`
# HELP tocsin_sink_records_total Records for a sink of the config, each time one was sent, by result: stored; unavailable, the task waits without an attempt; refused, the broker will never take it and the task is dead; unfit, the same found without asking the broker; failed, an attempt.
# TYPE tocsin_sink_records_total counter
tocsin_sink_records_total{result="failed",sink="orders-kafka"} 1
tocsin_sink_records_total{result="refused",sink="orders-kafka"} 1
tocsin_sink_records_total{result="stored",sink="orders-kafka"} 3
tocsin_sink_records_total{result="unavailable",sink="orders-kafka"} 2
tocsin_sink_records_total{result="unfit",sink="orders-kafka"} 1
`)); err != nil {
			t.Error(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		series := 0 // docs/metrics.md says how many a sink has
		for _, f := range families {
			for _, one := range f.GetMetric() {
				series++
				if h := one.GetHistogram(); h != nil {
					series += len(h.GetBucket()) + 2
					if h.GetSampleCount() != 1 || h.GetSampleSum() != .02 {
						t.Errorf("%d deliveries were stored in %g s", h.GetSampleCount(), h.GetSampleSum())
					}
				}
				if f.GetName() == "tocsin_sink_last_stored_timestamp_seconds" && one.GetGauge().GetValue() != float64(began.Add(20*time.Millisecond).UnixNano())/1e9 {
					t.Errorf("last stored at %f", one.GetGauge().GetValue())
				}
			}
		}
		if series != 13 {
			t.Errorf("%d series of a sink, want 13", series)
		}
	})
}

func TestAFallbackThatDeliversIsExported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{}
		l := pair(&first, &second, time.Second)
		targets := &targets{made: map[string]made{"order.close": {Sink: l}, "order.open": {Sink: &first}}}
		away := func() float64 { t.Helper(); return testutil.ToFloat64(targets) }
		deliver(l)
		if time.Sleep(time.Second); away() != 0 {
			t.Errorf("%g s before the fallback delivers", away())
		}
		deliver(l)
		second.away = true
		deliver(l)
		if time.Sleep(2 * time.Second); away() != 3 || testutil.ToFloat64(l.taken) != 2 {
			t.Errorf("%g s after the first link went away, %g tasks taken", away(), testutil.ToFloat64(l.taken))
		}
		first.away = false
		if deliver(l); away() != 0 {
			t.Errorf("%g s with the first link back", away())
		}
	})
}
