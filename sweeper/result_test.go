package sweeper

import (
	"maps"
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

func TestMetricsTellHowASweepEnded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, func() map[string]int { return nil })
	m.observe(Result{})
	m.observe(Result{TimedOut: true, Left: map[string]int{"a (no time left)": 5}})
	m.observe(Result{TimedOut: true, Failed: []string{"db1"}, Left: map[string]int{"a (server failed)": 2, "b (paused)": 1}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ended, left := map[string]float64{}, 0.0
	for _, f := range families {
		switch f.GetName() {
		case "tocsin_sweeper_sweeps_total":
			for _, metric := range f.GetMetric() {
				ended[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		case "tocsin_sweeper_left":
			left = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if want := map[string]float64{"ok": 1, "timed_out": 1, "failed": 1}; !maps.Equal(ended, want) || left != 3 {
		t.Errorf("sweeps ended %v, want %v; %v left by the last, want 3", ended, want, left)
	}
}

func TestSweepsCountWhatBecameOfTheirTasks(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, func() map[string]int { return nil })
	for range 2 {
		m.observe(Result{Overdue: 9, Claimed: 7, Counts: Counts{Delivered: 3, Retried: 2, Dead: 1, Skipped: 3}, Elsewhere: 2, InDelivery: 1})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			switch name := strings.TrimPrefix(f.GetName(), "tocsin_sweeper_"); name {
			case "claimed_total", "overdue_total", "last_claimed":
				got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			case "tasks_total":
				got[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"overdue_total": 18, "claimed_total": 14, "last_claimed": 7, "delivered": 6, "retried": 4, "dead": 2, "skipped": 6, "elsewhere": 4}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
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
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue(); strings.Contains(f.GetName(), "upkeep") && value != 0 {
				got[strings.TrimPrefix(f.GetName(), "tocsin_sweeper_")+" "+metric.GetLabel()[0].GetValue()] = value
			}
		}
	}
	if want := map[string]float64{"upkeep_total runs_made": 5, "upkeep_total alarms_raised": 1, "last_upkeep runs_made": 2}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
