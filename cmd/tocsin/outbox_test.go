package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// shopSite is a site with a business database, and its outbox in the config.
func shopSite(t *testing.T) (s *site, table string) {
	s = newSite(t)
	table = s.prefix + "_shop.tocsin_outbox"
	s.exec("CREATE DATABASE {prefix}_shop")
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\noutboxes:\n  - {name: shop, dsn: \""+s.dsn()+"\", table: "+table+"}\n")
	return s, table
}

// An outbox in each kind of business database is planned, made and verified; rows that a relay sets aside are listed, tried again and
// dropped.
func TestAnOutboxAndTheRowsThatWereSetAside(t *testing.T) {
	t.Parallel()
	for name, postgres := range map[string]bool{"MySQL": false, "PostgreSQL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, table := shopSite(t)
			dsn, kind, exec := s.dsn(), []string{}, func(statement string) { s.exec(statement) }
			if postgres {
				dsn, exec = postgresShop(t, s.prefix)
				table, kind = "public.tocsin_outbox", []string{"--postgres"}
				s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"outboxes:\n  - {name: shop, dsn: \""+dsn+"\", table: "+table+"}\n")
			}
			plan := s.run("outbox", "plan").ok(t)
			if other := call(t, append([]string{"outbox", "plan", "--table", table}, kind...)...).ok(t); other != plan {
				t.Errorf("the plan without a config differs:\n%s\n%s", plan, other)
			}
			if got := decode[plannedOutbox](t, s.run("outbox", "plan", "--json")); got != (plannedOutbox{table, plan}) {
				t.Errorf("%+v", got)
			}
			if r := s.run("outbox", "verify"); r.code != exitFailed || r.stderr != "" || !strings.Contains(r.stdout, table+" is missing") {
				t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
			}
			s.run("outbox", "apply").says(t, "outbox "+table+" is made")
			s.run("outbox", "apply", "--dsn", dsn, "--table", table).says(t, "was there")
			s.run("outbox", "verify", "--outbox", "shop").says(t, "is as it should be")
			if found := decode[[]ddl.Finding](t, s.run("outbox", "verify", "--json")); len(found) != 0 {
				t.Errorf("%+v", found)
			}
			exec("INSERT INTO " + table + " (biz_type, biz_id, delay_ms) VALUES ('no.such', 1, 0), ('order.close', 2, 3600000), ('no.such', 3, 0)")
			s.setsAside()
		})
	}
}

// setsAside runs a relay of an outbox with three rows. Two of them can't be moved.
func (s *site) setsAside() {
	s.t.Helper()
	relay := s.serveBy(command(s.t.Context(), s.dir, "relay"), "relay")
	s.waitFor("two rows to be set aside, and one to be moved", func() bool {
		return len(decode[[]outboxRow](s.t, s.run("outbox", "list", "--stuck", "--json"))) == 2 && len(decode[[]outboxRow](s.t, s.run("outbox", "list", "--json"))) == 2
	})
	s.run("outbox", "list", "--stuck").says(s.t, "LAST ERROR", `unknown biz type "no.such"`)
	s.run("outbox", "drop", "1").says(s.t, "1 rows dropped")
	r := s.run("outbox", "retry", "1", "3")
	if r.code != exitFailed || !strings.Contains(r.stdout, "1 rows will be tried again") || !strings.Contains(r.stderr, "1 of 2 rows were set aside") {
		s.t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.waitFor("the row to be tried again", func() bool {
		rows := decode[[]outboxRow](s.t, s.run("outbox", "list", "--stuck", "--json"))
		return len(rows) == 1 && rows[0].ID == 3 && rows[0].Attempts == 2
	})
	relay.end(s.t)
	s.run("outbox", "drop", "--all").says(s.t, "1 rows dropped")
	s.run("outbox", "list").says(s.t, "no rows")
}

func TestOutboxCommandsRefuseWhatCannotWork(t *testing.T) {
	t.Parallel()
	s, _ := shopSite(t)
	for line, want := range map[string]string{
		"outbox verify --outbox other":                                              "the config has shop",
		"outbox list --dsn " + s.dsn():                                              "name the table",
		"outbox list --dsn postgres://shop@127.0.0.1:1/shop?sslmode=disable&port=x": "port",
		"outbox drop":   "give the ids of rows, or --all",
		"outbox drop x": "want a number",
	} {
		s.run(strings.Fields(line)...).refused(t, exitUsage, want)
	}
	call(t, "outbox", "plan", "--table", "tocsin_outbox").refused(t, exitUsage, "name its database too")
	call(t, "outbox", "plan", "--postgres", "--table", "tocsin_outbox").refused(t, exitUsage, "name its schema too")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn()))
	s.run("relay").refused(t, exitUsage, "the config has no outboxes")
}

// An outbox that left the config is forgotten in the ledgers of all databases, when no relay has been at work for an hour. Another one's
// rows stay.
func TestAnOutboxThatIsNoMoreIsForgotten(t *testing.T) {
	t.Parallel()
	s, _ := shopSite(t)
	s.run("outbox", "apply").ok(t)
	s.exec("INSERT INTO {prefix}_shop.tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('order.close', 1, 3600000), ('order.close', 2, 3600000), ('order.close', 3, 3600000)")
	relay := s.serveBy(command(t.Context(), s.dir, "relay"), "relay")
	s.waitFor("the rows to be moved", func() bool { return len(decode[[]outboxRow](t, s.run("outbox", "list", "--json"))) == 0 })
	_ = relay.Process.Kill()
	_ = relay.Wait()
	found := decode[[]outboxLedger](t, s.run("outbox", "forget", "--json"))
	if len(found) != 1 || found[0].Rows < 3 || found[0].Outbox == "" {
		t.Fatalf("%+v", found)
	}
	id := found[0].Identity
	s.run("outbox", "forget").says(t, id, "shop.tocsin_outbox")
	s.run("outbox", "forget", id).refused(t, exitUsage, "of the config")
	cfg := s.text("tocsin.yaml")
	s.write("tocsin.yaml", cfg[:strings.Index(cfg, "\noutboxes:")])
	s.run("outbox", "forget").says(t, id, "-")
	s.run("outbox", "forget", id).refused(t, exitFailed, "ago: it is forgotten an hour after the last one")
	for database := range s.layout.Databases {
		in := s.layout.Database(database) + ".relayed"
		s.exec("UPDATE " + in + " SET gmt_create = gmt_create - INTERVAL 61 MINUTE")
		s.exec("INSERT INTO " + in + " SELECT 'another', 1, '2026-01-02', 0, UTC_TIMESTAMP(3), NULL")
		s.exec("INSERT IGNORE INTO "+in+" SELECT CONCAT(?, ' settled'), 9, '2000-01-01', 0, '2026-01-02', NULL", id)
	}
	rows := strconv.Itoa(found[0].Rows + s.layout.Databases)
	s.run("outbox", "forget", id, "--dry-run").says(t, rows+" rows of outbox "+id+" would be forgotten")
	s.run("outbox", "forget", id).says(t, rows+" rows of outbox "+id+" are forgotten")
	s.run("outbox", "forget", id).refused(t, exitFailed, "nothing stands in the ledgers")
	s.run("outbox", "forget", id, "x").refused(t, exitUsage, "")
	if left := decode[[]outboxLedger](t, s.run("outbox", "forget", "--json")); len(left) != 1 || left[0].Identity != "another" || left[0].Rows != s.layout.Databases {
		t.Errorf("%+v", left)
	}
}

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
