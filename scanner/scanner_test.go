package scanner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// slow has no regular peek after the first within a test: what is found was
// found by something else.
const slow = time.Hour

func numbers(from, n int) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = uint64(from + i)
	}
	return ids
}

// What is nearly due in owned tables, of wanted types, is offered; nothing else.
func TestOffersWhatIsNearlyDue(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(1000, closeNumber)
	near := c.add(closing, 5*time.Second, c.in(1, 20)...)
	far := c.add(closing, 3*slow, c.in(1, 3)...)
	elsewhere := c.add(closing, 0, c.in(2, 3)...)
	unwanted := c.add(reminder, 0, c.in(1, 3)...)
	s := run(t, Config{Store: deaf{c}, Intake: in, Interval: slow, PageLimit: 2})
	s.Set([]int{1, 99}, owner)
	in.await(t, near)
	taken := c.add(closing, 0, c.in(3, 1)...)
	s.Set([]int{3}, owner)
	in.await(t, taken)
	in.never(t, far)
	in.never(t, elsewhere)
	in.never(t, unwanted)
	if got := fmt.Sprint(ownedBy(s)); got != "[1 3]" {
		t.Errorf("owns %s", got)
	}
}

// A row in the wrong table can't be delivered. A whole page of them, due or nearly due, hides nothing that stands behind it.
func TestAPageOfMisplacedRowsHidesNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(1000, closeNumber)
	var behind []tocsin.JobID
	for table, due := range map[int]time.Duration{1: 0, 3: 5 * time.Second} {
		c.add(closing, due, c.in(2, 4)...)
		c.exec("INSERT INTO " + c.Layout().Table(table) + " SELECT * FROM " + c.Layout().Table(2))
		c.exec("DELETE FROM " + c.Layout().Table(2))
		behind = append(behind, c.add(closing, due, c.in(table, 1)...)...)
	}
	s := run(t, Config{Store: deaf{c}, Intake: in, Interval: slow, PageLimit: 2})
	s.Set([]int{1, 3}, owner)
	in.await(t, behind)
}

// A stand-in reads the types that the owner lacks, what is overdue, what falls due and what rings, and no others. After it
// the table may be owned.
func TestAStandInReadsItsTypesAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(1000, closeNumber, remindNumber)
	overdue, soon := c.add(reminder, 0, c.in(1, 20)...), c.add(reminder, 5*time.Second, c.in(1, 3)...)
	others := c.add(closing, 0, c.in(1, 3)...)
	s := run(t, Config{Store: c, Intake: in, Interval: slow, PageLimit: 2})
	s.Set([]int{1}, &duequeue.Access{Types: []uint64{remindNumber}})
	in.await(t, overdue)
	in.await(t, soon)
	in.await(t, c.add(reminder, 0, c.in(1, 1)...)) // by its bell
	in.never(t, others)
	s.Set([]int{1}, nil)
	s.Set([]int{1}, owner)
	in.await(t, others)
}

// A backlog larger than the intake drains as fast as it is settled, although the
// next regular peek is an hour away.
func TestDrainIsNotBoundByTheInterval(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(100, closeNumber, remindNumber)
	const n = 1500
	c.add(closing, 0, numbers(1, n)...)
	c.add(reminder, 0, numbers(1, n)...)
	s := run(t, Config{Store: deaf{c}, Intake: in, Interval: slow, PageLimit: 50})
	s.Set(owned(clusterTables), owner)
	began := time.Now()
	for left := 2 * n; left > 0; {
		settled, err := in.settle(t.Context(), c, 100)
		must(t, err)
		left -= settled
		if settled > 0 {
			s.Wake(0)
			continue
		}
		if time.Since(began) > eventTimeout {
			t.Fatalf("%d tasks are left", left)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d tasks through lanes of 100 in %s", 2*n, time.Since(began).Round(time.Millisecond))
}

// A task that is added for now rings the bell, and is offered long before the
// next peek.
func TestDoorbell(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(10_000, closeNumber)
	s := run(t, Config{Store: c, Intake: in, Interval: slow, BellInterval: 5 * time.Millisecond})
	s.Set([]int{0, 1, 2, 3, 4, 5, 6}, owner)
	in.await(t, c.add(closing, 0, c.in(0, 1)...)) // found by the first peek or by the bell
	foreign := c.add(closing, 0, c.in(7, 3)...)
	for bizID := range uint64(5) {
		began := time.Now()
		in.await(t, c.add(closing, time.Second, c.in(int(bizID), 5)...))
		t.Logf("offered after %s", time.Since(began).Round(time.Millisecond))
	}
	in.never(t, foreign)
}

// Bells that commit out of order, among others that roll back, are all heard.
func TestDoorbellOutOfOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(10_000, closeNumber)
	s := run(t, Config{Store: c, Intake: in, Interval: slow, BellInterval: 5 * time.Millisecond})
	s.Set(owned(clusterTables), owner)
	in.await(t, c.add(closing, 0, 1))
	first, err := c.db.BeginTx(t.Context(), nil)
	must(t, err)
	undone, err := c.db.BeginTx(t.Context(), nil)
	must(t, err)
	overtaken, err := c.client.AddTx(t.Context(), first, closing.New(100, "", tocsin.In(0)))
	must(t, err)
	_, err = c.client.AddTx(t.Context(), undone, closing.New(101, "", tocsin.In(0)))
	must(t, err)
	in.await(t, c.add(closing, 0, numbers(200, 40)...))
	must(t, undone.Rollback())
	must(t, first.Commit())
	in.await(t, []tocsin.JobID{overtaken.JobID})
}

// When Set has ended the access, nothing of the table is offered, however it races
// with peeks and bells.
func TestSetEndsOffers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := &guarded{lanes: newLanes(10_000, closeNumber)}
	s := run(t, Config{Store: c, Intake: in, Interval: 2 * time.Millisecond, LookAhead: time.Minute, BellInterval: time.Millisecond})
	ids := c.add(closing, 0, c.in(0, 30)...)
	for round := range 30 {
		in.allowed.Store(true)
		s.Set([]int{0}, owner)
		in.await(t, ids[round:round+1])
		in.mu.Lock()
		clear(in.seen)
		in.mu.Unlock()
		s.Set([]int{0}, nil)
		in.allowed.Store(false)
		if owned := ownedBy(s); len(owned) > 0 {
			t.Fatalf("still owns %v", owned)
		}
	}
	if n := in.wrong.Load(); n > 0 {
		t.Errorf("offered %d times after the end of the access", n)
	}
}

// guarded counts what is offered while it is not allowed.
type guarded struct {
	*lanes
	allowed atomic.Bool
	wrong   atomic.Int32
}

func (g *guarded) Offer(server int, entries []duequeue.Entry) []duequeue.Entry {
	if !g.allowed.Load() {
		g.wrong.Add(1)
	}
	return g.lanes.Offer(server, entries)
}

// Tables that fail hold up no other, are logged in one line, not in one per table and try, and are peeked again when they are back.
func TestTablesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no such table")
		r := &rows{places: 4, pending: make(map[tocsin.JobID]row), broken: map[int]error{0: gone, 1: gone, 2: gone}}
		in := newLanes(1000, closeNumber)
		hidden, other := r.due(1, 0), r.due(2, 3)
		log := new(devtest.Log)
		s := run(t, Config{Store: r, Intake: in, Logger: log.Logger()})
		s.Set(owned(4), owner)
		pass(45 * time.Second)
		if in.seen[hidden] || !in.seen[other] {
			t.Errorf("that of a table which fails was offered: %t, that of another: %t", in.seen[hidden], in.seen[other])
		}
		n := valueOf(t, s.servers[0].metrics.failures.WithLabelValues("db1", "table"))
		if lines := log.Lines(); n < 12 || len(lines) != 1 || lines[0]["message"] != "table can't be peeked, its tasks wait" {
			t.Errorf("after %g failures: %v", n, lines)
		}
		r.mu.Lock()
		r.broken = nil
		r.mu.Unlock()
		pass(time.Minute)
		if !in.seen[hidden] || len(log.Lines("table can be peeked again")) == 0 {
			t.Errorf("offered once its table is back: %t; %v", in.seen[hidden], log.Lines())
		}
	})
}

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	must(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// A server that hangs or fails delays no other, and is peeked again when it is
// well. Metrics and log tell.
func TestServerThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	in := newLanes(1000, closeNumber)
	sick := &sickStore{deaf: deaf{c}}
	sick.hangs.Store(true)
	sick.fails.Store(true)
	log := new(devtest.Log)
	reg := prometheus.NewRegistry()
	s := run(t, Config{Store: sick, Intake: in, Interval: 50 * time.Millisecond, Logger: log.Logger(), Registerer: reg})
	s.Set(owned(clusterTables), owner)
	hidden := c.add(closing, 0, c.in(0, 2)...)
	in.await(t, c.add(closing, 0, c.in(4, 2)...))
	sick.hangs.Store(false)
	log.Await(t, "server can't be peeked, its tables wait")
	in.await(t, c.add(closing, time.Second, c.in(5, 2)...))
	in.never(t, hidden)
	sick.fails.Store(false)
	in.await(t, hidden)
	log.Await(t, "server can be peeked again")
	if n := len(log.Lines("server can't be peeked, its tables wait")); n != 1 {
		t.Errorf("said %d times that the server fails", n)
	}
	if metrics, err := reg.Gather(); err != nil || len(metrics) == 0 {
		t.Errorf("gathered %d metrics: %v", len(metrics), err)
	}
}

// sickStore is a store whose server 0 hangs until it is cancelled, or fails.
type sickStore struct {
	deaf
	hangs, fails atomic.Bool
}

func (s *sickStore) sick(ctx context.Context, server int) error {
	for server == 0 && s.hangs.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if server == 0 && s.fails.Load() {
		return errors.New("no route to host")
	}
	return nil
}

func (s *sickStore) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	if err := s.sick(ctx, q.Server); err != nil {
		return store.Page{}, err
	}
	return s.deaf.Peek(ctx, q)
}

func (s *sickStore) LastBell(ctx context.Context, server int) (map[int]uint64, error) {
	if err := s.sick(ctx, server); err != nil {
		return nil, err
	}
	return s.deaf.LastBell(ctx, server)
}

// Run-out claims are given back, and their tasks found: by the first full peek, or later by a regular one, as a full peek notes when
// the next claim runs out.
func TestRecoversRunOutClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ago      string // since the claims ran out
		interval time.Duration
	}{
		"by the first peek": {"1 MINUTE", slow},
		"at their time":     {"2 SECOND", 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t, 1)
			in := newLanes(1000, closeNumber)
			ids := cl.add(closing, 0, cl.in(3, 4)...)
			cl.exec("UPDATE " + cl.Layout().Table(3) + " SET status = 1, action_time = UTC_TIMESTAMP(3) - INTERVAL " + c.ago)
			s := run(t, Config{Store: deaf{cl}, Intake: in, Interval: c.interval, FullEvery: slow})
			s.Set(owned(clusterTables), owner)
			in.await(t, ids)
		})
	}
}

// TestClaimsOfANodeThatIsGoneAreLookedFor: those that were made since the last full peek.
func TestClaimsOfANodeThatIsGoneAreLookedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	in := newLanes(1000, closeNumber)
	var peers atomic.Int32
	peers.Store(2)
	first := c.add(closing, 0, c.in(3, 1)...)
	s := run(t, Config{Store: deaf{c}, Intake: in, Interval: 200 * time.Millisecond, FullEvery: slow, Peers: func() int { return int(peers.Load()) }})
	s.Set(owned(clusterTables), owner)
	in.await(t, first)
	ids := c.add(closing, time.Hour, c.in(2, 4)...)
	c.exec("UPDATE " + c.Layout().Table(2) + " SET status = 1, action_time = UTC_TIMESTAMP(3) - INTERVAL 2 SECOND")
	peers.Store(1)
	in.await(t, ids)
}

func TestValidate(t *testing.T) {
	ok := Config{Store: &rows{}, Intake: newLanes(1)}
	cases := map[string]struct {
		change func(*Config)
		want   string
	}{
		"the zero values are fine":         {func(*Config) {}, ""},
		"no store":                         {func(c *Config) { c.Store = nil }, "needs a store"},
		"no intake":                        {func(c *Config) { c.Intake = nil }, "needs a store and an intake"},
		"a negative interval":              {func(c *Config) { c.Interval = -1 }, "must not be negative"},
		"a look-ahead under two intervals": {func(c *Config) { c.LookAhead = 9 * time.Second }, "at least twice the interval"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := ok
			test.change(&cfg)
			_, err := New(cfg)
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// views counts the decisions of a scanner.
type views struct {
	*lanes
	n atomic.Int64
}

func (v *views) Wanted(server int) []uint64 {
	v.n.Add(1)
	return v.lanes.Wanted(server)
}

// TestAServerThatHangsMakesNoScannerBusy: while as many peeks are under way as may be, the other groups wait for their ends.
func TestAServerThatHangsMakesNoScannerBusy(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	r := &rows{places: 8, takes: func(store.PeekQuery) time.Duration { asked <- struct{}{}; return slow }}
	in := &views{lanes: newLanes(10, closeNumber)}
	s := run(t, Config{Store: r, Intake: in, Interval: slow, TablesPerStatement: 1})
	s.Set(owned(8), owner)
	for range parallel {
		<-asked
	}
	before := in.n.Load()
	time.Sleep(500 * time.Millisecond)
	if n := in.n.Load() - before; n > 50 {
		t.Errorf("it decided %d times what to peek next, with as many peeks under way as may be", n)
	}
}
