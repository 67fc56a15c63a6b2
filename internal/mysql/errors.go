package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	driverlib "github.com/go-sql-driver/mysql"
)

// Class says what an error from a server means for who sent the statement.
type Class int

const (
	Other     Class = iota // a fault of the statement or the data: do not repeat
	OK                     // no error
	Canceled               // the caller's context ended, or the time of a query of Within
	Contended              // deadlock, lock wait, changed since read: nothing was done, repeat
	Duplicate              // a unique key refused the row
	Missing                // no such database or table
	Denied                 // this user lacks a right on a database or table
	Demoted                // the server no longer takes writes: reconnect and repeat
	Lost                   // connection lost or never made; a write may have happened
	Barred                 // the server admits no connection of this user or host; nothing was done
	Full                   // no room for the write on the server's disk, or in the table; nothing was done
)

var classNames = [...]string{
	"other", "ok", "canceled", "contended", "duplicate", "missing", "denied", "demoted", "lost", "barred", "full",
}

// String gives the lower-case word, as used in metrics.
func (c Class) String() string { return classNames[c] }

// Errors of a server that has as many connections as it admits, in all and of one user.
const (
	tooMany       = 1040
	tooManyOfUser = 1203
)

// byNumber maps the servers' error numbers, the same in MySQL and MariaDB but
// for 1020, which MariaDB sends where a row changed since the snapshot, and 1412,
// which MySQL sends where the table did: it was migrated. 3572 is MySQL's for NOWAIT; MariaDB's is 1205. 1047 is that of a node of
// Galera that has lost its cluster or is not ready, for all but SHOW and SET; 4031 MySQL's for a session that was idle for wait_timeout.
var byNumber = map[uint16]Class{
	1213: Contended, 1205: Contended, 1020: Contended, 1412: Contended, 3572: Contended,
	1062: Duplicate, 1586: Duplicate,
	1146: Missing, 1049: Missing, 1109: Missing,
	1044: Denied, 1142: Denied, 1143: Denied, 1227: Denied, 1370: Denied,
	1290: Demoted, 1792: Demoted, 1836: Demoted,
	tooMany: Lost, 1047: Lost, 1053: Lost, 1077: Lost, 1152: Lost, tooManyOfUser: Lost, 1927: Lost, 3169: Lost, 4031: Lost,
	1045: Barred, 1129: Barred, 1130: Barred, 1226: Barred, 1698: Barred, 1820: Barred, 1862: Barred, 3118: Barred, 4151: Barred,
	3: Full, 1021: Full, 1026: Full, 1114: Full,
}

// An error of a storage engine has one number, and the reason in its text: "Got
// error 28 ...", in the language of the server. noSpace is ENOSPC, on every
// system that the servers run on.
const (
	ofEngine = 1030
	noSpace  = "28"
)

// engineClass classifies an error of a storage engine by the first number in its
// text.
func engineClass(message string) Class {
	numbers := strings.FieldsFunc(message, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) > 0 && numbers[0] == noSpace {
		return Full
	}
	return Other
}

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
	var server *driverlib.MySQLError
	if errors.As(err, &server) {
		if server.Number == ofEngine {
			return engineClass(server.Message)
		}
		return byNumber[server.Number]
	}
	switch {
	case errors.Is(err, ErrLocked):
		return Contended
	case errors.Is(err, errNoPrimary):
		return Demoted
	case errors.Is(err, ErrSession):
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

// untrusted reports whether no connection was made because one side rejects the
// other's certificate, for example because it expired or belongs to another host.
func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	for _, target := range []any{&verification, &invalid, &host, &authority, &record, &alert} {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

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

// ofRow are the numbers of errors for a value that no repeat makes right: too long, out of range, not of its character set,
// refused by a check or a trigger.
var ofRow = []uint16{1264, 1292, 1300, 1366, 1406, 1644, 1690, 3819, 3854, 4025}

// RowRefused reports whether the server has refused a row for what it holds.
func RowRefused(err error) bool {
	var server *driverlib.MySQLError
	return errors.As(err, &server) && slices.Contains(ofRow, server.Number)
}

// NullRefused reports whether the server has refused a row as a column that needs a value got NULL.
func NullRefused(err error) bool {
	var server *driverlib.MySQLError
	return errors.As(err, &server) && server.Number == 1048
}

// ColumnMissing reports whether a statement names a column that the table does not have: it is older.
func ColumnMissing(err error) bool {
	var server *driverlib.MySQLError
	return errors.As(err, &server) && server.Number == 1054
}

// Unanswered reports whether err rules out any other answer of the server: it fails as a whole, or the caller's context has ended.
func Unanswered(err error) bool {
	class := ClassOf(err)
	return class == Canceled || class.OfServer()
}

// Fault words what an error says of its server, to follow the word "server".
func Fault(err error) string {
	var said *driverlib.MySQLError
	switch class := ClassOf(err); {
	case class == Demoted:
		return "takes no writes"
	case class == Full:
		return "has no room"
	case errors.Is(err, ErrSession):
		return "gives sessions that are refused"
	case class == Barred:
		return "does not admit this user"
	case errors.As(err, &said):
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
