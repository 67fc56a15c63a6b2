package store

import (
	"fmt"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// BenchmarkLoadAndSettle measures the way of due rows through the store, 500 at
// a time over so many tables.
func BenchmarkLoadAndSettle(bm *testing.B) {
	for _, tables := range []int{1, 16, 128} {
		bm.Run(fmt.Sprintf("tables=%d", tables), func(bm *testing.B) {
			b := open(bm, tocsin.Layout{Databases: 1, Tables: tables})
			bm.ReportAllocs()
			rows := 0
			bm.StopTimer()
			for round := range bm.N {
				batch := b.batch(round, tables)
				bm.StartTimer()
				rows += b.loadAndSettle(batch)
				bm.StopTimer()
			}
			bm.ReportMetric(float64(rows)/bm.Elapsed().Seconds(), "rows/s")
		})
	}
}

// batch adds 500 pending rows.
func (b *bench) batch(round, tables int) []tocsin.JobID {
	tasks, ids := make([]task, maxIDs), make([]tocsin.JobID, maxIDs)
	for i := range tasks {
		ids[i] = id(i%tables, round*maxIDs+i)
		tasks[i] = task{id: ids[i], payload: `{"order": 123456}`}
	}
	b.add(tasks...)
	return ids
}

func (b *bench) loadAndSettle(ids []tocsin.JobID) int {
	loaded, err := b.Load(b.tb.Context(), 0, ids)
	if err != nil {
		b.tb.Fatal(err)
	}
	outcomes := make([]Outcome, len(loaded.Rows))
	for i, r := range loaded.Rows {
		outcomes[i] = Outcome{JobID: r.JobID, Version: r.Version}
	}
	if _, err := b.Settle(b.tb.Context(), 0, outcomes); err != nil {
		b.tb.Fatal(err)
	}
	return len(outcomes)
}
