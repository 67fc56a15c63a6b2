package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// probe asks whether one table has a row of a {status} between two action
// times, which are its arguments. MIN is read from one end of idx_due before the
// statement is planned, which costs a server half of what a peek does. No row:
// there is none.
var probe = prepare(`
SELECT /* tocsin probe */
    {table_no},
    MIN(action_time) AS earliest
FROM {table} FORCE INDEX (idx_due)
WHERE status = {status}
  AND action_time >= ?
  AND action_time <= ?
HAVING earliest IS NOT NULL`)

// Bounds of a prober: the server keeps about 9 KB for each table of a prepared
// probe, so those that are not used any more are given up.
const (
	probeWait   = 50 * time.Millisecond // for the probe under way, which may wait for a lock: the peek need not
	maxProbes   = 256                   // statements: enough for all of 8 x 1024 tables in groups that are half full
	probeUnused = 5 * time.Minute
)

// prober keeps the probes of one server prepared, by the tables they are for, on
// one connection: parsing them anew would be a third of their cost. The connection
// is admitted before each probe, like any other.
type prober struct {
	db   *sqlx.DB      // of one connection
	idle time.Duration // the server may have ended its session after longer

	turn  chan struct{} // holds one while a probe is under way, which owns what follows
	conn  *sql.Conn     // nil: none
	used  time.Time     // when it last answered
	ready map[int]*prepared
	tidy  time.Time // when unused ones were last given up
}

// prepared is a probe of tables, kept by the first of them.
type prepared struct {
	tables []int
	stmt   *sql.Stmt
	used   time.Time
}

// open makes the pool; it connects to nothing.
func (p *prober) open(spec mysql.Spec) error {
	spec.MaxConns, spec.Share = 1, ""
	pool, err := mysql.Open(spec)
	if err != nil {
		return err
	}
	p.idle = cmp.Or(spec.IdleTime, time.Minute)
	p.db, p.turn, p.ready = pool.DB, make(chan struct{}, 1), make(map[int]*prepared)
	return nil
}

var errProbing = errors.New("another probe is under way")

// holding leaves out of a query's tables those that have no row for it, of
// whatever biz type. Where that can't be told, for any reason, a table stays:
// the peek that follows knows what to do about it.
func (s *Store) holding(ctx context.Context, sv *server, q PeekQuery) []int {
	var left []int
	for tables := range slices.Chunk(q.Tables, maxTables) {
		found, err := s.probe(ctx, sv, tables, q)
		if err != nil {
			found = tables
		}
		left = append(left, found...)
	}
	return left
}

// probe gives those of the tables that hold a row for the query.
func (s *Store) probe(ctx context.Context, sv *server, tables []int, q PeekQuery) (found []int, err error) {
	p := &sv.prober
	if !p.await(ctx) {
		return nil, errProbing
	}
	defer func() { <-p.turn }()
	start := time.Now()
	defer func() { s.metrics.observe(probe.name, start, len(found), err) }()
	p.forget(start)
	if start.Sub(p.used) > p.idle {
		p.leave()
	}
	if p.conn == nil {
		if p.conn, err = p.db.Conn(ctx); err != nil {
			return nil, err
		}
	}
	var ready *prepared
	if err = s.admit(ctx, sv, p.conn, s.databasesIn(tables)); err == nil {
		ready, err = p.prepare(ctx, tables, s.probeText(tables, q))
	}
	if err == nil {
		found, err = ready.ask(ctx, probeArgs(len(tables), q))
	}
	switch {
	case err == nil:
		p.used = start
	case mysql.Unanswered(err):
		p.leave()
	default:
		p.drop(tables[0])
	}
	return found, err
}

// await takes the turn, and reports false where that takes too long.
func (p *prober) await(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Store) probeText(tables []int, q PeekQuery) func() string {
	return func() string {
		var b []byte
		for i, table := range tables {
			if i > 0 {
				b = append(b, unionAll...)
			}
			b = probe.render(b, s.ofTable(table, slots{"status": q.Status}))
		}
		return string(b)
	}
}

// probeArgs are the bounds, for each table.
func probeArgs(tables int, q PeekQuery) []any {
	bounds := []any{string(appendInstant(nil, q.From)), string(appendInstant(nil, q.Until))}
	return slices.Repeat(bounds, tables)
}

// prepare gives the probe of the tables, which is made if there is none.
func (p *prober) prepare(ctx context.Context, tables []int, text func() string) (*prepared, error) {
	if ready := p.ready[tables[0]]; ready != nil && slices.Equal(ready.tables, tables) {
		ready.used = time.Now()
		return ready, nil
	}
	p.drop(tables[0])
	stmt, err := p.conn.PrepareContext(ctx, text())
	if err != nil {
		return nil, err
	}
	ready := &prepared{tables: slices.Clone(tables), stmt: stmt, used: time.Now()}
	p.ready[tables[0]] = ready
	return ready, nil
}

// ask runs a probe and gives the tables that it names.
func (r *prepared) ask(ctx context.Context, args []any) (found []int, err error) {
	rows, err := r.stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var table int
		var earliest sql.RawBytes
		if err := rows.Scan(&table, &earliest); err != nil {
			return nil, err
		}
		found = append(found, table)
	}
	return found, rows.Err()
}

// forget gives up what has not been used for long, and everything where there
// is too much: tables come and go.
func (p *prober) forget(now time.Time) {
	if now.Sub(p.tidy) < probeUnused && len(p.ready) < maxProbes {
		return
	}
	p.tidy = now
	all := len(p.ready) >= maxProbes
	for first, r := range p.ready {
		if all || now.Sub(r.used) > probeUnused {
			p.drop(first)
		}
	}
}

// leave gives the connection up, and all probes with it.
func (p *prober) leave() {
	for first := range p.ready {
		p.drop(first)
	}
	if p.conn != nil {
		_ = p.conn.Close() // the pool closes it if it is broken
		p.conn = nil
	}
}

// drop gives one probe up. A failure to close it is that of a connection that is
// gone, and the statement with it.
func (p *prober) drop(first int) {
	if r := p.ready[first]; r != nil {
		_ = r.stmt.Close()
		delete(p.ready, first)
	}
}
