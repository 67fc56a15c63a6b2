package main

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/tocsinpg"
)

// postgresShop makes a business database in PostgreSQL, and returns its DSN and what runs statements there.
func postgresShop(t *testing.T, name string) (dsn string, exec func(statement string)) {
	t.Helper()
	on := func(database string) func(string) {
		return func(statement string) { // in a session of its own, as the server ends those that idle
			t.Helper()
			conn, err := tocsinpg.Connect(t.Context(), outbox.Config{DSN: devtest.PostgreSQL(t, database)})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	on("postgres")("CREATE DATABASE " + name)
	return devtest.PostgreSQL(t, name), on(name)
}

func TestAnOutboxInPostgreSQL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dsn, exec := postgresShop(t, s.prefix)
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\noutboxes:\n  - {name: shop, dsn: \""+dsn+"\", table: public.tocsin_outbox}\n")
	plan := s.run("outbox", "plan").ok(t)
	if other := call(t, "outbox", "plan", "--postgres", "--table", "public.tocsin_outbox").ok(t); other != plan || !strings.Contains(plan, "clock_timestamp()") {
		t.Errorf("the plan without a config differs:\n%s", plan)
	}
	if r := s.run("outbox", "verify"); r.code != exitFailed || !strings.Contains(r.stdout, "public.tocsin_outbox is missing") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.run("outbox", "apply").says(t, "outbox public.tocsin_outbox is made")
	s.run("outbox", "apply", "--dsn", dsn).says(t, "was there")
	s.run("outbox", "verify").says(t, "is as it should be")
	call(t, "outbox", "plan", "--postgres", "--table", "tocsin_outbox").refused(t, exitUsage, "name its schema too")
	s.run("outbox", "list", "--dsn", dsn+"&port=x").refused(t, exitUsage, "port")

	exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('no.such', 1, 0), ('order.close', 2, 3600000), ('no.such', 3, 0)")
	relay := s.serveBy(command(t.Context(), s.dir, "relay"), "relay")
	s.waitFor("two rows to be set aside, and one to be moved", func() bool {
		return len(decode[[]outboxRow](t, s.run("outbox", "list", "--stuck", "--json"))) == 2 && len(decode[[]outboxRow](t, s.run("outbox", "list", "--json"))) == 2
	})
	s.run("outbox", "list", "--stuck").says(t, "LAST ERROR", `unknown biz type "no.such"`)
	s.run("outbox", "drop", "1").says(t, "1 rows dropped")
	s.run("outbox", "retry", "--all").says(t, "1 rows will be tried again")
	s.waitFor("the row to be tried again", func() bool {
		rows := decode[[]outboxRow](t, s.run("outbox", "list", "--stuck", "--json"))
		return len(rows) == 1 && rows[0].ID == 3 && rows[0].Attempts == 2
	})
	_ = relay.Process.Kill()
	_ = relay.Wait()
}

// An audit finds in PostgreSQL what it finds in MySQL: a moved task that is gone, a row that no relay has moved, and one that
// was set aside.
func TestAnAuditOfAnOutboxInPostgreSQL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dsn, exec := postgresShop(t, s.prefix)
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\noutboxes:\n  - {name: shop, dsn: \""+dsn+"\", table: public.tocsin_outbox}\n")
	s.run("outbox", "apply").ok(t)
	for database := range s.layout.Databases {
		s.exec("UPDATE " + s.layout.Database(database) + ".biz_type SET gmt_modified = gmt_modified - INTERVAL 2 HOUR")
	}
	exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('order.close', 1, 3600000), ('order.close', 2, 3600000)")
	relay := s.serveBy(command(t.Context(), s.dir, "relay"), "relay")
	s.waitFor("the outbox is empty", func() bool { return len(decode[[]outboxRow](t, s.run("outbox", "list", "--json"))) == 0 })
	s.run("audit", "--outbox").says(t, "audit: all fits; 2 moved tasks looked for, 0 of them may be purged, 0 rows wait in 1 outboxes; ")
	_ = relay.Process.Kill()
	_ = relay.Wait()
	table, id := s.taskOf(2)
	s.exec("DELETE FROM "+table+" WHERE job_id = ?", uint64(id))
	exec(`INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms, created, last_error)
VALUES ('order.close', 3, 3600000, now() - INTERVAL '6 minutes', ''), ('order.close', 4, 3600000, now(), ''),
    ('no.such', 5, 0, now() - INTERVAL '1 day', 'unknown biz type')`)
	r := s.run("audit", "--outbox")
	want := "audit: moved_without_task 1, not_moved 1, set_aside 1; 2 moved tasks looked for, 0 of them may be purged, 3 rows wait in 1 outboxes; "
	if r.code != exitFailed || r.stderr != "" || !strings.HasPrefix(r.stdout, want) || !strings.Contains(r.stdout, id.String()) {
		t.Errorf("exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
	s.write("tocsin.yaml", strings.Replace(s.text("tocsin.yaml"), "dsn: \""+dsn, "dsn: \"postgres://postgres@127.0.0.1:1/shop", 1))
	r = s.run("audit", "--outbox")
	if r.code != exitFailed || !strings.Contains(r.stderr, "audit shop: ") || !strings.Contains(r.stdout, "not read in full: shop") {
		t.Errorf("without the business server: exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
}
