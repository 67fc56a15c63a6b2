package pgtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin"
)

// Tx is a transaction of pgx as tocsintest.RequireAdded takes it: it only reads.
func Tx(tb testing.TB, tx pgx.Tx) tocsin.Tx {
	tb.Helper()
	db := sql.OpenDB(connector{tx})
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

var errReads = errors.New("pgtest: Tx only reads")

// connector makes connections that are all the same transaction.
type connector struct{ tx pgx.Tx }

// Connect returns the transaction.
func (c connector) Connect(context.Context) (driver.Conn, error) { return conn(c), nil }

// Driver returns nil: nobody asks.
func (connector) Driver() driver.Driver { return nil }

// conn reads through a transaction that is not its own.
type conn struct{ tx pgx.Tx }

// Prepare is not for it.
func (conn) Prepare(string) (driver.Stmt, error) { return nil, errReads }

// Begin is not for it.
func (conn) Begin() (driver.Tx, error) { return nil, errReads }

// Close leaves the transaction open.
func (conn) Close() error { return nil }

// QueryContext runs a query without parameters.
func (c conn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	found, err := c.tx.Query(ctx, query)
	return rows{found}, err
}

// rows are those of pgx.
type rows struct{ pgx.Rows }

// Columns returns their names.
func (r rows) Columns() (names []string) {
	for _, f := range r.FieldDescriptions() {
		names = append(names, f.Name)
	}
	return names
}

// Close ends the query.
func (r rows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// Next reads a row.
func (r rows) Next(into []driver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, err := r.Values()
	for i, v := range values {
		if into[i], err = driver.DefaultParameterConverter.ConvertValue(v); err != nil {
			return err
		}
	}
	return err
}
