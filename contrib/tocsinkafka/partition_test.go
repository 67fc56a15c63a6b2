package tocsinkafka_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/outbox"
)

// leading returns a session that leads partition 0.
func (e *entry) leading() *outbox.Session {
	e.TB.Helper()
	topic, err := tocsinkafka.Topic(e.From)
	if err != nil {
		e.TB.Fatal(err)
	}
	e.TB.Cleanup(func() { _ = topic.Close() })
	parts, err := topic.Parts(e.TB.Context())
	if err != nil {
		e.TB.Fatal(err)
	}
	session, err := parts[0].Session(e.TB.Context())
	if err != nil {
		e.TB.Fatal(err)
	}
	e.TB.Cleanup(session.Close)
	e.Await("the partition", func() bool {
		leads, err := session.Lead(e.TB.Context(), time.Second)
		return leads && err == nil
	})
	return session
}

func ids(rows []outbox.Row) (all []uint64) {
	for _, r := range rows {
		all = append(all, r.ID)
	}
	return all
}

var everything = []outbox.Range{{First: 0, Last: math.MaxUint64}}

func TestAPartitionIsReadAsAnOutbox(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	e.use(e.entrance.Holding(6))
	for n := range 10 {
		e.send(body(0, `{"op": "cancel", "biz_type": "order.close", "biz_id": "%d"}`, n+1))
	}
	s := e.leading()
	read := func(in []outbox.Range, limit int, skip func(uint64) bool, want ...uint64) []outbox.Row {
		t.Helper()
		rows, err := s.Read(t.Context(), in, limit, skip)
		if err != nil || !slices.Equal(ids(rows), want) {
			t.Fatalf("%v, want %v: %v", ids(rows), want, err)
		}
		return rows
	}
	rows := read(everything, 4, nil, 1, 2, 3, 4)
	rows = append(rows, read([]outbox.Range{{First: 0, Last: 0}, {First: 5, Last: math.MaxUint64}}, 100, nil, 5, 6)...)
	read([]outbox.Range{{First: 7, Last: math.MaxUint64}}, 100, nil) // six are read and not done
	read([]outbox.Range{{First: 2, Last: 3}, {First: 5, Last: 5}}, 100, func(id uint64) bool { return id == 2 }, 3, 5)
	if n := s.Waiting(); n != 10 {
		t.Errorf("%d wait", n)
	}
	if err := s.Delete(t.Context(), []outbox.Key{rows[0].Key, rows[1].Key, rows[3].Key}); err != nil {
		t.Fatal(err)
	}
	read([]outbox.Range{{First: 1, Last: 6}}, 100, nil, 3, 5, 6)
	settled, err := s.Settled(t.Context(), []outbox.Range{{First: 0, Last: 2}, {First: 3, Last: 4}, {First: 4, Last: 4}, {First: 8, Last: 9}}, nil)
	if err != nil || !slices.Equal(settled, []outbox.Range{{First: 0, Last: 2}, {First: 4, Last: 4}}) {
		t.Errorf("settled %v: %v", settled, err)
	}
	if next, err := s.Next(t.Context()); next != 11 || err != nil || e.offsets() != 2 {
		t.Errorf("next %d, offset %d: %v", next, e.offsets(), err)
	}
	there, err := s.Present(t.Context(), []outbox.Key{rows[1].Key, rows[2].Key, rows[3].Key})
	if err != nil || there[rows[1].Key] || !there[rows[2].Key] || !there[rows[3].Key] {
		t.Errorf("present %v: %v", there, err)
	}
	read([]outbox.Range{{First: 7, Last: math.MaxUint64}}, 100, nil, 7, 8, 9)
}

// What a transaction has written is carried out once it commits, never if it is rolled back. Its marks are no commands.
func TestTransactionsOfProducersAreKept(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	tx, err := kgo.NewClient(kgo.SeedBrokers(e.broker.Address()), kgo.TransactionalID("shop"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	add := `{"biz_type": "order.close", "biz_id": "%d", "payload": "x", "delay_ms": 86400000}`
	within := func(order int, end kgo.TransactionEndTry, before func()) {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(context.Background(), at(body(0, add, order))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		before()
		if err := tx.EndTransaction(context.Background(), end); err != nil {
			t.Fatal(err)
		}
	}
	e.relay()
	within(1, kgo.TryAbort, func() {})
	within(2, kgo.TryCommit, func() {
		e.send(body(0, add, 3))
		e.committed(2) // the record that was rolled back, and its mark
		if got := e.Tasks(2) + e.Tasks(3); got != "" {
			t.Errorf("before the commit: %s", got)
		}
	})
	e.Want(2, "x pending")
	e.Want(3, "x pending")
	e.send(body(0, add, 4))
	e.committed(6)
	if got := e.Tasks(1); got != "" {
		t.Errorf("rolled back: %s", got)
	}
}
