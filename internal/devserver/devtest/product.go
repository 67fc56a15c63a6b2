package devtest

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
)

// IsolationParam is the DSN parameter for the isolation level of a session, and its value: MariaDB before 11.1 and MySQL
// have different names for it.
func IsolationParam(tb testing.TB, level string) string {
	tb.Helper()
	name := "tx_isolation"
	if IsMySQL(tb) {
		name = "transaction_isolation"
	}
	return name + "=%27" + level + "%27"
}

// IsMySQL reports whether the server of DSN is MySQL; else it is MariaDB.
func IsMySQL(tb testing.TB) bool {
	tb.Helper()
	product.once.Do(func() { product.mysql, product.err = askProduct(DSN(tb)) })
	if product.err != nil {
		tb.Fatal(product.err)
	}
	return product.mysql
}

// product is what the server of DSN is, once somebody has asked.
var product struct {
	once  sync.Once
	mysql bool
	err   error
}

func askProduct(dsn string) (mysql bool, err error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var version string
	err = db.QueryRowContext(ctx, "SELECT /* devtest */ VERSION()").Scan(&version)
	return !strings.Contains(version, "MariaDB"), err
}

// together are values of sql_mode that mean more than each of their parts.
var together = []string{"STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES", "STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL", "ORACLE,EMPTY_STRING_IS_NULL"}

// SQLModes returns values of sql_mode that the server knows: each bit that it accepts, with what it adds to that; none; and some
// together.
func SQLModes(tb testing.TB) []string {
	tb.Helper()
	db, err := sql.Open("mysql", DSN(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	modes := []string{""}
	try := func(value any) {
		if _, err := db.ExecContext(tb.Context(), "SET SESSION sql_mode = ?", value); err != nil {
			return // it is no mode
		}
		var mode string
		if err := db.QueryRowContext(tb.Context(), "SELECT /* devtest */ @@sql_mode").Scan(&mode); err != nil {
			tb.Fatal(err)
		}
		if mode != "" {
			modes = append(modes, mode)
		}
	}
	for bit := range 64 {
		try(uint64(1) << bit)
	}
	for _, value := range together {
		try(value)
	}
	if len(modes) < 15 {
		tb.Fatalf("the server knows %d modes: %q", len(modes), modes)
	}
	return modes
}
