package relay

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// These tests have a long form, with TOCSIN_FAULTS=1, whose figures are in docs/faults.md:
//
//	TOCSIN_FAULTS=1 go test -v -count=1 -timeout 60m -run 'Backlog|CantBePurged|StaysOpen' ./outbox/relay

// scaled is how many rows a test uses, or how long it takes.
func scaled[T any](short, long T) T {
	if os.Getenv("TOCSIN_FAULTS") != "" {
		return long
	}
	return short
}

// adds writes n rows, five of each biz_id, numbered in the order of their ids.
func (s *shop) adds(n int) {
	s.TB.Helper()
	const atOnce = 1000
	for from := 0; from < n; from += atOnce {
		var rows []string
		for i := from; i < min(from+atOnce, n); i++ {
			rows = append(rows, fmt.Sprintf("('order.close', %d, 86400000, '%d')", 1+i%(n/5), i))
		}
		s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, attribute) VALUES " + strings.Join(rows, ","))
	}
}

// disorder counts tasks that were stored before an earlier one of their biz_id.
func (s *shop) disorder() (n int) {
	s.TB.Helper()
	for table := range s.Config.Layout.Total() {
		n += s.Number("SELECT COUNT(*) FROM (SELECT attribute + 0 AS n, LAG(attribute + 0) OVER (PARTITION BY biz_id ORDER BY job_id) AS former FROM " +
			s.Config.Layout.Table(table) + ") AS pairs WHERE former > n")
	}
	return n
}

// A server is away while rows for it pile up: they are drained in order, and memory stays bounded.
func TestABacklogOfAServerThatWasAway(t *testing.T) {
	t.Parallel()
	rows := scaled(20_000, 1_000_000)
	proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
	s := newShop(t, tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}})
	cfg := s.config()
	cfg.Poll, cfg.Whole = 0, 0
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Run(func(ctx context.Context) { _ = r.Run(ctx) })
	warm := s.bizOn(1, uint64(rows))
	s.Add(warm, "1", tocsin.In(day))
	s.Want(warm, "1 pending")
	proxy.SetDown(true)
	proxy.BreakAt("tocsin", true, 1_000_000)
	var heap, held atomic.Int64
	s.Run(func(ctx context.Context) { watchMemory(ctx, r, &heap, &held) })
	s.adds(rows)
	here := 0
	for i := range rows {
		if s.Config.Layout.DatabaseOf(s.Config.Layout.TableOf(uint64(1+i%(rows/5)))) == 0 {
			here++
		}
	}
	begin := time.Now()
	s.moved(r, here+1)
	t.Logf("%d rows of the server that was there: %.1f s after the last was written", here, time.Since(begin).Seconds())
	proxy.BreakAt("no statement", true, 1)
	proxy.SetDown(false)
	begin = time.Now()
	s.moved(r, rows+1)
	t.Logf("%d rows of the server that was away: %.1f s", rows-here, time.Since(begin).Seconds())
	s.Rows(0)
	if n := s.tasksOf(); n != rows+1 {
		t.Errorf("%d tasks, want %d", n, rows+1)
	}
	if n := s.disorder(); n != 0 {
		t.Errorf("%d tasks were stored before an earlier one of their biz_id", n)
	}
	t.Logf("at most %.1f MB of rows held, %.1f MB of heap", float64(held.Load())/1e6, float64(heap.Load())/1e6)
	if held.Load() > 2*laneBytes {
		t.Errorf("%d bytes of rows held", held.Load())
	}
}

// moved waits until a relay has moved n rows.
func (s *shop) moved(r *Relay, n int) {
	s.TB.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.metrics.moved)
	count := func() float64 {
		families, err := registry.Gather()
		if err != nil || len(families) == 0 {
			s.TB.Fatal(families, err)
		}
		return families[0].GetMetric()[0].GetCounter().GetValue()
	}
	last, since := 0.0, time.Now()
	for now := 0.0; now < float64(n); now = count() {
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > time.Minute {
			s.TB.Fatalf("%.0f of %d rows were moved, and none for a minute", now, n)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// watchMemory keeps the largest figures.
func watchMemory(ctx context.Context, r *Relay, heap, held *atomic.Int64) {
	for ctx.Err() == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap.Store(max(heap.Load(), int64(m.HeapAlloc)))
		held.Store(max(held.Load(), r.memory.Load()))
		time.Sleep(50 * time.Millisecond)
	}
}

// A snapshot that stays open keeps the server from purging rows that were deleted: polls do not walk over them.
func TestPollsDoNotReadWhatCantBePurged(t *testing.T) {
	t.Parallel()
	rows := scaled(20_000, 1_000_000)
	s := newShop(t)
	open, err := s.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback() }()
	var seen int
	if err := open.QueryRow(s.Fill("SELECT COUNT(*) FROM {outbox}")).Scan(&seen); err != nil {
		t.Fatal(err)
	}
	s.adds(rows)
	turn := s.turn()
	end := s.Run(func(ctx context.Context) { _ = turn.run(ctx) })
	s.moved(turn.Relay, rows)
	s.Rows(0)
	end()
	fresh := s.turn()
	turn.session = fresh.session // its own may have ended in the middle of a statement
	going, anew := pollTimes(s, turn), pollTimes(s, fresh)
	t.Logf("%d deleted rows are not purged: a poll takes p50 %s, max %s; of a turn that begins p50 %s, max %s", rows,
		quantile.Of(going, 0.5), going[len(going)-1], quantile.Of(anew, 0.5), anew[len(anew)-1])
	behind := turn.known.gaps()[len(turn.known.gaps())-1].First
	s.settle(behind)
	begin := time.Now()
	begun, first := s.begins()
	took := time.Since(begin)
	noted := pollTimes(s, begun)
	t.Logf("of a turn that begins at row %d p50 %s, max %s, after %s", first, quantile.Of(noted, 0.5), noted[len(noted)-1], took)
	if first != behind {
		t.Errorf("a turn begins at row %d", first)
	}
	if len(turn.known.gaps()) > 2 { // id 0 and all above; after a minute the latter alone
		t.Errorf("polls %v", turn.known.gaps())
	}
}

// pollTimes polls some times, and returns how long each took, sorted.
func pollTimes(s *shop, turn *turn) (took []time.Duration) {
	s.TB.Helper()
	for range 50 {
		begin := time.Now()
		if err := turn.poll(s.TB.Context()); err != nil {
			s.TB.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
}

// A transaction of the business stays open far longer than gaps are waited for.
func TestATransactionThatStaysOpenLosesNothing(t *testing.T) {
	t.Parallel()
	while := scaled(2*time.Second, 5*time.Minute)
	s := newShop(t)
	cfg := s.config()
	cfg.Poll, cfg.Whole = 0, scaled(200*time.Millisecond, 0)
	cfg.GapAge = scaled(300*time.Millisecond, 0)
	s.relay(cfg)
	open := s.Begin()
	if err := s.AddTx(open, 1, "late", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	n := uint64(2)
	for begin := time.Now(); time.Since(begin) < while; n++ {
		gone := s.Begin()
		if err := s.AddTx(gone, n, "gone", tocsin.In(day)); err != nil {
			t.Fatal(err)
		}
		if err := gone.Rollback(); err != nil {
			t.Fatal(err)
		}
		s.Add(n, "x", tocsin.In(day))
		time.Sleep(10 * time.Millisecond)
	}
	s.Rows(0)
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.Want(1, "late pending")
	t.Logf("%d other transactions meanwhile; the late one's row was moved %s after its commit", 2*(n-2), time.Since(begin))
	s.Rows(0)
	if tasks := s.tasksOf(); tasks != int(n)-1 {
		t.Errorf("%d tasks, want %d", tasks, n-1)
	}
}
