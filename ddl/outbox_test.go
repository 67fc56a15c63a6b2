package ddl_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

// business makes a database without an outbox.
func business(t *testing.T, name string) relaytest.Table {
	t.Helper()
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	database := devtest.Prefix(t) + "_shop"
	if _, err := db.Exec("CREATE DATABASE " + database); err != nil {
		t.Fatal(err)
	}
	o := ddl.Outbox{DSN: devtest.DSN(t), Table: database + "." + name}
	return relaytest.Table{
		Name:   o.Table,
		Apply:  func(ctx context.Context) (bool, error) { return ddl.ApplyOutbox(ctx, o) },
		Verify: func(ctx context.Context) ([]ddl.Finding, error) { return ddl.VerifyOutbox(ctx, o) },
		Plan:   func() (string, error) { return ddl.PlanOutbox(o) },
		Load:   func(plan string) { devtest.Load(t, o.DSN, database, plan) },
		Exec: func(statement string) error {
			_, err := db.Exec(strings.ReplaceAll(statement, "{outbox}", o.Table))
			return err
		},
		Comment: func() (text string) {
			const read = "SELECT table_comment FROM information_schema.tables WHERE table_schema = ? AND table_name = ?"
			if err := db.QueryRow(read, database, name).Scan(&text); err != nil {
				t.Fatal(err)
			}
			return text
		},
	}
}

func TestTheTableOfAnOutboxConforms(t *testing.T) {
	t.Parallel()
	relaytest.ConformTable(t, relaytest.Tables{
		At: business,
		Changes: [][3]string{
			{"ALTER TABLE {outbox} COMMENT = 'ours'", `has the comment "ours"`, "ALTER TABLE {outbox} COMMENT = ''"},
			{"ALTER TABLE {outbox} COMMENT = 'tocsin outbox a''b'", `has the comment "tocsin outbox a'b"`, "DO 0"}, // apply gives another
			{
				"ALTER TABLE {outbox} MODIFY created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",
				"column created is timestamp(6) not null default 'current_timestamp(6)' on update",
				"ALTER TABLE {outbox} MODIFY created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
			},
			{
				"ALTER TABLE {outbox} ADD COLUMN tenant INT NOT NULL",
				"column tenant is not of the schema and needs a value",
				"ALTER TABLE {outbox} DROP COLUMN tenant",
			},
			{"ALTER TABLE {outbox} DROP COLUMN dedup_key", "column dedup_key is missing", "ALTER TABLE {outbox} ADD COLUMN dedup_key VARBINARY(64) NULL"},
		},
		Ours:   "CREATE TABLE {outbox} (id BIGINT PRIMARY KEY, op INT, biz_type INT) COMMENT = 'ours'",
		Insert: "op, biz_id, due_time, delay_ms, biz_type",
		Rows: map[string]bool{
			"'add', 1, NULL, 5": true, "'reschedule', 1, NULL, 5": true, "'cancel', 1, NULL, NULL": true,
			"'remove', 1, NULL, 5": false, "'add', 0, NULL, 5": false, "'add', 1, NULL, NULL": false, "'add', 1, UTC_TIMESTAMP(3), 5": false,
		},
	})
}

func TestAnOutboxNeedsItsDatabase(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"nothing_here.tocsin_outbox": "has no database nothing_here",
		"tocsin_outbox":              "name its database too",
		"shop.a`b":                   "use database.table",
	} {
		if _, err := ddl.ApplyOutbox(t.Context(), ddl.Outbox{DSN: devtest.DSN(t), Table: table}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", table, err)
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
	o := ddl.Outbox{DSN: m.DSN(), Table: "shop.tocsin_outbox"}
	if _, err := ddl.ApplyOutbox(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	table := relaytest.Table{Verify: func(ctx context.Context) ([]ddl.Finding, error) { return ddl.VerifyOutbox(ctx, o) }}
	table.Verifies(t, "is on a server with binlog_format STATEMENT")
	for setting, want := range map[string][]string{"binlog_format = 'ROW'": nil, "read_only = ON": {"is on a server that is read-only"}} {
		if _, err := db.Exec("SET GLOBAL binlog_format = 'ROW'"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("SET GLOBAL " + setting); err != nil {
			t.Fatal(err)
		}
		table.Verifies(t, want...)
		if _, err := db.Exec("SET GLOBAL read_only = OFF"); err != nil {
			t.Fatal(err)
		}
	}
}

// A name of the config is looked for as the server compares names, and columns and indexes always without regard to case.
func TestNamesAreComparedAsTheServerDoes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--lower-case-table-names=1"}} {
		m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Args: args})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Stop() })
		db, err := sql.Open("mysql", m.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		do := func(statement string) {
			t.Helper()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		o := ddl.Outbox{DSN: m.DSN(), Table: "Shop.Tocsin_Outbox"}
		do("CREATE DATABASE Shop")
		if created, err := ddl.ApplyOutbox(t.Context(), o); err != nil || !created {
			t.Errorf("%q: created %t, %v", args, created, err)
		}
		do("ALTER TABLE Shop.Tocsin_Outbox CHANGE biz_id BIZ_ID BIGINT UNSIGNED NOT NULL DEFAULT 0")
		for range 2 {
			if found, err := ddl.VerifyOutbox(t.Context(), o); err != nil || len(found) > 0 {
				t.Errorf("%q: %v, %v", args, found, err)
			}
			if created, err := ddl.ApplyOutbox(t.Context(), o); err != nil || created {
				t.Errorf("%q: created again %t, %v", args, created, err)
			}
		}
		o.Table = "Shop.tocsin_outbox"
		if found, err := ddl.VerifyOutbox(t.Context(), o); err != nil || (len(found) > 0) != (args == nil) {
			t.Errorf("%q: another case: %v, %v", args, found, err)
		}
		do("CREATE DATABASE TOC_0")
		cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{Name: "db", DSN: m.DSN()}}, Cluster: "c"}
		if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "c"}); err != nil {
			t.Errorf("%q: apply: %v", args, err)
		}
		if found, err := ddl.Verify(t.Context(), cfg); err != nil || len(found) > 0 {
			t.Errorf("%q: %v, %v", args, found, err)
		}
	}
}
