package tocsinnats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/sink"
)

// made counts tasks, so that each has an id of its own.
var made atomic.Uint64

// task makes one with a payload, and headers by name.
func task(t *testing.T, payload string, headers map[string]string) tocsin.Info {
	t.Helper()
	all, err := tocsin.HeadersOf(headers)
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2026, 12, 1, 12, 0, 0, 7e6, time.UTC)
	return tocsin.Info{JobID: tocsin.JobID(1<<40 + made.Add(1)), BizID: 120881, BizType: "order.close", Version: 2, DueTime: due, ActionTime: due, Payload: payload, Headers: all}
}

// connect makes a maker, which is closed when the test ends, and a sink for a subject.
func connect(t *testing.T, cfg sink.Config, topic string) (*Maker, sink.Sink) {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	to, err := m.Sink(policy(topic))
	if err != nil {
		t.Fatal(err)
	}
	return m, to
}

// deliver delivers tasks with a deadline that the test does not wait for.
func deliver(t *testing.T, to sink.Sink, tasks ...tocsin.Info) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := to.Deliver(ctx, tasks)
	if ctx.Err() != nil {
		t.Fatalf("Deliver waited for its deadline: %v", errs)
	}
	return errs
}

// The outcomes of a task.
const (
	taken       = "taken"
	unavailable = "unavailable"
	buried      = "buried"
	failed      = "failed"
)

func outcome(err error) string {
	switch verb, _, _ := tocsin.AsOutcome(err); {
	case err == nil:
		return taken
	case sink.IsUnavailable(err):
		return unavailable
	case verb == tocsin.Buried:
		return buried
	}
	return failed
}

func TestAConsumerInNodeReadsTheValueAndEveryHeader(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	_, to := connect(t, b.config(), "orders.{biz_type}")
	sent := task(t, `{"order":1,"why":"未付款"}`, map[string]string{"X-Tenant": `acme "春" 50%`, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
	sent.BizKey, sent.Attempts, sent.PayloadVersion, sent.Schedule, sent.FireTime = "ord 1 €", 1, 3, "nightly", sent.DueTime
	plain := task(t, "line 1\r\nline 2", nil)
	outputs := new(client.Outputs)
	for _, err := range to.Deliver(context.WithValue(t.Context(), client.OutputKey, outputs), []tocsin.Info{sent, plain}) {
		wantLine(t, err, "")
	}
	if first, second := outputs.Of(uint64(sent.JobID)), outputs.Of(uint64(plain.JobID)); first != "ORDERS@1" || second != "ORDERS@2" {
		t.Errorf("outputs %q, %q", first, second)
	}
	_, port, _ := net.SplitHostPort(b.address)
	text, err := exec.CommandContext(t.Context(), "node", "testdata/consumer.js", port, "ORDERS", "2").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	common := map[string]string{
		"ce-specversion": "1.0", "ce-source": "/tocsin/test", "ce-type": "order.close", "ce-time": "2026-12-01T12:00:00.007Z",
	}
	first := maps.Clone(common)
	maps.Copy(first, map[string]string{
		"Nats-Msg-Id": sent.Key(), "ce-id": sent.Key(), "ce-tocsinjobid": sent.JobID.String(), "ce-tocsinattempt": "2", "content-type": "application/json", "ce-datacontenttype": "application/json",
		"ce-subject": "ord%201%20%E2%82%AC", "ce-partitionkey": "ord%201%20%E2%82%AC", "ce-tocsinpayloadversion": "3", "ce-tocsinschedule": "nightly", "ce-tocsinfiretime": "2026-12-01T12:00:00.007Z",
		"X-Tenant": `acme "春" 50%`, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	second := maps.Clone(common)
	maps.Copy(second, map[string]string{
		"Nats-Msg-Id": plain.Key(), "ce-id": plain.Key(), "ce-tocsinjobid": plain.JobID.String(), "ce-tocsinattempt": "1", "content-type": "text/plain; charset=utf-8", "ce-datacontenttype": "text/plain;%20charset=utf-8",
		"ce-subject": "120881", "ce-partitionkey": "120881",
	})
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	for i, want := range []map[string]string{first, second} {
		var got struct {
			Subject, Value string
			Headers        map[string]string
		}
		if err := json.Unmarshal(lines[i], &got); err != nil {
			t.Fatal(err)
		}
		if got.Subject != "orders.order.close" || got.Value != []string{sent.Payload, plain.Payload}[i] || !maps.Equal(got.Headers, want) {
			t.Errorf("read %+v\nwant headers %v", got, want)
		}
	}
}

func TestEachRefusalOfTheServerHasItsOutcome(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "max_payload: 8KB")
	js := b.admin(t)
	subjects := func(name string, more jetstream.StreamConfig) jetstream.StreamConfig {
		more.Name, more.Subjects, more.Storage = strings.ToUpper(name), []string{name}, jetstream.MemoryStorage
		return more
	}
	create(t, js, subjects("wide", jetstream.StreamConfig{}))
	create(t, js, subjects("narrow", jetstream.StreamConfig{MaxMsgSize: 1000}))
	create(t, js, subjects("small", jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardNew}))
	if _, err := js.Publish(t.Context(), "small", nil); err != nil {
		t.Fatal(err)
	}
	create(t, js, subjects("counts", jetstream.StreamConfig{AllowMsgCounter: true}))
	ended := create(t, js, subjects("ended", jetstream.StreamConfig{}))
	cfg := ended.CachedInfo().Config
	cfg.Sealed = true
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	answers(t, js.Conn(), "service")
	m, own := connect(t, b.config(), "{header.to}")
	for _, c := range []struct {
		to, payload, outcome, own, want string // own: where each task has a subject of its own
	}{
		{"wide", "x", taken, taken, ""},
		{"wide", strings.Repeat("x", 9000), buried, buried, "more than max_payload"},
		{"narrow", "x", taken, taken, ""},
		{"narrow", strings.Repeat("x", 1000), buried, buried, "message size exceeds maximum allowed"},
		{"small", "x", unavailable, failed, "maximum messages exceeded (JetStream error 10077)"},
		{"counts", "x", unavailable, failed, "(JetStream error 10169)"},
		{"ended", "x", unavailable, failed, "sealed stream"},
		{"nobody", "x", unavailable, failed, "no stream has subject nobody: create one, with `nats stream add --subjects nobody`"},
		{"service", "x", unavailable, failed, "who answered on subject service is no stream"},
		{"wide.*", "x", "", buried, "no subject of NATS"},
		{"$JS.API.STREAM.DELETE.WIDE", "x", "", buried, "no subject that a task can have"},
	} {
		sent := task(t, c.payload, map[string]string{"to": c.to, "Nats-Rollup": "all"})
		err := deliver(t, own, sent)[0]
		if wantLine(t, err, c.want); outcome(err) != c.own {
			t.Errorf("%s, by its header: %s, %v", c.to, outcome(err), err)
		}
		if c.outcome == "" {
			continue
		}
		fixed, err := m.Sink(policy(c.to))
		if err != nil {
			t.Fatal(err)
		}
		err = deliver(t, fixed, sent)[0]
		if wantLine(t, err, c.want); outcome(err) != c.outcome {
			t.Errorf("%s: %s, %v", c.to, outcome(err), err)
		}
	}
}

// answers has a plain subscriber reply on a subject, where a stream is expected.
func answers(t *testing.T, conn *nats.Conn, subject string) {
	t.Helper()
	if _, err := conn.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("hello")) }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestAFullStreamTakesTheTaskOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	s := create(t, b.admin(t), jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small"}, MaxMsgs: 2, Discard: jetstream.DiscardNew})
	_, to := connect(t, b.config(), "small")
	tasks := []tocsin.Info{task(t, "1", nil), task(t, "2", nil), task(t, "3", nil)}
	got := []string{}
	for _, err := range deliver(t, to, tasks...) {
		got = append(got, outcome(err))
	}
	if want := "taken taken unavailable"; strings.Join(got, " ") != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLine(t, deliver(t, to, tasks[2])[0], "")
	if all := messages(t, s, 1); len(all) != 1 || all[0].Headers().Get("ce-id") != tasks[2].Key() {
		t.Errorf("%d messages", len(all))
	}
}

func TestARepeatIsDroppedByTheStreamAndSaysWhereTheFirstLies(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	s := create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	_, to := connect(t, b.config(), "orders")
	first, second := task(t, "1", nil), task(t, "2", nil)
	for range 2 {
		outputs := new(client.Outputs)
		for _, err := range to.Deliver(context.WithValue(t.Context(), client.OutputKey, outputs), []tocsin.Info{first, second}) {
			wantLine(t, err, "")
		}
		if outputs.Of(uint64(first.JobID)) != "ORDERS@1" || outputs.Of(uint64(second.JobID)) != "ORDERS@2" {
			t.Errorf("%+v", outputs)
		}
		second.Attempts++
	}
	if n := count(t, s); n != 2 {
		t.Errorf("%d messages", n)
	}
}

func TestADeliveryEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	js := b.admin(t)
	create(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	_, to := connect(t, b.config(), "orders")
	wantLine(t, deliver(t, to, task(t, "1", nil))[0], "")
	b.freeze(t)
	sent, results := task(t, "2", nil), make(chan error)
	go func() { results <- to.Deliver(t.Context(), []tocsin.Info{sent})[0] }()
	awaitPending(t, to, 1, 1)
	b.kill(t)
	err := <-results
	if wantLine(t, err, "no connection to NATS at "+b.address); outcome(err) != unavailable {
		t.Error(err)
	}
}

// awaitPending waits until nats.go holds from least to most messages without an ack. It also holds those of deliveries that have ended.
func awaitPending(t *testing.T, to sink.Sink, least, most int) {
	t.Helper()
	s := to.(*subject)
	stream, err := s.maker.latest.publisher(s.timeout)
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		n := stream.PublishAsyncPending()
		if n >= least && n <= most {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d messages have no ack, want %d to %d", n, least, most)
		}
	}
}

func TestStreamsThatNeverAcknowledgeHoldUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	js := b.admin(t)
	create(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	create(t, js, jetstream.StreamConfig{Name: "SILENT", Subjects: []string{"silent.*"}, NoAck: true})
	m, _ := connect(t, b.config(), "orders")
	sinkOf := func(topic string, timeout time.Duration) sink.Sink {
		p := policy(topic)
		p.Timeout = tocsin.Duration(timeout)
		to, err := m.Sink(p)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	silent, orders := []sink.Sink{sinkOf("silent.1", time.Minute), sinkOf("silent.2", time.Minute), sinkOf("silent.3", time.Minute)}, sinkOf("orders", time.Minute)
	wantLine(t, deliver(t, orders, task(t, "first", nil))[0], "")
	const deliveries, each = 24, 256
	const least = pending * 3 / 4 // that three hold in the end
	var batches [deliveries][]tocsin.Info
	for i := range batches {
		for range each {
			batches[i] = append(batches[i], task(t, "x", nil))
		}
	}
	for round := 1; round <= 2; round++ { // in the second one nats.go has the messages of the first one too
		results := make(chan []error, deliveries)
		held, end := context.WithCancel(t.Context())
		for i, tasks := range batches {
			go func() { results <- silent[i%len(silent)].Deliver(held, tasks) }()
		}
		awaitPending(t, silent[0], round*least, round*deliveries*each)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		wantLine(t, orders.Deliver(ctx, []tocsin.Info{task(t, "x", nil)})[0], "")
		cancel()
		if len(results) > 0 {
			t.Error("a delivery to a silent subject has ended before it could hold up others")
		}
		end()
		for range deliveries {
			if err := firstOf(<-results); outcome(err) != unavailable {
				t.Error(err)
			}
		}
	}
	short := sinkOf("silent.1", time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	short.Deliver(ctx, batches[0])
	awaitPending(t, short, 0, 0)
}

func TestADeliveryThatEndsWhileItSendsLeavesTheConnection(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	m, to := connect(t, b.config(), "orders")
	wantLine(t, deliver(t, to, task(t, "first", nil))[0], "")
	var tasks []tocsin.Info
	for range atOnce {
		tasks = append(tasks, task(t, strings.Repeat("x", 10_000), nil))
	}
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		to.Deliver(ctx, tasks)
		cancel()
	}
	wantLine(t, deliver(t, to, task(t, "last", nil))[0], "")
	if n := m.latest.conn.Stats().Reconnects; n > 0 {
		t.Errorf("the connection was lost %d times", n)
	}
}

// The batch is larger than what the sockets of both sides hold, so that its writes wait for the server.
func TestABatchThatTheServerDoesNotReadEndsInTime(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	s := create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	_, to := connect(t, b.config(), "orders")
	var tasks []tocsin.Info
	for range atOnce {
		tasks = append(tasks, task(t, strings.Repeat("x", 60_000), nil))
	}
	wantLine(t, deliver(t, to, task(t, "first", nil))[0], "")
	b.freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	errs := to.Deliver(ctx, tasks)
	if ctx.Err() != nil {
		t.Error("Deliver returned after its deadline")
	}
	for i, err := range errs {
		if outcome(err) != unavailable {
			t.Fatalf("task %d: %v", i, err)
		}
	}
	b.thaw(t)
	again(t, to, tasks)
	if n := count(t, s); n != uint64(len(tasks)+1) {
		t.Errorf("%d messages of %d tasks", n, len(tasks)+1)
	}
}

// again delivers the tasks until all are taken.
func again(t *testing.T, to sink.Sink, tasks []tocsin.Info) {
	t.Helper()
	for range time.Tick(20 * time.Millisecond) {
		if failed := firstOf(deliver(t, to, tasks...)); failed == nil {
			return
		} else if outcome(failed) != unavailable {
			t.Fatal(failed)
		}
	}
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLargeBatchesOfManyDeliveriesAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	b := newBroker(t, "")
	s := create(t, b.admin(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	_, to := connect(t, b.config(), "orders")
	const deliveries, each = 12, atOnce + 1
	results := make(chan error, deliveries)
	for i := range deliveries {
		var tasks []tocsin.Info
		for n := range each {
			tasks = append(tasks, task(t, fmt.Sprintf("%d.%d", i, n), nil))
		}
		go func() { results <- firstOf(to.Deliver(t.Context(), tasks)) }()
	}
	for range deliveries {
		wantLine(t, <-results, "")
	}
	if n := count(t, s); n != deliveries*each { // a repeated id would not count
		t.Errorf("%d messages of %d tasks", n, deliveries*each)
	}
}
