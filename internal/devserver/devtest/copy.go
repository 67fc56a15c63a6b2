package devtest

import (
	"bytes"
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// CopyDatabase copies a database from one server to another, structure and rows, as a dump would. What is there of the
// same name is replaced.
func CopyDatabase(tb testing.TB, from, to *sql.DB, name string) {
	tb.Helper()
	must(tb, to, "DROP DATABASE IF EXISTS `"+name+"`")
	must(tb, to, "CREATE DATABASE `"+name+"` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	for _, row := range rowsOf(tb, from, "SELECT table_name AS table_name FROM information_schema.tables WHERE table_schema = ?", name) {
		copyTable(tb, from, to, name, string(row[0].([]byte)))
	}
}

func copyTable(tb testing.TB, from, to *sql.DB, database, table string) {
	tb.Helper()
	full := fmt.Sprintf("`%s`.`%s`", database, table)
	created := string(rowsOf(tb, from, "SHOW CREATE TABLE "+full)[0][1].([]byte))
	must(tb, to, strings.Replace(created, "`"+table+"`", full, 1))
	for _, row := range rowsOf(tb, from, "SELECT * FROM "+full) {
		marks := strings.TrimSuffix(strings.Repeat("?,", len(row)), ",")
		must(tb, to, "INSERT INTO "+full+" VALUES ("+marks+")", row...)
	}
}

// rowsOf reads all rows, each column as []byte, or nil.
func rowsOf(tb testing.TB, db *sql.DB, query string, args ...any) (all [][]any) {
	tb.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	for rows.Next() {
		raw, row := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range raw {
			row[i] = &raw[i]
		}
		if err := rows.Scan(row...); err != nil {
			tb.Fatal(err)
		}
		for i, b := range raw {
			if row[i] = nil; b != nil {
				row[i] = bytes.Clone(b)
			}
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

func must(tb testing.TB, db *sql.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		tb.Fatalf("%.200s: %v", statement, err)
	}
}
