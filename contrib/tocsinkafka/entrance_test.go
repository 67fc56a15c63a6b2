package tocsinkafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

const (
	commands = "orders.commands"
	refused  = "orders.commands.dlt"
)

// entry is a broker with a topic of commands, and the databases of its tasks.
type entry struct {
	*relaytest.Shop
	broker *cluster
	client *kgo.Client
	log    devtest.Log

	entrance tocsinkafka.Entrance
}

func newEntry(tb testing.TB, topics map[string]int32, servers ...tocsin.Server) *entry {
	tb.Helper()
	e := &entry{
		Shop:   relaytest.NewShop(tb, func(string) tocsin.Outbox { return tocsin.Outbox{} }, servers...),
		broker: start(tb, broker.Config{Topics: topics}, false),
	}
	e.Client = e.Open(e.Config)
	brokers := e.broker.config()
	brokers.Logger = e.log.Logger()
	e.use(tocsinkafka.Entrance{Brokers: brokers, Group: "tocsin-shop"})
	var err error
	if e.client, err = kgo.NewClient(kgo.SeedBrokers(e.broker.Address()), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.client.Close)
	return e
}

// use sets the entrance of relays that begin later.
func (e *entry) use(driver tocsinkafka.Entrance) {
	e.entrance = driver
	e.From = outbox.Config{Name: "orders-in", Table: commands, Driver: driver}
}

// config is that of a relay.
func (e *entry) config() relay.Config {
	return relay.Config{Tables: e.Config, Outboxes: []outbox.Config{e.From}, Poll: 2 * time.Millisecond, Whole: 200 * time.Millisecond, Logger: e.log.Logger()}
}

// relay runs a relay until the test ends, or stop is called.
func (e *entry) relay() (stop func()) { return e.relayTo(&e.log) }

func (e *entry) relayTo(log *devtest.Log) (stop func()) {
	e.TB.Helper()
	cfg := e.config()
	cfg.Logger = log.Logger()
	r, err := relay.New(cfg)
	if err != nil {
		e.TB.Fatal(err)
	}
	return e.Run(func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			e.TB.Error(err)
		}
	})
}

// send stores records.
func (e *entry) send(records ...*kgo.Record) {
	e.TB.Helper()
	for _, r := range records {
		r.Topic = commands
	}
	if err := e.client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		e.TB.Fatal(err)
	}
}

// body is a record whose value is a command.
func body(partition int32, format string, args ...any) *kgo.Record {
	return &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, format, args...)}
}

func TestCommandsAreCarriedOutOnceAndInOrder(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 2, refused: 1})
	const orders = 150 // pages of them
	for n := range orders {
		p := int32(n % 2)
		e.send(
			body(p, `{"op": "add", "biz_type": "order.close", "biz_id": "%d", "payload": "a", "delay_ms": 86400000}`, n+1),
			body(p, `{"op": "cancel", "biz_type": "order.close", "biz_id": %d}`, n+1),
			body(p, `{"biz_type": "order.close", "biz_id": "%d", "payload": "b", "due_time": "2000-01-01T00:00:00Z"}`, n+1),
			body(p, `{"op": "reschedule", "biz_type": "order.close", "biz_id": "%d", "delay_ms": 172800000}`, n+1),
		)
	}
	stop := e.relay()
	for n := range orders {
		e.Want(uint64(n+1), "a cancelled, b pending")
	}
	e.committed(4 * orders)
	stop()
	e.relay() // begins where the first one ended
	e.send(body(0, `{"biz_type": "order.close", "biz_key": "ord_1", "delay_ms": 1000, "headers": {"tenant": "x"}, "payload_version": 2}`))
	e.Await("the last command", func() bool {
		infos, err := e.Client.ListKey(t.Context(), "ord_1")
		return err == nil && len(infos) == 1 && infos[0].Payload == "null" && len(infos[0].Headers) > 0
	})
	for n := range orders {
		if got := e.Tasks(uint64(n + 1)); got != "a cancelled, b pending" {
			t.Errorf("order %d: %s", n+1, got)
		}
	}
}

// committed waits until the group has left that many records behind.
func (e *entry) committed(records int64) {
	e.TB.Helper()
	e.Await(fmt.Sprintf("%d records to be committed", records), func() bool { return e.offsets() == records })
}

// offsets returns the sum of the group's offsets.
func (e *entry) offsets() (sum int64) {
	e.TB.Helper()
	req, group := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewOffsetFetchRequestGroup()
	group.Group = "tocsin-shop"
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(context.Background(), e.client)
	if err != nil {
		e.TB.Fatal(err)
	}
	for _, g := range resp.Groups {
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				sum += max(p.Offset, 0)
			}
		}
	}
	return sum
}

// at sends a record to the topic of the commands.
func at(r *kgo.Record) *kgo.Record {
	r.Topic = commands
	return r
}
