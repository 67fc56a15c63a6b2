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
