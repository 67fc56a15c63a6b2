package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	kafka "github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// kafkaProcess is a broker that stops as a whole when it is frozen.
type kafkaProcess struct{ *kafka.Broker }

func (k kafkaProcess) Endpoint() string { return k.Address() }

func (k kafkaProcess) Signal(s syscall.Signal) error {
	if s == syscall.SIGSTOP {
		return k.Freeze()
	}
	return k.Thaw()
}

func startKafka(ctx context.Context, dir string) (brokerProcess, error) {
	b, err := kafka.Start(ctx, kafka.Config{Dir: dir, Topics: map[string]int32{topic: 1}})
	if err != nil {
		return nil, err
	}
	return kafkaProcess{b}, nil
}

// readKafka reads on through broken connections. It fails if the broker has lost what was read.
func readKafka(ctx context.Context, address string, from int64, took func(message) error) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.MetadataMinAge(againAfter),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		for _, r := range fetches.Records() {
			m := message{offset: r.Offset, at: r.Timestamp, of: func(attribute string) string {
				for _, h := range r.Headers {
					if h.Key == "ce_"+attribute {
						return string(h.Value)
					}
				}
				return ""
			}}
			if err := took(m); err != nil {
				return err
			}
		}
		if err := fetches.Err(); err != nil {
			return err
		}
	}
}

// startRabbitMQ starts a RabbitMQ with a quorum queue.
func startRabbitMQ(ctx context.Context, _ string) (brokerProcess, error) {
	r, err := devserver.StartRabbitMQ(ctx)
	if err != nil {
		return nil, err
	}
	if err := onRabbitMQ(r.Endpoint(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(topic, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func onRabbitMQ(address string, do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial("amqp://guest:guest@" + address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

// readRabbitMQ numbers the messages by itself, as a queue does not.
func readRabbitMQ(ctx context.Context, address string, from int64, took func(message) error) error {
	return onRabbitMQ(address, func(ch *amqp.Channel) error {
		if err := ch.Qos(200, 0, false); err != nil {
			return err
		}
		messages, err := ch.ConsumeWithContext(ctx, topic, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for d := range messages {
			m := message{offset: from, at: time.Now(), again: d.Redelivered, of: func(attribute string) string {
				text, _ := d.Headers["cloudEvents:"+attribute].(string)
				return text
			}}
			if err := took(m); err != nil {
				return err
			}
			from++
			if err := d.Ack(false); err != nil {
				return err
			}
		}
		return amqp.ErrClosed
	})
}

// natsProcess is a NATS server.
type natsProcess struct {
	role role
	*devserver.Process
}

func (n *natsProcess) Endpoint() string { return n.role.Address }

// Restart returns when it takes connections.
func (n *natsProcess) Restart(ctx context.Context) error {
	cmd, err := self(n.role)
	if err != nil {
		return err
	}
	if n.Process, err = devserver.Launch(cmd); err != nil {
		return err
	}
	for {
		conn, err := nats.Connect(n.Endpoint())
		if err == nil {
			conn.Close()
			return nil
		}
		if loop.Wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("NATS takes no connections: %w", err)
		}
	}
}

// startNATS starts a server with a stream.
func startNATS(ctx context.Context, dir string) (brokerProcess, error) {
	n := &natsProcess{role: role{Kind: roleNATS, Name: roleNATS, Journal: dir}}
	n.role.Address = upstream(devserver.FreePort())
	if err := n.Restart(ctx); err != nil {
		return nil, err
	}
	if err := onNATS(n.Endpoint(), func(js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Duplicates: 10 * time.Minute})
		return err
	}); err != nil {
		return nil, errors.Join(err, n.Kill())
	}
	return n, nil
}

// serveNATS runs a NATS server until ctx ends.
func (r role) serveNATS(ctx context.Context) error {
	host, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: number, JetStream: true, StoreDir: r.Journal, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func onNATS(address string, do func(jetstream.JetStream) error) error {
	conn, err := nats.Connect(address, nats.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return do(js)
}

// idleFor is how long a consumer of NATS waits for a message before it makes sure of its connection, by a new one.
const idleFor = 2 * time.Second

func readNATS(ctx context.Context, address string, from int64, took func(message) error) error {
	return onNATS(address, func(js jetstream.JetStream) error {
		consumer, err := js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(from, 1)),
		})
		if err != nil {
			return err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return err
		}
		defer messages.Stop()
		for {
			m, err := messages.Next(jetstream.NextMaxWait(idleFor))
			if err != nil {
				return err
			}
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			err = took(message{offset: int64(meta.Sequence.Stream), at: meta.Timestamp, of: func(attribute string) string {
				return m.Headers().Get("ce-" + attribute)
			}})
			if err != nil {
				return err
			}
		}
	})
}
