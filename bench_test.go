package tocsin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

const payload = `{"order":"A-1234567890","reason":"unpaid","customer":4711,"note":"thirty minutes"}`

// BenchmarkAddMany stores 1,000 tasks in each round, beside BenchmarkRawInsert
// of as many rows in statements of the same size.
func BenchmarkAddMany(b *testing.B) {
	for name, when := range map[string]tocsin.When{"far": tocsin.In(day), "near": tocsin.In(0)} {
		b.Run(name, func(b *testing.B) {
			c := open(b, cluster(b))
			tasks := make([]tocsin.NewTask, 4000)
			next := uint64(1)
			for b.Loop() {
				for i := range tasks {
					tasks[i] = remind.New(next, payload, when)
					next++
				}
				if _, err := c.AddMany(b.Context(), tasks); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(tasks)*b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

func BenchmarkRawInsert(b *testing.B) {
	cfg := cluster(b)
	db := session(b, devtest.DSN(b), "")
	next := 1
	for b.Loop() {
		var s strings.Builder
		s.WriteString("INSERT INTO " + cfg.Layout.Table(0) +
			" (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES ")
		for i := range 1000 {
			if i > 0 {
				s.WriteByte(',')
			}
			fmt.Fprintf(&s, "(%d,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),%d,7,0,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),'%s')", next, next, payload)
			next++
		}
		exec(b, db, s.String())
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkAdd(b *testing.B) {
	for name, when := range map[string]tocsin.When{"far": tocsin.In(day), "near": tocsin.In(0)} {
		b.Run(name, func(b *testing.B) {
			c := open(b, cluster(b))
			next := uint64(1)
			for b.Loop() {
				add(b, c, remind.New(next, payload, when))
				next++
			}
		})
	}
}
