package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Bounds of a peek, in milliseconds where the store takes them so.
const (
	peekEvery     = 5 * time.Millisecond
	unboundedMost = 20 // peeks without a lower bound
	peekAhead     = int64(10 * time.Second / time.Millisecond)
	peekBehind    = int64(10 * time.Second / time.Millisecond) // the scanner's lower bound: how long an insert may take to commit
)

// These write and read in transactions that stay open.
const (
	touchSQL = `INSERT /* tocsin bench_hold */ INTO {table} (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) ` +
		`VALUES (1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 1, 0, UTC_TIMESTAMP(3) + INTERVAL 1 DAY, UTC_TIMESTAMP(3) + INTERVAL 1 DAY, '')`
	glanceSQL = `SELECT /* tocsin bench_hold */ job_id FROM {table} LIMIT 1`
)

// BenchmarkPeek measures what a node's regular peek takes beside settled rows that can't be purged, because an older write transaction
// and a read snapshot are open. The rows were settled some time, overdue, after they fell due. The same peek of a clean table is
// measured before and after.
func BenchmarkPeek(b *testing.B) {
	for _, overdue := range []time.Duration{30 * time.Second, time.Second} { // rows of the last 10 s are within the bounds of a peek
		b.Run(fmt.Sprintf("overdue=%s", overdue), func(b *testing.B) {
			const entries = 300_000
			s := open(b, Options{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Tasks: entries}, true)
			report(b, measurePeek(b, s, entries, overdue, 5*time.Second))
		})
	}
}

func measurePeek(tb testing.TB, s *site, entries int, overdue, span time.Duration) map[string]float64 {
	tb.Helper()
	ctx, n := tb.Context(), int(span/peekEvery)
	regular := func(clock int64) int64 { return clock - peekBehind }
	must(tb, s.openTables(ctx))
	clean := s.peeks(tb, n, regular)
	release := s.holdPurge(tb)
	s.settleAll(tb, entries, -overdue)
	beside := s.peeks(tb, n, regular)
	unpurged, err := s.unpurged(ctx)
	must(tb, err)
	unbounded := s.peeks(tb, unboundedMost, func(int64) int64 { return 0 })
	release()
	must(tb, s.calm(ctx))
	clean = append(clean, s.peeks(tb, n, regular)...)
	slices.Sort(clean)
	return map[string]float64{
		"p50-ms": millis(beside, 0.5), "p99-ms": millis(beside, 0.99), "max-ms": millis(beside, 1),
		"clean-p50-ms": millis(clean, 0.5), "clean-p99-ms": millis(clean, 0.99), "p99-of-clean": ratio(millis(beside, 0.99), millis(clean, 0.99)),
		"unbounded-p50-ms": millis(unbounded, 0.5), "unpurged": unpurged,
	}
}

// peeks peeks the tables of the first server n times, up to as many of them as a scanner peeks at once, from the bound that from
// returns for the server's clock on. It returns how long each peek took, sorted.
func (s *site) peeks(tb testing.TB, n int, from func(clock int64) int64) []time.Duration {
	tb.Helper()
	ctx := tb.Context()
	_, err := s.store.Measure(ctx, 0)
	must(tb, err)
	took := make([]time.Duration, n)
	tables := s.store.TablesOf(0)
	begin := time.Now()
	for i := range took {
		must(tb, loop.WaitUntil(ctx, begin.Add(time.Duration(i)*peekEvery)))
		clock := s.store.Now(0)
		q := store.PeekQuery{
			Tables: tables[:min(len(tables), maxUnion)], Types: []uint64{plainNumber, otherNumber},
			From: from(clock), Until: clock + peekAhead, Limit: packetRows, Sparse: true,
		}
		sent := time.Now()
		page, err := s.store.Peek(ctx, q)
		took[i] = time.Since(sent)
		for _, failed := range page.Failed {
			err = errors.Join(err, failed)
		}
		must(tb, err)
	}
	slices.Sort(took)
	return took
}

// settleAll stores n rows and sets them to done, in batches.
func (s *site) settleAll(tb testing.TB, n int, due time.Duration) {
	tb.Helper()
	packets := s.packets(s.rows.next(n), packetRows)
	must(tb, each(tb.Context(), packets, func(ctx context.Context, p packet) error { return s.insert(ctx, p, at(due)) }))
	must(tb, each(tb.Context(), packets, func(ctx context.Context, p packet) error {
		var b []byte
		for _, part := range p.parts {
			ids := make([]uint64, len(part.rows))
			for i, r := range part.rows {
				ids[i] = uint64(r.id)
			}
			b = append(appendIDs(append(b, s.text(doneSQL, part.table)...), ids), ';')
		}
		return s.exec(ctx, p.server, transaction(b, len(p.parts)))
	}))
}

// holdPurge keeps the first server from removing what is settled from now on, until release is called.
func (s *site) holdPurge(tb testing.TB) (release func()) {
	tb.Helper()
	var open []*sql.Tx
	for _, statement := range []string{touchSQL, glanceSQL} {
		tx, err := s.pools[0].DB.BeginTx(tb.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}) // below it a snapshot is none
		must(tb, err)
		open = append(open, tx)
		_, err = tx.ExecContext(tb.Context(), s.text(statement, s.store.TablesOf(0)[0]))
		must(tb, err)
	}
	return func() {
		for _, tx := range open {
			must(tb, tx.Rollback())
		}
	}
}
