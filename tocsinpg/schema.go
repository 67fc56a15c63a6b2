package tocsinpg

import (
	"context"
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
// table is new. It leaves an outbox that is there as it is: VerifyOutbox says what differs. A table that is no outbox is an
// error.
func ApplyOutbox(ctx context.Context, cfg outbox.Config) (created bool, err error) {
	text, err := PlanOutbox(cfg.Table)
	if err != nil {
		return false, err
	}
	conn, err := connectToApply(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	there, err := isThere(ctx, conn, cfg.Table)
	if err != nil {
		return false, err
	}
	if _, err := conn.PgConn().Exec(ctx, text).ReadAll(); err != nil {
		if code(err) == noSchema {
			in, _ := outbox.Split(cfg.Table)
			return false, fmt.Errorf("%s has no schema %s: an outbox stands in a schema of yours (%w)", whereIs(conn.Config()), in, err)
		}
		return false, fmt.Errorf("make outbox %s in %s: %w", cfg.Table, whereIs(conn.Config()), err)
	}
	return !there, nil
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
