package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/upkeep"
)

// taskOf is the table and the job_id of the only task of a biz_id.
func (s *site) taskOf(bizID uint64) (table string, id tocsin.JobID) {
	s.t.Helper()
	all, err := s.client().List(s.t.Context(), bizID)
	if err != nil || len(all) != 1 {
		s.t.Fatalf("tasks of %d: %v, %v", bizID, all, err)
	}
	return s.layout.Table(all[0].JobID.Table()), all[0].JobID
}

// In both kinds of business databases an audit finds a row that no relay has moved, one that was set aside, and a moved task that is gone.
func TestAnAuditOfOutboxes(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string][2]string{
		"MySQL": {"NOW(6) - INTERVAL 6 MINUTE", "NOW(6) - INTERVAL 1 DAY"}, "PostgreSQL": {"now() - INTERVAL '6 minutes'", "now() - INTERVAL '1 day'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dsn, table, exec := shopOn(t, name == "PostgreSQL")
			s.run("outbox", "apply").ok(t)
			for database := range s.layout.Databases { // the policies were last changed long ago
				s.exec("UPDATE " + s.layout.Database(database) + ".biz_type SET gmt_modified = gmt_modified - INTERVAL 2 HOUR")
			}
			exec("INSERT INTO " + table + ` (op, biz_type, biz_id, delay_ms, dedup_key)
VALUES ('add', 'order.close', 1, 3600000, NULL), ('add', 'order.close', 2, 3600000, NULL), ('add', 'order.close', 3, 3600000, NULL),
    ('add', 'order.close', 4, 3600000, 'k'), ('add', 'order.close', 4, 3600000, 'k'), ('cancel', 'order.close', 3, NULL, NULL)`)
			s.relayed()
			s.run("audit", "--outbox").says(t, "audit: all fits; 4 moved tasks looked for, 0 of them may be purged, 0 rows wait in 1 outboxes; ")

			exec(fmt.Sprintf(`INSERT INTO %s (op, biz_type, biz_id, created, last_error)
VALUES ('cancel', 'order.close', 1, %[2]s, ''), ('cancel', 'order.close', 2, %[2]s, ''), ('cancel', 'no.such', 3, %[3]s, 'unknown biz type'),
    ('cancel', 'order.close', 4, NOW(), '')`, table, ago[0], ago[1]))
			moved := decode[[]outboxRow](t, s.run("outbox", "list", "--json"))[1] // and is still there, as if its relay were at work
			s.exec("INSERT INTO "+s.layout.Database(s.layout.DatabaseOf(s.layout.TableOf(2)))+".relayed (outbox, id, created, job_id, gmt_create) VALUES (?, ?, ?, 0, UTC_TIMESTAMP(3))",
				decode[[]outboxLedger](t, s.run("outbox", "forget", "--json"))[0].Identity, moved.ID, moved.Created.UTC().Format("2006-01-02 15:04:05.000000"))
			s.auditFails("audit: not_moved 1, set_aside 1; 4 moved tasks looked for, 0 of them may be purged, 4 rows wait in 1 outboxes; ", "")
			large := strings.Repeat(", ('order.close', 9, 3600000, REPEAT('x', 8000))", 300)[2:] // 2.5 MB
			exec("INSERT INTO " + table + " (biz_type, biz_id, delay_ms, attribute) VALUES " + large)
			s.run("audit", "--outbox", "--older", "48h").says(t, "audit: all fits; ", "304 rows wait in 1 outboxes")
			exec("DELETE FROM " + table + " WHERE attribute <> ''")
			exec("DELETE FROM " + table + " WHERE last_error <> ''")
			relay := s.stays("relay") // the rows are old, and may go before the first look or after it
			s.run("audit", "--outbox").says(t, "audit: all fits; ")
			relay.end(t)
			s.relayed()
			s.losesATask(dsn)
		})
	}
	call(t, "audit", "--older", "1h").refused(t, exitUsage, "--older belongs to --outbox")
	call(t, "audit", "--outbox", "--all").refused(t, exitUsage, "--outbox excludes --all")
}

// auditFails wants exit code 1 of an audit of outboxes, what it prints first, and a part of standard error; "": nothing there.
func (s *site) auditFails(begin, stderr string, more ...string) string {
	s.t.Helper()
	r := s.run(append([]string{"audit", "--outbox"}, more...)...)
	if r.code != exitFailed || (r.stderr == "") != (stderr == "") || !strings.Contains(r.stderr, stderr) || !strings.HasPrefix(r.stdout, begin) {
		s.t.Errorf("exit code %d, want %q; stderr %q:\n%s", r.code, begin, r.stderr, r.stdout)
	}
	return r.stdout
}

// losesATask deletes one that was moved: the audit says so, in its metrics too, and even without the business server.
func (s *site) losesATask(dsn string) {
	s.t.Helper()
	table, id := s.taskOf(2)
	s.exec("DELETE FROM "+table+" WHERE job_id = ?", uint64(id))
	dir, g := s.t.TempDir(), newPushgateway(s.t)
	if out := s.auditFails("audit: moved_without_task 1; 4 moved tasks looked for, 0 of them may be purged, ", "", "--textfile", dir, "--push", g.URL); !strings.Contains(out, id.String()) {
		s.t.Errorf("no %s:\n%s", id, out)
	}
	has(s.t, textfile(s.t, dir), `tocsin_auditor_outbox_last_faults{cluster="`+s.prefix+`",fault="moved_without_task"} 1`, `tocsin_auditor_outbox_last_moved{cluster="`+s.prefix+`"} 4`)
	has(s.t, g.page(), "tocsin_auditor_outbox_last_moved{")
	got := decodeText[upkeep.OutboxReport](s.t, s.run("audit", "--outbox", "--json").stdout)
	want := []upkeep.OutboxFinding{{Where: s.layout.Database(s.layout.DatabaseOf(id.Table())), Fault: "moved_without_task", Rows: 1, Examples: []string{id.String()}}}
	if !reflect.DeepEqual(got.Findings, want) || got.Outboxes != 1 || got.Moved != 4 || len(got.Failed) != 0 {
		s.t.Errorf("%+v", got)
	}
	away := map[bool]string{false: "root@tcp(127.0.0.1:1)/", true: "postgres://postgres@127.0.0.1:1/shop"}[strings.HasPrefix(dsn, "postgres:")]
	s.write("tocsin.yaml", strings.Replace(s.text("tocsin.yaml"), "name: shop, dsn: \""+dsn, "name: shop, dsn: \""+away, 1))
	s.auditFails("audit: moved_without_task 1; not read in full: shop; 4 moved tasks", "audit shop: ")
}
