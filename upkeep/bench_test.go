package upkeep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// BenchmarkPurge measures rows removed a second, pauses and all, from 16 tables.
func BenchmarkPurge(bm *testing.B) {
	const rows = 5_000 // of each table
	s := newSite(bm, tocsin.Layout{Databases: 1, Tables: 16})
	removed := 0
	bm.StopTimer()
	for range bm.N {
		for table := range s.layout.Total() {
			s.add(table, rows, 1, tocsin.Done, 2*time.Hour)
			s.add(table, 100, 1, tocsin.Pending, 2*time.Hour)
			s.exec("UPDATE " + s.layout.Table(table) + " SET attribute = '" + strings.Repeat("x", 200) + "'")
		}
		bm.StartTimer()
		r := s.purge(s.purging())
		bm.StopTimer()
		removed += r.Total().Done
		for table := range s.layout.Total() {
			s.exec(fmt.Sprintf("TRUNCATE TABLE %s", s.layout.Table(table)))
		}
	}
	bm.ReportMetric(float64(removed)/bm.Elapsed().Seconds(), "rows/s")
}

// BenchmarkAudit measures rows read a second, pauses and all, from 16 tables
// whose rows are all read, or are all long settled.
func BenchmarkAudit(bm *testing.B) {
	for name, settled := range map[string]string{"recent": "1 HOUR", "old": "10 DAY"} {
		bm.Run(name, func(bm *testing.B) {
			s := newSite(bm, tocsin.Layout{Databases: 1, Tables: 16})
			for n := uint64(1); n <= 20; n++ {
				s.task(1, tocsin.Done, 0, n)
			}
			for table := range s.layout.Total() {
				s.multiply(table, 8_000, settled)
			}
			var cost Cost
			for bm.Loop() {
				r, err := s.audit(nil)
				if err != nil {
					bm.Fatal(err)
				}
				cost.plus(r.Cost)
			}
			bm.ReportMetric(float64(cost.Rows)/cost.Busy.Seconds(), "rows/busy-s")
			bm.ReportMetric(float64(cost.Rows)/float64(bm.N), "rows/op")
			bm.ReportMetric(float64(cost.Statements)/float64(bm.N), "statements/op")
		})
	}
}

// multiply fills a table with tasks that are done.
func (s *site) multiply(table, rows int, settled string) {
	for first := 1; first < rows; first += 1000 {
		var values []string
		for i := range 1000 {
			values = append(values, fmt.Sprintf("(%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), %d, 1, 2, UTC_TIMESTAMP(3) - INTERVAL %s, UTC_TIMESTAMP(3) - INTERVAL 11 DAY, '%0200d')",
				(first+i)<<22|table<<9, first+i, settled, i))
		}
		s.exec("INSERT INTO " + s.layout.Table(table) + " (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES " + strings.Join(values, ","))
	}
}

// BenchmarkWalks measures what a walk of the backlog costs a server with 1,024 tables, each with 100 tasks that are not due and
// 100 that are done: without a backlog, and with one of 50 tasks in each table. The rests between statements are left out.
func BenchmarkWalks(bm *testing.B) {
	s := newSite(bm, tocsin.Layout{Databases: 2, Tables: 512})
	fill := func(rows int, status tocsin.Status, ago time.Duration) {
		for table := range s.layout.Total() {
			s.add(table, rows/2, 1, status, ago)
			s.add(table, rows/2, 2, status, ago)
		}
	}
	overdue := func(tables []int) error {
		_, _, err := s.store.Overdue(bm.Context(), 0, tables, s.store.Now(0), overdueMost)
		return err
	}
	fill(100, tocsin.Pending, -time.Hour)
	fill(100, tocsin.Done, time.Hour)
	bm.Run("overdue without a backlog", func(bm *testing.B) { s.bench(bm, overdue) })
	bm.Run("count", func(bm *testing.B) {
		s.bench(bm, func(tables []int) error { _, _, err := s.store.LiveCounts(bm.Context(), 0, tables); return err })
	})
	fill(50, tocsin.Pending, time.Minute)
	bm.Run("overdue with a backlog", func(bm *testing.B) { s.bench(bm, overdue) })
}

// bench makes walks without rests, and reports what one took of the server.
func (s *site) bench(bm *testing.B, look func(tables []int) error) {
	if _, err := s.store.Measure(bm.Context(), 0); err != nil {
		bm.Fatal(err)
	}
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

// BenchmarkLook measures a look of the alarms at 1,024 tables of one server, in which nothing has died.
func BenchmarkLook(b *testing.B) {
	s := newSite(b, tocsin.Layout{Databases: 2, Tables: 512})
	a := NewAlarms(AlarmsConfig{
		Store: s.store, Cluster: s.cfg, Policies: func() []biztype.Policy { return alarmPolicies }, Leads: func() bool { return true },
	})
	a.look(b.Context(), lag) // opens the tables
	for b.Loop() {
		a.look(b.Context(), lag)
	}
}
