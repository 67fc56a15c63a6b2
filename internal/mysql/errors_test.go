package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	driverlib "github.com/go-sql-driver/mysql"
)

func TestErrorsBecomeClasses(t *testing.T) {
	number := func(n uint16) error { return &driverlib.MySQLError{Number: n, Message: "whatever it says"} }
	for name, c := range map[string]struct {
		err   error
		class Class
	}{
		"none":                                   {nil, OK},
		"the caller's time is over":              {context.DeadlineExceeded, Canceled},
		"a deadlock":                             {number(1213), Contended},
		"a key that is there":                    {number(1062), Duplicate},
		"no table":                               {number(1146), Missing},
		"no database":                            {number(1049), Missing},
		"no right to a table":                    {number(1142), Denied},
		"read-only":                              {number(1290), Demoted},
		"read-only, as the driver tells it":      {driver.ErrBadConn, Demoted},
		"too many connections":                   {number(1040), Lost},
		"the server stops":                       {number(1053), Lost},
		"a node of Galera that is not ready":     {number(1047), Lost},
		"a connection that broke":                {io.EOF, Lost},
		"a wrong password":                       {number(1045), Barred},
		"a host that is blocked":                 {number(1129), Barred},
		"more statements than the user may send": {number(1226), Lost},
		"a server in offline mode":               {number(3032), Lost},
		"a server in offline mode, since 9.7":    {number(6400), Lost},
		"a statement that somebody killed":       {number(1317), Contended},
		"InnoDB that is read-only":               {number(1036), Demoted},
		"a disk that is full":                    {number(1021), Full},
		"a table that is full":                   {number(1114), Full},
		"no space, as MariaDB's engines tell it": {&driverlib.MySQLError{Number: 1030, Message: `Got error 28 "No space left on device" from storage engine InnoDB`}, Full},
		"no space, as MySQL's engines tell it":   {&driverlib.MySQLError{Number: 1030, Message: "Got error 28 - 'No space left on device' from storage engine"}, Full},
		"no space, in German":                    {&driverlib.MySQLError{Number: 1030, Message: `Fehler 28 "No space left on device" von Speicher-Engine Aria`}, Full},
		"another error of an engine":             {&driverlib.MySQLError{Number: 1030, Message: `Got error 1 "Operation not permitted" from storage engine InnoDB of 28`}, Other},
		"an error of an engine without a number": {&driverlib.MySQLError{Number: 1030}, Other},
		"an expired certificate":                 {x509.CertificateInvalidError{Reason: x509.Expired}, Lost},
		"a certificate that is not verified":     {&tls.CertificateVerificationError{Err: io.ErrNoProgress}, Lost},
		"a certificate of another host":          {x509.HostnameError{}, Lost},
		"a certificate of a stranger":            {x509.UnknownAuthorityError{}, Lost},
		"a certificate of ours that expired":     {tls.AlertError(45), Lost},
		"no TLS":                                 {tls.RecordHeaderError{}, Lost},
		"a server without TLS":                   {driverlib.ErrNoTLS, Barred},
		"a way to log in that nobody knows here": {driverlib.ErrUnknownPlugin, Barred},
		"a syntax error":                         {number(1064), Other},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClassOf(c.err); got != c.class {
				t.Errorf("class %s, want %s", got, c.class)
			}
			if got := ClassOf(fmt.Errorf("settle: %w", c.err)); c.err != nil && got != c.class {
				t.Errorf("wrapped: class %s, want %s", got, c.class)
			}
		})
	}
}

func TestFaultsOfTheServerAreWorthRepeating(t *testing.T) {
	for class := range Class(len(classNames)) {
		ofServer := class == Demoted || class == Lost || class == Barred
		transient := ofServer || class == Contended || class == Full
		if class.OfServer() != ofServer || class.Transient() != transient {
			t.Errorf("%s: of server %v, transient %v", class, class.OfServer(), class.Transient())
		}
	}
}

func TestServersThatAreAllAway(t *testing.T) {
	refused, denied := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &driverlib.MySQLError{Number: 1045}
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"none":                           {nil, false},
		"one":                            {fmt.Errorf("read the clock on db1: %w", refused), true},
		"a host that is not known":       {&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, true},
		"too many connections":           {&driverlib.MySQLError{Number: tooMany}, true},
		"both":                           {errors.Join(refused, io.EOF), true},
		"one, and one denies":            {errors.Join(refused, fmt.Errorf("on db2: %w", denied)), false},
		"addresses that are read-only":   {fmt.Errorf("on db1: %w", &noPrimary{readOnly: true}), true},
		"addresses, one of which denies": {fmt.Errorf("on db1: %w", &noPrimary{said: make([]string, 2), causes: []error{refused, denied}}), false},
		"read-only":                      {demoted{&driverlib.MySQLError{Number: 1290}}, true},
		"a certificate of a stranger":    {&net.OpError{Op: "dial", Err: x509.UnknownAuthorityError{}}, false},
		"our certificate is rejected":    {&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, false},
		"a statement that is wrong":      {&driverlib.MySQLError{Number: 1064}, false},
	} {
		if Away(c.err) != c.away {
			t.Errorf("%s: away %v", name, !c.away)
		}
	}
}
