package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	driverlib "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// InTx runs fn in one transaction of one connection and commits it if fn
// returns nil. Any other end rolls back. The connection lets fn use ExecMulti.
// An error of the commit itself is ambiguous where ClassOf says Lost.
func InTx(ctx context.Context, db *sqlx.DB, fn func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := fn(conn); err != nil {
		Rollback(ctx, conn)
		return err
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		Rollback(ctx, conn)
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Rollback leaves no open transaction on a pooled connection, also after ctx
// ended: a connection that it can't clean is thrown away.
func Rollback(ctx context.Context, conn *sql.Conn) {
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// ExecMulti sends several statements, separated by semicolons, in one packet
// and returns the rows affected by each. The server stops at the first that
// fails; what ran before it is undone only by the transaction around it.
func ExecMulti(ctx context.Context, conn *sql.Conn, query string, args ...any) ([]int64, error) {
	var affected []int64
	err := conn.Raw(func(dc any) error {
		values, err := named(dc, args)
		if err != nil {
			return err
		}
		res, err := dc.(driver.ExecerContext).ExecContext(ctx, query, values)
		if err != nil {
			return err
		}
		affected = res.(driverlib.Result).AllRowsAffected()
		return nil
	})
	return affected, err
}

// named converts args as database/sql would on its own way to the driver.
func named(dc any, args []any) ([]driver.NamedValue, error) {
	checker := dc.(driver.NamedValueChecker)
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
		if err := checker.CheckNamedValue(&values[i]); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	return values, nil
}

// retryFor bounds Retry. It is longer than the lock wait of a session, so that
// at least one repeat follows a lock wait time-out.
const retryFor = 10 * time.Second

// Retry runs op until it succeeds, fails for good or ten seconds have passed,
// with exponential back-off from 2 ms to 500 ms and jitter. Contended errors
// alone are repeated: after a lost connection only op's caller can know whether
// the write happened. Never use it inside a caller's transaction: the server
// has rolled that back.
func Retry(ctx context.Context, op func() error) error { return RetryFor(ctx, retryFor, op) }

// RetryFor is Retry with a bound of its own.
func RetryFor(ctx context.Context, bound time.Duration, op func() error) error {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 2*time.Millisecond, 500*time.Millisecond
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := op()
		if err != nil && ClassOf(err) != Contended {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(waits), backoff.WithMaxElapsedTime(bound))
	return err
}
