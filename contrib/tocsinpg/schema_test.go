package tocsinpg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

// business makes a database without an outbox, and a connection of its superuser.
func business(t *testing.T) (outbox.Config, *pgx.Conn) {
	t.Helper()
	name := fmt.Sprintf("t%x", rand.Uint64())
	exec(t, dial(t, devtest.PostgreSQL(t, "postgres")), "CREATE DATABASE "+name)
	cfg := outbox.Config{DSN: devtest.PostgreSQL(t, name), Table: "public.tocsin_outbox", Driver: Driver{}}
	return cfg, dial(t, cfg.DSN)
}

func verifies(t *testing.T, cfg outbox.Config, want ...string) {
	t.Helper()
	table := relaytest.Table{Verify: func(ctx context.Context) ([]ddl.Finding, error) { return VerifyOutbox(ctx, cfg) }}
	table.Verifies(t, want...)
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, text string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), text).ReadAll(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// tables are outboxes as the suite of all kinds of servers wants them, each in a database of its own.
func tables(t *testing.T, name string) relaytest.Table {
	t.Helper()
	cfg, conn := business(t)
	cfg.Table = "public." + name
	if name == relaytest.Odd {
		exec(t, conn, `CREATE SCHEMA "Shop-1"`)
		cfg.Table = "Shop-1." + name
	}
	return relaytest.Table{
		Name:   cfg.Table,
		Apply:  func(ctx context.Context) (bool, error) { return ApplyOutbox(ctx, cfg) },
		Verify: func(ctx context.Context) ([]ddl.Finding, error) { return VerifyOutbox(ctx, cfg) },
		Plan:   func() (string, error) { return PlanOutbox(cfg.Table) },
		Load:   func(plan string) { exec(t, conn, plan) },
		Exec: func(statement string) error {
			_, err := conn.PgConn().Exec(t.Context(), strings.ReplaceAll(statement, "{outbox}", cfg.Table)).ReadAll()
			return err
		},
		Comment: func() (text string) {
			const read = "SELECT COALESCE(obj_description(to_regclass($1), 'pg_class'), '')"
			if err := conn.QueryRow(t.Context(), read, cfg.Table).Scan(&text); err != nil {
				t.Fatal(err)
			}
			return text
		},
	}
}

func TestTheTableOfAnOutboxConforms(t *testing.T) {
	t.Parallel()
	relaytest.ConformTable(t, relaytest.Tables{
		At: tables,
		Changes: [][3]string{
			{"COMMENT ON TABLE {outbox} IS 'ours'", `has the comment "ours"`, "COMMENT ON TABLE {outbox} IS NULL"},
			{"COMMENT ON TABLE {outbox} IS 'tocsin outbox a''b'", `has the comment "tocsin outbox a'b"`, "SELECT 1"}, // apply gives another
			{"ALTER TABLE {outbox} ALTER created SET DEFAULT now()", "column created is timestamp with time zone not null default now()", "ALTER TABLE {outbox} ALTER created SET DEFAULT clock_timestamp()"},
			{"ALTER TABLE {outbox} ADD tenant integer NOT NULL", "column tenant is not of the schema and needs a value", "ALTER TABLE {outbox} DROP tenant"},
			{"ALTER TABLE {outbox} RENAME dedup_key TO key", "column dedup_key is missing", "ALTER TABLE {outbox} RENAME key TO dedup_key"},
			{"ALTER TABLE {outbox} DROP CONSTRAINT tocsin_delay", "constraint tocsin_delay is missing", "ALTER TABLE {outbox} ADD CONSTRAINT tocsin_delay CHECK (delay_ms >= 0)"},
			{"ALTER TABLE {outbox} DROP CONSTRAINT tocsin_outbox_pkey", "has no primary key", "ALTER TABLE {outbox} ADD PRIMARY KEY (id)"},
			{"CREATE UNIQUE INDEX mine ON {outbox} (biz_id)", "has mine, unique (biz_id), which refuses rows", "DROP INDEX mine"},
			{"ALTER TABLE {outbox} ALTER id SET CACHE 20", "the sequence of id has increment 1, cache 20 and cycle false", "ALTER TABLE {outbox} ALTER id SET CACHE 1"},
			{"ALTER TABLE {outbox} ENABLE ROW LEVEL SECURITY", "has row-level security", "ALTER TABLE {outbox} DISABLE ROW LEVEL SECURITY"},
			{"ALTER TABLE {outbox} SET UNLOGGED", "is unlogged", "ALTER TABLE {outbox} SET LOGGED"},
			{"CREATE TABLE heir () INHERITS ({outbox})", "is no plain table", "DROP TABLE heir; ANALYZE {outbox}"}, // which forgets that there was an heir
		},
		Ours:   "CREATE TABLE {outbox} (id bigint PRIMARY KEY, op integer, biz_type integer); COMMENT ON TABLE {outbox} IS 'ours'",
		Insert: "op, biz_id, due_time, delay_ms, dedup_key, created, biz_type",
		Rows: map[string]bool{
			"'add', 18446744073709551615, NULL, 1, NULL, clock_timestamp()":                 true,
			"'cancel', 1, NULL, NULL, NULL, clock_timestamp()":                              true,
			"'add', 1, now() + interval '1 hour', NULL, repeat('x', 64), clock_timestamp()": true,
			"'add', 18446744073709551616, NULL, 1, NULL, clock_timestamp()":                 false,
			"'add', 0, NULL, 1, NULL, clock_timestamp()":                                    false,
			"'add', -1, NULL, 1, NULL, clock_timestamp()":                                   false,
			"'add', 'NaN', NULL, 1, NULL, clock_timestamp()":                                false,
			"'move', 1, NULL, 1, NULL, clock_timestamp()":                                   false,
			"'add', 1, NULL, NULL, NULL, clock_timestamp()":                                 false,
			"'add', 1, now(), 1, NULL, clock_timestamp()":                                   false,
			"'add', 1, 'infinity', NULL, NULL, clock_timestamp()":                           false,
			"'add', 1, '-infinity', NULL, NULL, clock_timestamp()":                          false,
			"'add', 1, NULL, -1, NULL, clock_timestamp()":                                   false,
			"'add', 1, NULL, 1, repeat('ä', 33), clock_timestamp()":                         false,
			"'add', 1, NULL, 1, NULL, 'infinity'":                                           false,
			"'add', 1, NULL, 1, NULL, '0001-01-01 00:00:00+00'":                             false,
		},
	})
}

// as is a config of a new user who has some rights on the outbox.
func as(t *testing.T, cfg outbox.Config, conn *pgx.Conn, rights string) (outbox.Config, string) {
	t.Helper()
	user := fmt.Sprintf("u%x", rand.Uint64())
	exec(t, conn, "CREATE ROLE "+user+" LOGIN; GRANT "+rights+" ON tocsin_outbox TO "+user)
	cfg.DSN = strings.Replace(cfg.DSN, "//postgres@", "//"+user+"@", 1)
	return cfg, user
}

// Without the right to read the sequence, a relay begins at the first id each time.
func TestVerifyNamesTheRightOnTheSequenceThatARelayLacks(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	if _, err := ApplyOutbox(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	relays, user := as(t, cfg, conn, "SELECT, DELETE, UPDATE (attempts, last_error)")
	grant := "GRANT SELECT ON SEQUENCE public.tocsin_outbox_id_seq TO "
	verifies(t, relays, grant+`"`+user+`"`)
	exec(t, conn, grant+user)
	verifies(t, relays)
	audits, _ := as(t, cfg, conn, "SELECT")
	verifies(t, audits)
}

// The sequence is named as PostgreSQL names it.
func TestThePlanNamesTheSequence(t *testing.T) {
	t.Parallel()
	_, conn := business(t)
	for _, name := range []string{"tocsin_outbox", "Out-box", strings.Repeat("x", 56), strings.Repeat("x", 57), strings.Repeat("x", maxName)} {
		text, err := PlanOutbox("public." + name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, conn, text)
		_, right, _ := strings.Cut(text, "ON SEQUENCE ")
		sequence, _, _ := strings.Cut(right, " ")
		var is bool
		same := `SELECT to_regclass($1) = to_regclass(pg_get_serial_sequence('public."` + name + `"', 'id'))`
		if err := conn.QueryRow(t.Context(), same, sequence).Scan(&is); err != nil || !is {
			t.Errorf("%s: %s is not its sequence, %v", name, sequence, err)
		}
		exec(t, conn, `DROP TABLE "`+name+`"`)
	}
}

func TestApplySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	cfg, _ := business(t)
	cfg.Table = "nowhere.tocsin_outbox"
	if _, err := ApplyOutbox(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "has no schema nowhere") {
		t.Error(err)
	}
	cfg.DSN = devtest.PostgreSQL(t, "nowhere")
	if _, err := ApplyOutbox(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "stands in a database of yours") {
		t.Error(err)
	}
	for table, want := range map[string]string{"tocsin_outbox": "name its schema too", "a b.c": "of letters, digits", "public." + strings.Repeat("x", 64): "at most 63 characters"} {
		if _, err := PlanOutbox(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", table, err, want)
		}
	}
}

func TestAnOutboxInAnotherEncodingIsFound(t *testing.T) {
	t.Parallel()
	_, conn := business(t)
	name := fmt.Sprintf("t%x", rand.Uint64())
	exec(t, conn, "CREATE DATABASE "+name+" ENCODING 'LATIN1' TEMPLATE template0")
	cfg := outbox.Config{DSN: devtest.PostgreSQL(t, name), Table: "public.tocsin_outbox", Driver: Driver{}}
	if _, err := ApplyOutbox(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	verifies(t, cfg, "is in a database with the encoding LATIN1, want UTF8")
}
