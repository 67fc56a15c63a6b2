package store

import (
	"fmt"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// BenchmarkGroupOutcomes measures what 500 outcomes cost from their queue to the
// text that is sent, over so many tables.
func BenchmarkGroupOutcomes(b *testing.B) {
	s, err := Open(tocsin.Config{
		Layout:  tocsin.Layout{Databases: 8, Tables: 1024},
		Servers: []tocsin.Server{{Name: "nobody", DSN: "root@tcp(127.0.0.1:1)/"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	for _, tables := range []int{1, 16, 128} {
		outcomes := make([]Outcome, maxIDs)
		for i := range outcomes {
			outcomes[i] = Outcome{JobID: id(i*31%tables, i)}
		}
		b.Run(fmt.Sprintf("tables=%d", tables), func(b *testing.B) {
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				text, _ := s.settleText(outcomes, groupOutcomes(outcomes))
				bytes = len(text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxIDs), "ns/task")
			b.ReportMetric(float64(bytes)/maxIDs, "bytes/task")
		})
	}
}
