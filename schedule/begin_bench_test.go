package schedule

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// BenchmarkBegin: how long a run whose schedule skips takes to begin and to be settled, one after the other.
func BenchmarkBegin(b *testing.B) {
	s := newTurns(b)
	of := s.plan(OverlapSkip, nil)
	var begin, settle time.Duration
	for i := range b.N {
		id := s.put(of, is{ago: 8000 - i%7900, kind: 0})
		s.exec(of, "UPDATE {schedule} SET start_within_ms = 1000000000, open_from = NULL WHERE schedule_id = ?", uint64(of.ID))
		turn, row := s.load(id)
		start := time.Now()
		done, err := s.Begin(b.Context(), turn, row, "me", time.Minute)
		begin += time.Since(start)
		if err != nil || done.Deadline == 0 {
			b.Fatalf("%+v, %v", done, err)
		}
		start = time.Now()
		_, err = s.Settle(b.Context(), turn, store.Outcome{JobID: id, Verb: tocsin.Completed, Version: row.Version, Claimed: true, By: "me", Action: done.Deadline})
		settle += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		s.exec(of, "DELETE FROM {task} WHERE job_id = ?", uint64(id))
	}
	b.ReportMetric(float64(begin.Microseconds())/float64(b.N), "µs/begin")
	b.ReportMetric(float64(settle.Microseconds())/float64(b.N), "µs/settle")
}
