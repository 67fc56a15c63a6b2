package ddl

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// business makes a database without an outbox.
func business(t *testing.T) (Outbox, *sql.DB) {
	t.Helper()
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := devtest.Prefix(t) + "_shop"
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return Outbox{DSN: devtest.DSN(t), Table: name + ".tocsin_outbox"}, db
}

func verifies(t *testing.T, o Outbox, want ...string) {
	t.Helper()
	findings, err := VerifyOutbox(t.Context(), o)
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

func comment(t *testing.T, db *sql.DB, table string) (text string) {
	t.Helper()
	database, name, _ := strings.Cut(table, ".")
	if err := db.QueryRow(selectOutboxComment, database, name).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnOutboxIsMadeOnceAndVerified(t *testing.T) {
	t.Parallel()
	o, db := business(t)
	verifies(t, o, o.Table+" is missing")
	for i := range 2 {
		before := ""
		if i > 0 {
			before = comment(t, db, o.Table)
		}
		created, err := ApplyOutbox(t.Context(), o)
		if err != nil || created != (i == 0) {
			t.Fatal(created, err)
		}
		if i > 0 && comment(t, db, o.Table) != before {
			t.Error("the second apply gave it another identity")
		}
		verifies(t, o)
	}
	for _, change := range []struct{ sql, want, back string }{
		{"COMMENT = 'ours'", `has the comment "ours"`, "COMMENT = ''"},
		{"MODIFY created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)", "column created is timestamp(6) not null default 'current_timestamp(6)' on update",
			"MODIFY created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"},
		{"ADD COLUMN tenant INT NOT NULL", "column tenant is not of the schema and needs a value", "DROP COLUMN tenant"},
		{"DROP COLUMN dedup_key", "column dedup_key is missing", "ADD COLUMN dedup_key VARBINARY(64) NULL"},
	} {
		for _, sql := range []string{change.sql, change.back} {
			if _, err := db.Exec("ALTER TABLE " + o.Table + " " + sql); err != nil {
				t.Fatal(err)
			}
			if sql == change.sql {
				verifies(t, o, change.want)
			}
		}
		if _, err := ApplyOutbox(t.Context(), o); err != nil { // for the identity
			t.Fatal(err)
		}
	}
	verifies(t, o)
}

// A wrong --table must not mark a business table as an outbox.
func TestATableThatIsNoOutboxIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	o, db := business(t)
	o.Table = strings.TrimSuffix(o.Table, ".tocsin_outbox") + ".orders"
	if _, err := db.Exec("CREATE TABLE " + o.Table + " (id BIGINT PRIMARY KEY, op INT, biz_type INT) COMMENT = 'ours'"); err != nil {
		t.Fatal(err)
	}
	if _, err := ApplyOutbox(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is no outbox, and is left as it is: name a table") {
		t.Error(err)
	}
	text, err := PlanOutbox(o)
	if err != nil {
		t.Fatal(err)
	}
	devtest.Load(t, o.DSN, strings.TrimSuffix(o.Table, ".orders"), text)
	if got := comment(t, db, o.Table); got != "ours" {
		t.Errorf("the comment is %q", got)
	}
}

func TestThePlanOfAnOutboxIsWhatApplyDoes(t *testing.T) {
	t.Parallel()
	o, _ := business(t)
	text, err := PlanOutbox(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		devtest.Load(t, o.DSN, strings.TrimSuffix(o.Table, ".tocsin_outbox"), text)
		verifies(t, o)
	}
	if !strings.Contains(text, "GRANT INSERT ON") || !strings.Contains(text, "GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON") {
		t.Errorf("the plan names no rights:\n%s", text)
	}
}

func TestAnOutboxNeedsItsDatabase(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"nothing_here.tocsin_outbox": "has no database nothing_here",
		"tocsin_outbox":              "name its database too",
		"shop.a`b":                   "use database.table",
	} {
		if _, err := ApplyOutbox(t.Context(), Outbox{DSN: devtest.DSN(t), Table: table}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", table, err)
		}
	}
}

func TestAnOutboxRefusesWhatCantBeMoved(t *testing.T) {
	t.Parallel()
	o, db := business(t)
	if _, err := ApplyOutbox(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for values, ok := range map[string]bool{
		"'add', 1, NULL, 5": true, "'reschedule', 1, NULL, 5": true, "'cancel', 1, NULL, NULL": true,
		"'remove', 1, NULL, 5": false, "'add', 0, NULL, 5": false, "'add', 1, NULL, NULL": false, "'add', 1, UTC_TIMESTAMP(3), 5": false,
	} {
		_, err := db.Exec("INSERT INTO " + o.Table + " (biz_type, op, biz_id, due_time, delay_ms) VALUES ('x', " + values + ")")
		if (err == nil) != ok {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// A relay's sessions are READ COMMITTED, in which a server that logs statements takes no writes.
func TestAnOutboxIsNotForAServerThatLogsStatements(t *testing.T) {
	t.Parallel()
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Args: []string{"--server-id=1", "--log-bin=binlog", "--binlog-format=STATEMENT"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	db, err := sql.Open("mysql", m.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	o := Outbox{DSN: m.DSN(), Table: "shop.tocsin_outbox"}
	if _, err := ApplyOutbox(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	verifies(t, o, "is on a server with binlog_format STATEMENT")
	for setting, want := range map[string][]string{"binlog_format = 'ROW'": nil, "read_only = ON": {"is on a server that is read-only"}} {
		if _, err := db.Exec("SET GLOBAL binlog_format = 'ROW'"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("SET GLOBAL " + setting); err != nil {
			t.Fatal(err)
		}
		verifies(t, o, want...)
		if _, err := db.Exec("SET GLOBAL read_only = OFF"); err != nil {
			t.Fatal(err)
		}
	}
}
