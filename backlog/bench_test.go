package backlog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkWalks measures what a walk costs a server with 1,024 tables, each with 100 tasks that are not due and 100 that
// are done: without a backlog, and with one of 50 tasks in each table. The rests between statements are left out.
func BenchmarkWalks(bm *testing.B) {
	s := newSite(bm, 512)
	s.fill(0, 100, time.Hour)
	s.fill(2, 100, -time.Hour)
	bm.Run("overdue without a backlog", func(bm *testing.B) { s.bench(bm, s.overdueNow) })
	bm.Run("count", func(bm *testing.B) { s.bench(bm, s.countNow) })
	s.fill(0, 50, -time.Minute)
	bm.Run("overdue with a backlog", func(bm *testing.B) { s.bench(bm, s.overdueNow) })
}

// fill adds rows to every table.
func (s *site) fill(status, rows int, due time.Duration) {
	s.t.Helper()
	for table := range s.layout.Total() {
		values := make([]string, rows)
		for i := range values {
			id := uint64(s.seq+i)<<22 | uint64(table)<<9
			values[i] = fmt.Sprintf("(%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 7, %d, %d, UTC_TIMESTAMP(3) + INTERVAL %d SECOND, UTC_TIMESTAMP(3), 0, 0, 0, '', '')",
				id, i%2+1, status, int(due.Seconds())+i)
		}
		if _, err := s.db.Exec("INSERT INTO " + s.layout.Table(table) + ` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time,
			due_time, attempts, crashes, version, claimed_by, attribute) VALUES ` + strings.Join(values, ",")); err != nil {
			s.t.Fatal(err)
		}
	}
	s.seq += rows
}

func (s *site) overdueNow(tables []int) error {
	_, _, err := s.store.Overdue(s.t.Context(), 0, tables, s.store.Now(0), atMost)
	return err
}

func (s *site) countNow(tables []int) error {
	_, err := s.store.LiveCounts(s.t.Context(), 0, tables)
	return err
}

// bench makes walks without rests, and reports what one took of the server.
func (s *site) bench(bm *testing.B, look func(tables []int) error) {
	if err := look(s.store.TablesOf(0)); err != nil { // tables are opened, and probes prepared
		bm.Fatal(err)
	}
	statements, rows := s.status("Questions"), s.status("Handler_read_%")
	for range bm.N {
		if err := look(s.store.TablesOf(0)); err != nil {
			bm.Fatal(err)
		}
	}
	bm.ReportMetric(float64(s.status("Questions")-statements-1)/float64(bm.N), "statements/walk")
	bm.ReportMetric(float64(s.status("Handler_read_%")-rows)/float64(bm.N), "reads/walk")
}

// status adds up status variables of the server.
func (s *site) status(like string) (sum int) {
	s.t.Helper()
	rows, err := s.db.Query("SHOW GLOBAL STATUS LIKE '" + like + "'")
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
