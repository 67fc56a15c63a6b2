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
		conn, err := tocsinpg.Connect(t.Context(), outbox.Config{DSN: devtest.PostgreSQL(t, database)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return func(statement string) {
			t.Helper()
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
