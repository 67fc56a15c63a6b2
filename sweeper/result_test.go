package sweeper

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTheSummarySaysWhatIsLeftByTypeAndReason(t *testing.T) {
	t.Parallel()
	r := Result{
		Tables: 128, Overdue: 12, Counts: Counts{Delivered: 3, Retried: 2}, Elsewhere: 1, Recovered: 4, Buried: 1, Took: 50*time.Second + 2*time.Millisecond,
		TimedOut: true, InDelivery: 2, Unread: 7, Failed: []string{"db2"},
		Left: map[string]int{"refund.check (no handler here)": 1, "on.hold (paused)": 1, "hang.type (no time left)": 2},
	}
	want := "128 tables, 12 overdue, 3 delivered, 2 retried, 0 dead, 1 elsewhere, 4 left, 4 recovered, 1 buried, took 50.002s" +
		"; its time was over; 2 in delivery; 7 tables not read to their end" +
		"; left hang.type (no time left): 2; left on.hold (paused): 1; left refund.check (no handler here): 1; not swept in full: db2"
	if r.String() != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
}

func TestErrNamesWhatIsLeftAgainstAllWill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result Result
		want   string
	}{
		"nothing":      {Result{Overdue: 3, Counts: Counts{Delivered: 2, Dead: 1}}, ""},
		"on purpose":   {Result{Left: map[string]int{"on.hold (paused)": 9}}, ""},
		"no handler":   {Result{Left: map[string]int{"a (no handler here)": 2, "on.hold (paused)": 9}}, "overdue tasks are left: a (no handler here): 2"},
		"two of them":  {Result{Left: map[string]int{"b (stopped)": 1, "a (no time left)": 2}}, "overdue tasks are left: a (no time left): 2, b (stopped): 1"},
		"not all read": {Result{TimedOut: true, Unread: 3}, "3 tables were not read to their end"},
	} {
		got := ""
		if err := c.result.Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// wantExported wants counters and gauges, by name without the prefix and by label, and no other ones of the same names but zero.
func wantExported(t *testing.T, registry *prometheus.Registry, want map[string]float64, names ...string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "tocsin_sweeper_")
		for _, metric := range f.GetMetric() {
			key := name
			for _, label := range metric.GetLabel() {
				key += " " + label.GetValue()
			}
			if value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue(); value != 0 && slices.Contains(names, name) {
				got[key] = value
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMetricsTellHowASweepEnded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, func() map[string]int { return nil })
	m.observe(Result{})
	m.observe(Result{TimedOut: true, Left: map[string]int{"a (no time left)": 5}})
	m.observe(Result{TimedOut: true, Failed: []string{"db1"}, Left: map[string]int{"a (server failed)": 2, "b (paused)": 1}})
	wantExported(t, registry, map[string]float64{"sweeps_total ok": 1, "sweeps_total timed_out": 1, "sweeps_total failed": 1, "left": 3}, "sweeps_total", "left")
}

func TestSweepsCountWhatBecameOfTheirTasks(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, func() map[string]int { return nil })
	for range 2 {
		m.observe(Result{Overdue: 9, Claimed: 7, Counts: Counts{Delivered: 3, Retried: 2, Dead: 1, Skipped: 3}, Elsewhere: 2, InDelivery: 1})
	}
	wantExported(t, registry, map[string]float64{
		"overdue_total": 18, "claimed_total": 14, "last_claimed": 7, "tasks_total delivered": 6, "tasks_total retried": 4, "tasks_total dead": 2,
		"tasks_total skipped": 6, "tasks_total elsewhere": 4,
	}, "overdue_total", "claimed_total", "last_claimed", "tasks_total")
}

// What is done beside delivering is counted in all, and by each sweep since the one before.
func TestSweepsCountWhatTheyDoBesideDelivering(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	done := map[string]int{}
	s := &Sweeper{cfg: Config{Upkeep: func() map[string]int { return maps.Clone(done) }}}
	s.metrics = newMetrics(registry, s.cfg.Upkeep)
	done[RunsMade], done[AlarmsRaised] = 3, 1
	s.metrics.observe(Result{Upkeep: s.sinceLast()})
	done[RunsMade] = 5
	s.metrics.observe(Result{Upkeep: s.sinceLast()})
	wantExported(t, registry, map[string]float64{"upkeep_total runs_made": 5, "upkeep_total alarms_raised": 1, "last_upkeep runs_made": 2}, "upkeep_total", "last_upkeep")
}
