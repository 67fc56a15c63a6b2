package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// BenchmarkAudit measures rows read a second, pauses and all, from 16 tables
// whose rows are all read, or are all long settled.
func BenchmarkAudit(bm *testing.B) {
	for name, settled := range map[string]string{"recent": "1 HOUR", "old": "10 DAY"} {
		bm.Run(name, func(bm *testing.B) {
			s := newSite(bm, tocsin.Layout{Databases: 1, Tables: 16})
			for n := uint64(1); n <= 20; n++ {
				s.add(1, tocsin.Done, 0, n)
			}
			for table := range s.layout.Total() {
				s.multiply(table, 8_000, settled)
			}
			a := s.auditor(nil)
			var cost Cost
			for bm.Loop() {
				r, err := a.Audit(context.Background())
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
