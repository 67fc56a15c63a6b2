package tocsinkafka_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox/relay"
)

// setBack sets the group's offset of partition 0, as an operator does.
func (e *entry) setBack(identity string, offset int64) {
	e.TB.Helper()
	req, topic, p := kmsg.NewPtrOffsetCommitRequest(), kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	id, err := hex.DecodeString(strings.Split(identity, ".")[1])
	if err != nil {
		e.TB.Fatal(err)
	}
	topic.Topic, topic.TopicID, topic.Partitions = commands, [16]byte(id), append(topic.Partitions, p)
	req.Group, req.Topics = "tocsin-shop", append(req.Topics, topic)
	resp, err := req.RequestWith(context.Background(), e.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		e.TB.Fatal(err)
	}
}

// forget has the ledgers forget what was moved from partition 0, up to an id, as they do after ten minutes, and note below which id all was.
func (e *entry) forget(last, below uint64) (identity string) {
	e.TB.Helper()
	identities, err := e.entrance.Identities(e.TB.Context(), e.From)
	if err != nil {
		e.TB.Fatal(err)
	}
	for database := range e.Config.Layout.Databases {
		if err := client.MoverOf(e.Client).NoteSettled(e.TB.Context(), identities[0], database, below, true); err != nil {
			e.TB.Fatal(err)
		}
		e.Exec("DELETE FROM "+e.Config.Layout.Database(database)+".relayed WHERE outbox = ? AND id <= ?", identities[0], last)
	}
	return identities[0]
}

func TestAnOffsetThatWasSetBackIsRefusedWithoutReplay(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	e.DB = e.OpenDB("mysql", devtest.DSN(t))
	for n := range 10 {
		e.send(body(0, `{"biz_type": "order.close", "biz_id": "%d", "payload": "x", "delay_ms": 86400000}`, n+1))
	}
	stop := e.relay()
	e.committed(10)
	stop()
	e.setBack(e.forget(10, 11), 3)
	var log devtest.Log
	stop = e.relayTo(&log)
	line := log.Await(t, "outbox can't be relayed: its rows wait")
	if text, _ := line["error"].(string); !strings.Contains(text, "group tocsin-shop is at offset 3, and commands before offset 10 were carried out: stop the relays of the group, then set it to 10, or start one with --replay") {
		t.Error(text)
	}
	stop()
	if got := e.Tasks(4); got != "x pending" {
		t.Errorf("order 4: %s", got)
	}
	e.replay()
	e.Want(10, "x pending, x pending")
	e.committed(10)
	for n, want := range map[uint64]string{3: "x pending", 4: "x pending, x pending"} {
		if got := e.Tasks(n); got != want {
			t.Errorf("order %d: %s", n, got)
		}
	}
}

// replay runs a relay with --replay until the test ends.
func (e *entry) replay() {
	e.TB.Helper()
	cfg := e.config()
	cfg.Replay = true
	r, err := relay.New(cfg)
	if err != nil {
		e.TB.Fatal(err)
	}
	e.Run(func(ctx context.Context) { _ = r.Run(ctx) })
}

// The ledgers have forgotten an add, and remember its cancel: both are carried out again.
func TestAReplayCarriesOutWhatTheLedgersRemember(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{commands: 1, refused: 1})
	e.DB = e.OpenDB("mysql", devtest.DSN(t))
	e.send(body(0, `{"biz_type": "order.close", "biz_id": "1", "payload": "x", "delay_ms": 86400000}`),
		body(0, `{"op": "cancel", "biz_type": "order.close", "biz_id": "1"}`))
	stop := e.relay()
	e.committed(2)
	stop()
	e.setBack(e.forget(1, 3), 0)
	e.replay()
	e.committed(2)
	if got := e.Tasks(1); got != "x cancelled, x cancelled" {
		t.Errorf("order 1: %s", got)
	}
}

// A topic that was made anew is another outbox: its offsets begin again, and its commands are no copies of the former ones.
func TestATopicThatWasMadeAnewIsAnotherOutbox(t *testing.T) {
	t.Parallel()
	e := newEntry(t, map[string]int32{refused: 1})
	e.broker.create(t, commands, "")
	e.relay()
	add := `{"biz_type": "order.close", "biz_id": "%d", "payload": "x", "delay_ms": 86400000}`
	const former, all = 10, 30
	for n := range former {
		e.send(body(0, add, n+1))
	}
	e.committed(former)
	e.broker.delete(t, commands)
	e.broker.create(t, commands, "")
	e.client.PurgeTopicsFromClient(commands)
	for n := range all - former {
		e.send(body(0, add, former+n+1))
	}
	e.committed(all - former)
	for n := range uint64(all) {
		if got := e.Tasks(n + 1); got != "x pending" {
			t.Errorf("order %d: %s", n+1, got)
		}
	}
}
