package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	driverlib "github.com/go-sql-driver/mysql"
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

// seeingConn is a connection that remembers what its user last saw through it, and
// since when it has been waiting for the server.
type seeingConn struct {
	driverConn
	asked    *asked
	patience time.Duration              // of a read
	observe  Observe                    // nil: nobody does
	done     bool                       // the server refused a write, or ends the session
	readOnly string                     // why the server takes no writes, when it was asked last; "": it takes some
	askedAt  time.Time                  // when it was
	server   string                     // see Process
	turned   *atomic.Pointer[time.Time] // see sessionConnector
	home     *home                      // of several addresses, else nil
	link     *link                      // with home
	seen     any
	at       time.Time
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

// worded adds to a statement's error the reason that the driver hides.
func (c *seeingConn) worded(err error, begin time.Time) error {
	if err == nil {
		return nil
	}
	said := saidBy(err)
	if said == nil {
		err = unanswered(err, begin, c.patience)
	} else if class := classOfSaid(said); class == Demoted {
		c.refused()
		err = demoted{said}
	} else if class == Lost {
		c.done = true
	}
	if c.home != nil && ClassOf(err).OfServer() {
		c.home.hurry()
	}
	return err
}

// refused notes that the server takes no writes. If it took some before, all connections of the pool connect anew and ask: they may lead to
// the same server.
func (c *seeingConn) refused() {
	c.done = true
	if now := time.Now(); c.readOnly == "" {
		c.turned.Store(&now)
	}
}

// usable is false for a connection to a server that takes no writes, some time after that was seen, and for one that its pool has to ask
// anew: a new connection may lead to the primary.
func (c *seeingConn) usable() bool {
	if c.done || c.cut() || c.readOnly != "" && time.Since(c.askedAt) > readOnlyFor {
		return false
	}
	turned := c.turned.Load()
	return turned == nil || turned.Before(c.askedAt)
}

// IsValid reports whether the connection goes back to its pool.
func (c *seeingConn) IsValid() bool { return c.usable() && c.driverConn.IsValid() }

// ResetSession refuses a connection that was usable when it went back.
func (c *seeingConn) ResetSession(ctx context.Context) error {
	if !c.usable() {
		return driver.ErrBadConn
	}
	return c.driverConn.ResetSession(ctx)
}

// cut reports whether another address is in use.
func (c *seeingConn) cut() bool { return c.link != nil && c.link.gone.Load() }

// demoted is driver.ErrBadConn with the text of the server. So database/sql connects
// again, and repeats a statement if that is safe.
type demoted struct{ *driverlib.MySQLError }

// Unwrap returns both of its meanings.
func (d demoted) Unwrap() []error { return []error{driver.ErrBadConn, d.MySQLError} }

// late is the error of a server that was asked and did not answer in time. It has the class of its cause.
type late struct {
	within time.Duration
	cause  error
}

func (l late) Error() string { return fmt.Sprintf("%v within %s", errNoAnswer, l.within) }
func (l late) Unwrap() error { return l.cause }

// unanswered says how long a call waited in vain: until the read's time-out, which the driver reports as an invalid connection, or
// until the caller's deadline.
func unanswered(err error, begin time.Time, patience time.Duration) error {
	took := time.Since(begin)
	switch {
	case errors.Is(err, driverlib.ErrInvalidConn) && took >= patience:
		return late{patience, err}
	case errors.Is(err, context.DeadlineExceeded):
		return late{took.Round(100 * time.Millisecond), err}
	}
	return err
}
