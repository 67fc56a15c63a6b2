package tocsinpg

import (
	"context"
	_ "embed" // the SQL file
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsinhq/tocsin/outbox"
)

// maxName is how long a name may be in PostgreSQL, which cuts longer ones.
const maxName = 63

// checkTable refuses a name that means no table, or another one.
func checkTable(table string) error {
	if err := outbox.CheckTable(table); err != nil {
		return err
	}
	in, name := outbox.Split(table)
	switch {
	case in == "":
		return fmt.Errorf("outbox table %q: name its schema too: public.%s", table, table)
	case len(in) > maxName || len(name) > maxName:
		return fmt.Errorf("outbox table %q: a name has at most %d characters", table, maxName)
	}
	return nil
}

// render fills in the names.
func render(statement, table string) string {
	in, name := outbox.Split(table)
	return strings.NewReplacer(
		"{table}", table,
		"{outbox}", outbox.QuotedPostgreSQL(table),
		"{schema}", outbox.QuotedPostgreSQL(in),
		"{sequence}", outbox.QuotedPostgreSQL(in)+`."`+name[:min(len(name), maxName-len(sequenceEnd))]+sequenceEnd+`"`,
	).Replace(statement)
}

// sequenceEnd is how PostgreSQL names the sequence of the ids: behind the table's name, which it cuts if both are too long.
const sequenceEnd = "_id_seq"

// PlanOutbox returns what ApplyOutbox would run for a table, schema.table, and the rights that users need. It connects to nothing.
func PlanOutbox(table string) (string, error) {
	if err := checkTable(table); err != nil {
		return "", err
	}
	return render(headSQL+createSQL+identifySQL+rightsSQL, table), nil
}

// Codes of PostgreSQL.
const (
	noDatabase = "3D000"
	noSchema   = "3F000"
	noTable    = "42P01"
)

// ApplyOutbox makes the table, in a database and schema that must be there, and gives it an identity. It reports whether the
// table is new: to one of those that run at once. It leaves an outbox that is there as it is: VerifyOutbox says what differs. A table that is no outbox is an
// error.
func ApplyOutbox(ctx context.Context, cfg outbox.Config) (created bool, err error) {
	if err := checkTable(cfg.Table); err != nil {
		return false, err
	}
	conn, err := connectToApply(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	run := func(text string) error {
		_, err := conn.PgConn().Exec(ctx, render(text, cfg.Table)).ReadAll()
		switch {
		case code(err) == noSchema:
			in, _ := outbox.Split(cfg.Table)
			return fmt.Errorf("%s has no schema %s: an outbox stands in a schema of yours (%w)", whereIs(conn.Config()), in, err)
		case err != nil:
			return fmt.Errorf("make outbox %s in %s: %w", cfg.Table, whereIs(conn.Config()), err)
		}
		return nil
	}
	if err := run(headSQL); err != nil {
		return false, err
	}
	there, err := isThere(ctx, conn, cfg.Table) // in the transaction, so that one of those that run at once says that it made the table
	if err != nil {
		return false, err
	}
	return !there, run(createSQL + identifySQL)
}

// isThere reports whether the table is there. A table of another kind is an error.
func isThere(ctx context.Context, conn *pgx.Conn, table string) (there bool, err error) {
	var columns int
	err = conn.QueryRow(ctx, thereSQL, outbox.QuotedPostgreSQL(table)).Scan(&there)
	if err == nil {
		err = conn.QueryRow(ctx, render(columnsThereSQL, table)).Scan(&columns)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("look for outbox %s in %s: %w", table, whereIs(conn.Config()), err)
	case there && columns < 4:
		in, _ := outbox.Split(table)
		return true, fmt.Errorf("table %s in %s is no outbox, and is left as it is: name a table that is not there yet, such as %s.%s",
			table, whereIs(conn.Config()), in, outbox.DefaultTable)
	}
	return there, nil
}

// connectToApply is Connect for the owner of an outbox, whose database may be missing.
func connectToApply(ctx context.Context, cfg outbox.Config) (*pgx.Conn, error) {
	conn, err := Connect(ctx, cfg)
	if code(err) == noDatabase {
		return nil, fmt.Errorf("an outbox stands in a database of yours, which must be there: %w", err)
	}
	return conn, err
}

// code is PostgreSQL's for an error; "": it is none of PostgreSQL.
func code(err error) string {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return said.Code
	}
	return ""
}

//go:embed outbox.sql
var createSQL string

// headSQL begins the transaction. Two of them at a time would fail.
const headSQL = `-- An outbox of Tocsin, {table}. Run it in its database as a user who may create tables in its schema. It drops nothing and
-- may be run again by the table's owner.
BEGIN;
SET LOCAL lock_timeout = '5s';
SELECT /* tocsin outbox */ pg_advisory_xact_lock(hashtext('tocsin outbox'));

`

// identifySQL gives an outbox its identity, random, in the comment of its table, and leaves one that is there. A relay
// notes what it has moved under the identity. A table without the columns of an outbox keeps its comment: somebody has named
// the wrong table.
const identifySQL = `
DO $tocsin$
BEGIN
    IF COALESCE(obj_description('{outbox}'::regclass, 'pg_class'), '') !~ '^tocsin outbox [0-9A-Za-z._-]{1,64}$'
        AND (` + columnsThereSQL + `) = 4 THEN
        EXECUTE 'COMMENT ON TABLE {outbox} IS ''tocsin outbox ' || replace(gen_random_uuid()::text, '-', '') || '''';
    END IF;
END
$tocsin$;
COMMIT;
`

// rightsSQL stands below them. The rights on columns are all that a relay may change of a row.
const rightsSQL = `
-- The rights that users need, all also CONNECT on the database. A service that adds, cancels and reschedules:
--     GRANT USAGE ON SCHEMA {schema} TO service;
--     GRANT INSERT ON {outbox} TO service;
-- A relay:
--     GRANT USAGE ON SCHEMA {schema} TO tocsin_relay;
--     GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON {outbox} TO tocsin_relay;
--     GRANT SELECT ON SEQUENCE {sequence} TO tocsin_relay;
-- An audit of outboxes:
--     GRANT USAGE ON SCHEMA {schema} TO tocsin_audit;
--     GRANT SELECT ON {outbox} TO tocsin_audit;
`

// thereSQL asks whether the table is there. Parameter: its quoted name.
const thereSQL = `SELECT /* tocsin outbox apply */
    to_regclass($1) IS NOT NULL`

// columnsThereSQL counts which of four columns the table has that no other table is likely to have all of.
const columnsThereSQL = `SELECT /* tocsin outbox apply */
    COUNT(*)
FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass('{outbox}')
    AND NOT attisdropped
    AND attname IN ('op', 'biz_type', 'delay_ms', 'last_error')`

// tableSQL reads what the table is. Parameter: its quoted name.
const tableSQL = `SELECT /* tocsin outbox verify */
    CAST(c.relkind AS text),
    CAST(c.relpersistence AS text),
    c.relrowsecurity,
    c.relhassubclass OR c.relispartition,
    COALESCE(obj_description(c.oid, 'pg_class'), '')
FROM pg_catalog.pg_class AS c
WHERE c.oid = to_regclass($1)`

// columnsSQL reads the columns. Parameter: quoted name of the table.
const columnsSQL = `SELECT /* tocsin outbox verify */
    a.attname,
    format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
        || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        || CASE a.attidentity WHEN 'a' THEN ' always identity' WHEN 'd' THEN ' by default identity' ELSE '' END,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_catalog.pg_attribute AS a
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass($1)
    AND a.attnum > 0
    AND NOT a.attisdropped
ORDER BY a.attnum`

// constraintsSQL reads the constraints and the unique indexes, each as a name and what it asks for. Those of an index are
// named by it. Parameter: quoted name of the table.
const constraintsSQL = `SELECT /* tocsin outbox verify */
    conname,
    CASE contype WHEN 'c' THEN pg_get_constraintdef(oid) ELSE CAST(contype AS text) END
FROM pg_catalog.pg_constraint
WHERE conrelid = to_regclass($1)
    AND contype IN ('c', 'f', 'x')
UNION ALL
SELECT i.indexrelid::regclass::text,
    'unique (' || (
        SELECT string_agg(pg_get_indexdef(i.indexrelid, n, true), ', ' ORDER BY n)
        FROM generate_series(1, i.indnkeyatts) AS n
    ) || ')' || CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END
FROM pg_catalog.pg_index AS i
WHERE i.indrelid = to_regclass($1)
    AND i.indisunique`

// sequenceSQL reads the sequence of the ids. Parameter: quoted name of the table.
const sequenceSQL = `SELECT /* tocsin outbox verify */
    s.seqincrement,
    s.seqcache,
    s.seqcycle
FROM pg_catalog.pg_sequence AS s
WHERE s.seqrelid = to_regclass(pg_get_serial_sequence($1, 'id'))`

// sequenceRightSQL finds the sequence of the ids if this user may delete rows, as a relay's may, but not read the sequence.
// Parameter: quoted name of the table.
const sequenceRightSQL = `SELECT /* tocsin outbox verify */
    CAST(current_user AS text),
    pg_get_serial_sequence($1, 'id')
WHERE has_table_privilege(to_regclass($1), 'DELETE')
    AND NOT has_sequence_privilege(pg_get_serial_sequence($1, 'id'), 'SELECT, USAGE')`

// serverSQL reads the settings of the server that a relay depends on.
const serverSQL = `SELECT /* tocsin outbox verify */
    CAST(current_setting('server_version_num') AS integer),
    current_setting('server_encoding')`
