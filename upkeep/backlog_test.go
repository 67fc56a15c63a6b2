package upkeep

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

var backlogPolicies = []biztype.Policy{{Name: "order.close", Number: 1}, {Name: "coupon.remind", Number: 2}, {Name: "cart.remind", Number: 3, Paused: true}}

// measured is a cluster of two databases, measured by a Backlog that leads.
type measured struct {
	*site
	*Backlog
	registry *prometheus.Registry
	leads    atomic.Bool
}

func newMeasured(t testing.TB, tables int) *measured {
	t.Helper()
	s := &measured{site: newSite(t, tocsin.Layout{Databases: 2, Tables: tables}), registry: prometheus.NewRegistry()}
	s.leads.Store(true)
	s.Backlog = NewBacklog(BacklogConfig{
		Store: s.store, Policies: func() []biztype.Policy { return backlogPolicies }, Leads: s.leads.Load, Registerer: s.registry,
	})
	s.overdueEvery, s.countEvery = 50*time.Millisecond, 50*time.Millisecond
	return s
}

// values returns all gauges by name and labels.
func (s *measured) values() map[string]float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()[len("tocsin_backlog_"):]
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = m.GetGauge().GetValue()
		}
	}
	return all
}

// measure walks once for each of the two kinds of figures.
func (s *measured) measure() map[string]float64 {
	s.t.Helper()
	for _, walk := range []func(context.Context, int, time.Duration) error{s.lookOverdue, s.Backlog.count} {
		if err := walk(s.t.Context(), 0, 0); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.values()
}

func TestTheBacklogIsMeasured(t *testing.T) {
	t.Parallel()
	s := newMeasured(t, 2)
	s.add(0, 3, 1, tocsin.Pending, 100*time.Second)
	s.add(3, 2, 1, tocsin.Pending, 200*time.Second)
	s.add(3, 4, 1, tocsin.Pending, -3600*time.Second)
	s.add(1, 1, 3, tocsin.Pending, 500*time.Second) // paused
	s.add(1, 2, 2, tocsin.Dead, 500*time.Second)
	s.add(2, 1, 2, tocsin.Claimed, -20*time.Second)
	got := s.measure()
	db0, db1 := " "+s.layout.Database(0), " "+s.layout.Database(1)
	for key, want := range map[string]float64{
		"leads": 1, "overdue order.close": 5, "overdue coupon.remind": 0, "overdue cart.remind": 0, "drain_seconds coupon.remind": 0,
		"oldest_overdue_seconds cart.remind" + db0: 0, "oldest_overdue_seconds coupon.remind" + db1: 0,
		"pending order.close" + db0: 3, "pending order.close" + db1: 6, "pending cart.remind" + db0: 1, "pending coupon.remind" + db0: 0,
		"dead coupon.remind": 2, "claimed coupon.remind": 1, "dead order.close": 0, "capped_tables" + db0: 0, "unread_tables" + db1: 0,
	} {
		if v, there := got[key]; !there || v != want {
			t.Errorf("%s is %v (%v), want %v", key, v, there, want)
		}
	}
	for key, least := range map[string]float64{"oldest_overdue_seconds order.close" + db0: 100, "oldest_overdue_seconds order.close" + db1: 200} {
		if v := got[key]; v < least || v > least+60 {
			t.Errorf("%s is %v, want %v or little more", key, v, least)
		}
	}
	if !math.IsNaN(got["drain_seconds order.close"]) {
		t.Errorf("after one walk the pace is known: %v", got["drain_seconds order.close"])
	}
	if again := s.measure(); !math.IsInf(again["drain_seconds order.close"], 1) {
		t.Errorf("a backlog that stays drains in %v s", again["drain_seconds order.close"])
	}
	s.exec("DELETE FROM " + s.layout.Table(3) + " WHERE action_time < UTC_TIMESTAMP(3)")
	if less := s.measure()["drain_seconds order.close"]; less <= 0 || math.IsInf(less, 0) || math.IsNaN(less) {
		t.Errorf("a backlog that shrinks drains in %v s", less)
	}
}

func TestATableThatIsGoneIsCountedAndHidesNoOther(t *testing.T) {
	t.Parallel()
	s := newMeasured(t, 2)
	s.exec("DROP TABLE " + s.layout.Table(1))
	for _, waiting := range []int{0, 3} {
		if waiting > 0 {
			s.add(0, waiting, 1, tocsin.Pending, 100*time.Second)
		}
		got, db := s.measure(), " "+s.layout.Database(0)
		pending, counted := got["pending order.close"+db]
		if got["unread_tables"+db] != 1 || got["overdue order.close"] != float64(waiting) || pending != float64(waiting) || !counted {
			t.Errorf("%d waiting: got %v", waiting, got)
		}
	}
}

func TestWhatIsOverdueIsToldByType(t *testing.T) {
	t.Parallel()
	s := newMeasured(t, 2)
	s.add(0, 3, 1, tocsin.Pending, 100*time.Second)
	s.add(3, 2, 1, tocsin.Pending, 200*time.Second)
	s.add(1, 1, 3, tocsin.Pending, 500*time.Second)
	s.exec("DROP TABLE " + s.layout.Table(2))
	if types, servers := s.Overdue(); len(types) != 0 || len(servers) != 1 || !servers[0].At.IsZero() || servers[0].Err != nil {
		t.Errorf("before the first walk: %+v, %+v", types, servers)
	}
	s.measure()
	types, servers := s.Overdue()
	if one := types[1]; len(types) != 2 || one.Tasks != 5 || one.AtLeast || one.Oldest < 200*time.Second || time.Since(one.Due) < one.Oldest || !math.IsNaN(one.Drain) || types[3].Tasks != 1 {
		t.Errorf("%+v", types)
	}
	if servers[0].At.IsZero() || servers[0].Unread != 1 || servers[0].Err != nil {
		t.Errorf("%+v", servers)
	}
	s.measure()
	if types, _ = s.Overdue(); !math.IsInf(types[1].Drain, 1) {
		t.Errorf("what stays drains in %v s", types[1].Drain)
	}
	s.leads.Store(false)
	if err := s.lookOverdue(t.Context(), 0, 0); err == nil {
		t.Fatal("the walk did not end")
	}
	if types, servers = s.Overdue(); types[1].Tasks != 5 || servers[0].At.IsZero() || servers[0].Err == nil {
		t.Errorf("after a walk that failed: %+v, %+v", types, servers)
	}
}

func TestOnlyTheNodeThatLeadsMeasures(t *testing.T) {
	t.Parallel()
	s := newMeasured(t, 1)
	s.leads.Store(false)
	s.add(0, 1, 1, tocsin.Pending, 100*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	if got := s.values(); len(got) != 1 || got["leads"] != 0 {
		t.Errorf("a node that does not lead exports %v", got)
	}
	s.leads.Store(true)
	for s.values()["overdue order.close"] != 1 || s.values()["pending order.close "+s.layout.Database(0)] != 1 {
		time.Sleep(10 * time.Millisecond)
	}
	s.leads.Store(false)
	if got := s.values(); len(got) != 1 || got["leads"] != 0 {
		t.Errorf("a node that leads no more exports %v", got)
	}
	cancel()
	<-ended
}

func TestDrainTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, now int
		want        time.Duration
	}{
		"nothing is left": {5, 0, 0}, "half of it": {100, 50, time.Minute}, "a tenth": {100, 90, 9 * time.Minute},
		"it stays": {100, 100, -1}, "it grows": {100, 200, -1},
	} {
		if got := drainTime(c.before, c.now, time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
