package tocsinkafka_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

// controlled is a broker in this process, whose answers a test may change, with a topic of commands and more. There are no databases.
func controlled(t *testing.T, more ...string) (*entry, *kfake.Cluster) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, append(more, commands)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	e := &entry{Shop: &relaytest.Shop{TB: t}}
	e.use(tocsinkafka.Entrance{Brokers: sink.Config{Name: "orders-kafka", Addresses: cluster.ListenAddrs(), Logger: e.log.Logger()}, Group: "tocsin-shop"})
	if e.client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2<<20)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.client.Close)
	return e, cluster
}

// deleteRecords deletes those of partition 0 before an offset, as retention does.
func (e *entry) deleteRecords(before int64) {
	e.TB.Helper()
	req, topic, p := kmsg.NewPtrDeleteRecordsRequest(), kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = before
	topic.Topic, topic.Partitions = commands, append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(context.Background(), e.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		e.TB.Fatal(err)
	}
}

// cancels sends that many commands.
func (e *entry) cancels(n int) {
	e.TB.Helper()
	for i := range n {
		e.send(body(0, `{"op": "cancel", "biz_type": "order.close", "biz_id": "%d"}`, i+1))
	}
}

// A new leader answers without records until it knows how far it may be read.
func TestAnEmptyAnswerIsNoProofThatARecordIsGone(t *testing.T) {
	t.Parallel()
	e, cluster := controlled(t)
	e.cancels(3)
	s := e.leading()
	rows, err := s.Read(t.Context(), everything, 100, nil)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	var empty atomic.Int64
	empty.Store(1000)
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if cluster.KeepControl(); empty.Add(-1) < 0 {
			return nil, nil, false
		}
		asked, resp := req.(*kmsg.FetchRequest), req.ResponseKind().(*kmsg.FetchResponse)
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	second := []outbox.Range{{First: 2, Last: 2}}
	if rows, err = s.Read(t.Context(), second, 1, nil); err == nil {
		t.Errorf("nothing is shown, and no error: %v", rows)
	}
	empty.Store(2)
	if rows, err = s.Read(t.Context(), second, 1, nil); err != nil || len(rows) != 1 || rows[0].ID != 2 {
		t.Errorf("a record that is there: %v, %v", rows, err)
	}
	if n, err := s.Next(t.Context()); err != nil || e.offsets() != 0 {
		t.Errorf("next %d, offset %d: %v", n, e.offsets(), err)
	}
}

// Retention deletes what was read and is not done: Read goes on until it has enough of the others.
func TestRecordsBehindThoseThatAreGoneAreRead(t *testing.T) {
	t.Parallel()
	e, _ := controlled(t)
	e.cancels(20)
	s := e.leading()
	if rows, err := s.Read(t.Context(), everything, 100, nil); err != nil || len(rows) != 20 {
		t.Fatal(rows, err)
	}
	e.deleteRecords(10)
	for range 2 { // with those that are gone, and without them
		rows, err := s.Read(t.Context(), []outbox.Range{{First: 1, Last: 13}, {First: 15, Last: 20}}, 5, nil)
		if got := ids(rows); err != nil || len(got) != 5 || got[0] != 11 || got[3] != 15 {
			t.Errorf("%v: %v", got, err)
		}
	}
	if _, err := s.Next(t.Context()); err != nil || e.offsets() != 10 {
		t.Errorf("offset %d: %v", e.offsets(), err)
	}
}
