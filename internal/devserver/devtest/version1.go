package devtest

import (
	"database/sql"
	_ "embed"
	"strings"
	"testing"
)

//go:embed version1.sql
var version1 string

// Version1 makes the tables of schema version 1 as a program for it made them: 2 databases of 4 tables each, of a
// cluster whose id is the prefix.
func Version1(tb testing.TB, dsn, prefix string) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	text := strings.NewReplacer("`toc_", "`"+prefix+"_", "'version1'", "'"+prefix+"'").Replace(version1)
	for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
		if _, err := db.ExecContext(tb.Context(), statement); err != nil {
			tb.Fatalf("%v: %.200s", err, statement)
		}
	}
}
