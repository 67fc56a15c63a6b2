package tocsinkafka_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/sink/sinktest"
)

func TestKafkaConforms(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{}, true)
	sinktest.Run(t, sinktest.Target{
		Config: c.config(), New: func(cfg sink.Config) (sink.Maker, error) { return tocsinkafka.New(cfg) },
		Make: func(tb testing.TB, topic string) { c.create(tb, topic, "") }, Read: c.read, Keyed: true,
		Refused: func(tb testing.TB, topic string) (tocsin.Sink, tocsin.Info) {
			c.create(tb, topic, "3000")
			large := task(0)
			large.Payload = random()
			return tocsin.Sink{Topic: topic}, large
		},
		Kill: must(c.Kill), Start: c.restart, Freeze: must(c.Freeze), Thaw: must(c.Thaw),
	})
}

// random is a payload of 8,000 bytes that no compression makes smaller than half.
func random() string {
	b := make([]byte, 4000)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// The headers of docs/sinks.md, as a program reads them that knows nothing of Tocsin.
func TestKcatReadsKeyValueAndEveryHeader(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 3, "callbacks": 1}}, false)
	m := maker(t, c.config())
	info := task(0)
	info.PayloadVersion, info.Schedule, info.FireTime = 2, "nightly", info.DueTime.Add(-time.Minute)
	headers, err := tocsin.HeadersOf(map[string]string{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Tenant": "Müller 未付款",
		"ce_id": "mine", "CE_Type": "mine", "Content-Type": "mine", // names of the binding
	})
	if err != nil {
		t.Fatal(err)
	}
	info.Headers = headers
	errs, places := deliver(t, to(t, m, tocsin.Sink{Topic: "orders"}), info)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	all := c.kcat(t, "orders")
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	r := all[0]
	if *r.Key != "ord_01J8Z3" || *r.Payload != `{"why":"unpaid"}` || places[0] != fmt.Sprintf("orders/%d@%d", r.Partition, r.Offset) {
		t.Errorf("key %q, value %q, at %s, said to be at %s", *r.Key, *r.Payload, fmt.Sprint(r.Partition, r.Offset), places[0])
	}
	own := []string{"X-Tenant", "Müller 未付款", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	want := append([]string{
		"content-type", "application/json", "ce_specversion", "1.0", "ce_id", "117904638606316173.2", "ce_source", "/tocsin/shop",
		"ce_type", "order.close", "ce_subject", "ord_01J8Z3", "ce_time", "2026-12-01T12:00:00.005Z",
		"ce_tocsinjobid", "117904638606316173", "ce_tocsinattempt", "2", "ce_partitionkey", "ord_01J8Z3",
		"ce_tocsinpayloadversion", "2", "ce_tocsinschedule", "nightly", "ce_tocsinfiretime", "2026-12-01T11:59:00.005Z",
	}, own...)
	if !slices.Equal(r.Headers, want) {
		t.Errorf("headers %q\nwant %q", r.Headers, want)
	}

	if errs, _ := deliver(t, to(t, m, tocsin.Sink{Topic: "callbacks", Key: "none", Format: tocsin.FormatWebhook}), info); errs[0] != nil {
		t.Fatal(errs[0])
	}
	r = c.kcat(t, "callbacks")[0]
	if want := append([]string{"content-type", "application/json"}, own...); !slices.Equal(r.Headers, want) || r.Key != nil {
		t.Errorf("headers %q, want %q; key %v", r.Headers, want, r.Key)
	}
	if !strings.Contains(*r.Payload, `"job_id":"117904638606316173"`) {
		t.Errorf("value %s", *r.Payload)
	}
}

// `tocsin sink test` sends such a task: no row has it.
func TestATaskThatIsMadeUpIsSentToo(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 1}}, false)
	m := maker(t, c.config())
	s, err := m.Sink(tocsin.Policy{Name: "tocsin.test", Sink: &tocsin.Sink{Name: "orders-kafka", Topic: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	errs, places := deliver(t, s, tocsin.Info{JobID: 1, BizType: "tocsin.test", Payload: "{}", DueTime: time.Now()})
	if got := c.kcat(t, "orders"); errs[0] != nil || places[0] != "orders/0@0" || len(got) != 1 || !slices.Contains(got[0].Headers, "tocsin.test") {
		t.Errorf("%v, at %s: %v", errs[0], places[0], got)
	}
}

// One line says what is wrong, for doctor and of each delivery, and no task of it has used an attempt.
func TestWhoMayNotWriteIsTold(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{
		Topics: map[string]int32{"orders": 1, "other": 1},
		Users: []broker.User{
			admin, {Mechanism: "PLAIN", Name: "plain", Password: "pw", Writes: []string{"orders"}},
			{Mechanism: "SCRAM-SHA-256", Name: "short", Password: "pw", Writes: []string{"orders"}},
			{Mechanism: "SCRAM-SHA-256", Name: "reader", Password: "pw", Describes: []string{"orders"}, Writes: []string{"other"}},
			{Mechanism: "SCRAM-SHA-256", Name: "watcher", Password: "pw", Describes: []string{"orders"}},
			{Mechanism: "SCRAM-SHA-256", Name: "stranger", Password: "pw", Writes: []string{"other"}},
		},
	}, false)
	closes := "no answer from " + c.Address() + ": the connection is closed: start Kafka" // Kafka answers SASL_AUTHENTICATION_FAILED
	for name, at := range map[string]struct{ mechanism, user, password, ping, delivery string }{
		"PLAIN":             {"PLAIN", "plain", "pw", "", ""},
		"SCRAM-SHA-256":     {"SCRAM-SHA-256", "short", "pw", "", ""},
		"SCRAM-SHA-512":     {"SCRAM-SHA-512", admin.Name, admin.Password, "", ""},
		"a wrong password":  {"SCRAM-SHA-512", admin.Name, "guess", closes, closes},
		"another mechanism": {"PLAIN", "short", "pw", closes, closes},
		"no user":           {"", "", "", closes, "no answer from " + c.Address()},
		"no right to write": {"SCRAM-SHA-256", "reader", "pw", "user reader may not write to topic orders", "user reader may not write to topic orders"},
		"no right to see":   {"SCRAM-SHA-256", "stranger", "pw", "user stranger may not write to topic orders", "user stranger may not write to topic orders"},
		"no right to an id": {"SCRAM-SHA-256", "watcher", "pw", "user watcher may not write to topic orders", "user watcher may not write idempotently"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.config()
			cfg.Mechanism, cfg.Username, cfg.Password = at.mechanism, at.user, at.password
			told(t, cfg, at.ping, at.delivery)
		})
	}
}

// told wants what Ping and a delivery say to begin so, behind the name of the sink; "": they succeed.
func told(t *testing.T, cfg sink.Config, ping, delivery string) {
	t.Helper()
	m := maker(t, cfg)
	target := tocsin.Sink{Topic: "orders"}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	says(t, "Ping", m.Ping(ctx, policy(target)), ping)
	for _, err := range first(deliver(t, to(t, m, target), task(0), task(1))) {
		says(t, "Deliver", err, delivery)
		if delivery != "" && !sink.IsUnavailable(err) {
			t.Errorf("counts as an attempt: %v", err)
		}
	}
}

func first(errs []error, _ []string) []error { return errs }

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err == nil {
		return
	}
	if err == nil || want == "" || !strings.HasPrefix(err.Error(), "sink orders-kafka: "+want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "guess") {
		t.Errorf("%s: %v\nwant %q", what, err, want)
	}
}

func TestTLSIsTold(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 1}}, true)
	cfg := c.config()
	told(t, cfg, "", "")
	unknown := "no answer from " + c.Address() + ": unable to dial: tls: failed to verify certificate: x509: certificate signed by unknown authority; give tls of sink orders-kafka"
	cfg.TLS = cfg.TLS.Clone()
	cfg.TLS.RootCAs = nil
	told(t, cfg, unknown, unknown)
	cfg.TLS = nil
	closes := "no answer from " + c.Address() + ": the connection is closed: start Kafka"
	told(t, cfg, closes, closes)
}

func TestABrokerThatIsSilentIsTold(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody answers the handshake
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	m := maker(t, sink.Config{Name: "orders-kafka", Addresses: []string{silent.Addr().String()}, Topics: []string{"*"}, TLS: &tls.Config{}})
	late := "no answer from " + silent.Addr().String() + " in time"
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	says(t, "Ping", m.Ping(ctx, policy(tocsin.Sink{Topic: "orders"})), late)
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err = to(t, m, tocsin.Sink{Topic: "orders"}).Deliver(ctx, []tocsin.Info{task(0)})[0]
	says(t, "Deliver", err, late)
	if !sink.IsUnavailable(err) {
		t.Errorf("counts as an attempt: %v", err)
	}
}

// A header names a topic: the task has failed if that is missing, and the others go on.
func TestATopicByHeaderStopsNoOtherTask(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders-eu": 1}}, false)
	cfg := c.config()
	cfg.Topics = []string{"orders-*"}
	m := maker(t, cfg)
	var tasks []tocsin.Info
	for i, region := range []string{"eu", "us", "", "a b"} {
		info := task(i)
		if region != "" {
			info.Headers = tocsin.Headers(fmt.Sprintf(`{"region":%q}`, region))
		}
		tasks = append(tasks, info)
	}
	errs, places := deliver(t, to(t, m, tocsin.Sink{Topic: "orders-{header.region}"}), tasks...)
	for i, want := range []struct {
		verb tocsin.Verb
		text string
	}{
		{tocsin.Completed, ""},
		{tocsin.Retried, "sink orders-kafka: topic orders-us is missing: create it, as Tocsin never does"},
		{tocsin.Buried, `topic orders-{header.region} of sink orders-kafka: the task has no header "region"`},
		{tocsin.Buried, `sink orders-kafka: topic "orders-a b" has characters other than A-Z, a-z, 0-9, '.', '_' and '-', or more than 249`},
	} {
		if verb, _, text := tocsin.AsOutcome(errs[i]); verb != want.verb || text != want.text || sink.IsUnavailable(errs[i]) {
			t.Errorf("task %d: %s %q, unavailable %v", i, verb, text, sink.IsUnavailable(errs[i]))
		}
	}
	if places[0] != "orders-eu/0@0" {
		t.Errorf("the first lies at %q", places[0])
	}
	if err := m.Ping(t.Context(), policy(tocsin.Sink{Topic: "orders-{header.region}"})); err != nil {
		t.Errorf("Ping: %v", err)
	}
	c.create(t, "orders-us", "")
	if errs, _ := deliver(t, to(t, m, tocsin.Sink{Topic: "orders-{header.region}"}), tasks[1]); errs[0] != nil {
		t.Errorf("once it is there: %v", errs[0])
	}
}

// Not in parallel: it counts the goroutines of the process.
func TestAMissingTopicIsHealedOnceForAllTasks(t *testing.T) {
	c := start(t, broker.Config{}, false)
	s := to(t, maker(t, c.config()), tocsin.Sink{Topic: "orders"})
	var tasks []tocsin.Info
	for i := range 256 {
		tasks = append(tasks, task(i))
	}
	created := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(created)
	before := created[0].Value.Uint64()
	for _, err := range first(deliver(t, s, tasks...)) {
		says(t, "Deliver", err, "topic orders is missing")
	}
	metrics.Read(created)
	if n := created[0].Value.Uint64() - before; n >= uint64(len(tasks)) {
		t.Errorf("%d goroutines for %d tasks", n, len(tasks))
	}
}

// A client keeps such an answer for ever. Deliveries that begin together share it.
func TestAProducerThatWasRefusedItsIDOnceIsMadeAnew(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) { // the first one
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.UnknownServerError.Code
		return resp, nil, true
	})
	s := to(t, maker(t, sink.Config{Name: "orders-kafka", Addresses: c.ListenAddrs(), Topics: []string{"*"}}), tocsin.Sink{Topic: "orders"})
	var together sync.WaitGroup
	for i := range 8 {
		together.Go(func() {
			if errs, _ := deliver(t, s, task(i)); errs[0] != nil && !sink.IsUnavailable(errs[0]) {
				t.Errorf("counts as an attempt: %v", errs[0])
			}
		})
	}
	together.Wait()
	if errs, _ := deliver(t, s, task(9)); errs[0] != nil {
		t.Errorf("afterwards: %v", errs[0])
	}
}

// Kafka knows topics by id: a producer that remembers the former one would never write again.
func TestATopicThatIsMadeAnewIsFound(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 1}}, false)
	s := to(t, maker(t, c.config()), tocsin.Sink{Topic: "orders"})
	if errs, _ := deliver(t, s, task(0)); errs[0] != nil {
		t.Fatal(errs[0])
	}
	c.delete(t, "orders")
	if errs, _ := deliver(t, s, task(1)); !sink.IsUnavailable(errs[0]) {
		t.Errorf("without the topic: %v", errs[0])
	}
	c.create(t, "orders", "")
	c.eventually(t, s, task(1))
	c.delete(t, "orders") // and made anew before anybody looks
	c.create(t, "orders", "")
	c.eventually(t, s, task(2))
	if got := c.read(t, "orders", 1); len(got) != 1 || got[0].ID != task(2).Key() {
		t.Errorf("%v", got)
	}
}

// eventually delivers a task until it is taken, and returns its place. Until then it is unavailable.
func (c *cluster) eventually(t *testing.T, s sink.Sink, info tocsin.Info) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		errs, places := deliver(t, s, info)
		if errs[0] == nil {
			return places[0]
		}
		if !sink.IsUnavailable(errs[0]) || time.Now().After(end) {
			t.Fatal(errs[0])
		}
	}
}

// Each ack stays true, and each task is there, whenever the broker is killed.
func TestNothingIsLostByABrokerThatIsKilled(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 3}}, false)
	s := to(t, maker(t, c.config()), tocsin.Sink{Topic: "orders", Key: "job_id"})
	const rounds, batch = 12, 50
	placed := map[string]string{} // ids by place
	for round := range rounds {
		var open []tocsin.Info
		for i := range batch {
			open = append(open, task(round*batch+i))
		}
		back := make(chan error)
		go func() {
			<-time.After(time.Duration(round) * 300 * time.Microsecond) // before, amid or behind the batch
			back <- errors.Join(c.Kill(), c.Restart(t.Context()))
		}()
		open = taken(t, s, open, placed)
		if err := <-back; err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); len(open) > 0 && time.Now().Before(end); {
			open = taken(t, s, open, placed)
		}
	}
	ids := map[string]int{}
	for _, r := range c.kcat(t, "orders") {
		id := r.message().ID
		ids[id]++
		if want, ok := placed[fmt.Sprintf("orders/%d@%d", r.Partition, r.Offset)]; ok && want != id {
			t.Errorf("%s is where %s was acknowledged", id, want)
		}
	}
	for place, id := range placed {
		if ids[id] == 0 {
			t.Errorf("task %s, acknowledged at %s, is lost", id, place)
		}
	}
	if len(ids) != rounds*batch {
		t.Errorf("%d tasks are there, want %d", len(ids), rounds*batch)
	}
}

// taken delivers tasks, notes the places of those that are taken, and returns the others, which are unavailable.
func taken(t *testing.T, s sink.Sink, tasks []tocsin.Info, placed map[string]string) (open []tocsin.Info) {
	t.Helper()
	errs, places := deliver(t, s, tasks...)
	for i, err := range errs {
		switch {
		case err == nil:
			placed[places[i]] = tasks[i].Key()
		case sink.IsUnavailable(err):
			open = append(open, tasks[i])
		default:
			t.Fatal(err)
		}
	}
	return open
}

func TestConfigsThatCantBeRightAreRefused(t *testing.T) {
	t.Parallel()
	good := sink.Config{Name: "k", Addresses: []string{"h:9092"}, Topics: []string{"orders.*"}}
	for name, c := range map[string]struct {
		change func(*sink.Config)
		want   string
	}{
		"good":         {func(*sink.Config) {}, ""},
		"no addresses": {func(c *sink.Config) { c.Addresses = nil }, "sink k has no addresses: give host:port of a broker"},
		"no port":      {func(c *sink.Config) { c.Addresses = []string{"h:9092", "h"} }, "sink k: address 2 is not host:port"},
		"a wrong port": {func(c *sink.Config) { c.Addresses = []string{"h:x"} }, "sink k: address 1 is not host:port"},
		"a password":   {func(c *sink.Config) { c.Addresses = []string{"user:secret@h:9092"} }, "sink k: address 1 is not host:port"},
		"and no port":  {func(c *sink.Config) { c.Addresses = []string{"user:secret@h"} }, "sink k: address 1 is not host:port"},
		"a user":       {func(c *sink.Config) { c.Addresses = []string{"secret@h:9092"} }, "sink k: address 1 is not host:port"},
		"no mechanism": {func(c *sink.Config) { c.Username, c.Password = "u", "secret" }, "sink k has a username and no mechanism: without TLS, name PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"},
		"no such one":  {func(c *sink.Config) { c.Username, c.Mechanism = "u", "GSSAPI" }, `sink k: mechanism "GSSAPI" is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512`},
	} {
		cfg := good
		c.change(&cfg)
		_, err := tocsinkafka.New(cfg)
		if (err == nil) != (c.want == "") || err != nil && (!strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTopicsThatKafkaCantHaveAreRefused(t *testing.T) {
	t.Parallel()
	m := maker(t, sink.Config{Name: "orders-kafka", Addresses: []string{"h:9092"}, Topics: []string{"orders*", "eu/*"}})
	for topic, want := range map[string]string{
		"orders.{biz_type}": "", "orders-{header.region}": "",
		"payments":                          "biz type order.close: sink orders-kafka does not allow topic payments: ",
		"eu/orders":                         `biz type order.close: sink orders-kafka: topic "eu/orders" has characters other than `,
		"orders {header.region}":            `biz type order.close: sink orders-kafka: topic "orders x" has characters other than `,
		"orders" + strings.Repeat("s", 250): "biz type order.close: sink orders-kafka: topic ",
	} {
		_, err := m.Sink(policy(tocsin.Sink{Topic: topic}))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", topic, err, want)
		}
	}
}

func TestAKeyDecidesThePartition(t *testing.T) {
	t.Parallel()
	c := start(t, broker.Config{Topics: map[string]int32{"orders": 12}}, false)
	s := to(t, maker(t, c.config()), tocsin.Sink{Topic: "orders"})
	var tasks []tocsin.Info
	for i := range 40 {
		info := task(i)
		info.BizKey = fmt.Sprintf("ord_%d", i%4)
		tasks = append(tasks, info)
	}
	for _, err := range first(deliver(t, s, tasks...)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := map[string]map[int]bool{}
	for _, r := range c.kcat(t, "orders") {
		if of[*r.Key] == nil {
			of[*r.Key] = map[int]bool{}
		}
		of[*r.Key][r.Partition] = true
	}
	used := map[int]bool{}
	for key, partitions := range of {
		for partition := range partitions {
			used[partition] = true
		}
		if len(partitions) != 1 {
			t.Errorf("%s is in the partitions %v", key, partitions)
		}
	}
	if len(of) != 4 || len(used) < 2 {
		t.Errorf("%v", of)
	}
}
