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
func shopSite(t *testing.T) *site {
	t.Helper()
	s, _, _, _ := shopOn(t, false)
	return s
}

// shopOn is shopSite on either kind of server, with the DSN and the outbox, and what runs statements there.
func shopOn(t *testing.T, postgres bool) (s *site, dsn, table string, exec func(statement string)) {
	t.Helper()
	s = newSite(t)
	dsn, table, exec = s.dsn(), s.prefix+"_shop.tocsin_outbox", func(statement string) { s.exec(statement) }
	if postgres {
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
		on("postgres")("CREATE DATABASE " + s.prefix)
		dsn, table, exec = devtest.PostgreSQL(t, s.prefix), "public.tocsin_outbox", on(s.prefix)
	} else {
		s.exec("CREATE DATABASE {prefix}_shop")
	}
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\noutboxes:\n  - {name: shop, dsn: \""+dsn+"\", table: "+table+"}\n")
	return s, dsn, table, exec
}

// An outbox in each kind of business database is planned, made and verified; rows that a relay sets aside are listed, tried again and
// dropped.
func TestAnOutboxAndTheRowsThatWereSetAside(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string][]string{"MySQL": nil, "PostgreSQL": {"--postgres"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dsn, table, exec := shopOn(t, kind != nil)
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

// relayed runs a relay until the outbox is empty.
func (s *site) relayed() {
	s.t.Helper()
	relay := s.stays("relay")
	s.waitFor("the outbox is empty", func() bool { return len(decode[[]outboxRow](s.t, s.run("outbox", "list", "--json"))) == 0 })
	relay.end(s.t)
}

// setsAside runs a relay of an outbox with three rows. Two of them can't be moved.
func (s *site) setsAside() {
	s.t.Helper()
	relay := s.stays("relay")
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
	s := shopSite(t)
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
	s.run("relay").refused(t, exitUsage, "the config has no outboxes and no entrances")
}

// Rows of 8,000 characters fill a page long before its limit.
func TestCommandsOfAnOutboxReachItsLastRowAndNoOtherTable(t *testing.T) {
	t.Parallel()
	s := shopSite(t)
	s.run("outbox", "apply").ok(t)
	s.exec("INSERT INTO {prefix}_shop.tocsin_outbox (biz_type, biz_id, delay_ms, last_error) VALUES ('coupon.remind', 1, 0, 'no such type')")
	table := s.prefix + "_shop.tocsin_outbox"
	for _, flags := range [][]string{{"--table", "billing.tocsin_outbox"}, {"--table", "billing.tocsin_outbox", "--outbox", "shop"}} {
		s.run(append([]string{"outbox", "drop", "--all"}, flags...)...).refused(t, exitUsage, `--table "billing.tocsin_outbox": no such outbox in the config, which has shop`)
	}
	for _, flags := range [][]string{{"--table", table}, {"--table", table, "--outbox", "shop"}} {
		if rows := decode[[]outboxRow](t, s.run(append([]string{"outbox", "list", "--stuck", "--json"}, flags...)...)); len(rows) != 1 {
			t.Errorf("%q: %d rows were set aside", flags, len(rows))
		}
	}

	s.exec("INSERT INTO " + table + " (biz_type, biz_id, delay_ms, attribute) VALUES " + strings.Repeat("('coupon.remind', 1, 0, REPEAT('x', 8000)), ", 300) + "('order.close', 1, 0, '')")
	s.run("biz", "delete", "order.close").refused(t, exitFailed, "biz type order.close is in use: 1 outbox row")
	for _, limit := range []string{"-1", "0", "10001"} {
		s.run("outbox", "list", "--limit="+limit).refused(t, exitUsage, "--limit "+limit+": use 1 to 10000")
	}
	if rows := decode[[]outboxRow](t, s.run("outbox", "list", "--limit", "1000", "--json")); len(rows) != 302 {
		t.Errorf("%d rows are listed", len(rows))
	}
	if r := s.run("outbox", "list", "--limit", "301"); r.code != exitOK || r.stderr != "there may be more than these 301: raise --limit, or go on with --after 301\n" {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	s.run("outbox", "list", "--after", "18446744073709551615").says(t, "no rows")
}

// An outbox that left the config is forgotten in the ledgers of all databases, when no relay has been at work for an hour. Another one's
// rows stay.
func TestAnOutboxThatIsNoMoreIsForgotten(t *testing.T) {
	t.Parallel()
	s := shopSite(t)
	s.run("outbox", "apply").ok(t)
	s.exec("INSERT INTO {prefix}_shop.tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('order.close', 1, 3600000), ('order.close', 2, 3600000), ('order.close', 3, 3600000)")
	s.relayed()
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
