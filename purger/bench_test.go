package purger

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// BenchmarkPurge measures rows removed a second, pauses and all, from 16 tables.
func BenchmarkPurge(bm *testing.B) {
	const rows = 5_000 // of each table
	s := newSite(bm, tocsin.Layout{Databases: 1, Tables: 16})
	p, err := New(s.config())
	if err != nil {
		bm.Fatal(err)
	}
	removed := 0
	bm.StopTimer()
	for range bm.N {
		for table := range s.layout.Total() {
			s.add(table, rows, 1, tocsin.Done, 2*time.Hour)
			s.add(table, 100, 1, tocsin.Pending, 2*time.Hour)
			s.exec("UPDATE " + s.layout.Table(table) + " SET attribute = '" + strings.Repeat("x", 200) + "'")
		}
		bm.StartTimer()
		r, err := p.Purge(context.Background())
		bm.StopTimer()
		if err != nil {
			bm.Fatal(err)
		}
		removed += r.Total().Done
		for table := range s.layout.Total() {
			s.exec(fmt.Sprintf("TRUNCATE TABLE %s", s.layout.Table(table)))
		}
	}
	bm.ReportMetric(float64(removed)/bm.Elapsed().Seconds(), "rows/s")
}
