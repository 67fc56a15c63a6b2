package tocsinrabbitmq_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

// TestRabbitMQ is about what only RabbitMQ has. The last parts are about a broker in trouble.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	authority := devtest.NewAuthority(t)
	cert, key := authority.Issue(t, "rabbit")
	secure := devtest.FreeAddress()
	b := start(t, "listeners.ssl.default = "+secure, "ssl_options.cacertfile = "+authority.File,
		"ssl_options.certfile = "+cert, "ssl_options.keyfile = "+key, "ssl_options.verify = verify_none")
	b.exchange(t, "events", "orders.eu", "orders.us", "bills.eu")
	t.Run("group", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, broker){
			"a consumer in Python":               consumed,
			"refusals":                           refusals,
			"a long name of a header":            longName,
			"a fixed topic":                      fixed,
			"an exchange that is declared later": exchangeLater,
			"a queue that is full":               full,
			"a queue that never confirms":        unconfirmed,
			"Ping":                               ping,
			"users":                              users,
			"a deadline that is over":            tooLate,
			"a server that is silent":            silent,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, b)
			})
		}
		t.Run("TLS", func(t *testing.T) {
			t.Parallel()
			encrypted(t, b, secure, authority.File)
		})
	})
	t.Run("publishers are blocked", func(t *testing.T) { blocked(t, b) })
	t.Run("the broker does not read", func(t *testing.T) { unread(t, b) })
}

// block returns a block of docs/sinks.md.
func block(t *testing.T, kind string) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/sinks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```" + kind + "\n(.*?)^```$").FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/sinks.md has no %s", kind)
	}
	return found[1]
}

// consumed runs the program of docs/sinks.md.
func consumed(t *testing.T, b broker) {
	file := filepath.Join(t.TempDir(), "rabbitmq.py")
	if err := os.WriteFile(file, block(t, "python rabbitmq.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.queue(t, "orders", nil)
	sent := task(`{"why":"未付款"}`, "eu")
	sent.Attempts, sent.Version, sent.PayloadVersion = 1, 3, 2
	sent.Schedule, sent.FireTime = "nightly", sent.DueTime
	s := to(t, b.config(), "orders")
	if errs, at := deliver(t, s, soon, sent); errs[0] != nil || at[0] != "orders" {
		t.Fatalf("%v, at %q", errs, at)
	}
	if errs, _ := deliver(t, s, soon, sent); errs[0] != nil { // the same id again: the program drops it
		t.Fatal(errs)
	}
	python := "python3"
	if exec.CommandContext(t.Context(), python, "-c", "import pika").Run() != nil {
		python = "/usr/bin/python3" // Debian's has Debian's modules
	}
	cmd := exec.CommandContext(t.Context(), python, file)
	cmd.Env = append(os.Environ(), fmt.Sprintf("AMQP_URL=amqp://tocsin:%s@%s/%%2F", password, b.Endpoint()))
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("install python3-pika, or run make test, which does: %v\n%s", err, complaint.String())
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string]any{
		"id": sent.Key(), "type": "order.close", "content_type": "application/json", "app": "tocsin", "mode": 2.0,
		"timestamp": float64(sent.DueTime.Unix()), "key": "orders", "body": sent.Payload,
		"headers": map[string]any{
			"Where": "eu", "cloudEvents:specversion": "1.0", "cloudEvents:id": sent.Key(), "cloudEvents:source": "/tocsin/c1",
			"cloudEvents:type": "order.close", "cloudEvents:subject": sent.BizKey, "cloudEvents:time": "2026-12-01T12:00:00.250Z",
			"cloudEvents:tocsinjobid": sent.JobID.String(), "cloudEvents:tocsinattempt": "2", "cloudEvents:partitionkey": sent.BizKey,
			"cloudEvents:tocsinpayloadversion": "2", "cloudEvents:tocsinschedule": "nightly", "cloudEvents:tocsinfiretime": "2026-12-01T12:00:00.250Z",
		},
	}
	if a, b := fmt.Sprint(got), fmt.Sprint(want); a != b {
		t.Errorf("the program got\n%s\nwant\n%s", a, b)
	}
}

// refusals delivers three tasks together, the middle one to a place of its own.
func refusals(t *testing.T, b broker) {
	onEvents, byOrders, byReader, toNothing := b.config(), b.config(), b.config(), b.config()
	onEvents.Exchange, byOrders.Exchange, byReader.Exchange, toNothing.Exchange = "events", "events", "events", "no.such"
	byOrders.Username, byReader.Username = "orders", "reader"
	withCC := task("{}", "orders.eu")
	withCC.Headers = `{"CC":"a","Where":"orders.eu"}`
	for name, c := range map[string]struct {
		cfg    sink.Config
		middle tocsin.Info
		want   string // outcomes
		says   string
	}{
		"all is well":            {onEvents, task("{}", "orders.us"), "complete complete complete", ""},
		"no queue is bound":      {onEvents, task("{}", "orders.asia"), "complete retry complete", `sink rabbit: exchange events has no queue for routing key "orders.asia": bind one`},
		"there is no queue":      {b.config(), task("{}", "orders.asia"), "complete retry complete", `sink rabbit: there is no queue "orders.asia": declare it`},
		"no queue on two lines":  {b.config(), task("{}", "orders\nasia"), "complete retry complete", `sink rabbit: there is no queue "orders\nasia": declare it`},
		"no bind on two lines":   {onEvents, task("{}", "orders\nasia"), "complete retry complete", `has no queue for routing key "orders\nasia": bind one`},
		"forbidden on two lines": {byOrders, task("{}", "bills\neu"), "complete retry complete", `sink rabbit: user orders may not publish to "events/bills\neu": let it write there`},
		"it is too large":        {onEvents, task(strings.Repeat("x", largest+1), "orders.us"), "complete bury complete", "larger than configured max size 100000"},
		"it is large enough":     {onEvents, task(strings.Repeat("x", largest), "orders.us"), "complete complete complete", ""},
		"a header is RabbitMQ's": {onEvents, withCC, "complete bury complete", "unacceptable_type_in_header"},
		"the key is too long":    {onEvents, task("{}", strings.Repeat("o", 256)), "complete bury complete", "sink rabbit: a routing key has 256 bytes, and RabbitMQ takes 255"},
		"a topic is forbidden":   {byOrders, task("{}", "bills.eu"), "complete retry complete", `sink rabbit: user orders may not publish to "events/bills.eu": let it write there (rabbitmqctl set_permissions): "ACCESS_REFUSED`},
		"all are forbidden":      {byReader, task("{}", "orders.us"), "retry retry retry", `sink rabbit: user reader may not publish to "events/orders.us": let it write there`},
		"there is no exchange":   {toNothing, task("{}", "orders.us"), "unavailable unavailable unavailable", "sink rabbit: there is no exchange no.such: declare it, or name another in the sink's config: NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := to(t, c.cfg, "{header.Where}")
			all := []tocsin.Info{task("{}", "orders.eu"), c.middle, task("{}", "orders.eu")}
			errs, at := deliver(t, s, soon, all...)
			var got []string
			for i, err := range errs {
				got = append(got, outcome(err))
				if place := strings.TrimPrefix(c.cfg.Exchange+"/"+all[i].Header("Where"), "/"); err == nil && at[i] != place || err != nil && at[i] != "" {
					t.Errorf("task %d went to %q, want %q", i, at[i], place)
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Fatalf("%s, want %s: %v", got, c.want, errs)
			}
			if errs[1] != nil && !strings.Contains(strings.ToLower(errs[1].Error()), strings.ToLower(c.says)) {
				t.Errorf("%q, want %q", errs[1], c.says)
			}
			again, _ := deliver(t, s, soon, c.middle) // alone: the same
			if outcome(again[0]) != got[1] {
				t.Errorf("alone: %v", again)
			}
		})
	}
}

// longName delivers a task that only plain SQL can store, beside a good task of another policy.
func longName(t *testing.T, b broker) {
	b.queue(t, "long.bad", nil)
	b.queue(t, "long.good", nil)
	var log devtest.Log
	cfg := b.config()
	cfg.Logger = log.Logger()
	m := maker(t, cfg)
	bad, good := of(t, m, "long.bad"), of(t, m, "long.good")
	long := task("{}", "")
	long.Headers = tocsin.Headers(`{"` + strings.Repeat("h", 256) + `":""}`)
	for _, c := range []struct {
		s    sink.Sink
		task tocsin.Info
		want string
	}{{good, task("{}", ""), "complete"}, {bad, long, "bury"}, {good, task("{}", ""), "complete"}} {
		if errs, _ := deliver(t, c.s, soon, c.task); outcome(errs[0]) != c.want {
			t.Errorf("%v, want %s", errs, c.want)
		}
	}
	if made := log.Lines("connected to RabbitMQ"); len(made) != 1 {
		t.Errorf("%d connections, want one: %v", len(made), log.Lines())
	}
}

// fixed is about routing keys that all tasks of a policy have: they wait, where refusals has failed attempts.
func fixed(t *testing.T, b broker) {
	onEvents, byOrders := b.config(), b.config()
	onEvents.Exchange, byOrders.Exchange, byOrders.Username = "events", "events", "orders"
	toQueue := byOrders
	toQueue.Exchange = ""
	b.queue(t, "replicated", amqp.Table{"x-queue-type": "quorum"})
	for topic, c := range map[string]struct {
		cfg  sink.Config
		says string
	}{
		"orders.eu":   {byOrders, ""},
		"orders.asia": {onEvents, `sink rabbit: exchange events has no queue for routing key "orders.asia": bind one`},
		"bills.eu":    {byOrders, `sink rabbit: user orders may not publish to "events/bills.eu"`},
		"orders.us":   {toQueue, ""},
		"replicated":  {toQueue, ""},
	} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			errs, _ := deliver(t, to(t, c.cfg, topic), soon, tasks(3)...)
			for _, err := range errs {
				if c.says == "" && err != nil || c.says != "" && (outcome(err) != "unavailable" || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("%v, want %q", err, c.says)
				}
			}
		})
	}
}

func exchangeLater(t *testing.T, b broker) {
	cfg := b.config()
	cfg.Exchange = "later"
	s := to(t, cfg, "later.key")
	if errs, _ := deliver(t, s, soon, tasks(3)...); outcome(errs[0]) != "unavailable" {
		t.Fatal(errs)
	}
	b.exchange(t, "later", "later.key")
	if errs, at := deliver(t, s, soon, tasks(1)...); errs[0] != nil || at[0] != "later/later.key" {
		t.Errorf("%v at %q", errs, at)
	}
}

func full(t *testing.T, b broker) {
	b.queue(t, "full", amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	s := to(t, b.config(), "full")
	all := tasks(3)
	taken := 0
	for range all {
		errs, _ := deliver(t, s, soon, all...)
		for _, err := range errs {
			switch {
			case err == nil:
				taken++
			case outcome(err) != "unavailable" || !strings.Contains(err.Error(), `sink rabbit: a queue of "full" refused the message: it is full`):
				t.Fatal(err)
			}
		}
	}
	if got := b.read(t, "full", 2); len(got) != taken || taken == 0 || taken > 3 {
		t.Errorf("%d in the queue, %d taken", len(got), taken)
	}
	b.queue(t, "free", nil)
	byHeader := to(t, b.config(), "{header.Where}")
	for where, want := range map[string]string{"full": "retry", "free": "complete"} { // the one must not stop the other
		if errs, _ := deliver(t, byHeader, soon, task("{}", where)); outcome(errs[0]) != want {
			t.Errorf("to the queue %s: %v, want %s", where, errs[0], want)
		}
	}
	b.admin(t, func(ch *amqp.Channel) error {
		_, err := ch.QueuePurge("full", false)
		return err
	})
	if errs, _ := deliver(t, s, soon, all[0]); errs[0] != nil {
		t.Error(errs)
	}
}

// unconfirmed has two queues take messages without a confirm, as without their majority, and delivers more to each than there are channels.
func unconfirmed(t *testing.T, b broker) {
	b.queue(t, "confirmed", nil)
	b.queue(t, "unconfirmed1", amqp.Table{"x-queue-type": "quorum"})
	b.queue(t, "unconfirmed2", amqp.Table{"x-queue-type": "quorum"})
	control := func(what string) {
		if err := b.Control(context.Background(), "[sys:"+what+"(Q) || Q <- ['%2F_unconfirmed1', '%2F_unconfirmed2']]"); err != nil {
			t.Error(err)
		}
	}
	control("suspend")
	defer control("resume") // else the broker does not stop
	m := maker(t, b.config())
	bads, good := []sink.Sink{of(t, m, "unconfirmed1"), of(t, m, "unconfirmed2")}, of(t, m, "confirmed")
	if errs, _ := deliver(t, good, soon, tasks(1)...); errs[0] != nil {
		t.Fatal(errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var under sync.WaitGroup
	defer under.Wait()
	defer cancel()
	for _, bad := range bads {
		for range 200 {
			under.Go(func() { bad.Deliver(ctx, tasks(1)) })
		}
		for tries := 1; ; tries++ { // the first may be one of those that have a channel
			errs, _ := deliver(t, bad, time.Second, tasks(1)...)
			if outcome(errs[0]) == "unavailable" && strings.Contains(errs[0].Error(), "sink rabbit: no channel to RabbitMQ was free in time") {
				break
			}
			if tries == 10 {
				t.Fatalf("%v, want no free channel for this policy", errs)
			}
		}
	}
	if errs, _ := deliver(t, good, soon, tasks(1)...); errs[0] != nil {
		t.Errorf("%v, of another queue", errs)
	}
}

func ping(t *testing.T, b broker) {
	b.queue(t, "pinged", nil)
	onEvents, nowhere, reader, stranger, shop := b.config(), b.config(), b.config(), b.config(), b.config()
	onEvents.Exchange, nowhere.Exchange, reader.Username, stranger.Username = "events", "no.such", "reader", "stranger"
	shop.Addresses = []string{b.Endpoint() + "/shop"}
	for name, c := range map[string]struct {
		cfg         sink.Config
		topic, says string
	}{
		"the queue is there":    {b.config(), "pinged", ""},
		"it is seen by readers": {reader, "pinged", ""},
		"no queue":              {b.config(), "unheard.of", `sink rabbit: there is no queue "unheard.of": declare it`},
		"another vhost":         {shop, "pinged", `sink rabbit: there is no queue "pinged": declare it`},
		"by header":             {b.config(), "{header.Where}", ""},
		"the exchange is there": {onEvents, "unheard.of", ""},
		"no exchange":           {nowhere, "pinged", "sink rabbit: there is no exchange no.such: declare it"},
		"a stranger":            {stranger, "pinged", "does not let user stranger in: check the sink's username and password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			err := maker(t, c.cfg).Ping(ctx, policy(c.topic))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), password)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func users(t *testing.T, b broker) {
	wrong, lost, many := b.config(), b.config(), b.config()
	wrong.Password = "wild-geese-2"
	lost.Addresses = []string{b.Endpoint() + "/nowhere"}
	many.Addresses = []string{devtest.FreeAddress(), b.Endpoint(), devtest.FreeAddress()}
	b.queue(t, "users", nil)
	for name, c := range map[string]struct {
		cfg  sink.Config
		says string
	}{
		"a wrong password":      {wrong, "sink rabbit: " + b.Endpoint() + " does not let user tocsin in: check the sink's username and password"},
		"no vhost":              {lost, "does not let user tocsin use vhost nowhere: add it, or give the user rights there"},
		"one of many addresses": {many, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, _ := deliver(t, to(t, c.cfg, "users"), soon, tasks(1)...)
			if c.says == "" && errs[0] != nil || c.says != "" && (outcome(errs[0]) != "unavailable" || !strings.Contains(errs[0].Error(), c.says)) {
				t.Errorf("%v, want %q", errs[0], c.says)
			}
		})
	}
}

func tooLate(t *testing.T, b broker) {
	b.queue(t, "late", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	errs := to(t, b.config(), "late").Deliver(ctx, tasks(2))
	if outcome(errs[0]) != "unavailable" || outcome(errs[1]) != "unavailable" {
		t.Error(errs)
	}
}

func encrypted(t *testing.T, b broker, secure, authority string) {
	b.queue(t, "secret", nil)
	pem, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	known, unknown, plain, mixed := b.config(), b.config(), b.config(), b.config()
	known.Addresses, known.TLS = []string{secure}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	unknown.Addresses, unknown.TLS = []string{secure}, &tls.Config{MinVersion: tls.VersionTLS12}
	plain.Addresses = []string{secure}
	mixed.TLS = known.TLS
	for name, c := range map[string]struct {
		cfg  sink.Config
		says string
	}{
		"a known authority":    {known, ""},
		"an unknown authority": {unknown, "certificate signed by unknown authority; give tls of sink rabbit in the config the authority"},
		"plain text to TLS":    {plain, "some close the connection if the user or tls of sink rabbit in the config is wrong"},
		"TLS to plain text":    {mixed, "leave out tls of sink rabbit in the config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, _ := deliver(t, to(t, c.cfg, "secret"), soon, tasks(1)...)
			if c.says == "" && errs[0] != nil || c.says != "" && (outcome(errs[0]) != "unavailable" || !strings.Contains(errs[0].Error(), c.says)) {
				t.Errorf("%v, want %q", errs[0], c.says)
			}
		})
	}
}

// blocked has the broker believe that it has no memory.
func blocked(t *testing.T, b broker) {
	b.queue(t, "blocked", nil)
	s := to(t, b.config(), "blocked")
	control := func(watermark string) {
		t.Helper()
		if err := b.Control(t.Context(), "vm_memory_monitor:set_vm_memory_high_watermark("+watermark+")"); err != nil {
			t.Fatal(err)
		}
	}
	before, during := tasks(2), tasks(2)
	if errs, _ := deliver(t, s, soon, before...); errs[0] != nil {
		t.Fatal(errs)
	}
	control("0.000001")
	told := func() error { // the connection hears of it a little later
		errs, _ := deliver(t, s, time.Minute, during...)
		return errs[1]
	}
	for end := time.Now().Add(time.Minute); told() == nil && time.Now().Before(end); {
	}
	for range 2 {
		began := time.Now()
		errs, _ := deliver(t, s, time.Minute, during...)
		if outcome(errs[1]) != "unavailable" || !strings.Contains(errs[1].Error(), "sink rabbit: RabbitMQ takes no messages until it has more memory or disk: low on memory") {
			t.Fatal(errs)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("told after %s", took)
		}
	}
	shut, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	other := maker(t, b.config())
	if errs, _ := deliver(t, of(t, other, "blocked"), 2*time.Second, during...); outcome(errs[0]) != "unavailable" {
		t.Fatal(errs)
	}
	if err := other.Close(shut); err != nil {
		t.Error(err)
	}
	control("0.6")
	for end := time.Now().Add(time.Minute); ; {
		errs, _ := deliver(t, s, soon, during...)
		if errs[0] == nil && errs[1] == nil {
			break
		}
		if outcome(errs[0]) != "unavailable" || time.Now().After(end) {
			t.Fatal(errs)
		}
	}
	got := idsOf(b.read(t, "blocked", 4))
	if want := keysOf(append(before, during...)...); !slices.Equal(slices.Compact(got), want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// silent is about something that takes connections, and never answers.
func silent(t *testing.T, b broker) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cfg := b.config()
	cfg.Addresses = []string{l.Addr().String()}
	errs, _ := deliver(t, to(t, cfg, "silent"), soon, tasks(1)...)
	if outcome(errs[0]) != "unavailable" || !strings.Contains(errs[0].Error(), "sink rabbit: no connection to RabbitMQ at "+cfg.Addresses[0]) {
		t.Error(errs)
	}
}

// unread sends more than sockets hold to a broker that does not read: the client waits in the write, and knows no context.
func unread(t *testing.T, b broker) {
	b.queue(t, "unread", nil)
	m := maker(t, b.config())
	s := of(t, m, "unread")
	var all []tocsin.Info
	for range 2 * 256 {
		all = append(all, task(strings.Repeat("x", 4*tocsin.MaxPayload), ""))
	}
	if errs, _ := deliver(t, s, soon, all[0]); errs[0] != nil {
		t.Fatal(errs)
	}
	func() {
		b.freeze(t)
		defer b.thaw(t)
		for _, part := range [][]tocsin.Info{all, all[:1]} { // the second one finds the connection taken
			errs, _ := deliver(t, s, 3*time.Second, part...)
			for i, err := range errs {
				if outcome(err) != "unavailable" {
					t.Fatalf("task %d: %v", i, err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	errs, _ := deliver(t, to(t, b.config(), "unread"), time.Minute, all...)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
	}
	if got, want := slices.Compact(idsOf(b.read(t, "unread", len(all)))), keysOf(all...); !slices.Equal(got, want) {
		t.Errorf("%d of %d tasks", len(got), len(want))
	}
}
