package devtest

import (
	"context"
	"database/sql"
	"testing"
)

// Examined returns a function that counts the index entries and rows that the server looks up, or walks over, while f runs. Index
// conditions are tested above InnoDB until the test ends, in sessions that begin from now on: entries that InnoDB passes over by itself
// are in no counter. The server must do nothing else meanwhile, so the test must not be parallel.
func Examined(tb testing.TB, db *sql.DB) (count func(f func()) int) {
	tb.Helper()
	set := func(to string) {
		if _, err := db.Exec("SET GLOBAL optimizer_switch = 'index_condition_pushdown=" + to + "'"); err != nil {
			tb.Fatal(err)
		}
	}
	set("off")
	tb.Cleanup(func() { set("on") })
	return func(f func()) int {
		before := Reads(tb, db, "GLOBAL")
		f()
		return Reads(tb, db, "GLOBAL") - before
	}
}

// querier is a pool or one of its connections.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Reads returns how many index entries and rows were looked up, or walked over, in a scope: SESSION or GLOBAL.
func Reads(tb testing.TB, q querier, scope string) (total int) {
	tb.Helper()
	rows, err := q.QueryContext(tb.Context(), "SHOW "+scope+" STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_first', 'Handler_read_last')")
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			tb.Fatal(err)
		}
		total += n
	}
	return total
}
