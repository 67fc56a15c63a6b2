package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	driverlib "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// selectWaiting reports whether a connection waits for a lock on a table. Every user may see their own connections.
// Parameter: the connection's id.
const selectWaiting = `SELECT /* tocsin brief */
    COUNT(*) > 0
FROM information_schema.processlist
WHERE id = ?
    AND state LIKE 'Waiting for %lock'`

const selectID = `SELECT /* tocsin brief */ CONNECTION_ID()`

// interrupted is the number of the error of a statement that was killed.
const interrupted = 1317

// ExecBriefly runs a statement that needs a table to itself, an ALTER say, over a connection of its own. While such a
// statement waits for the transactions that use the table, whoever comes later waits behind it; so it is killed if it
// waits for longer than patience, with an error that is Contended. A statement that works is not killed, however long
// it takes. It needs two connections of the pool.
func ExecBriefly(ctx context.Context, db *sqlx.DB, patience time.Duration, query string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var id int64
	if err := conn.QueryRowContext(ctx, selectID).Scan(&id); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, query)
		done <- err
	}()
	look := time.NewTicker(patience)
	defer look.Stop()
	killed := false
	for {
		select {
		case err := <-done:
			if killed { // which may hit the connection's next statement
				_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			}
			return gaveUp(err, killed, patience)
		case <-look.C:
			killed = killWaiting(ctx, db, id) || killed
		}
	}
}

// killWaiting ends the statement of a connection that waits for a table, and reports whether it tried to. If it can't
// ask or kill, the statement ends by the session's lock_wait_timeout.
func killWaiting(ctx context.Context, db *sqlx.DB, id int64) bool {
	var waits bool
	if err := db.QueryRowContext(ctx, selectWaiting, id).Scan(&waits); err != nil || !waits {
		return false
	}
	_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL /* tocsin brief */ QUERY %d", id))
	return true
}

// gaveUp makes a statement that was killed one that waited for too long.
func gaveUp(err error, killed bool, patience time.Duration) error {
	var said *driverlib.MySQLError
	if killed && errors.As(err, &said) && said.Number == interrupted {
		return &driverlib.MySQLError{Number: 1205, Message: fmt.Sprintf("the table was in use for %s", patience)}
	}
	return err
}
