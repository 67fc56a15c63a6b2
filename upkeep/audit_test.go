package upkeep

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

// task puts one task in order for each biz_id.
func (s *site) task(kind int, status tocsin.Status, ago time.Duration, bizIDs ...uint64) {
	s.t.Helper()
	for _, bizID := range bizIDs {
		table := s.layout.TableOf(bizID)
		at := fmt.Sprintf("UTC_TIMESTAMP(3) - INTERVAL %d SECOND", int(ago.Seconds()))
		s.exec(fmt.Sprintf("INSERT INTO %s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES (%d, %s, %s, %d, %d, %d, %s, %s, '')",
			s.layout.Table(table), bizID<<22|uint64(table)<<9|uint64(kind), at, at, bizID, kind, status, at, at))
	}
}

// auditPolicies are those of the audits.
var auditPolicies = []biztype.Policy{{Name: "order.close", Number: 1}, {Name: "held", Number: 2, Paused: true}}

// audit audits with a change of the config.
func (s *site) audit(change func(*AuditConfig)) (AuditReport, error) {
	s.t.Helper()
	cfg := AuditConfig{Store: s.store, Policies: auditPolicies}
	if change != nil {
		change(&cfg)
	}
	return Audit(s.t.Context(), cfg)
}

func TestAuditOfTasksInOrderFindsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for n := uint64(1); n <= 20; n++ {
		s.task(1, tocsin.Pending, 30*time.Second, n)
		s.task(2, tocsin.Pending, time.Hour, n)
		s.task(1, tocsin.Done, time.Hour, n+100)
		s.task(1, tocsin.Dead, 3*time.Hour, n+200)
	}
	r, err := s.audit(nil)
	if err != nil || len(r.Findings) != 0 || r.Tables != 4 || r.Cost.Rows != 60 || r.Cost.Statements != len(store.AuditStatuses)+2*2 || r.Cost.Busy <= 0 || r.Cost.Took < r.Cost.Busy {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.audit(func(c *AuditConfig) { c.Settled = All }); err != nil || r.Cost.Rows != 80 {
		t.Errorf("all: %+v, %v", r, err)
	}
}

func TestAuditPrintsWhatDoesNotFitByTableAndType(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	var of1 []uint64 // biz_ids of table 1
	for n := uint64(1); len(of1) < 1200; n++ {
		if s.layout.TableOf(n) == 1 {
			of1 = append(of1, n)
		}
	}
	s.task(1, tocsin.Pending, time.Hour, of1...) // more than a page
	s.task(7, tocsin.Pending, 0, of1[0])
	s.exec("UPDATE " + s.layout.Table(1) + " SET crashes = 5 WHERE biz_type = 1 ORDER BY job_id LIMIT 2")
	s.task(1, tocsin.Done, 0, of1[3]+100000)
	s.task(1, tocsin.Done, 5*time.Hour, of1[3]+100001) // long settled, so not read
	s.exec("UPDATE " + s.layout.Table(s.layout.TableOf(of1[3]+100001)) + " SET gmt_create = gmt_modified + INTERVAL 1 DAY WHERE action_time < UTC_TIMESTAMP(3) - INTERVAL 4 HOUR")
	r, err := s.audit(nil)
	if err != nil || r.Cost.Rows != 1202 {
		t.Errorf("%+v, %v", r.Cost, err)
	}
	first := func(kind int, n int) (ids []tocsin.JobID) {
		for _, bizID := range of1[:n] {
			ids = append(ids, tocsin.JobID(bizID<<22|1<<9|uint64(kind)))
		}
		return ids
	}
	table := s.layout.Table(1)
	want := []Finding{
		{table, "order.close", "overdue", 1200, first(1, 3), nil},
		{table, "order.close", "too_many_crashes", 2, first(1, 2), nil},
		{table, "#7", "unknown_type", 1, first(7, 1), nil},
	}
	for i := range r.Findings { // which rows stand for them is the server's choice
		if len(r.Findings[i].Examples) != len(want[i].Examples) {
			t.Errorf("examples of %+v", r.Findings[i])
		}
		r.Findings[i].Examples = want[i].Examples
	}
	if !reflect.DeepEqual(r.Findings, want) || !reflect.DeepEqual(r.Faults, map[string]int{"overdue": 1200, "too_many_crashes": 2, "unknown_type": 1}) {
		t.Errorf("got  %+v\nwant %+v\n%v", r.Findings, want, r.Faults)
	}
	if r, err := s.audit(func(c *AuditConfig) { c.Grace, c.Settled = 2*time.Hour, All }); err != nil || r.Faults["overdue"] != 0 || r.Faults["created_after"] != 1 {
		t.Errorf("with more grace, and all: %+v, %v", r.Faults, err)
	}
}

func TestAuditGoesRoundWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.exec("DROP TABLE " + s.layout.Table(2))
	down := openSite(t, tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{1}}, {Name: "db2", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{0}},
	}})
	r, err := down.audit(nil)
	if err == nil || !strings.Contains(err.Error(), s.layout.Table(2)) || !strings.Contains(err.Error(), "db2") {
		t.Errorf("error %v", err)
	}
	if r.Tables != 1 || !reflect.DeepEqual(r.Failed, []string{"db1", "db2"}) {
		t.Errorf("%+v", r)
	}
	m, err := Against(t.Context(), down.store, auditPolicies, "order.close", each(slices.Collect(upTo(1000))))
	if err == nil || len(m.BizIDs) == 0 || m.Unread == 0 || len(m.BizIDs)+m.Unread != 1000 {
		t.Errorf("%d missing, %d unread, %v", len(m.BizIDs), m.Unread, err)
	}
}

func each(bizIDs []uint64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for _, n := range bizIDs {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func upTo(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := uint64(1); i <= n && yield(i); i++ {
		}
	}
}

func TestAgainstListsBizIDsWithoutATask(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	ids := slices.Collect(upTo(12_345)) // more than are taken in hand at once
	s.task(1, tocsin.Pending, 0, ids[:50]...)
	s.task(1, tocsin.Done, 999*time.Hour, 51, 52)
	s.task(2, tocsin.Pending, 0, 60)
	m, err := Against(t.Context(), s.store, auditPolicies, "order.close", each(append(ids, 60, 1)))
	if err != nil || m.Asked != 12_347 || m.Unread != 0 || !slices.Equal(m.BizIDs, ids[52:]) {
		t.Errorf("asked %d, %d missing, %d unread, %v", m.Asked, len(m.BizIDs), m.Unread, err)
	}
	if _, err := Against(t.Context(), s.store, auditPolicies, "unheard", each(nil)); err == nil || !strings.Contains(err.Error(), `unknown biz type "unheard"`) {
		t.Errorf("%v", err)
	}
	bad := errors.New("line 2")
	_, err = Against(t.Context(), s.store, auditPolicies, "held", func(yield func(uint64, error) bool) { _ = yield(1, nil) && yield(0, bad) })
	if !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}

func TestAMissingTaskIsLostOnlyIfNoPurgeCanHaveRemovedIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := func(retention, changed time.Duration) biztype.Stored {
		return biztype.Stored{Policy: biztype.Policy{Retention: biztype.Duration(retention)}, Changed: now.Add(-changed)}
	}
	for name, c := range map[string]struct {
		policies []biztype.Stored
		age      time.Duration // of the move
		want     bool
	}{
		"moved a moment ago":                         {[]biztype.Stored{policy(0, 24*time.Hour)}, time.Second, true},
		"moved longer ago than the retention":        {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 61 * time.Minute, false},
		"moved almost the retention ago":             {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 59*time.Minute + time.Second, false},
		"moved a little less than the retention ago": {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 58 * time.Minute, true},
		"a retention below the margin":               {[]biztype.Stored{policy(time.Minute, 24*time.Hour)}, 0, false},
		"the shortest of several counts":             {[]biztype.Stored{policy(0, 24*time.Hour), policy(time.Minute, 24*time.Hour)}, 0, false},
		"a policy was changed before that":           {[]biztype.Stored{policy(0, 24*time.Hour), policy(0, 59*time.Minute)}, time.Second, false},
		"a policy was changed long before that":      {[]biztype.Stored{policy(0, 24*time.Hour), policy(0, 62*time.Minute)}, time.Minute, true},
		"a policy was changed after that":            {[]biztype.Stored{policy(0, time.Second)}, time.Minute, false},
		"no policy":                                  {nil, time.Second, false},
	} {
		p := &outboxPart{OutboxConfig: OutboxConfig{Policies: c.policies}}
		if got := p.kept()(store.Relayed{Age: c.age, Moved: now.Add(-c.age)}); got != c.want {
			t.Errorf("%s: lost %t", name, got)
		}
	}
}

func TestHowLongARowMayWait(t *testing.T) {
	t.Parallel()
	policy := func(timeout time.Duration) biztype.Stored {
		return biztype.Stored{Policy: biztype.Policy{Timeout: biztype.Duration(timeout)}}
	}
	for _, c := range []struct {
		policies []biztype.Stored
		want     time.Duration
	}{
		{nil, 5 * time.Minute},
		{[]biztype.Stored{policy(time.Second)}, 5 * time.Minute},
		{[]biztype.Stored{policy(10 * time.Minute), policy(time.Second)}, 21 * time.Minute},
	} {
		if got := olderOf(c.policies); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

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
	pages := func(read readRest, q store.AuditRest) (rows []int) {
		q.Limit, q.Types = 2, []uint64{1}
		for more := true; more; {
			page, there, err := read(t.Context(), q)
			if err != nil || !there {
				t.Fatalf("%t, %v", there, err)
			}
			rows, q.Place, more = append(rows, page.Rows), page.Next, page.Next != 0
		}
		return rows
	}
	if rows := pages(s.store.AuditRuns, store.AuditRest{}); !slices.Equal(rows, []int{2, 2, 1}) {
		t.Errorf("all runs: pages of %v rows", rows)
	}
	if rows := pages(s.store.AuditRuns, store.AuditRest{From: time.Now().Add(-90 * time.Minute).UnixMilli()}); !slices.Equal(rows, []int{2, 2}) {
		t.Errorf("recent runs: pages of %v rows", rows)
	}
	total := 0
	for database := range s.layout.Databases {
		for _, rows := range pages(s.store.AuditSchedules, store.AuditRest{Database: database}) {
			total += rows
		}
	}
	if total != 5 {
		t.Errorf("%d schedules", total)
	}
}
