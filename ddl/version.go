package ddl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// addition is a table, or columns of one, that came with a schema version.
type addition struct {
	version int
	file    string   // SQL file of the table, or of the task tables
	columns []string // the last ones of the file, in its order; none: the table itself is new
}

// additions lead from each schema version to the next; those up to layoutrow.OldestSchema are for tables that were restored from
// older copies. The SQL files describe the newest version. A database has a
// version if it has all additions up to that version. What it lacks is read from the server each time and stored
// nowhere, so a migration goes on wherever it stopped.
var additions = []addition{
	{version: 2, file: layoutTable, columns: []string{"ownership", "mark"}},
	{version: 2, file: taskFile, columns: []string{"headers", "biz_key"}},
	{version: 2, file: "relayed"},
	{version: 2, file: "mark"},
	{version: 3, file: layoutTable, columns: []string{"sweep_grace_ms"}},
	{version: 3, file: "schedule"},
	{version: 3, file: "run"},
	{version: 3, file: "act"},
	{version: 3, file: "session"},
	{version: 3, file: "session_about"},
}

// since returns the version that a table came with.
func since(file string) int {
	for _, a := range additions {
		if a.file == file && len(a.columns) == 0 {
			return a.version
		}
	}
	return 1
}

// later returns the columns of a table that came after a version.
func later(file string, version int) (columns []string) {
	for _, a := range additions {
		if a.file == file && a.version > version {
			columns = append(columns, a.columns...)
		}
	}
	return columns
}

// expectationsAt returns, by SQL file, what tables of a schema version must have. They may also have columns that came
// later.
func expectationsAt(version int) map[string]structure {
	want := map[string]structure{}
	for _, file := range append(slices.Clone(fixedTables), taskFile) {
		s := expected(file)
		s.younger = later(file, version)
		want[file] = s
	}
	return want
}

// change is one ALTER TABLE.
type change struct {
	table   table
	columns bool   // are added; else the statistics are set
	text    string // what follows the table's name
}

const addColumn = "ADD COLUMN "

// changesTo returns the ALTERs that a stored table needs: its new columns, which are INSTANT, and the statistics option in
// a statement of its own, since MySQL refuses both together.
func changesTo(t table, want, stored structure) (all []change) {
	var parts []string
	for _, name := range later(t.file, 0) {
		if !stored.has(name) {
			parts = append(parts, addColumn+want.texts[name])
		}
	}
	if len(parts) > 0 {
		all = append(all, change{t, true, strings.Join(append(parts, "ALGORITHM = INSTANT"), ",\n    ")})
	}
	if want.still && !stored.still {
		all = append(all, change{t, false, "STATS_AUTO_RECALC = 0, ALGORITHM = INPLACE"})
	}
	return all
}

// alter renders the statement, without a semicolon. On MariaDB it fails at once if the table is in use; for MySQL, which
// has no such option, that part is a comment.
func (c change) alter() string {
	return fill(c.table.in(alterTable), slots{"change": c.text})
}

// alterPatiently renders the statement that waits on MariaDB too.
func (c change) alterPatiently() string { return strings.Replace(c.alter(), noWait, "", 1) }

// planned renders the patient statement for a file that may be run twice. MySQL has no IF NOT EXISTS here.
func (c change) planned() string {
	return strings.ReplaceAll(c.alterPatiently(), addColumn, addColumn+"/*M! IF NOT EXISTS */ ")
}

// raise renders the statement that gives a database the newest version, if it has all of it.
func raise(layout tocsin.Layout, db int) string {
	var parts []string
	count := 0
	for _, a := range additions {
		tables, columns := fmt.Sprintf("table_name = '%s'", a.file), "ordinal_position = 1"
		number := 1
		if a.file == taskFile {
			tables, number = "table_name REGEXP '^task_[0-9]{4}$'", layout.Tables
		}
		if len(a.columns) > 0 {
			columns, number = "column_name IN ('"+strings.Join(a.columns, "', '")+"')", number*len(a.columns)
		}
		parts = append(parts, tables+" AND "+columns)
		count += number
	}
	return fill(raiseLayout, slots{
		"database": layout.Database(db), "version": layoutrow.SchemaVersion, "what": strings.Join(parts, "\n            OR "), "count": count,
	})
}
