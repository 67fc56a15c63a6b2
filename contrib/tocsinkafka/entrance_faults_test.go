package tocsinkafka_test

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// scaled is more where faults are tested at length.
func scaled(orders int) int {
	if os.Getenv("TOCSIN_FAULTS") != "" {
		return 33_334
	}
	return orders
}

// turns sends an add, a cancel and an add for each order, and returns when all are stored. Those of an order go to one partition.
func (e *entry) turns(orders, partitions int) {
	e.TB.Helper()
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Store(&err)
		}
	}
	for n := range orders {
		p := int32(n % partitions)
		for _, r := range []*kgo.Record{
			body(p, `{"biz_type": "order.close", "biz_id": "%d", "payload": "a", "delay_ms": 86400000}`, n+1),
			body(p, `{"op": "cancel", "biz_type": "order.close", "biz_id": "%d"}`, n+1),
			body(p, `{"biz_type": "order.close", "biz_id": "%d", "payload": "b", "delay_ms": 86400000}`, n+1),
		} {
			e.client.Produce(context.Background(), at(r), done)
		}
	}
	if err := e.client.Flush(context.Background()); err != nil || failed.Load() != nil {
		e.TB.Errorf("%v, %v", err, failed.Load())
	}
}

// inTurn waits until all commands of turns are done, each once and in order: a second one would make another task.
func (e *entry) inTurn(orders int) {
	e.TB.Helper()
	e.committed(int64(3 * orders))
	for n := range orders {
		if got := e.Tasks(uint64(n + 1)); got != "a cancelled, b pending" {
			e.TB.Fatalf("order %d: %s", n+1, got)
		}
	}
}

func TestCommandsAreCarriedOutOnceBesideKills(t *testing.T) {
	t.Parallel()
	orders := scaled(1500)
	e := newEntry(t, map[string]int32{commands: 4, refused: 1})
	kill := e.launch()
	written := e.Run(func(context.Context) { e.turns(orders, 4) })
	for share := range 3 {
		e.Await("a part to be committed", func() bool { return e.offsets() > int64(share*orders/2) })
		kill()
		kill = e.launch()
	}
	written()
	e.inTurn(orders)
}

// Relays come and go, so that partitions are revoked while their commands are carried out.
func TestCommandsAreCarriedOutOnceBesideRebalances(t *testing.T) {
	t.Parallel()
	orders := scaled(1500)
	e := newEntry(t, map[string]int32{commands: 4, refused: 1})
	stop := e.relay()
	written := e.Run(func(context.Context) { e.turns(orders, 4) })
	for share := range 3 {
		e.Await("a part to be committed", func() bool { return e.offsets() > int64(share*orders/2) })
		var log devtest.Log
		next := e.relayTo(&log)
		log.Await(t, "outbox is relayed by this process") // the group has taken a partition from the other one
		stop()
		stop = next
	}
	written()
	e.inTurn(orders)
	if failed := e.log.Lines("offsets are not committed: commands are looked at again if this process dies"); len(failed) > 0 {
		t.Error(failed)
	}
}

func TestADatabaseThatIsAwayHoldsUpItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	orders := scaled(1000)
	proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
	e := newEntry(t, map[string]int32{commands: 2, refused: 1},
		tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}})
	e.relay()
	e.send(body(0, `{"biz_type": "order.close", "biz_id": "%d", "delay_ms": 86400000, "payload": "first"}`, 1<<40))
	e.Want(1<<40, "first pending")
	proxy.SetDown(true) // for new connections; old ones break at their next statement
	proxy.BreakAt("tocsin", true, 1_000_000)
	e.turns(orders, 2)
	here := func(n uint64) bool { return e.Config.Layout.DatabaseOf(e.Config.Layout.TableOf(n)) == 0 }
	last := uint64(orders)
	for !here(last) {
		last--
	}
	e.Want(last, "a cancelled, b pending")
	var late []time.Duration
	for n := uint64(orders + 1); len(late) < 200; n++ {
		if here(n) {
			r := body(int32(n%2), `{"biz_type": "order.close", "biz_id": "%d", "delay_ms": 86400000, "payload": "x"}`, n)
			r.Timestamp = time.Now()
			e.send(r)
			e.Want(n, "x pending")
			late = append(late, time.Since(r.Timestamp))
		}
	}
	slices.Sort(late)
	t.Logf("beside the commands of a database that is away: p50 %s, p99 %s from the record to the task", late[len(late)/2], late[len(late)*99/100])
	if n := e.offsets(); n > 10 {
		t.Errorf("offset %d: commands of the database that is away would be lost", n)
	}
	proxy.BreakAt("no statement", true, 1)
	proxy.SetDown(false)
	e.committed(int64(3*orders + 201))
	for n := range orders {
		if got := e.Tasks(uint64(n + 1)); got != "a cancelled, b pending" {
			t.Fatalf("order %d: %s", n+1, got)
		}
	}
}

// The broker is killed while commands are carried out, and comes back with what it had.
func TestARelayGoesOnWhenItsBrokerIsBack(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 2, refused: 1})
	e.relay()
	e.turns(200, 2)
	e.Await("a part to be committed", func() bool { return e.offsets() > 0 })
	must(e.broker.Kill)(t)
	e.log.Await(t, "outbox can't be relayed: its rows wait")
	e.broker.restart(t)
	e.inTurn(200)
	e.send(body(0, `{"biz_type": "order.close", "biz_id": "201", "payload": "x", "delay_ms": 86400000}`))
	e.Want(201, "x pending")
}
