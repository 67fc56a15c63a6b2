package devtest

import (
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed version1.sql
var version1 string

// Version1 makes the tables of schema version 1 as a program for it made them, for a layout and for a cluster whose id is
// the prefix.
func Version1(tb testing.TB, dsn, prefix string, databases, tables int) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_, first, _ := strings.Cut(version1, "-- Database toc_0\n")
	first, _, _ = strings.Cut(first, "-- Database toc_1\n")
	for number := range databases {
		text := strings.NewReplacer("`toc_0`", fmt.Sprintf("`%s_%d`", prefix, number),
			"'version1', 0, 2, 4,", fmt.Sprintf("'%s', %d, %d, %d,", prefix, number, databases, tables)).Replace(first)
		for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
			for _, statement := range eachTable(statement, tables) {
				if _, err := db.ExecContext(tb.Context(), statement); err != nil {
					tb.Fatalf("%v: %.200s", err, statement)
				}
			}
		}
	}
}

// eachTable repeats the statement that makes the first task table for all of them, and leaves out those for the others.
func eachTable(statement string, tables int) (all []string) {
	switch {
	case strings.Contains(statement, "`task_0000`"):
		for n := range tables {
			all = append(all, strings.Replace(statement, "`task_0000`", fmt.Sprintf("`task_%04d`", n), 1))
		}
		return all
	case strings.Contains(statement, "`task_0"):
		return nil
	}
	return []string{statement}
}
