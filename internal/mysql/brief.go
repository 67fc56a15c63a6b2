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

// ExecBriefly runs a statement that needs a table for itself, such as an ALTER, over a connection of its own. While it
// waits for transactions that use the table, later statements on the table wait behind it. So it is killed when it has
// waited for longer than patience; the error is Contended. A statement that no longer waits is not killed, however long
// it takes. ExecBriefly needs two connections of the pool.
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

// gaveUp turns the error of a statement that was killed into a lock time-out.
func gaveUp(err error, killed bool, patience time.Duration) error {
	var said *driverlib.MySQLError
	if killed && errors.As(err, &said) && said.Number == interrupted {
		return &driverlib.MySQLError{Number: 1205, Message: fmt.Sprintf("the table was in use for %s", patience)}
	}
	return err
}
