package tocsinpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/outbox"
)

// minVersion is that of the oldest server that a relay works with. idle_session_timeout is new in 14, and since 14.1 a
// transaction keeps its virtual id when it is prepared.
const minVersion = 140001

// wantColumns are the columns as columnsSQL reads them.
var wantColumns = []struct{ name, is string }{
	{"id", "bigint not null always identity"},
	{"op", "character varying(16) not null default 'add'::character varying"},
	{"biz_type", "character varying(64) not null"},
	{"biz_id", "numeric(20,0) not null default 0"},
	{"biz_key", "character varying(64) not null default ''::character varying"},
	{"due_time", "timestamp with time zone"},
	{"delay_ms", "bigint"},
	{"dedup_key", "character varying(64)"},
	{"headers", "character varying(1024)"},
	{"attribute", "character varying(8192) not null default ''::character varying"},
	{"created", "timestamp with time zone not null default clock_timestamp()"},
	{"attempts", "integer not null default 0"},
	{"last_error", "character varying(255) not null default ''::character varying"},
}

// wantChecks are the conditions that keep a relay from rows that it can't read.
var wantChecks = []string{"tocsin_op", "tocsin_biz_id", "tocsin_key", "tocsin_when", "tocsin_due", "tocsin_delay", "tocsin_dedup", "tocsin_created"}

// primaryKey is that of the table, as constraintsSQL reads it.
const primaryKey = "unique (id)"

// report collects findings.
type report struct {
	server   string
	table    string
	findings []ddl.Finding
}

func (r *report) add(object, format string, args ...any) {
	r.findings = append(r.findings, ddl.Finding{Server: r.server, Object: object, Detail: fmt.Sprintf(format, args...)})
}

// VerifyOutbox compares the table with what ApplyOutbox makes, and its server with what a relay needs; no finding: all is well. It
// changes nothing.
func VerifyOutbox(ctx context.Context, cfg outbox.Config) (findings []ddl.Finding, err error) {
	if err := checkTable(cfg.Table); err != nil {
		return nil, err
	}
	conn, err := connectToApply(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	r := &report{server: whereIs(conn.Config()), table: cfg.Table}
	for _, look := range []func(context.Context, *pgx.Conn) error{r.settings, r.relation} {
		if err := look(ctx, conn); err != nil {
			return nil, fmt.Errorf("inspect %s in %s: %w", cfg.Table, whereIs(conn.Config()), err)
		}
	}
	return r.findings, nil
}

// settings looks at the server's settings.
func (r *report) settings(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var encoding string
	if err := conn.QueryRow(ctx, serverSQL).Scan(&version, &encoding); err != nil {
		return err
	}
	if version < minVersion {
		r.add(r.table, "is on PostgreSQL %d.%d: a relay needs 14.1 or newer", version/10000, version%10000)
	}
	if encoding != "UTF8" {
		r.add(r.table, "is in a database with the encoding %s, want UTF8", encoding)
	}
	return nil
}

// relation looks at the table, and at its parts if it is one.
func (r *report) relation(ctx context.Context, conn *pgx.Conn) error {
	name := outbox.QuotedPostgreSQL(r.table)
	var kind, persistence, comment string
	var rowSecurity, divided bool
	err := conn.QueryRow(ctx, tableSQL, name).Scan(&kind, &persistence, &rowSecurity, &divided, &comment)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		r.add(r.table, "is missing: run `tocsin outbox apply`")
		return nil
	case err != nil:
		return err
	case kind != "r" || divided:
		r.add(r.table, "is no plain table: views, partitions and heirs have rows that a relay does not see")
		return nil
	}
	if persistence != "p" {
		r.add(r.table, "is unlogged or temporary: a crash of the server empties it")
	}
	if rowSecurity {
		r.add(r.table, "has row-level security, which may hide rows from a relay: disable it")
	}
	if outbox.Identity(comment) == "" {
		r.add(r.table, "has the comment %q, want %q and an identity: run `tocsin outbox apply`", comment, outbox.Comment)
	}
	return errors.Join(r.columns(ctx, conn, name), r.constraints(ctx, conn, name), r.sequence(ctx, conn, name), r.sequenceRight(ctx, conn, name))
}

// columns compares the columns. Further ones must not need a value.
func (r *report) columns(ctx context.Context, conn *pgx.Conn, table string) error {
	type column struct {
		is    string
		needs bool
	}
	found := map[string]column{}
	var name string
	var c column
	rows, err := conn.Query(ctx, columnsSQL, table)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&name, &c.is, &c.needs}, func() error { found[name] = c; return nil }); err != nil {
		return err
	}
	for _, want := range wantColumns {
		switch got, there := found[want.name]; {
		case !there:
			r.add(r.table+", column "+want.name, "is missing")
		case got.is != want.is:
			r.add(r.table+", column "+want.name, "is %s, want %s", got.is, want.is)
		}
		delete(found, want.name)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name].needs {
			r.add(r.table+", column "+name, "is not of the schema and needs a value")
		}
	}
	return nil
}

// constraints compares conditions and unique indexes. Further ones refuse rows.
func (r *report) constraints(ctx context.Context, conn *pgx.Conn, table string) error {
	found := map[string]string{}
	var name, is string
	rows, err := conn.Query(ctx, constraintsSQL, table)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&name, &is}, func() error { found[name] = is; return nil }); err != nil {
		return err
	}
	hasKey := false
	for _, name := range slices.Sorted(maps.Keys(found)) {
		switch {
		case slices.Contains(wantChecks, name):
		case found[name] == primaryKey:
			hasKey = true
		default:
			r.add(r.table, "has %s, %s, which refuses rows", name, found[name])
		}
	}
	if !hasKey {
		r.add(r.table, "has no primary key (id)")
	}
	for _, name := range wantChecks {
		if found[name] == "" {
			r.add(r.table+", constraint "+name, "is missing")
		}
	}
	return nil
}

// sequence looks at how ids are given. With a cache, the ids of a session may be below those that another one has
// committed before, and the order of a biz_id would be lost.
func (r *report) sequence(ctx context.Context, conn *pgx.Conn, table string) error {
	var increment, cache int64
	var cycle bool
	err := conn.QueryRow(ctx, sequenceSQL, table).Scan(&increment, &cache, &cycle)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // the column is not as it should be
	case err != nil:
		return err
	}
	if increment < 1 || cache != 1 || cycle {
		r.add(r.table+", the sequence of id", "has increment %d, cache %d and cycle %v, want an increment above 0, cache 1 and no cycle: the ids would not be the order", increment, cache, cycle)
	}
	return nil
}

// sequenceRight reports that this user may relay but not read the sequence.
func (r *report) sequenceRight(ctx context.Context, conn *pgx.Conn, table string) error {
	var user, sequence string
	err := conn.QueryRow(ctx, sequenceRightSQL, table).Scan(&user, &sequence)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	user = pgx.Identifier{user}.Sanitize()
	r.add(r.table+", the sequence of id", "can't be read by user %s: a relay that takes over would begin at the first id: GRANT SELECT ON SEQUENCE %s TO %s", user, sequence, user)
	return nil
}
