package tocsinkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	defaultMechanism = "PLAIN"
	maxAge           = 3 * time.Second        // of a record that no request is under way for: leaders that are moved take less
	metadataAge      = 250 * time.Millisecond // at least, between two looks for new leaders
	firstBackoff     = 50 * time.Millisecond  // doubles up to longestBackoff
	longestBackoff   = time.Second
	maxBuffered      = 1 << 17   // records: the dispatcher bounds what is under way
	maxBatch         = 256 << 10 // bytes of a batch; the largest record of a task has less
)

// mechanisms are those of SASL.
var mechanisms = map[string]func(username, password string) sasl.Mechanism{
	"PLAIN": func(u, p string) sasl.Mechanism { return plain.Auth{User: u, Pass: p}.AsMechanism() },
	"SCRAM-SHA-256": func(u, p string) sasl.Mechanism {
		return scram.Auth{User: u, Pass: p}.AsSha256Mechanism()
	},
	"SCRAM-SHA-512": func(u, p string) sasl.Mechanism {
		return scram.Auth{User: u, Pass: p}.AsSha512Mechanism()
	},
}

// Maker is the sink.Maker of one Kafka cluster.
type Maker struct {
	cfg  sink.Config
	opts []kgo.Opt
	dial dial

	healing sync.WaitGroup // of what heal has begun

	mu      sync.Mutex // guards the following
	clients [2]*kgo.Client
	closed  bool
}

// The clients of a Maker.
const (
	together = iota // sends records in batches
	alone           // sends one record at a time
)

// New makes a Maker. It connects to nothing. Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. With TLS the default is PLAIN; without,
// a user needs one by name, as PLAIN shows the password to the network.
func New(cfg sink.Config) (*Maker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Mechanism = cmp.Or(cfg.Mechanism, mechanismOf(cfg))
	opts, err := connecting("sink "+cfg.Name, cfg)
	if err != nil {
		return nil, err
	}
	m := &Maker{cfg: cfg}
	m.opts = append(opts, kgo.WithHooks(&m.dial), kgo.ProducerBatchMaxBytes(maxBatch), kgo.RecordDeliveryTimeout(maxAge), kgo.MaxBufferedRecords(maxBuffered))
	if err := kgo.ValidateOpts(m.opts...); err != nil {
		return nil, cfg.Errorf("%w", err)
	}
	return m, nil
}

// mechanismOf is the default: without TLS there is none, as PLAIN shows the password to the network.
func mechanismOf(cfg sink.Config) string {
	if cfg.Username != "" && cfg.TLS == nil {
		return ""
	}
	return defaultMechanism
}

// connecting are the options of all clients of a cluster. what is named in errors.
func connecting(what string, cfg sink.Config) ([]kgo.Opt, error) {
	for i, address := range cfg.Addresses { // not told: it may have a password
		_, port, _ := net.SplitHostPort(address)
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || strings.Contains(address, "@") {
			return nil, fmt.Errorf("%s: address %d is not host:port, without a scheme, username or password", what, i+1)
		}
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Addresses...), kgo.ClientID("tocsin"), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.AllowIdempotentProduceCancellation(), // else a produce could not return when its context ends
		kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(metadataAge), kgo.RetryBackoffFn(backoff), kgo.RequestRetries(2),
	}
	if cfg.Username != "" {
		name := cmp.Or(cfg.Mechanism, mechanismOf(cfg))
		mechanism, ok := mechanisms[name]
		switch {
		case name == "":
			return nil, fmt.Errorf("%s has a username and no mechanism: without TLS, name PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", what)
		case !ok:
			return nil, fmt.Errorf("%s: mechanism %q is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", what, name)
		}
		opts = append(opts, kgo.SASL(mechanism(cfg.Username, cfg.Password)))
	}
	if cfg.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(cfg.TLS))
	}
	return opts, nil
}

// backoff returns how long to wait after a number of failures in a row.
func backoff(failures int) time.Duration {
	return min(firstBackoff<<min(max(failures-1, 0), 10), longestBackoff)
}

// Sink returns the sink of a policy.
func (m *Maker) Sink(p tocsin.Policy) (sink.Sink, error) {
	route, err := sink.NewRoute(m.cfg, p, fits)
	if err != nil {
		return nil, err
	}
	return &topics{m, route}, nil
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// fits returns an error if Kafka can't have a topic of that name.
func fits(topic string) error {
	if !topicName.MatchString(topic) || topic == "." || topic == ".." {
		return fmt.Errorf("topic %q has characters other than A-Z, a-z, 0-9, '.', '_' and '-', or more than 249", topic)
	}
	return nil
}

// client returns a client, which it makes at the first call.
func (m *Maker) client(which int) (*kgo.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, kgo.ErrClientClosed
	}
	if m.clients[which] == nil {
		opts := m.opts
		if which == alone {
			opts = append(opts[:len(opts):len(opts)], kgo.MaxBufferedRecords(1))
		}
		client, err := kgo.NewClient(opts...)
		if err != nil {
			return nil, err
		}
		m.clients[which] = client
	}
	return m.clients[which], nil
}

// heal makes the clients able to succeed once the cause of an error is gone. They know a topic that was created anew by the id
// of the former one, and ask for one that is missing with every look. It reports whether the error is one of these.
func (m *Maker) heal(topic string, err error) bool {
	if !isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, client := range m.clients {
		if client != nil && !m.closed {
			m.healing.Go(func() { client.PurgeTopicsFromClient(topic) })
		}
	}
	return true
}

// hasID returns why the producer of a client has no id. One that was refused it never asks again, so the next call of client makes another.
func (m *Maker) hasID(ctx context.Context, which int, client *kgo.Client) error {
	_, _, err := client.ProducerID(ctx)
	if !isFinal(err) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients[which] == client && !m.closed {
		m.clients[which] = nil
		m.healing.Go(client.Close)
	}
	return noID{err}
}

// Ping asks the brokers for the topic of the policy, whether the user may write to it, and for an id of an idempotent producer.
func (m *Maker) Ping(ctx context.Context, p tocsin.Policy) error {
	route, err := sink.NewRoute(m.cfg, p, fits)
	if err != nil {
		return err
	}
	client, err := m.client(together)
	if err == nil {
		var topics []string
		if route.Fixed() { // else it depends on the task
			topics = append(topics, route.Topic())
		}
		err = look(ctx, client, kmsg.ACLOperationWrite, topics...)
	}
	if err == nil {
		err = m.hasID(ctx, together, client)
	}
	if err != nil {
		m.heal(route.Topic(), err)
		_, err = m.explain(route.Topic(), err)
	}
	return err
}

// look asks for topics on which the user may do something. Without any it wants only an answer.
func look(ctx context.Context, client *kgo.Client, operation kmsg.ACLOperation, topics ...string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range resp.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			return err
		}
		if ops := topic.AuthorizedOperations; ops != math.MinInt32 && ops&(1<<operation) == 0 { // old brokers tell nothing
			return kerr.TopicAuthorizationFailed
		}
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", partition.Partition, err)
			}
		}
	}
	return nil
}

// Close ends deliveries under way, and the connections.
func (m *Maker) Close(context.Context) error {
	m.mu.Lock()
	m.closed = true
	clients := m.clients
	m.mu.Unlock()
	for _, client := range clients {
		if client != nil {
			client.Close()
		}
	}
	m.healing.Wait()
	return nil
}

// dial is a hook of the clients that keeps why the last connection could not be made.
type dial struct{ failed atomic.Pointer[error] }

// OnBrokerConnect is called for each attempt. One that was cancelled proves nothing.
func (d *dial) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	switch {
	case err == nil:
		d.failed.Store(nil)
	case !errors.Is(err, context.Canceled):
		d.failed.Store(&err)
	}
}
