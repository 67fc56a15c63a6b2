package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestRoundsPutTypesTogetherThatShareGraceAndFate(t *testing.T) {
	policy := func(number uint64, timeout time.Duration, paused bool) biztype.Policy {
		return biztype.Policy{Name: "t", Number: number, Timeout: biztype.Duration(timeout), Paused: paused}
	}
	can := func(p biztype.Policy) bool { return p.Number < 4 || p.Number == 5 }
	got := sweepRounds([]biztype.Policy{
		policy(2, time.Second, false), policy(1, 2*time.Second, false), policy(3, time.Second, true),
		policy(4, time.Second, true), policy(5, time.Minute, false), policy(6, time.Second, false),
	}, can, biztype.DefaultSweepGrace)
	want := []sweepRound{
		{grace: biztype.DefaultSweepGrace, types: []uint64{1, 2}},
		{grace: biztype.DefaultSweepGrace, types: []uint64{3, 4}, left: leftPaused}, // also 4, which has no handler: a pause is asked for, and no fault
		{grace: 2 * time.Minute, types: []uint64{5}},
		{grace: biztype.DefaultSweepGrace, types: []uint64{6}, left: leftForeign},
	}
	if len(got) != len(want) {
		t.Fatalf("%d rounds, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.grace != w.grace || g.left != w.left || len(g.types) != len(w.types) || g.types[0] != w.types[0] {
			t.Errorf("round %d is %+v, want %+v", i, g, w)
		}
	}
}

// bareServers are the names of servers without tables.
type bareServers struct {
	SweepTables
	names []string
}

func (b bareServers) Servers() []string { return b.names }

func (b bareServers) TablesOf(int) []int { return nil }

func (b bareServers) Measure(context.Context, int) (store.Offset, error) { return store.Offset{}, nil }

// bare makes a sweeper without servers.
func bare(log *devtest.Log) *Sweeper {
	cfg := sweepConfig(bareServers{})
	cfg.Logger = log.Logger()
	return NewSweeper(cfg)
}

// watched counts what waits for the end of a context.
type watched struct {
	context.Context
	ended   chan struct{}
	waiting atomic.Int32
}

func (w *watched) Done() <-chan struct{} { return w.ended }

// AfterFunc is called by package context for each context that is made of this one.
func (w *watched) AfterFunc(func()) (stop func() bool) {
	w.waiting.Add(1)
	return func() bool { w.waiting.Add(-1); return true }
}

// A resident sweeper has one context for as long as it runs.
func TestASweepLeavesNothingBehindInItsContext(t *testing.T) {
	t.Parallel()
	ctx := &watched{Context: context.Background(), ended: make(chan struct{})}
	s := bare(new(devtest.Log))
	for _, timeout := range []time.Duration{time.Minute, -1} {
		if _, err := s.sweep(ctx, timeout); err != nil {
			t.Fatal(err)
		}
		if n := ctx.waiting.Load(); n != 0 {
			t.Errorf("time-out %s: %d wait for the end of the context", timeout, n)
		}
	}
}

func TestASweepUnderWayLogsItsResultEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log devtest.Log
		r := newSweep(t.Context(), bare(&log))
		ctx, end := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer end()
		r.accounts[1].found = 9 // not yet settled: nothing is left so far
		r.tell(ctx)
		lines := log.Lines("sweep goes on")
		if len(lines) != 3 {
			t.Fatalf("%d lines in three minutes: %v", len(lines), lines)
		}
		for _, part := range []string{"9 overdue, 0 delivered", " 0 left, ", "took 2m0s"} {
			if said := fmt.Sprint(lines[1]["result"]); lines[1]["level"] != "info" || !strings.Contains(said, part) {
				t.Errorf("%v lacks %s", lines[1], part)
			}
		}
	})
}

// A commit that hangs may be seen for the first seconds only.
func TestAServerThatWasSickShortlyBeforeTheEndIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := map[int]time.Duration{0: 30 * time.Second, 1: 45 * time.Second} // until then
		begin := time.Now()
		s := bare(new(devtest.Log))
		s.cfg.Tables = bareServers{names: []string{"db0", "db1", "db2"}}
		s.cfg.Sick = func(server int) error {
			if time.Since(begin) > hangs[server] {
				return nil
			}
			return errors.New("no answer")
		}
		r := newSweep(t.Context(), s)
		ctx, end := context.WithTimeout(t.Context(), 100*time.Second)
		defer end()
		r.examine(ctx)
		r.blame()
		if !slices.Equal(r.total.Failed, []string{"db1"}) || len(r.errs) != 1 {
			t.Errorf("failed %v: %v", r.total.Failed, r.errs)
		}
	})
}

func TestAResidentSweepHasLessThanTheTimeToItsNext(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]time.Duration{
		"* * * * *": 50 * time.Second, "*/5 * * * *": 250 * time.Second, "@every 6s": 5 * time.Second, "@every 12h": 10 * time.Hour,
	} {
		at, err := ParseTimes(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := untilNext(at, time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC)); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
	if got := untilNext(ended{}, time.Now()); got >= 0 {
		t.Errorf("the last one has %s", got)
	}
}

// ended is a schedule that never fires again.
type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }

func TestAResidentSweeperLogsWhatASweepDid(t *testing.T) {
	t.Parallel()
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	left := map[string]int{"a (no time left)": 2}
	for name, c := range map[string]struct {
		ctx    context.Context
		result SweepResult
		err    error
		want   string // level, message and error
	}{
		"nothing found":            {t.Context(), SweepResult{}, nil, ""},
		"all delivered":            {t.Context(), SweepResult{Overdue: 1}, nil, "info: swept"},
		"claims given back":        {t.Context(), SweepResult{Recovered: 1}, nil, "info: swept"},
		"tasks left":               {t.Context(), SweepResult{Overdue: 2, Left: left}, nil, "warn: swept; overdue tasks are left: overdue tasks are left: a (no time left): 2"},
		"tables not read":          {t.Context(), SweepResult{TimedOut: true, Unread: 3}, nil, "warn: swept; overdue tasks are left: 3 tables were not read to their end"},
		"a server away":            {t.Context(), SweepResult{Failed: []string{"db1"}}, errors.New("db1 is away"), "error: sweep failed in part: db1 is away"},
		"stopped, nothing found":   {stopped, SweepResult{Stopped: true}, context.Canceled, ""},
		"stopped, something found": {stopped, SweepResult{Stopped: true, Overdue: 1}, context.Canceled, "info: sweep stopped before its end"},
	} {
		var log devtest.Log
		bare(&log).log(c.ctx, c.result, c.err)
		got := ""
		for _, line := range log.Lines() {
			got += fmt.Sprintf("%s: %s", line["level"], line["message"])
			if line["error"] != nil {
				got += fmt.Sprintf(": %s", line["error"])
			}
			if line["result"] != c.result.String() {
				t.Errorf("%s: %v", name, line)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTheSummarySaysWhatIsLeftByTypeAndReason(t *testing.T) {
	t.Parallel()
	r := SweepResult{
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
		result SweepResult
		want   string
	}{
		"nothing":      {SweepResult{Overdue: 3, Counts: Counts{Delivered: 2, Dead: 1}}, ""},
		"on purpose":   {SweepResult{Left: map[string]int{"on.hold (paused)": 9}}, ""},
		"no handler":   {SweepResult{Left: map[string]int{"a (no handler here)": 2, "on.hold (paused)": 9}}, "overdue tasks are left: a (no handler here): 2"},
		"two of them":  {SweepResult{Left: map[string]int{"b (stopped)": 1, "a (no time left)": 2}}, "overdue tasks are left: a (no time left): 2, b (stopped): 1"},
		"not all read": {SweepResult{TimedOut: true, Unread: 3}, "3 tables were not read to their end"},
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

// What is done beside delivering is counted in all, and by each sweep since the one before.
func TestMetricsTellWhatSweepsDid(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	done := map[string]int{}
	s := NewSweeper(SweeperConfig{Upkeep: func() map[string]int { return maps.Clone(done) }, Registerer: registry})
	s.metrics.observe(SweepResult{}, nil)
	s.metrics.observe(SweepResult{TimedOut: true, Left: map[string]int{"a (no time left)": 5}}, nil)
	s.metrics.observe(SweepResult{TimedOut: true, Failed: []string{"db1"}, Left: map[string]int{"a (server failed)": 2, "b (paused)": 1}}, nil)
	wantExported(t, registry, map[string]float64{"sweeps_total ok": 1, "sweeps_total timed_out": 1, "sweeps_total failed": 1, "left": 3}, "sweeps_total", "left")
	for range 2 {
		s.metrics.observe(SweepResult{Overdue: 9, Claimed: 7, Counts: Counts{Delivered: 3, Retried: 2, Dead: 1, Skipped: 3}, Elsewhere: 2, InDelivery: 1}, nil)
	}
	wantExported(t, registry, map[string]float64{
		"overdue_total": 18, "claimed_total": 14, "last_claimed": 7, "tasks_total delivered": 6, "tasks_total retried": 4, "tasks_total dead": 2,
		"tasks_total skipped": 6, "tasks_total elsewhere": 4,
	}, "overdue_total", "claimed_total", "last_claimed", "tasks_total")
	done[RunsMade], done[AlarmsRaised] = 3, 1
	s.metrics.observe(SweepResult{Upkeep: s.sinceLast()}, nil)
	done[RunsMade] = 5
	s.metrics.observe(SweepResult{Upkeep: s.sinceLast()}, nil)
	wantExported(t, registry, map[string]float64{"upkeep_total runs_made": 5, "upkeep_total alarms_raised": 1, "last_upkeep runs_made": 2}, "upkeep_total", "last_upkeep")
}

// A sweep without all runs of schedules did not do all its work: its exit code is 1.
func TestASweepThatMadeNotAllRunsOfSchedulesIsNotOK(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	cfg, failed := sweepConfig(bareServers{}), errors.New("no grant")
	cfg.Intake, cfg.Registerer = newIntake(1), registry
	cfg.Make = func(context.Context) (int, error) { return 0, failed }
	s := NewSweeper(cfg)
	if _, err := s.Sweep(t.Context()); !errors.Is(err, failed) {
		t.Error(err)
	}
	wantExported(t, registry, map[string]float64{}, "last_ok", "last_success_timestamp_seconds")
	failed = nil
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	wantExported(t, registry, map[string]float64{"last_ok": 1}, "last_ok")
}
