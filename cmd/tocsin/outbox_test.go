package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
)

// shopSite is a site with a business database, and its outbox in the config.
func shopSite(t *testing.T) (s *site, table string) {
	s = newSite(t)
	table = s.prefix + "_shop.tocsin_outbox"
	s.exec("CREATE DATABASE {prefix}_shop")
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\noutboxes:\n  - {name: shop, dsn: \""+s.dsn()+"\", table: "+table+"}\n")
	return s, table
}

func TestAnOutboxIsPlannedMadeAndVerified(t *testing.T) {
	t.Parallel()
	s, table := shopSite(t)
	plan := s.run("outbox", "plan").ok(t)
	if other := call(t, "outbox", "plan", "--table", table).ok(t); other != plan || !strings.Contains(plan, "GRANT INSERT ON") {
		t.Errorf("the plan without a config differs, or names no rights:\n%s", plan)
	}
	if got := decode[plannedOutbox](t, s.run("outbox", "plan", "--json")); got != (plannedOutbox{table, plan}) {
		t.Errorf("%+v", got)
	}
	r := s.run("outbox", "verify")
	if r.code != exitFailed || r.stderr != "" || !strings.Contains(r.stdout, table+" is missing") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.run("outbox", "apply").says(t, "outbox "+table+" is made")
	s.run("outbox", "apply", "--dsn", s.dsn(), "--table", table).says(t, "was there")
	s.run("outbox", "apply", "--dsn", s.dsn()+s.prefix+"_shop").says(t, "was there")
	s.run("outbox", "verify", "--outbox", "shop").says(t, "is as it should be")
	if found := decode[[]ddl.Finding](t, s.run("outbox", "verify", "--json")); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	s.run("outbox", "verify", "--outbox", "other").refused(t, exitUsage, "the config has shop")
	s.run("outbox", "list", "--dsn", s.dsn()).refused(t, exitUsage, "name the table")
	call(t, "outbox", "plan", "--table", "tocsin_outbox").refused(t, exitUsage, "name its database too")
}

func TestRowsThatWereSetAsideAreListedRetriedAndDropped(t *testing.T) {
	t.Parallel()
	s, _ := shopSite(t)
	s.run("outbox", "apply").ok(t)
	s.exec("INSERT INTO {prefix}_shop.tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('no.such', 1, 0), ('order.close', 2, 3600000), ('no.such', 3, 0)")
	relay := s.serveBy(command(t.Context(), s.dir, "relay"), "relay")
	s.waitFor("two rows to be set aside, and one to be moved", func() bool {
		return len(decode[[]outboxRow](t, s.run("outbox", "list", "--stuck", "--json"))) == 2 && len(decode[[]outboxRow](t, s.run("outbox", "list", "--json"))) == 2
	})
	s.run("outbox", "list", "--stuck").says(t, "LAST ERROR", `unknown biz type "no.such"`)
	s.run("outbox", "drop", "1").says(t, "1 rows dropped")
	s.run("outbox", "drop").refused(t, exitUsage, "give the ids of rows, or --all")
	s.run("outbox", "drop", "x").refused(t, exitUsage, "want a number")
	r := s.run("outbox", "retry", "1", "3")
	if r.code != exitFailed || !strings.Contains(r.stdout, "1 rows will be tried again") || !strings.Contains(r.stderr, "1 of 2 rows were set aside") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.waitFor("the row to be tried again", func() bool {
		rows := decode[[]outboxRow](t, s.run("outbox", "list", "--stuck", "--json"))
		return len(rows) == 1 && rows[0].ID == 3 && rows[0].Attempts == 2
	})
	if err := relay.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := relay.Wait(); err != nil {
		t.Errorf("the relay ended with %v:\n%s", err, relay.log.String())
	}
	s.run("outbox", "drop", "--all").says(t, "1 rows dropped")
	s.run("outbox", "list").says(t, "no rows")
	s.write("tocsin.yaml", strings.Split(s.text("tocsin.yaml"), "outboxes:")[0])
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
