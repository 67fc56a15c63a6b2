package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	driverlib "github.com/go-sql-driver/mysql"
)

// A DSN may name several addresses of one server, separated by commas:
//
//	user:password@tcp(db1a:3306,db1b:3306)/
//
// The driver knows one address only, so such a DSN is taken apart here: one DSN for each
// address, which are otherwise equal.

// errForm never holds the DSN, and so no password.
var errForm = errors.New("the dsn is not of the form user:password@tcp(host:port)/")

// apart returns one DSN for each address of dsn. It finds the parts as the driver does.
func apart(dsn string) []string {
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 1 || dsn[slash-1] != ')' {
		return []string{dsn}
	}
	begin := strings.LastIndexByte(dsn[:slash], '@') + 1
	network, list, found := strings.Cut(dsn[begin:slash-1], "(")
	if !found || network == "unix" { // a socket's path may hold a comma
		return []string{dsn}
	}
	head, tail := dsn[:begin]+network+"(", dsn[slash-1:]
	var all []string
	for address := range strings.SplitSeq(list, ",") {
		all = append(all, head+strings.TrimSpace(address)+tail)
	}
	return all
}

// parseAll parses a DSN, for each of its addresses.
func parseAll(dsn string) ([]*driverlib.Config, error) {
	parts := apart(dsn)
	all := make([]*driverlib.Config, len(parts))
	for i, part := range parts {
		cfg, err := driverlib.ParseDSN(part)
		if err != nil || len(parts) > 1 && strings.Contains(part, "()/") {
			return nil, misread(part)
		}
		same := func(other *driverlib.Config) bool { return other.Addr == cfg.Addr }
		if slices.ContainsFunc(all[:i], same) {
			return nil, fmt.Errorf("the dsn names the address %s twice", cfg.Addr)
		}
		all[i] = cfg
	}
	return all, nil
}

// misread says why the driver does not take a DSN: it names a parameter of it, or the form is wrong. It holds no password.
func misread(dsn string) error {
	slash := strings.LastIndexByte(dsn, '/') + 1
	database, params, _ := strings.Cut(dsn[slash:], "?")
	bare := dsn[:slash] + database
	if _, err := driverlib.ParseDSN(bare); err != nil {
		return errForm
	}
	for param := range strings.SplitSeq(params, "&") {
		if _, err := driverlib.ParseDSN(bare + "?" + param); err != nil {
			name, _, _ := strings.Cut(param, "=")
			return fmt.Errorf("the dsn has a wrong value of %s: correct it, or leave it out", name)
		}
	}
	return errForm
}

// Check reports what is wrong with a DSN, and whether it asks for TLS. Its errors hold no password.
func Check(dsn string) (tls bool, err error) {
	all, err := parseAll(dsn)
	if err != nil {
		return false, err
	}
	return all[0].TLSConfig != "", nil
}

// errTwoPasswords says that a DSN holds a password already.
var errTwoPasswords = errors.New("the dsn holds a password too: use one of them")

// WithPassword returns the DSN with a password; the DSN as it is if it has a password already, which is
// an error, or is no DSN.
func WithPassword(dsn, password string) (string, error) {
	parts := apart(dsn)
	cfg, err := driverlib.ParseDSN(parts[0])
	if err != nil {
		return dsn, nil
	}
	if cfg.Passwd != "" {
		return dsn, errTwoPasswords
	}
	cfg.Passwd = password
	one := cfg.FormatDSN()
	end := strings.LastIndexByte(one, '/') - 1
	if len(parts) == 1 {
		return one, nil
	}
	return one[:end-len(cfg.Addr)] + strings.Join(addresses(dsn), ",") + one[end:], nil
}

// addresses returns the addresses of a DSN with their ports; none if it is no DSN.
func addresses(dsn string) []string {
	all, err := parseAll(dsn)
	names := make([]string, len(all))
	for i, cfg := range all {
		names[i] = cfg.Addr
	}
	if err != nil {
		return nil
	}
	return names
}

// Address returns where a DSN leads, "db1:3306", or all of its addresses,
// "db1a:3306,db1b:3306"; "" if it is no DSN.
func Address(dsn string) string { return strings.Join(addresses(dsn), ",") }

// Redact returns the DSN without its password, fit for errors and logs.
func Redact(dsn string) string {
	all, err := parseAll(dsn)
	if err != nil {
		return "(not a DSN)"
	}
	if user := all[0].User; user != "" {
		return user + "@" + Address(dsn)
	}
	return Address(dsn)
}

// Database returns the name of the database in a DSN; "": it names none, or is not valid.
func Database(dsn string) string {
	all, err := parseAll(dsn)
	if err != nil {
		return ""
	}
	return all[0].DBName
}
