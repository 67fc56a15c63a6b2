package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// repeatFor bounds the repeats of a deadlocked transaction. It is shorter than
// a lock wait: who waited for a lock in vain is not repeated but told, so that
// it can go on without the locked row.
const repeatFor = 500 * time.Millisecond

// querier is a pool or one connection of it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// scanRow takes one row of the set-th result set.
type scanRow func(set int, rows *sql.Rows) error

// read sends text, one statement or several, in one round trip and hands every
// row of every result set to scan.
func (s *Store) read(ctx context.Context, q querier, name string, text []byte, scan scanRow, args ...any) error {
	start := time.Now()
	n, err := readSets(ctx, q, string(text), args, scan)
	s.metrics.observe(name, start, n, err)
	return err
}

func readSets(ctx context.Context, q querier, text string, args []any, scan scanRow) (n int, err error) {
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

// exec sends one statement that returns no rows.
func (s *Store) exec(ctx context.Context, sv *server, name string, text []byte, args ...any) error {
	start := time.Now()
	_, err := sv.DB.ExecContext(ctx, string(text), args...)
	s.metrics.observe(name, start, 0, err)
	return err
}

// write sends text, one statement or several statements, in one round trip inside a transaction
// and gives the rows affected by each.
func (s *Store) write(ctx context.Context, conn *sql.Conn, name string, text []byte, args ...any) ([]int64, error) {
	start := time.Now()
	counts, err := mysql.ExecMulti(ctx, conn, string(text), args...)
	s.metrics.observe(name, start, int(sum(counts)), err)
	return counts, err
}

// transact runs fn in a transaction, and again after a deadlock.
func (s *Store) transact(ctx context.Context, sv *server, fn func(*sql.Conn) error) error {
	return mysql.RetryFor(ctx, repeatFor, func() error { return mysql.InTx(ctx, sv.DB, fn) })
}

func sum(counts []int64) int64 {
	var total int64
	for _, n := range counts {
		total += n
	}
	return total
}
