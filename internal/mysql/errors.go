package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	driverlib "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// Class says what an error from a server means for who sent the statement.
type Class int

const (
	Other     Class = iota // a fault of the statement or the data, or unknown: do not repeat
	OK                     // no error
	Canceled               // the caller's context ended, or the time of a query of Within
	Contended              // deadlock, lock wait, killed, changed since read: nothing was done, repeat
	Duplicate              // a unique key refused the row
	Missing                // no such database or table
	Denied                 // this user may not do that on a database or table
	Demoted                // the server no longer takes writes: reconnect and repeat
	Lost                   // connection lost or never made; a write may have happened, see InDoubt
	Barred                 // the server admits no connection of this user or host; nothing was done
	Full                   // no room for the write on the server's disk, in its memory or in the table; nothing was done
)

var classNames = [...]string{
	"other", "ok", "canceled", "contended", "duplicate", "missing", "denied", "demoted", "lost", "barred", "full",
}

// String gives the lower-case word, as used in metrics.
func (c Class) String() string { return classNames[c] }

// ErrLocked is the error of rows that a statement left out since another transaction holds them.
var ErrLocked = errors.New("locked by another transaction")

// ClassOf classifies err, looking through wrapping.
func ClassOf(err error) Class {
	if err == nil {
		return OK
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeUp) {
		return Canceled
	}
	if server := saidBy(err); server != nil {
		return classOfSaid(server)
	}
	switch {
	case errors.Is(err, ErrLocked):
		return Contended
	case errors.Is(err, errNoPrimary):
		return Demoted
	case errors.Is(err, ErrSession), noLogin(err):
		return Barred
	case lost(err), untrusted(err):
		return Lost
	case errors.Is(err, driver.ErrBadConn): // also what RejectReadOnly makes of 1290
		return Demoted
	}
	return Other
}

// lost reports whether the connection broke, so that the outcome of a write
// that was under way is unknown.
func lost(err error) bool {
	for _, e := range []error{errNoAnswer, driverlib.ErrInvalidConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}

// noLogin reports whether the driver can't log in in the way that the server wants.
func noLogin(err error) bool {
	return slices.ContainsFunc([]error{
		driverlib.ErrNoTLS, driverlib.ErrCleartextPassword, driverlib.ErrNativePassword, driverlib.ErrOldPassword, driverlib.ErrUnknownPlugin,
		driverlib.ErrOldProtocol,
	}, func(one error) bool { return errors.Is(err, one) })
}

// OnTheWay returns why a server can't be used.
func OnTheWay(err error) loop.Way {
	switch class := ClassOf(err); {
	case errors.Is(err, driverlib.ErrNoTLS):
		return loop.WayPlain
	case class == Barred || class == Denied:
		return loop.WayUser
	case saidBy(err) != nil:
		return loop.WayRefused
	case errors.Is(err, driverlib.ErrInvalidConn): // the driver does not say how it ended
		return loop.WayClosed
	}
	return loop.WayOf(err)
}

// untrusted reports whether no connection was made as the two sides do not agree on TLS: a certificate has expired, for example.
func untrusted(err error) bool { return saidBy(err) == nil && loop.WayOf(err).OfTLS() }

// Away reports whether err, or each error that is joined in it, says that a server does not answer or takes no writes: it may come
// back by itself. A server that rejects the user, the certificate or a statement is there.
func Away(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if all, ok := e.(interface{ Unwrap() []error }); ok {
			return !slices.ContainsFunc(all.Unwrap(), func(one error) bool { return !Away(one) })
		}
	}
	class := ClassOf(err)
	return (class == Lost || class == Demoted) && !untrusted(err)
}

// InDoubt reports whether a write that was sent and failed with err may have been carried out: nobody knows until the row is read.
func InDoubt(err error) bool {
	switch ClassOf(err) {
	case Canceled:
		return true
	case Lost:
		server := saidBy(err)
		return server == nil || !slices.Contains(untouched, server.Number)
	}
	return false
}

// saidBy returns the error that a server sent; nil: it sent none.
func saidBy(err error) *driverlib.MySQLError {
	var server *driverlib.MySQLError
	if errors.As(err, &server) {
		return server
	}
	return nil
}

// Number returns the number of the error that a server sent; 0: it sent none.
func Number(err error) uint16 {
	if server := saidBy(err); server != nil {
		return server.Number
	}
	return 0
}

// RowRefused reports whether the server has refused a row for what it holds.
func RowRefused(err error) bool {
	server := saidBy(err)
	return server != nil && ofRow(server)
}

// NullRefused reports whether the server has refused a row as a column that needs a value got NULL.
func NullRefused(err error) bool { return Number(err) == 1048 }

// ColumnMissing reports whether a statement names a column that the table does not have: it is older.
func ColumnMissing(err error) bool { return Number(err) == 1054 }

// SchemaReadOnly reports whether the server has refused a write as its database is read-only (ALTER SCHEMA ... READ ONLY = 1).
func SchemaReadOnly(err error) bool { return Number(err) == schemaLocked }

// Unanswered reports whether err rules out any other answer of the server: it fails as a whole, or the caller's context has ended.
func Unanswered(err error) bool {
	class := ClassOf(err)
	return class == Canceled || class.OfServer()
}

// Fault words what an error says of its server, to follow the word "server".
func Fault(err error) string {
	switch class := ClassOf(err); {
	case class == Demoted:
		return "takes no writes"
	case class == Full:
		return "has no room"
	case errors.Is(err, ErrSession):
		return "gives sessions that are refused"
	case class == Barred:
		return "does not admit this user"
	case saidBy(err) != nil:
		return "refuses statements"
	}
	return "does not answer"
}

// Transient reports whether the same statement may succeed later without
// anyone changing it or the schema.
func (c Class) Transient() bool { return c == Contended || c == Full || c.OfServer() }

// OfServer reports whether the fault affects the whole server: any other statement to
// it would fail just now, too.
func (c Class) OfServer() bool { return c == Demoted || c == Lost || c == Barred }
