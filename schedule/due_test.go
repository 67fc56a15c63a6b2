package schedule

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// fill stores schedules of one database, which are due a time from now, a second apart.
func (s *site) fill(database, n int, table string, from time.Duration) {
	s.t.Helper()
	for _, statement := range []string{
		"SET SESSION max_recursive_iterations = 2000000",
		"SET SESSION cte_max_recursion_depth = 2000000",
		fmt.Sprintf(`INSERT INTO {db}.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, state, revision, anchor, made_until, next_fire, attribute)
SELECT (1 << 40) + ((n + %d) << 22) + (%s << 9), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), CONCAT('s', %d, '.', %d, '.', n), %s, 1, 7, '@every 1h', 'UTC',
    600000, 'once', 100, 'allow', 'active', 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL %d + n SECOND, ''
FROM (WITH RECURSIVE seq AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM seq WHERE n < %d) SELECT n FROM seq) AS numbers`,
			from.Milliseconds()+500_000_000, table, database, int(from.Seconds()), table, int(from.Seconds()), n),
	} {
		if _, err := s.db.ExecContext(s.t.Context(), strings.ReplaceAll(statement, "{db}", s.cfg.Layout.Database(database))); err != nil && !strings.HasPrefix(statement, "SET") {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestDueIsInOrderAndOfTheTablesAskedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.db.SetMaxOpenConns(1) // fill's settings are of its session
	s.fill(0, 2500, "0", -time.Hour)
	s.fill(0, 10, "1", -time.Hour+500*time.Millisecond)
	s.fill(1, 1200, "2", -30*time.Minute)
	s.fill(1, 5, "3", time.Minute)
	s.fill(1, 100, "3", time.Hour)
	all, err := s.maker.Due(t.Context(), 0, Step, 100_000, nil)
	if err != nil || len(all) != 2500+10+1200+5 {
		t.Fatalf("%d are due, %v", len(all), err)
	}
	seen := map[tocsin.JobID]bool{}
	for i, d := range all {
		if seen[d.ID] || d.ID.Table() != d.Table || i > 0 && all[i-1].compare(d) >= 0 {
			t.Fatalf("%d: %+v after %+v", i, d, all[i-1])
		}
		seen[d.ID] = true
	}
	for table, want := range map[int]int{0: 40, 1: 10, 2: 40, 3: 5} { // thousands of others don't hold a table back
		due, err := s.maker.Due(t.Context(), 0, Step, 40, func(d Due) bool { return d.Table == table })
		if err != nil || len(due) != want {
			t.Errorf("table %d: %d are due, %v", table, len(due), err)
		}
		for _, d := range due {
			if d.Table != table {
				t.Errorf("%+v is not of table %d", d, table)
			}
		}
	}
	if due, err := s.maker.Due(t.Context(), 0, -45*time.Minute, 100_000, nil); err != nil || len(due) < 800 || len(due) > 1000 {
		t.Errorf("%d are overdue by 45 min, %v", len(due), err)
	}
}

// A pass over schedules that are all far away, or not active, reads no row, and few entries of the index.
func TestAPassOverManySchedulesIsASmallRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.db.SetMaxOpenConns(1)
	s.fill(0, 30_000, "0", time.Hour)
	s.fill(0, 30_000, "1", -100*time.Hour)
	if _, err := s.db.Exec("UPDATE " + s.cfg.Layout.Database(0) + ".schedule SET state = 'inactive', next_fire = NULL WHERE table_no = 1"); err != nil {
		t.Fatal(err)
	}
	s.fill(0, 3, "0", time.Minute)
	for name, after := range map[string]Due{"the first page": firstDue, "a later page": {Next: s.now().Add(-time.Hour), Table: 1, ID: 77}} {
		question := strings.ReplaceAll(peekDue, "{database}", s.cfg.Layout.Database(0))
		next := at(after.Next)
		args := []any{Step.Microseconds(), next, next, after.Table, next, after.Table, uint64(after.ID), pageOfDue}
		before := s.reads(s.db)
		if _, err := s.db.Exec("DO (SELECT COUNT(*) FROM ("+question+") AS due)", args...); err != nil {
			t.Fatal(err)
		}
		if n := s.reads(s.db) - before; n > 30 {
			t.Errorf("%s: %d entries were read", name, n)
		}
		access, key, extra := s.explain(question, args...)
		if access != "range" || key != "idx_next" || !strings.Contains(extra, "Using index") || strings.Contains(extra, "filesort") || strings.Contains(extra, "Using index condition") {
			t.Errorf("%s: %s by %s, %s", name, access, key, extra)
		}
	}
}

// A page of schedules that all fire at one time reads no entries of those before it. Not parallel: the counters are the server's.
func TestAPageOfDueSchedulesCostsTheSameEverywhere(t *testing.T) {
	s := newSite(t)
	s.db.SetMaxOpenConns(1)
	s.fill(0, 5000, "0", -time.Hour)
	database := s.cfg.Layout.Database(0)
	if _, err := s.db.Exec("UPDATE " + database + ".schedule SET next_fire = UTC_TIMESTAMP() - INTERVAL 1 HOUR, table_no = schedule_id % 3"); err != nil {
		t.Fatal(err)
	}
	all, err := s.maker.Due(t.Context(), 0, 0, 10_000, nil)
	if err != nil || len(all) != 5000 {
		t.Fatalf("%d are due, %v", len(all), err)
	}
	examined, cost := devtest.Examined(t, s.db), []int{}
	for _, after := range []Due{firstDue, all[1000], all[2500], all[4000]} {
		next := at(after.Next)
		cost = append(cost, examined(func() {
			rows, err := s.db.Query(strings.ReplaceAll(peekDue, "{database}", database), 0, next, next, after.Table, next, after.Table, uint64(after.ID), 100)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				continue
			}
			rows.Close()
		}))
	}
	if slices.Max(cost) > 150 {
		t.Errorf("pages of 100 examine %d entries", cost)
	}
}

// reads counts the entries and rows that a session has read.
func (s *site) reads(session interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (sum int) {
	s.t.Helper()
	rows, err := session.QueryContext(s.t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			s.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// explain returns how the table of one statement is read.
func (s *site) explain(question string, args ...any) (access, key, extra string) {
	s.t.Helper()
	rows, err := s.db.Query("EXPLAIN FORMAT=TRADITIONAL "+question, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			s.t.Fatal(err)
		}
		for i, c := range columns {
			switch strings.ToLower(c) {
			case "type":
				access += values[i].String
			case "key":
				key += values[i].String
			case "extra":
				extra += values[i].String
			}
		}
	}
	return access, key, extra
}

// The other statements find their rows by an index too.
func TestPlansOfStatements(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.db.SetMaxOpenConns(1)
	s.fill(0, 2000, "0", time.Hour)
	fill := strings.NewReplacer("{database}", s.cfg.Layout.Database(0), "{task}", s.cfg.Layout.Table(0), "{names}", "?", "{keys}", "?", "{ids}", "?", "{types}", "biz_type IN (0, 1)").Replace
	for name, c := range map[string]struct {
		question string
		args     []any
		key      string
	}{
		"named":   {readNamed, []any{"x"}, "uk_name"},
		"list":    {readList, []any{"x", "y", "", "", "", "", "", 10}, "uk_name"},
		"next":    {readNext, slices.Concat(byNext.args(byNext.first), byNext.args(byNext.last), []any{"", "", "", "", "", 10}), "idx_next"},
		"lock":    {lockRow, []any{1}, "PRIMARY"},
		"pending": {readPending, []any{7, 1, []byte{0}, []byte{0, 1}}, "uk_biz"},
		"cancel":  {cancelRuns, []any{"", 1}, "PRIMARY"},
		"change":  {moveCursor, []any{"active", "2026-01-01", "2026-01-01", "", 1, 1, 1, 1, "2026-01-01"}, "PRIMARY"},
		"delete":  {deleteRow, []any{1}, "PRIMARY"},
		"keys":    {readKeys, []any{7, 1, []byte{0}}, "uk_biz"},
	} {
		if _, key, extra := s.explain(fill(c.question), c.args...); key != c.key && !strings.Contains(extra, "Impossible") && !strings.Contains(extra, "no matching row") {
			t.Errorf("%s is read by %q, %s", name, key, extra)
		}
	}
}
