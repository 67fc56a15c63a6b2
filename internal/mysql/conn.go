package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// driverConn is all that database/sql and ExecMulti ask of the driver's connections.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// seeingConn is a connection that remembers what its user last saw behind it, and
// since when it waits for the server.
type seeingConn struct {
	driverConn
	asked *asked
	seen  any
	at    time.Time
}

// LookOnce returns look's result for this connection, cached for at most every.
// The server behind an address can change only when the connection does. Errors
// are not cached. conn must come from a Server's DB, and every pool has one T.
func LookOnce[T any](ctx context.Context, conn *sql.Conn, every time.Duration, look func(context.Context) (T, error)) (T, error) {
	var c *seeingConn
	if err := conn.Raw(func(dc any) error { c = dc.(*seeingConn); return nil }); err != nil {
		return *new(T), err
	}
	begin := time.Now()
	if seen, ok := c.seen.(T); ok && begin.Sub(c.at) < every { // conn is the caller's alone, and so is c
		return seen, nil
	}
	seen, err := look(ctx)
	if err == nil {
		c.seen, c.at = seen, begin
	}
	return seen, err
}
