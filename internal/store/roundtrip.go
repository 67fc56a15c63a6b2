package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// repeatFor bounds the repeats of a deadlocked transaction. It is shorter than
// a lock wait: who waited for a lock in vain is not repeated but told, so that
// it can go on without the locked row.
const repeatFor = 500 * time.Millisecond

// takeRow takes one row of the set-th result set.
type takeRow func(set int, rows *sql.Rows) error

// read sends text, one statement or several, in one round trip and hands every
// row of every result set to scan.
func (s *Store) read(ctx context.Context, q layoutrow.Queryer, name string, text []byte, scan takeRow, args ...any) error {
	start := time.Now()
	n, err := readSets(ctx, q, string(text), args, scan)
	s.metrics.observe(name, start, n, err)
	return err
}

// reader sends text about the given databases in one round trip, like read.
type reader func(ctx context.Context, databases []int, name string, text []byte, scan takeRow, args ...any) error

// gated returns a reader of a server's databases that refuses if one must not be
// used.
func (s *Store) gated(sv *server) reader {
	return func(ctx context.Context, databases []int, name string, text []byte, scan takeRow, args ...any) error {
		start := time.Now()
		conn, err := s.conn(ctx, sv, databases)
		if err != nil {
			s.metrics.observe(name, start, 0, err)
			return err
		}
		defer func() { _ = conn.Close() }()
		return s.read(ctx, conn, name, text, scan, args...)
	}
}

// over returns a reader over one connection that refuses no database.
func (s *Store) over(q layoutrow.Queryer) reader {
	return func(ctx context.Context, _ []int, name string, text []byte, scan takeRow, args ...any) error {
		return s.read(ctx, q, name, text, scan, args...)
	}
}

// readTables is gated for tables, which are in order.
func (s *Store) readTables(ctx context.Context, sv *server, tables []int, name string, text []byte, scan takeRow, args ...any) error {
	return s.gated(sv)(ctx, s.databasesIn(tables), name, text, scan, args...)
}

func readSets(ctx context.Context, q layoutrow.Queryer, text string, args []any, scan takeRow) (n int, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for set := 0; ; set++ {
		for rows.Next() {
			if err := scan(set, rows); err != nil {
				return n, err
			}
			n++
		}
		if !rows.NextResultSet() {
			return n, rows.Err()
		}
	}
}

// exec sends one statement about one database that returns no rows.
func (s *Store) exec(ctx context.Context, database int, st statement, in slots, args ...any) error {
	start, sv := time.Now(), s.homeOf(database)
	conn, err := s.conn(ctx, sv, []int{database})
	if err == nil {
		_, err = conn.ExecContext(ctx, string(st.render(nil, s.ofDatabase(database, in))), args...)
		_ = conn.Close()
	}
	sv.full.note(err)
	s.metrics.observe(st.name, start, 0, err)
	return err
}

// change sends one statement about one database in a transaction of its own, and returns how many rows it changed.
func (s *Store) change(ctx context.Context, database int, st statement, fill filler, args ...any) (rows int, err error) {
	err = s.transactIn(ctx, s.homeOf(database), []int{database}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, st.name, st.render(nil, fill), args...)
		rows = int(sum(counts))
		return err
	})
	return rows, err
}

// scanOne returns what reads a single row into dest.
func scanOne(dest ...any) takeRow {
	return func(_ int, rows *sql.Rows) error { return rows.Scan(dest...) }
}

// write sends text, one statement or several statements, in one round trip inside a transaction
// and gives the rows affected by each.
func (s *Store) write(ctx context.Context, conn *sql.Conn, name string, text []byte, args ...any) ([]int64, error) {
	start := time.Now()
	counts, err := mysql.ExecMulti(ctx, conn, string(text), args...)
	s.metrics.observe(name, start, int(sum(counts)), err)
	return counts, err
}

// transact runs fn in a transaction on tables, which are in order, and repeats it
// after a deadlock. It refuses if one of their databases must not be used.
func (s *Store) transact(ctx context.Context, sv *server, tables []int, fn func(*sql.Conn) error) error {
	return s.transactIn(ctx, sv, s.databasesIn(tables), fn)
}

// transactIn is transact for databases.
func (s *Store) transactIn(ctx context.Context, sv *server, databases []int, fn func(*sql.Conn) error) error {
	if err := sv.refused().first(databases); err != nil {
		return err
	}
	return mysql.RetryFor(ctx, repeatFor, func() (err error) {
		defer func() { sv.full.note(err) }()
		return mysql.InTx(ctx, sv.DB, func(conn *sql.Conn) error {
			if err := s.admit(ctx, sv, conn, databases); err != nil {
				return err
			}
			return fn(conn)
		})
	})
}

func sum(counts []int64) int64 {
	var total int64
	for _, n := range counts {
		total += n
	}
	return total
}
