package upkeep

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// schedule puts one schedule in order, with changes, and returns its id.
func (s *site) schedule(bizID uint64, name, changes string) uint64 {
	s.t.Helper()
	table := s.layout.TableOf(bizID)
	id, stored := bizID<<22|uint64(table)<<9|1, s.layout.Database(s.layout.DatabaseOf(table))+".schedule"
	s.exec(fmt.Sprintf(`INSERT INTO %s (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone, start_within_ms, missed, missed_most, overlap,
		state, revision, anchor, made_until, next_fire, attribute) VALUES (%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '%s', %d, 1, %d, '@every 30m', 'UTC', 60000, 'skip', 1, 'allow',
		'active', 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL 20 MINUTE, UTC_TIMESTAMP(3) + INTERVAL 30 MINUTE, '')`, stored, id, name, table, bizID))
	if changes != "" {
		s.exec(fmt.Sprintf("UPDATE %s SET %s WHERE schedule_id = %d", stored, changes, id))
	}
	return id
}

// run puts a run into the history of a database, with changes.
func (s *site) run(database int, jobID uint64, changes string) {
	s.t.Helper()
	history := s.layout.Database(database) + ".run"
	s.exec(fmt.Sprintf("INSERT INTO %s (job_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome) VALUES (%d, 1, 0, 1, 'n', UTC_TIMESTAMP(3), 0, 0, 'completed')", history, jobID))
	if changes != "" {
		s.exec("UPDATE " + history + " SET " + changes + " ORDER BY run_id DESC LIMIT 1")
	}
}

func TestAuditChecksSchedulesAndRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.schedule(1, "fits", "")
	s.schedule(2, "off", "state = 'inactive', next_fire = NULL, made_until = UTC_TIMESTAMP(3) - INTERVAL 1 DAY")
	want := map[string]int{}
	for fault, changes := range map[string]string{
		"schedule_misplaced":     "table_no = (table_no + 1) % 4",
		"schedule_unknown_type":  "biz_type = 7",
		"schedule_unknown_state": "state = 'odd', next_fire = NULL",
		"schedule_next_fire":     "next_fire = NULL",
		"schedule_behind":        "made_until = UTC_TIMESTAMP(3) - INTERVAL 3 MINUTE, next_fire = UTC_TIMESTAMP(3) - INTERVAL 2 MINUTE",
		"schedule_made_ahead":    "made_until = UTC_TIMESTAMP(3) + INTERVAL 1 DAY, next_fire = made_until + INTERVAL 1 HOUR",
	} {
		want[fault] = 1
		s.schedule(uint64(10+len(want)), fault, changes)
	}
	s.run(0, 1<<22, "")
	s.run(0, 2<<22, "biz_type = 7")
	s.run(0, 3<<22, "started = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR")
	for range 4 {
		s.run(1, 4<<22, "")
	}
	want["run_unknown_type"], want["run_ahead"], want["run_misplaced"] = 1, 1, 4
	r, err := s.audit(nil)
	if err != nil || !reflect.DeepEqual(r.Faults, want) {
		t.Errorf("%v, want %v; %v", r.Faults, want, err)
	}
	for _, f := range r.Findings {
		names := map[string][]string{"run_unknown_type": {"8388608"}, "run_ahead": {"12582912"}, "run_misplaced": {"16777216", "16777216", "16777216"}}[f.Fault]
		if names == nil {
			names = []string{f.Fault}
		}
		if !reflect.DeepEqual(f.Names, names) || f.Rows != want[f.Fault] {
			t.Errorf("%+v, want %v", f, names)
		}
	}
}

// runOf puts a pending run of a schedule beside it.
func (s *site) runOf(schedule, bizID uint64, changes string) {
	s.t.Helper()
	s.task(1, tocsin.Pending, 30*time.Second, bizID)
	s.exec(fmt.Sprintf("UPDATE %s SET dedup_key = UNHEX('00%016X00000001%016X')%s WHERE biz_id = %d", s.layout.Table(s.layout.TableOf(bizID)), schedule, 1000, changes, bizID))
}

func TestAuditFindsRunsWithoutTheirSchedule(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	there := s.schedule(1, "there", "")
	s.runOf(there, 1, "")
	s.runOf(there+1, 2, "")
	s.runOf(there+1, 3, ", attempts = 1") // it was being delivered when its schedule was deleted
	r, err := s.audit(nil)
	if err != nil || !reflect.DeepEqual(r.Faults, map[string]int{"no_schedule": 1}) || r.Findings[0].Table != s.layout.Table(s.layout.TableOf(2)) {
		t.Errorf("%+v, %v", r.Findings, err)
	}
	for database := range s.layout.Databases { // as in an older schema version
		s.exec("DROP TABLE " + s.layout.Database(database) + ".schedule, " + s.layout.Database(database) + ".run")
	}
	if r, err := s.audit(nil); err != nil || len(r.Faults) != 0 || r.Cost.Rows != 3 {
		t.Errorf("without the tables: %+v, %v", r, err)
	}
}

// Schedules are read page by page, and runs from the latest on until a page is older than what is read.
func TestSchedulesAndRunsAreReadInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for n := range uint64(5) {
		s.schedule(n*4+100, fmt.Sprint("s", n), "")
		s.run(0, 1<<22, fmt.Sprintf("started = UTC_TIMESTAMP(3) - INTERVAL %d HOUR", 4-n))
	}
	for name, c := range map[string]struct {
		read func(store.AuditRest) (store.AuditRestPage, bool, error)
		from int64
		rows []int
	}{
		"all runs":    {func(q store.AuditRest) (store.AuditRestPage, bool, error) { return s.store.AuditRuns(t.Context(), q) }, 0, []int{2, 2, 1}},
		"recent runs": {func(q store.AuditRest) (store.AuditRestPage, bool, error) { return s.store.AuditRuns(t.Context(), q) }, time.Now().Add(-90 * time.Minute).UnixMilli(), []int{2, 2}},
	} {
		var rows []int
		q := store.AuditRest{Limit: 2, From: c.from, Types: []uint64{1}}
		for more := true; more; {
			page, there, err := c.read(q)
			if err != nil || !there {
				t.Fatalf("%s: %t, %v", name, there, err)
			}
			rows, q.Place, more = append(rows, page.Rows), page.Next, page.Next != 0
		}
		if !reflect.DeepEqual(rows, c.rows) {
			t.Errorf("%s: pages of %v rows, want %v", name, rows, c.rows)
		}
	}
	total := 0
	for database := range s.layout.Databases {
		q := store.AuditRest{Database: database, Limit: 2, Types: []uint64{1}}
		for more := true; more; {
			page, _, err := s.store.AuditSchedules(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			total, q.Place, more = total+page.Rows, page.Next, page.Next != 0
		}
	}
	if total != 5 {
		t.Errorf("%d schedules", total)
	}
}
