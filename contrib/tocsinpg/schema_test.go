package tocsinpg

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// business makes a database without an outbox, and a connection of its superuser.
func business(t *testing.T) (outbox.Config, *pgx.Conn) {
	t.Helper()
	name := fmt.Sprintf("t%x", rand.Uint64())
	exec(t, dial(t, devtest.PostgreSQL(t, "postgres")), "CREATE DATABASE "+name)
	cfg := outbox.Config{DSN: devtest.PostgreSQL(t, name), Table: "public.tocsin_outbox", Driver: Driver{}}
	return cfg, dial(t, cfg.DSN)
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

func verifies(t *testing.T, cfg outbox.Config, want ...string) {
	t.Helper()
	findings, err := VerifyOutbox(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != len(want) {
		t.Errorf("%d findings, want %d: %v", len(findings), len(want), findings)
	}
	for i := range min(len(want), len(findings)) {
		if got := findings[i].String(); !strings.Contains(got, want[i]) {
			t.Errorf("%s, want %s", got, want[i])
		}
	}
}

func comment(t *testing.T, conn *pgx.Conn, table string) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT COALESCE(obj_description(to_regclass($1), 'pg_class'), '')", table).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnOutboxIsMadeOnceAndVerified(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	verifies(t, cfg, "public.tocsin_outbox is missing")
	identity := ""
	for i := range 2 {
		created, err := ApplyOutbox(t.Context(), cfg)
		if err != nil || created != (i == 0) {
			t.Fatal(created, err)
		}
		got := comment(t, conn, cfg.Table)
		if i > 0 && got != identity || len(got) != len("tocsin outbox ")+32 {
			t.Errorf("apply %d: the comment is %q, was %q", i+1, got, identity)
		}
		identity = got
		verifies(t, cfg)
	}
}

func TestVerifyNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	if _, err := ApplyOutbox(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ change, want, back string }{
		{"COMMENT ON TABLE tocsin_outbox IS 'ours'", `has the comment "ours"`, "COMMENT ON TABLE tocsin_outbox IS 'tocsin outbox 1'"},
		{"ALTER TABLE tocsin_outbox ALTER created SET DEFAULT now()", "column created is timestamp with time zone not null default now()", "ALTER TABLE tocsin_outbox ALTER created SET DEFAULT clock_timestamp()"},
		{"ALTER TABLE tocsin_outbox ADD tenant integer NOT NULL", "column tenant is not of the schema and needs a value", "ALTER TABLE tocsin_outbox DROP tenant"},
		{"ALTER TABLE tocsin_outbox RENAME dedup_key TO key", "column dedup_key is missing", "ALTER TABLE tocsin_outbox RENAME key TO dedup_key"},
		{"ALTER TABLE tocsin_outbox DROP CONSTRAINT tocsin_delay", "constraint tocsin_delay is missing", "ALTER TABLE tocsin_outbox ADD CONSTRAINT tocsin_delay CHECK (delay_ms >= 0)"},
		{"ALTER TABLE tocsin_outbox DROP CONSTRAINT tocsin_outbox_pkey", "has no primary key", "ALTER TABLE tocsin_outbox ADD PRIMARY KEY (id)"},
		{"CREATE UNIQUE INDEX mine ON tocsin_outbox (biz_id)", "has mine, unique (biz_id), which refuses rows", "DROP INDEX mine"},
		{"ALTER TABLE tocsin_outbox ALTER id SET CACHE 20", "the sequence of id has increment 1, cache 20 and cycle false", "ALTER TABLE tocsin_outbox ALTER id SET CACHE 1"},
		{"ALTER TABLE tocsin_outbox ENABLE ROW LEVEL SECURITY", "has row-level security", "ALTER TABLE tocsin_outbox DISABLE ROW LEVEL SECURITY"},
		{"ALTER TABLE tocsin_outbox SET UNLOGGED", "is unlogged", "ALTER TABLE tocsin_outbox SET LOGGED"},
		{"CREATE TABLE heir () INHERITS (tocsin_outbox)", "is no plain table", "DROP TABLE heir"},
	} {
		exec(t, conn, c.change)
		verifies(t, cfg, c.want)
		exec(t, conn, c.back)
	}
	exec(t, conn, "ANALYZE tocsin_outbox") // forgets that there was an heir
	verifies(t, cfg)
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

// A wrong --table must not mark a business table as an outbox.
func TestATableThatIsNoOutboxIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	cfg.Table = "public.orders"
	exec(t, conn, "CREATE TABLE orders (id bigint PRIMARY KEY, op integer, biz_type integer); COMMENT ON TABLE orders IS 'ours'")
	if _, err := ApplyOutbox(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is no outbox, and is left as it is: name a table") {
		t.Error(err)
	}
	text, err := PlanOutbox(cfg.Table)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, text)
	if got := comment(t, conn, cfg.Table); got != "ours" {
		t.Errorf("the comment is %q", got)
	}
}

func TestThePlanIsWhatApplyDoes(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	exec(t, conn, `CREATE SCHEMA "Shop-1"`)
	cfg.Table = "Shop-1.out$box"
	text, err := PlanOutbox(cfg.Table)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		exec(t, conn, text)
		verifies(t, cfg)
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

// What a relay could not read, or would move wrongly, is refused when it is written.
func TestTheTableRefusesWrongRows(t *testing.T) {
	t.Parallel()
	cfg, conn := business(t)
	if _, err := ApplyOutbox(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for values, good := range map[string]bool{
		"('add', 18446744073709551615, NULL, 1, NULL, clock_timestamp())":                 true,
		"('cancel', 1, NULL, NULL, NULL, clock_timestamp())":                              true,
		"('add', 1, now() + interval '1 hour', NULL, repeat('x', 64), clock_timestamp())": true,
		"('add', 18446744073709551616, NULL, 1, NULL, clock_timestamp())":                 false,
		"('add', 0, NULL, 1, NULL, clock_timestamp())":                                    false,
		"('add', -1, NULL, 1, NULL, clock_timestamp())":                                   false,
		"('add', 'NaN', NULL, 1, NULL, clock_timestamp())":                                false,
		"('move', 1, NULL, 1, NULL, clock_timestamp())":                                   false,
		"('add', 1, NULL, NULL, NULL, clock_timestamp())":                                 false,
		"('add', 1, now(), 1, NULL, clock_timestamp())":                                   false,
		"('add', 1, 'infinity', NULL, NULL, clock_timestamp())":                           false,
		"('add', 1, '-infinity', NULL, NULL, clock_timestamp())":                          false,
		"('add', 1, NULL, -1, NULL, clock_timestamp())":                                   false,
		"('add', 1, NULL, 1, repeat('ä', 33), clock_timestamp())":                         false,
		"('add', 1, NULL, 1, NULL, 'infinity')":                                           false,
		"('add', 1, NULL, 1, NULL, '0001-01-01 00:00:00+00')":                             false,
	} {
		_, err := conn.Exec(t.Context(), "INSERT INTO tocsin_outbox (op, biz_id, due_time, delay_ms, dedup_key, created, biz_type) VALUES "+strings.TrimSuffix(values, ")")+", 'x')")
		if (err == nil) != good {
			t.Errorf("%s: %v", values, err)
		}
	}
}
