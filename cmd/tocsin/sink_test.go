package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	dueTopic     = "orders.due"
	commandTopic = "orders.commands"
)

// kafkaSite has a cluster whose config has a broker as the sink "kafka", which keeps what it has when it is killed.
func kafkaSite(t *testing.T) (*site, *broker.Broker) {
	t.Helper()
	b, err := broker.Start(t.Context(), broker.Config{Dir: t.TempDir(), Topics: map[string]int32{dueTopic: 1, commandTopic: 2, commandTopic + ".dlt": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.WithoutCancel(t.Context())) })
	s := bareSite(t)
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"sinks:\n  kafka: {kind: kafka, addresses: [\""+b.Address()+"\"], topics: [\"orders.*\"]}\n")
	s.applyDDL()
	s.applyBiz("biz_types:\n  - {name: order.close, number: 1, sink: {name: kafka, topic: " + dueTopic + "}}\n")
	return s, b
}

// records reads all records of a topic, with kcat: "key value", a line each.
func records(t *testing.T, b *broker.Broker, topic string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kcat", "-q", "-C", "-e", "-b", b.Address(), "-t", topic, "-f", `%k %s\n`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// endings answers each connection in a way, and returns its address.
func endings(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answers sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); answers.Wait() })
	answers.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answers.Go(func() { answer(conn); _ = conn.Close() })
		}
	})
	return l.Addr().String()
}

// What is wrong on the way to a broker, for each kind of sink and for an entrance.
func TestTheAdviceFitsTheWayToABroker(t *testing.T) {
	t.Parallel()
	cert, key := devtest.NewAuthority(t).Issue(t, "broker")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	secured := endings(t, func(c net.Conn) { _ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake() })
	greets := endings(t, func(c net.Conn) {
		_, _ = c.Write([]byte("220 of another protocol\r\n"))
		_, _ = c.Read(make([]byte, 1))
	})
	pings := map[string]func(context.Context, sink.Config) error{"entrance": func(ctx context.Context, cfg sink.Config) error {
		return tocsinkafka.Entrance{Brokers: cfg, Group: "g"}.Ping(ctx, outbox.Config{Name: "x", Table: "t"})
	}}
	for kind, make := range sinkKinds {
		pings[kind] = func(ctx context.Context, cfg sink.Config) error {
			m, err := make(cfg)
			if err != nil {
				return err
			}
			defer func() { _ = m.Close(ctx) }()
			return m.Ping(ctx, tocsin.Policy{Name: "a", Sink: &tocsin.Sink{Name: "x", Topic: "t"}})
		}
	}
	for name, c := range map[string]struct {
		address string
		secure  bool
		is      loop.Way
	}{
		"nothing listens":         {devtest.FreeAddress(), false, loop.WaySilent},
		"a name that is none":     {"broker.invalid:9092", false, loop.WayName},
		"a proxy without servers": {endings(t, func(net.Conn) {}), false, loop.WayClosed},
		"TLS to plain text":       {greets, true, loop.WayPlain},
		"an unknown authority":    {secured, true, loop.WayCA},
	} {
		for kind, ping := range pings {
			if kind == "nats" && c.secure {
				continue // its servers speak first, in plain text
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				cfg, of := sink.Config{Name: "x", Addresses: []string{c.address}, Topics: []string{"*"}}, "sink x"
				if c.secure {
					cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
				}
				if kind == "entrance" {
					kind, of = "kafka", "entrance x"
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err, want := ping(ctx, cfg), loop.Broker(kind, of).Do(c.is)
				if err == nil || !strings.HasSuffix(strings.ToLower(err.Error()), strings.ToLower(want)) {
					t.Errorf("%v; want %q", err, want)
				}
			})
		}
	}
}

// What is wrong on the way to an outbox: doctor says what to do.
func TestTheAdviceFitsTheWayToAnOutbox(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		devtest.FreeAddress(): "start it, or correct the dsn of outbox x", "server.invalid:3306": "correct the host name in the dsn of outbox x",
		endings(t, func(net.Conn) {}): "start its server behind what answers there",
	} {
		for _, dsn := range []string{"u:p@tcp(%s)/shop", "postgres://u:p@%s/shop"} {
			file := config.File{Outboxes: []config.Outbox{{Name: "x", DSN: fmt.Sprintf(dsn, address), Table: "shop.tocsin_outbox"}}}
			got := (&app{}).outboxes(t.Context(), visit{file: file})
			if len(got) != 1 || !strings.HasPrefix(got[0].Fix, want) {
				t.Errorf("%s: %+v, want %q", file.Outboxes[0].DSN, got, want)
			}
		}
	}
}

func TestDueTasksBecomeRecordsOfABroker(t *testing.T) {
	t.Parallel()
	s, b := kafkaSite(t)
	s.doctor().finding(t, "ok", "sinks", "the brokers answer for 1 target")
	s.run("biz", "list").says(t, "kafka/"+dueTopic)
	s.run("sink", "test", "kafka", "--topic", dueTopic, "--key", "k1").says(t, "kafka: stored record", "at "+dueTopic+"/0@0")
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	id := s.add(7, "--in", "0s", "--payload", `{"order":7}`)
	s.doctor().finding(t, "fail", "sinks", "sink kafka", "no answer from "+b.Address())
	if r := s.run("sweep", "--grace", "0s", "--force"); r.code != exitFailed || !strings.Contains(r.stderr, "order.close") {
		t.Errorf("a sweep without the broker: %+v", r)
	}
	if task := decode[[]taskJSON](t, s.run("task", "list", "--biz-id", "7", "--json")); len(task) != 1 || task[0].Status != "pending" {
		t.Errorf("while the broker is away: %+v", task)
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run("sweep", "--grace", "0s", "--force").endedWith(t, "1 delivered")
	if got := records(t, b, dueTopic); len(got) != 2 || got[0] != `k1 {"test":true}` || got[1] != `7 {"order":7}` {
		t.Errorf("task %s: the topic has %q", id, got)
	}
	if s.count(tocsin.Done) != 1 {
		t.Errorf("%d tasks are done", s.count(tocsin.Done))
	}
}

// entrance adds one to the config.
func (s *site) entrance(b *broker.Broker) {
	s.t.Helper()
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"entrances:\n  in: {addresses: [\""+b.Address()+"\"], topic: "+commandTopic+", group: shop}\n")
}

// produce sends records with kcat, each a line.
func produce(t *testing.T, b *broker.Broker, topic string, lines ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kcat", "-q", "-P", "-b", b.Address(), "-t", topic)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestCommandsOfATopicAreCarriedOutByRelaysAndNodes(t *testing.T) {
	t.Parallel()
	s, b := kafkaSite(t)
	s.entrance(b)
	produce(t, b, commandTopic, `{"biz_type": "order.close", "biz_id": "7", "delay_ms": 0, "payload": "{\"order\":7}"}`, `close order 8`)
	s.doctor().finding(t, "ok", "in", "the brokers have topic "+commandTopic)
	page := devtest.FreeAddress()
	relay := s.stays("relay", "--listen", page)
	s.waitFor("the command of the relay", func() bool { return s.count(tocsin.Pending) == 1 })
	s.waitFor("the dead letter", func() bool { return records(t, b, commandTopic+".dlt")[0] == "close order 8" })
	s.waitFor("the metrics of both", func() bool {
		_, text := get(t, http.DefaultClient, "http://"+page+"/metrics", "")
		return strings.Contains(text, `op="add",outbox="in/0"} 1`) != strings.Contains(text, `op="add",outbox="in/1"} 1`) &&
			strings.Contains(text, `reason="invalid"} 1`) && strings.Contains(text, `tocsin_relay_waiting{outbox="in/0"} 0`) && strings.Contains(text, `tocsin_relay_waiting{outbox="in/1"} 0`)
	})
	relay.end(t)
	moved := decode[[]outboxLedger](t, s.run("outbox", "forget", "--json"))
	if len(moved) == 0 {
		t.Error("nothing stands in the ledgers")
	}
	for _, l := range moved {
		s.run("outbox", "forget", l.Identity).refused(t, exitUsage, "entrance in, partition ")
	}
	produce(t, b, commandTopic, `{"biz_type": "order.close", "biz_id": "9", "delay_ms": 0, "payload": "{\"order\":9}"}`)
	node := s.serve("node")
	s.waitFor("both tasks to be delivered", func() bool { return s.count(tocsin.Done) == 2 })
	node.end(t)
	if got := records(t, b, dueTopic); len(got) != 2 {
		t.Errorf("the topic has %q", got)
	}
	s.write("tocsin.yaml", strings.Replace(s.text("tocsin.yaml"), "group: shop", "group: shop, dead_letter: nowhere", 1))
	s.doctor().finding(t, "fail", "in", "write to topic nowhere: it is missing")
	s.write("other.yaml", strings.Replace(s.text("tocsin.yaml"), "dead_letter: nowhere", "dead_letter: "+commandTopic, 1))
	s.run("--config", "other.yaml", "relay").refused(t, exitFailed, "entrance in: dead_letter is the topic of the commands: name another")
}

func TestPoliciesThatNoSinkCanTakeAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := kafkaSite(t)
	for want, sink := range map[string]string{
		"biz type a: no sink is named rabbit: the config has kafka":                                                                "{name: rabbit}",
		"biz type a: sink kafka does not allow topic refunds: name another, or add it to the sink's topics in the config":          "{name: kafka, topic: refunds}",
		`biz.yaml:2: biz type a: topic "orders due": use letters, digits, . _ - and the placeholders {biz_type} and {header.NAME}`: "{name: kafka, topic: orders due}",
	} {
		s.write("biz.yaml", "biz_types:\n  - {name: a, number: 2, sink: "+sink+"}\n")
		s.run("biz", "apply", "biz.yaml").refused(t, exitFailed, want)
	}
	s.run("biz", "list").says(t, "order.close")
	s.run("sink", "test", "kafka", "--topic", "refunds").refused(t, exitFailed, "does not allow topic refunds")
	s.run("sink", "test", "kafka", "--topic", "orders.none").refused(t, exitFailed, "topic orders.none is missing: create it")
	s.run("sink", "test", "kafka").refused(t, exitUsage, "--topic")
	s.run("sink", "test", "rabbit").refused(t, exitUsage, `no sink is named "rabbit": the config has kafka`)
	for want, entry := range map[string]string{
		`sink x: kind "carrier": use kafka, rabbitmq, nats`:                   "{kind: carrier, addresses: [\"h:1\"], topics: [\"*\"]}",
		`sink x: mechanism "GSSAPI" is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA`: "{kind: kafka, addresses: [\"h:1\"], topics: [\"*\"], username: u, password: p, mechanism: GSSAPI}",
	} {
		s.write("other.yaml", s.text("tocsin.yaml")+"  x: "+entry+"\n")
		s.run("--config", "other.yaml", "sink", "test", "x", "--topic", "t").refused(t, exitFailed, want)
		s.run("--config", "other.yaml", "serve").refused(t, exitFailed, want)
	}
}
