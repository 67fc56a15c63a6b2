package main

import (
	"slices"
	"strings"
)

// row is one command and what it is held against.
type row struct {
	name    string
	command string
	once    bool // takes no ratio: one round is enough
	checks  []check
}

// check is one figure of a command and its target.
type check struct {
	key   string // of its JSON, with dots into objects; or the unit that a Go benchmark reports
	least bool   // the target is the least, not the most
	limit float64
	of    string // the row whose same figure the limit is a multiple of; "": none
}

func atLeast(key string, limit float64) check { return check{key: key, least: true, limit: limit} }
func atMost(key string, limit float64) check  { return check{key: key, limit: limit} }

// times holds a figure against that of another row.
func (c check) times(row string) check {
	c.of = row
	return c
}

// late are the checks of a lateness.
func late(most float64) []check { return []check{atMost("p99_ms", most), atMost("early", 0)} }

// drained are the checks of a drain; its rate is there for others to compare with.
var drained = []check{atLeast("ratio", 0.7), atLeast("tasks_per_second", 0)}

const (
	pending = " --pending 10000000"
	goBench = "go test -run - -benchtime 1x -timeout 30m ./test/bench -bench "
)

// rows are those of docs/performance.md.
var rows = []row{
	{name: "drain", command: "tocsin bench drain --layout 8x16 --tasks 400000", checks: drained},
	{name: "drain-overdue", command: "tocsin bench drain --layout 8x16 --tasks 400000 --overdue 1h", checks: drained},
	{name: "drain-wide", command: "tocsin bench drain --layout 8x1024 --tasks 200000", checks: drained},
	{name: "late-1000", command: "tocsin bench lateness --layout 8x16 --rate 1000", checks: late(5)},
	{name: "late-5000", command: "tocsin bench lateness --layout 8x16 --rate 5000", checks: append(late(20), atMost("largest_resident_mb", 150))},
	{name: "late-1000-wide", command: "tocsin bench lateness --layout 8x1024 --rate 1000", checks: late(5)},
	{name: "late-5000-wide", command: "tocsin bench lateness --layout 8x1024 --rate 5000", checks: append(late(20), atMost("largest_resident_mb", 150))},
	{name: "late-now", command: "tocsin bench lateness --layout 8x16 --rate 500 --delay 0s --spread 2s", checks: late(50)},
	{name: "burst", command: "tocsin bench lateness --layout 8x16 --rate 500 --burst 100000", checks: []check{atMost("burst.p99_ms", 100)}},
	{name: "idle", command: "tocsin bench idle --layout 8x1024", once: true, checks: []check{
		atMost("statements_per_second", 60), atMost("node_cpu_percent", 2), atMost("server_cpu_percent", 4)}},
	{name: "idle-20", command: "tocsin bench idle --layout 8x1024 --nodes 20", once: true, checks: []check{atMost("statements_per_second", 200)}},
	{name: "insert", command: "tocsin bench insert --layout 8x16", checks: []check{
		atLeast("ratio", 0.9), atLeast("single.ratio", 0.9), atLeast("single_bell.ratio", 0.9)}},
	{name: "drain-pending", command: "tocsin bench drain --layout 8x16 --tasks 400000" + pending, once: true, checks: []check{
		atLeast("tasks_per_second", 0.9).times("drain")}},
	{name: "late-pending", command: "tocsin bench lateness --layout 8x16 --rate 1000" + pending, once: true, checks: []check{
		atMost("p99_ms", 1.1).times("late-1000")}},
	{name: "outbox", command: goBench + "BenchmarkOutbox$", checks: []check{
		atLeast("of-add-many", 0.5), atMost("late-p99-ms", 100), atMost("idle-statements/s", 60)}},
	{name: "peek", command: goBench + "BenchmarkPeek/overdue=30s$", checks: []check{atMost("p99-of-clean", 2)}},
}

// rowNamed returns the index of a row, -1 if there is none of the name.
func rowNamed(name string) int {
	return slices.IndexFunc(rows, func(r row) bool { return r.name == name })
}

// names are those of all rows.
func names() string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = r.name
	}
	return strings.Join(all, ", ")
}
