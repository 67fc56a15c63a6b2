package devtest

import (
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed version2.sql
var version2 string

// Version2 makes the tables of schema version 2 as a program for it made them, for a layout and for a cluster whose id is
// the prefix.
func Version2(tb testing.TB, dsn, prefix string, databases, tables int) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for number := range databases {
		text := strings.NewReplacer("`toc_0`", fmt.Sprintf("`%s_%d`", prefix, number),
			"'version2', 0, 2, 4,", fmt.Sprintf("'%s', %d, %d, %d,", prefix, number, databases, tables)).Replace(version2)
		for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
			for _, statement := range eachTable(statement, tables) {
				if _, err := db.ExecContext(tb.Context(), statement); err != nil {
					tb.Fatalf("%v: %.200s", err, statement)
				}
			}
		}
	}
}

// eachTable repeats the statement that makes the first task table for all of them.
func eachTable(statement string, tables int) (all []string) {
	if !strings.Contains(statement, "`task_0000`") {
		return []string{statement}
	}
	for n := range tables {
		all = append(all, strings.Replace(statement, "`task_0000`", fmt.Sprintf("`task_%04d`", n), 1))
	}
	return all
}
