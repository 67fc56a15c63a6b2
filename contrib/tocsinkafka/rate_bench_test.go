package tocsinkafka_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

// BenchmarkEntrance has a relay carry out adds that stand in a topic, and adds as many with AddMany beside it, by turns. ratio is how
// much of the rate of AddMany an entrance reaches. The clock of an entrance runs from the relay's start until its offsets are committed.
func BenchmarkEntrance(b *testing.B) {
	const adds, page, partitions = 20_000, 1000, 4
	var entrance, many time.Duration
	for b.Loop() {
		e := newEntry(b, map[string]int32{commands: partitions, refused: 1})
		for n := range adds {
			e.client.Produce(context.Background(), at(body(int32(n%partitions), `{"biz_type": "order.close", "biz_id": "%d", "payload": "{\"order\":42}", "delay_ms": 86400000}`, n+1)), nil)
		}
		if err := e.client.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		var tasks []tocsin.NewTask
		for n := range adds {
			tasks = append(tasks, relaytest.CloseOrder.New(uint64(adds+n+1), `{"order":42}`, tocsin.In(relaytest.Day)))
		}
		began := time.Now()
		for some := range slices.Chunk(tasks, page) {
			if _, err := e.Client.AddMany(context.Background(), some); err != nil {
				b.Fatal(err)
			}
		}
		many += time.Since(began)
		began = time.Now()
		stop := e.relay()
		e.committed(adds)
		entrance += time.Since(began)
		stop()
	}
	b.ReportMetric(float64(b.N*adds)/entrance.Seconds(), "commands/s")
	b.ReportMetric(float64(b.N*adds)/many.Seconds(), "addmany/s")
	b.ReportMetric(many.Seconds()/entrance.Seconds(), "ratio")
}
