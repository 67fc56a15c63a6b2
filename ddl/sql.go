package ddl

import (
	"embed"
	"fmt"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// Who may start a row, as Options.Ownership and SetOwnership say it.
const (
	ByEtcd = "etcd" // each table has an owner, by a key in etcd
	ByRows = "rows" // nobody owns tables, every node claims each row
)

//go:embed sql/*.sql
var files embed.FS

// The tables of every database besides the task tables. The layout table is
// first: its row says what the rest is part of.
const (
	layoutTable = "layout"
	taskFile    = "task"
)

var fixedTables = []string{layoutTable, "biz_type", "owner", "doorbell", "relayed", "mark", "schedule", "run", "act", "session", "session_about"}

// createDatabase is the statement for one database; {database} is its name.
const createDatabase = "CREATE DATABASE IF NOT EXISTS `{database}` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

// insertLayout writes the one row of a database's layout table and leaves one
// that is there as it is; IGNORE, unlike ON DUPLICATE KEY, needs no UPDATE
// right. Parameters in braces: texts need no escaping, their form and bounds are
// checked before.
const insertLayout = "INSERT /* tocsin ddl layout */ IGNORE INTO `{database}`.layout" + `
    (id, cluster_id, database_no, databases_total, tables_per_database, hash,
     doorbell_horizon_ms, schema_version, works_with, state, gmt_create, identity, ownership, sweep_grace_ms)
VALUES
    (1, '{cluster}', {number}, {databases}, {tables}, '{hash}',
     {horizon}, {version}, {works_with}, '{state}', UTC_TIMESTAMP(3), '{identity}', '{ownership}', {grace})`

// markLayout writes the identity of a database that has none. Primary key. Zero rows:
// it has one already.
const markLayout = "UPDATE /* tocsin ddl layout */ `{database}`.layout" + `
SET identity = '{identity}'
WHERE id = 1
    AND identity = ''`

// selectLayout reads the layout row of one database; no row: none was written. If the
// table is of schema version 2, which has no column sweep_grace_ms, the name refers to the outer query's column, which is 0.
const selectLayout = `SELECT /* tocsin ddl layout */
    cluster_id, identity,
    database_no, databases_total, tables_per_database, hash,
    doorbell_horizon_ms, schema_version, works_with, state,
    ownership, mark,
    (SELECT (SELECT sweep_grace_ms FROM ` + "`{database}`" + `.layout WHERE id = 1) FROM (SELECT 0 AS sweep_grace_ms) AS older) AS sweep_grace_ms
FROM ` + "`{database}`" + `.layout
WHERE id = 1`

// selectOldest is selectLayout of tables that are older than layoutrow.OldestSchema: what says that they are, and whose.
const selectOldest = `SELECT /* tocsin ddl layout */
    cluster_id, database_no, databases_total, tables_per_database, hash,
    doorbell_horizon_ms, schema_version, works_with, state
FROM ` + "`{database}`" + `.layout
WHERE id = 1
    AND schema_version < {oldest}`

// alterTable brings a table to the newest schema version. raiseLayout says so in the layout row: {what} are the columns,
// and first columns of the tables, that came since version 1, {count} is their number. Primary key. Zero rows: it is so
// already, or something is missing.
const (
	noWait     = " /*M! NOWAIT */"
	alterTable = "ALTER /* tocsin ddl migrate */ TABLE `{database}`.`{table}`" + noWait + `
    {change}`

	raiseLayout = "UPDATE /* tocsin ddl migrate */ `{database}`.layout" + `
SET schema_version = {version}
WHERE id = 1
    AND schema_version < {version}
    AND (SELECT COUNT(*)
        FROM information_schema.columns
        WHERE table_schema = '{database}'
            AND ({what})) >= {count}`
)

// finishLayout makes a database refuse programs for older schema versions. Primary key. Zero rows: it does already, or its
// tables are older.
const finishLayout = "UPDATE /* tocsin ddl finish */ `{database}`.layout" + `
SET works_with = {version}
WHERE id = 1
    AND works_with < {version}
    AND schema_version >= {version}`

// changeOwnership writes who may start a row. Primary key. Zero rows: it says so already, or programs for older schema
// versions, which would not look, may still use the database.
const changeOwnership = "UPDATE /* tocsin ddl ownership */ `{database}`.layout" + `
SET ownership = '{ownership}'
WHERE id = 1
    AND ownership <> '{ownership}'
    AND works_with >= {version}`

// changeGrace writes the grace of sweeps, in milliseconds. Primary key. Zero rows: it says so already. writeGrace writes it
// where there is none. Zero rows: there is one.
const (
	changeGrace = "UPDATE /* tocsin ddl grace */ `{database}`.layout" + `
SET sweep_grace_ms = {grace}
WHERE id = 1
    AND sweep_grace_ms <> {grace}`

	writeGrace = "UPDATE /* tocsin ddl migrate */ `{database}`.layout" + `
SET sweep_grace_ms = {grace}
WHERE id = 1
    AND sweep_grace_ms = 0`
)

// selectBeating reads the session that has beaten last in one database, at most {seconds} ago by the server's clock; no row: there is none.
// deleteSessions and deleteAbouts remove all of them, of processes that are gone.
const (
	selectBeating = `SELECT /* tocsin ddl ownership */
    node,
    TIMESTAMPDIFF(SECOND, gmt_modified, UTC_TIMESTAMP(3))
FROM ` + "`{database}`" + `.session
WHERE gmt_modified > UTC_TIMESTAMP(3) - INTERVAL {seconds} SECOND
ORDER BY gmt_modified DESC
LIMIT 1`

	deleteSessions = "DELETE /* tocsin ddl ownership */ FROM `{database}`.session"
	deleteAbouts   = "DELETE /* tocsin ddl ownership */ FROM `{database}`.session_about"
)

// takeLock takes a user lock and returns 1, or 0 if it was not free in time; lockHolder returns the connection that has it,
// NULL if none does. The lock needs no right and ends with its connection. Parameters: the lock's name, and how many seconds
// to wait.
const (
	takeLock = `SELECT /* tocsin ddl lock */
    GET_LOCK(?, ?)`

	lockHolder = `SELECT /* tocsin ddl lock */
    IS_USED_LOCK(?)`
)

// selectDatabases finds which of the named databases exist, as far as the user
// may see. Parameter: a list of names.
const selectDatabases = `SELECT /* tocsin ddl databases */
    schema_name
FROM information_schema.schemata
WHERE schema_name IN (?)`

// selectTables finds the tables of one database. Parameter: its name.
const selectTables = `SELECT /* tocsin ddl tables */
    table_name
FROM information_schema.tables
WHERE table_schema = ?`

// sender marks the statements of Apply in the server's process list and logs.
const sender = "/* tocsin ddl apply */ "

// source gives the text of one SQL file, comment and all.
func source(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic("ddl: " + err.Error()) // the files are part of the program
	}
	return string(b)
}

// statement gives the statement of one SQL file without the comment lines
// above it and without the semicolon.
func statement(name string) string {
	_, body, _ := strings.Cut("\n"+source(name), "\nCREATE ")
	return "CREATE " + strings.TrimSuffix(strings.TrimSpace(body), ";")
}

// remark gives the comment lines above the statement of an SQL file.
func remark(name string) string {
	head, _, _ := strings.Cut(source(name), "CREATE ")
	return strings.TrimSpace(head)
}

// slots are what stands in the {slots} of a statement, by name.
type slots map[string]any

// fill puts values into a statement. Other slots stay.
func fill(query string, in slots) string {
	var pairs []string
	for slot, value := range in {
		pairs = append(pairs, "{"+slot+"}", fmt.Sprint(value))
	}
	return strings.NewReplacer(pairs...).Replace(query)
}

// in puts a database's name into a statement.
func in(database, query string) string { return fill(query, slots{"database": database}) }

// inTable puts the names of a database and of a table into a statement.
func inTable(database, table, query string) string {
	return fill(query, slots{"database": database, "table": table})
}

// table is one table of the schema.
type table struct {
	file     string // its SQL file, without path and ending
	database string
	name     string
}

// tablesOf gives every table of one database, in the order of creation.
func tablesOf(layout tocsin.Layout, db int) []table {
	return tablesAt(layout, db, layoutrow.SchemaVersion)
}

// tablesAt gives those of a schema version.
func tablesAt(layout tocsin.Layout, db, version int) []table {
	name := layout.Database(db)
	tables := make([]table, 0, len(fixedTables)+layout.Tables)
	for _, fixed := range fixedTables {
		if since(fixed) <= version {
			tables = append(tables, table{fixed, name, fixed})
		}
	}
	for n := range layout.Tables {
		tables = append(tables, table{taskFile, name, layout.TableName(n)})
	}
	return tables
}

func (t table) full() string { return t.database + "." + t.name }

// in puts the table's name into a statement.
func (t table) in(query string) string {
	return inTable(t.database, t.name, query)
}

// create renders the statement, without a semicolon.
func (t table) create() string {
	return t.in(statement(t.file))
}

// missing gives the tables of the site's databases that did not stand when it
// was surveyed.
func (s *site) missing() []table {
	var missing []table
	for _, db := range s.Databases {
		for _, t := range tablesOf(s.layout, db) {
			if !s.tables[t.full()] {
				missing = append(missing, t)
			}
		}
	}
	return missing
}
