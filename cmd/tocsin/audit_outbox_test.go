package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/upkeep"
)

// relayedSite has an outbox whose rows a relay has moved: adds of the biz_ids 1 to 4, another of 4 with the same
// dedup_key, and a cancel of 3. The policies were last changed long ago.
func relayedSite(t *testing.T) *site {
	t.Helper()
	s, _ := shopSite(t)
	s.run("outbox", "apply").ok(t)
	for database := range s.layout.Databases {
		s.exec("UPDATE " + s.layout.Database(database) + ".biz_type SET gmt_modified = gmt_modified - INTERVAL 2 HOUR")
	}
	s.exec(`INSERT INTO {prefix}_shop.tocsin_outbox (op, biz_type, biz_id, delay_ms, dedup_key)
VALUES ('add', 'order.close', 1, 3600000, NULL), ('add', 'order.close', 2, 3600000, NULL), ('add', 'order.close', 3, 3600000, NULL),
    ('add', 'order.close', 4, 3600000, 'k'), ('add', 'order.close', 4, 3600000, 'k'), ('cancel', 'order.close', 3, NULL, NULL)`)
	s.serveBy(command(t.Context(), s.dir, "relay"), "relay")
	s.waitFor("the outbox is empty", func() bool { return len(decode[[]outboxRow](t, s.run("outbox", "list", "--json"))) == 0 })
	return s
}

// taskOf is the table and the job_id of the only task of a biz_id.
func (s *site) taskOf(bizID uint64) (table string, id tocsin.JobID) {
	s.t.Helper()
	all, err := s.client().List(s.t.Context(), bizID)
	if err != nil || len(all) != 1 {
		s.t.Fatalf("tasks of %d: %v, %v", bizID, all, err)
	}
	return s.layout.Table(all[0].JobID.Table()), all[0].JobID
}

func TestAnAuditOfOutboxesFindsAMovedTaskThatIsGone(t *testing.T) {
	t.Parallel()
	s := relayedSite(t)
	s.run("audit", "--outbox").says(t, "audit: all fits; 4 moved tasks looked for, 0 of them may be purged, 0 rows wait in 1 outboxes; ")
	table, id := s.taskOf(2)
	s.exec("DELETE FROM "+table+" WHERE job_id = ?", uint64(id))
	dir := t.TempDir()
	g := newPushgateway(t)
	r := s.run("audit", "--outbox", "--textfile", dir, "--push", g.URL)
	if want := "audit: moved_without_task 1; 4 moved tasks looked for, 0 of them may be purged, "; r.code != exitFailed || r.stderr != "" ||
		!strings.HasPrefix(r.stdout, want) || !strings.Contains(r.stdout, id.String()) {
		t.Errorf("exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
	has(t, textfile(t, dir), `tocsin_auditor_outbox_last_faults{cluster="`+s.prefix+`",fault="moved_without_task"} 1`, `tocsin_auditor_outbox_last_moved{cluster="`+s.prefix+`"} 4`)
	if !strings.Contains(g.page(), "tocsin_auditor_outbox_last_moved{") {
		t.Errorf("pushed: %s", g.page())
	}
	got := decodeText[upkeep.OutboxReport](t, s.run("audit", "--outbox", "--json").stdout)
	want := []upkeep.OutboxFinding{{Where: s.layout.Database(s.layout.DatabaseOf(id.Table())), Fault: "moved_without_task", Rows: 1, Examples: []string{id.String()}}}
	if !reflect.DeepEqual(got.Findings, want) || got.Outboxes != 1 || got.Moved != 4 || len(got.Failed) != 0 {
		t.Errorf("%+v", got)
	}
	s.write("tocsin.yaml", strings.Replace(s.text("tocsin.yaml"), "name: shop, dsn: \""+s.dsn(), "name: shop, dsn: \"root@tcp(127.0.0.1:1)/", 1))
	r = s.run("audit", "--outbox")
	if want := "audit: moved_without_task 1; not read in full: shop; 4 moved tasks"; r.code != exitFailed || !strings.Contains(r.stderr, "audit shop: ") || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("without the business server: exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
}

func TestAnAuditOfOutboxesCountsNoPurgedTaskAsLost(t *testing.T) {
	t.Parallel()
	s := relayedSite(t)
	table, id := s.taskOf(1)
	s.exec("UPDATE "+table+" SET status = 2, action_time = UTC_TIMESTAMP(3) - INTERVAL 2 SECOND WHERE job_id = ?", uint64(id))
	s.applyBiz(strings.Replace(bizYAML, "attempts: 3\n", "attempts: 3\n    retention: 1s\n", 1))
	s.waitFor("the cancelled task is purged too", func() bool {
		s.run("purge").ok(t)
		all, err := s.client().List(t.Context(), 3)
		return err == nil && len(all) == 0
	})
	fits := "audit: all fits; 4 moved tasks looked for, 2 of them may be purged, 0 rows wait in 1 outboxes; "
	s.run("audit", "--outbox").says(t, fits)
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").ok(t) // the retention is long now; it was short a moment ago
	s.run("audit", "--outbox").says(t, fits)
}

func TestAnAuditOfOutboxesFindsRowsThatNoRelayMoves(t *testing.T) {
	t.Parallel()
	s, _ := shopSite(t)
	s.run("outbox", "apply").ok(t)
	s.exec(`INSERT INTO {prefix}_shop.tocsin_outbox (op, biz_type, biz_id, created, last_error)
VALUES ('cancel', 'order.close', 1, NOW(6) - INTERVAL 6 MINUTE, ''), ('cancel', 'order.close', 2, NOW(6) - INTERVAL 6 MINUTE, ''),
    ('cancel', 'no.such', 3, NOW(6) - INTERVAL 1 DAY, 'unknown biz type'), ('cancel', 'order.close', 4, NOW(6), '')`)
	s.exec(fmt.Sprintf(`INSERT INTO %s.relayed (outbox, id, created, job_id, gmt_create)
SELECT (SELECT SUBSTRING(table_comment, 15) FROM information_schema.tables WHERE table_schema = '{prefix}_shop' AND table_name = 'tocsin_outbox'),
    id, CONVERT_TZ(created, @@session.time_zone, '+00:00'), 0, UTC_TIMESTAMP(3)
FROM {prefix}_shop.tocsin_outbox WHERE id = 2`, s.layout.Database(s.layout.DatabaseOf(s.layout.TableOf(2)))))
	r := s.run("audit", "--outbox")
	if want := "audit: not_moved 1, set_aside 1; 0 moved tasks looked for, 0 of them may be purged, 4 rows wait in 1 outboxes; "; r.code != exitFailed ||
		r.stderr != "" || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
	s.run("audit", "--outbox", "--older", "48h").says(t, "audit: all fits; ", "4 rows wait in 1 outboxes")
	s.run("audit", "--older", "1h").refused(t, exitUsage, "--older belongs to --outbox")
	s.run("audit", "--outbox", "--all").refused(t, exitUsage, "--outbox excludes --all")
	s.exec("DELETE FROM {prefix}_shop.tocsin_outbox WHERE last_error <> ''")
	s.serveBy(command(t.Context(), s.dir, "relay"), "relay") // the rows are old, and may go before the first look or after it
	s.run("audit", "--outbox").says(t, "audit: all fits; ")
}
