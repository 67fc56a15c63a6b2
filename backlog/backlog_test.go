package backlog

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var policies = []biztype.Policy{{Name: "order.close", Number: 1}, {Name: "coupon.remind", Number: 2}, {Name: "cart.remind", Number: 3, Paused: true}}

// site is a cluster of two databases, measured by a Backlog that leads.
type site struct {
	t        testing.TB
	layout   tocsin.Layout
	store    *store.Store
	db       *sql.DB
	registry *prometheus.Registry
	leads    atomic.Bool
	seq      int // of the rows that fill has added
	*Backlog
}

func newSite(t testing.TB, tables int) *site {
	t.Helper()
	s := &site{t: t, layout: tocsin.Layout{Databases: 2, Tables: tables, Prefix: devtest.Prefix(t)}, registry: prometheus.NewRegistry()}
	cfg := tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.store, err = store.Connect(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	s.leads.Store(true)
	s.Backlog = New(Config{
		Tables: s.store, Now: s.store.Now, Servers: s.store.Servers(), TablesOf: s.store.TablesOf, Layout: s.layout,
		Policies: func() []biztype.Policy { return policies }, Leads: s.leads.Load, Registerer: s.registry,
		OverdueEvery: 50 * time.Millisecond, CountEvery: 50 * time.Millisecond,
	})
	return s
}

// add inserts rows that have been due for some seconds.
func (s *site) add(table, rows, bizType int, status tocsin.Status, seconds int) {
	s.t.Helper()
	for i := range rows {
		id := uint64(time.Now().UnixNano()%1e12)<<22 | uint64(table)<<9 | uint64(i)
		if _, err := s.db.Exec(fmt.Sprintf(`INSERT INTO %s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time,
			due_time, attempts, crashes, version, claimed_by, attribute) VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 7, ?, ?,
			UTC_TIMESTAMP(3) - INTERVAL ? SECOND, UTC_TIMESTAMP(3), 0, 0, 0, '', '')`, s.layout.Table(table)), id, bizType, status, seconds); err != nil {
			s.t.Fatal(err)
		}
	}
}

// values returns all gauges by name and labels.
func (s *site) values() map[string]float64 {
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
func (s *site) measure() map[string]float64 {
	s.t.Helper()
	for _, walk := range []func(context.Context, int, pace) error{s.lookOverdue, s.count} {
		if err := walk(s.t.Context(), 0, pace{}); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.values()
}

func TestTheBacklogIsMeasured(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	s.add(0, 3, 1, tocsin.Pending, 100)
	s.add(3, 2, 1, tocsin.Pending, 200)
	s.add(3, 4, 1, tocsin.Pending, -3600)
	s.add(1, 1, 3, tocsin.Pending, 500) // paused
	s.add(1, 2, 2, tocsin.Dead, 500)
	s.add(2, 1, 2, tocsin.Claimed, -20)
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
	if _, err := s.db.Exec("DELETE FROM " + s.layout.Table(3) + " WHERE action_time < UTC_TIMESTAMP(3)"); err != nil {
		t.Fatal(err)
	}
	if less := s.measure()["drain_seconds order.close"]; less <= 0 || math.IsInf(less, 0) || math.IsNaN(less) {
		t.Errorf("a backlog that shrinks drains in %v s", less)
	}
}

func TestATableThatIsGoneIsCountedAndHidesNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	s.add(0, 3, 1, tocsin.Pending, 100)
	if _, err := s.db.Exec("DROP TABLE " + s.layout.Table(1)); err != nil {
		t.Fatal(err)
	}
	got := s.measure()
	if got["unread_tables "+s.layout.Database(0)] != 1 || got["overdue order.close"] != 3 || got["pending order.close "+s.layout.Database(0)] != 3 {
		t.Errorf("got %v", got)
	}
}

func TestOnlyTheNodeThatLeadsMeasures(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.leads.Store(false)
	s.add(0, 1, 1, tocsin.Pending, 100)
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
