package tocsinrabbitmq_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinrabbitmq"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	startWithin = 2 * time.Minute
	soon        = 10 * time.Second
	password    = "wild-geese"
	largest     = 100_000 // bytes of a message
	prefix      = "cloudEvents:"
)

// broker is a RabbitMQ of one test. Its users have the same password; of them tocsin may do all, reader may not write, and orders may
// write to the default exchange, and to exchange events with routing keys that begin with "orders.".
type broker struct{ *devserver.RabbitMQ }

func start(t *testing.T, settings ...string) broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	file := filepath.Join(t.TempDir(), "definitions.json")
	if err := os.WriteFile(file, definitions(t), 0o600); err != nil {
		t.Fatal(err)
	}
	settings = append(settings, "load_definitions = "+file, fmt.Sprintf("max_message_size = %d", largest))
	r, err := devserver.StartRabbitMQ(ctx, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return broker{r}
}

// definitions are the users of a broker.
func definitions(t *testing.T) []byte {
	t.Helper()
	salt := []byte("salt")
	sum := sha256.Sum256(append(slices.Clone(salt), password...))
	hash := base64.StdEncoding.EncodeToString(append(salt, sum[:]...))
	type row map[string]any
	var users, rights []row
	for name, write := range map[string]string{"tocsin": ".*", "reader": "^$", "orders": `^(events|amq\.default)$`} {
		users = append(users, row{"name": name, "password_hash": hash, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""})
		rights = append(rights, row{"user": name, "vhost": "/", "configure": ".*", "write": write, "read": ".*"})
	}
	rights = append(rights, row{"user": "tocsin", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"})
	text, err := json.Marshal(map[string]any{
		"users": users, "permissions": rights, "vhosts": []row{{"name": "/"}, {"name": "shop"}},
		"topic_permissions": []row{{"user": "orders", "vhost": "/", "exchange": "events", "write": `^orders\.`, "read": ".*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// config is that of a sink on the broker.
func (b broker) config() sink.Config {
	return sink.Config{
		Name: "rabbit", Addresses: []string{b.Endpoint()}, Username: "tocsin", Password: password, Topics: []string{"*"}, Cluster: "c1",
	}
}

// maker returns a maker that is closed at the end of the test.
func maker(t *testing.T, cfg sink.Config) *tocsinrabbitmq.Maker {
	t.Helper()
	m, err := tocsinrabbitmq.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

// policy sends to a topic.
func policy(topic string) tocsin.Policy {
	return tocsin.Policy{Name: "order.close", Number: 7, Sink: &tocsin.Sink{Name: "rabbit", Topic: topic}}
}

// to returns a sink of a maker of its own.
func to(t *testing.T, cfg sink.Config, topic string) sink.Sink {
	t.Helper()
	return of(t, maker(t, cfg), topic)
}

// of returns a maker's sink of a policy of its own.
func of(t *testing.T, m *tocsinrabbitmq.Maker, topic string) sink.Sink {
	t.Helper()
	s, err := m.Sink(policy(topic))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ids atomic.Uint64

// task returns one that no other test has, with a header where its topic shall be filled in from.
func task(payload, where string) tocsin.Info {
	n := ids.Add(1)
	due := time.Date(2026, 12, 1, 12, 0, 0, 250e6, time.UTC)
	return tocsin.Info{
		JobID: tocsin.JobID(1<<40 + n), BizID: n, BizKey: fmt.Sprintf("ord_%d", n), BizType: "order.close", DueTime: due, ActionTime: due,
		Payload: payload, Headers: tocsin.Headers(fmt.Sprintf(`{"Where":%q}`, where)),
	}
}

func tasks(n int) (all []tocsin.Info) {
	for range n {
		all = append(all, task(`{"order":7}`, ""))
	}
	return all
}

// deliver delivers within a time, and returns the errors and outputs of the tasks.
func deliver(t *testing.T, s sink.Sink, within time.Duration, all ...tocsin.Info) (errs []error, outputs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var kept client.Outputs
	errs = s.Deliver(context.WithValue(ctx, client.OutputKey, &kept), all)
	if len(errs) != len(all) || ctx.Err() != nil {
		t.Fatalf("%d errors for %d tasks, context %v", len(errs), len(all), ctx.Err())
	}
	for i, task := range all {
		outputs = append(outputs, kept.Of(uint64(task.JobID)))
		if errs[i] != nil && (strings.Contains(errs[i].Error(), password) || strings.Contains(errs[i].Error(), "\n")) {
			t.Errorf("want a line without the password: %q", errs[i])
		}
	}
	return errs, outputs
}

// outcome is what a delivery's error means to the dispatcher.
func outcome(err error) string {
	verb, _, _ := tocsin.AsOutcome(err)
	if sink.IsUnavailable(err) {
		return "unavailable"
	}
	return verb.String()
}

// admin does something over a channel of its own to vhost /.
func (b broker) admin(tb testing.TB, do func(ch *amqp.Channel) error) {
	tb.Helper()
	conn, err := amqp.DialConfig("amqp://"+b.Endpoint(), amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "tocsin", Password: password}}, Vhost: "/", Locale: "en_US",
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// queue makes a durable queue.
func (b broker) queue(tb testing.TB, name string, args amqp.Table) {
	tb.Helper()
	b.admin(tb, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

// exchange makes a durable topic exchange, and binds a queue of the same name as each routing key.
func (b broker) exchange(tb testing.TB, name string, keys ...string) {
	tb.Helper()
	b.admin(tb, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	for _, key := range keys {
		b.queue(tb, key, nil)
		b.admin(tb, func(ch *amqp.Channel) error { return ch.QueueBind(key, key, name, false, nil) })
	}
}

// read waits until a queue has some messages, and returns all that it has. They stay there.
func (b broker) read(tb testing.TB, queue string, least int) (all []amqp.Delivery) {
	tb.Helper()
	b.admin(tb, func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, false)
			switch {
			case err != nil:
				return err
			case ok:
				all = append(all, d)
			case len(all) >= least:
				return nil
			default:
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	return all
}

// idsOf returns the ids of messages.
func idsOf(all []amqp.Delivery) (ids []string) {
	for _, d := range all {
		ids = append(ids, d.MessageId)
	}
	slices.Sort(ids)
	return ids
}

func keysOf(all ...tocsin.Info) (keys []string) {
	for _, t := range all {
		keys = append(keys, t.Key())
	}
	slices.Sort(keys)
	return keys
}

// freeze stops it until thaw: its connections stay, and it answers nothing.
func (b broker) freeze(tb testing.TB) { b.signal(tb, syscall.SIGSTOP) }
func (b broker) thaw(tb testing.TB)   { b.signal(tb, syscall.SIGCONT) }

func (b broker) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := b.Signal(s); err != nil {
		tb.Fatal(err)
	}
}
