package tocsinkafka_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

// admin may do everything on brokers with users.
var admin = broker.User{Mechanism: "SCRAM-SHA-512", Name: "admin", Password: "s3cret-of-admin"}

// cluster is a broker of a test, with a folder.
type cluster struct {
	*broker.Broker
	cfg broker.Config
	ca  string      // "": plain text
	tls *tls.Config // nil: plain text
}

// start starts a broker that ends with the test.
func start(tb testing.TB, cfg broker.Config, encrypted bool) *cluster {
	tb.Helper()
	c := &cluster{cfg: cfg}
	c.cfg.Dir = tb.TempDir()
	if encrypted {
		authority := devtest.NewAuthority(tb)
		c.ca, c.tls = authority.File, &tls.Config{RootCAs: x509.NewCertPool()}
		pem, err := os.ReadFile(c.ca)
		if err != nil || !c.tls.RootCAs.AppendCertsFromPEM(pem) {
			tb.Fatal(err)
		}
		c.cfg.Cert, c.cfg.Key = authority.Issue(tb, "broker")
	}
	var err error
	if c.Broker, err = broker.Start(tb.Context(), c.cfg); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Kill(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// config is that of sinks that may write to every topic.
func (c *cluster) config() sink.Config {
	cfg := sink.Config{Name: "orders-kafka", Addresses: []string{c.Address()}, Topics: []string{"*"}, Cluster: "shop", TLS: c.tls}
	if len(c.cfg.Users) > 0 {
		cfg.Username, cfg.Password, cfg.Mechanism = admin.Name, admin.Password, admin.Mechanism
	}
	return cfg
}

// request asks the broker something as an administrator.
func (c *cluster) request(tb testing.TB, req kmsg.Request) kmsg.Response {
	tb.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(c.Address())}
	if c.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(c.tls))
	}
	if len(c.cfg.Users) > 0 {
		opts = append(opts, kgo.SASL(scram.Auth{User: admin.Name, Pass: admin.Password}.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	resp, err := client.Request(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	return resp
}

// create creates a topic with three partitions. maxBytes is the most that a batch of records may have; "": the broker's default.
func (c *cluster) create(tb testing.TB, topic, maxBytes string) {
	tb.Helper()
	req, wanted := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 3, 1
	if maxBytes != "" {
		limit := kmsg.NewCreateTopicsRequestTopicConfig()
		limit.Name, limit.Value = "max.message.bytes", &maxBytes
		wanted.Configs = append(wanted.Configs, limit)
	}
	req.Topics = append(req.Topics, wanted)
	for _, made := range c.request(tb, req).(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(made.ErrorCode); err != nil {
			tb.Fatal(err)
		}
	}
}

// delete deletes a topic.
func (c *cluster) delete(tb testing.TB, topic string) {
	tb.Helper()
	req, gone := kmsg.NewPtrDeleteTopicsRequest(), kmsg.NewDeleteTopicsRequestTopic()
	gone.Topic = &topic
	req.Topics, req.TopicNames = append(req.Topics, gone), []string{topic}
	for _, deleted := range c.request(tb, req).(*kmsg.DeleteTopicsResponse).Topics {
		if err := kerr.ErrorForCode(deleted.ErrorCode); err != nil {
			tb.Fatal(err)
		}
	}
}

// record is one as kcat prints it.
type record struct {
	Topic             string
	Partition, Offset int
	Headers           []string // names and texts in turn
	Key, Payload      *string
}

// kcat reads all records of a topic. It can't sign in to kfake, which lacks the first version of SASL's handshake.
func (c *cluster) kcat(tb testing.TB, topic string) (all []record) {
	tb.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		tb.Fatal("kcat not found in PATH: run scripts/install-deps.sh test, or install Debian's kcat")
	}
	args := []string{"-b", c.Address(), "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"}
	if c.tls != nil {
		args = append(args, "-X", "security.protocol=SSL", "-X", "ssl.ca.location="+c.ca)
	}
	cmd := exec.CommandContext(tb.Context(), path, args...)
	cmd.Stderr = new(bytes.Buffer)
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%v: %s", err, cmd.Stderr)
	}
	for line := range bytes.Lines(out) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			tb.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// message reads the record as CloudEvents' binding for Kafka says.
func (r record) message() sink.Message {
	m := sink.Message{Topic: r.Topic}
	if r.Key != nil {
		m.Key = []byte(*r.Key)
	}
	if r.Payload != nil {
		m.Value = []byte(*r.Payload)
	}
	for pair := range slices.Chunk(r.Headers, 2) {
		attribute, found := strings.CutPrefix(pair[0], "ce_")
		switch {
		case pair[0] == "content-type":
			m.ContentType = pair[1]
		case found:
			m.Attributes = append(m.Attributes, sink.Pair{Name: attribute, Text: pair[1]})
		default:
			m.Headers = append(m.Headers, sink.Pair{Name: pair[0], Text: pair[1]})
		}
		if attribute == "id" && found {
			m.ID = pair[1]
		}
	}
	return m
}

// read waits until a topic has at least that many records, and returns all.
func (c *cluster) read(tb testing.TB, topic string, least int) (all []sink.Message) {
	tb.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		found := c.kcat(tb, topic)
		if len(found) >= least {
			for _, r := range found {
				all = append(all, r.message())
			}
			return all
		}
		if time.Now().After(end) {
			tb.Fatalf("topic %s has %d records, want %d", topic, len(found), least)
		}
	}
}

// must is a step of a test that can't go on if it fails.
func must(step func() error) func(testing.TB) {
	return func(tb testing.TB) {
		tb.Helper()
		if err := step(); err != nil {
			tb.Fatal(err)
		}
	}
}

// restart starts the broker again.
func (c *cluster) restart(tb testing.TB) {
	tb.Helper()
	if err := c.Restart(context.WithoutCancel(tb.Context())); err != nil { // in a Cleanup too
		tb.Fatal(err)
	}
}

// maker makes a Maker that ends with the test.
func maker(tb testing.TB, cfg sink.Config) *tocsinkafka.Maker {
	tb.Helper()
	m, err := tocsinkafka.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// to returns the sink of a biz type that goes to a topic.
func to(tb testing.TB, m *tocsinkafka.Maker, target tocsin.Sink) sink.Sink {
	tb.Helper()
	s, err := m.Sink(policy(target))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func policy(target tocsin.Sink) tocsin.Policy {
	target.Name = "orders-kafka"
	return tocsin.Policy{Name: "order.close", Number: 7, Sink: &target}
}

// task is the one with a number.
func task(n int) tocsin.Info {
	due := time.Date(2026, 12, 1, 12, 0, 0, 5e6, time.UTC)
	return tocsin.Info{
		JobID: tocsin.JobID(117904638606316173 + n), BizID: 7, BizKey: "ord_01J8Z3", BizType: "order.close", Version: 2, Attempts: 1,
		ActionTime: due, DueTime: due, Payload: `{"why":"unpaid"}`,
	}
}

// deliver delivers within 10 s, and returns where the records lie too.
func deliver(tb testing.TB, s sink.Sink, tasks ...tocsin.Info) (errs []error, places []string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	var outputs client.Outputs
	errs = s.Deliver(context.WithValue(ctx, client.OutputKey, &outputs), tasks)
	for _, task := range tasks {
		places = append(places, outputs.Of(uint64(task.JobID)))
	}
	return errs, places
}
