package tocsin

import (
	"testing"
	"time"
)

// BenchmarkID measures what each task pays for its id and for the way to its
// table.
func BenchmarkID(b *testing.B) {
	layout := Layout{Databases: 8, Tables: 1024}
	var ids jobIDs
	now := time.Now()
	text := ids.next(now, 8191).String()
	for name, do := range map[string]func(i uint64) int{
		"next":            func(i uint64) int { return int(ids.next(now, int(i%8192))) },
		"table of biz_id": func(i uint64) int { return layout.TableOf(i) },
		"table's name":    func(i uint64) int { return len(layout.Table(int(i % 8192))) },
		"to text":         func(i uint64) int { return len(JobID(i << 22).String()) },
		"from text": func(uint64) int {
			id, err := ParseJobID(text)
			if err != nil {
				b.Fatal(err)
			}
			return int(id)
		},
		"to JSON": func(i uint64) int {
			text, _ := JobID(i << 22).MarshalJSON()
			return len(text)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for i := uint64(0); b.Loop(); i++ {
				sum += do(i)
			}
			if sum == 0 {
				b.Error("nothing was done")
			}
		})
	}
}
