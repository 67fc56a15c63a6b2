package chaos

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinnats"
	"github.com/tocsinhq/tocsin/contrib/tocsinrabbitmq"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/sink"
)

// topic is where the tasks of hook go, by the sink of the same name. It has one partition, so that a consumer that has got the last
// message has got all.
const topic = "chaos"

// toBroker is the sink of their policy.
var toBroker = &tocsin.Sink{Name: topic, Topic: topic}

// broker takes the tasks of hook in place of the receiver, in a process that faults hit. A consumer in the harness's own process,
// which no fault touches, reads its topic and writes a journal of the messages.
type broker struct {
	brokerProcess
	kind brokerKind
	harm sync.Mutex // held by a fault

	journal *journal
	end     context.CancelFunc // of the consumer
	ended   chan struct{}      // closed when the consumer has ended
	err     error              // why; nil: it has read the last message. To be read after ended
}

// brokerKind is how a broker is run, written to and read.
type brokerKind struct {
	start func(ctx context.Context, dir string) (brokerProcess, error) // with the topic
	sink  func(sink.Config) (sink.Maker, error)
	read  func(ctx context.Context, address string, from int64, took func(message) error) error // until took returns an error, or the connection breaks
}

// brokerKinds are those of Options.Broker.
var brokerKinds = map[string]brokerKind{
	"kafka":    {startKafka, func(cfg sink.Config) (sink.Maker, error) { return tocsinkafka.New(cfg) }, readKafka},
	"rabbitmq": {startRabbitMQ, func(cfg sink.Config) (sink.Maker, error) { return tocsinrabbitmq.New(cfg) }, readRabbitMQ},
	"nats":     {startNATS, func(cfg sink.Config) (sink.Maker, error) { return tocsinnats.New(cfg) }, readNATS},
}

// brokerProcess keeps what it has acknowledged when it is killed.
type brokerProcess interface {
	machine
	Signal(syscall.Signal) error
	Endpoint() string
}

// message is one as a consumer gets it.
type message struct {
	offset int64
	at     time.Time                     // when it was sent, was stored or came, whichever the broker tells first
	of     func(attribute string) string // of CloudEvents
	again  bool                          // the broker may have delivered it before, to a connection that broke
}

// startBroker starts a broker, and its consumer.
func startBroker(ctx context.Context, name, dir string) (*broker, error) {
	kind, known := brokerKinds[name]
	if !known {
		return nil, fmt.Errorf("chaos: %q is no broker: kafka, rabbitmq or nats", name)
	}
	j, err := openJournal(filepath.Join(dir, consumerName+journalSuffix), consumerName)
	if err != nil {
		return nil, err
	}
	process, err := kind.start(ctx, filepath.Join(dir, "broker"))
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	b := &broker{brokerProcess: process, kind: kind, journal: j, ended: make(chan struct{})}
	var reading context.Context
	reading, b.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(b.ended)
		b.err = b.consume(reading)
	}()
	return b, nil
}

// sinkOf is the config of a node's sink. Messages name the node in their source.
func sinkOf(address, node string) sink.Config {
	return sink.Config{Name: topic, Addresses: []string{address}, Topics: []string{topic}, Cluster: "chaos/" + node}
}

// againAfter is between two connections of the consumer.
const againAfter = 100 * time.Millisecond

// last is the job_id of the message after which the consumer ends.
const last = tocsin.JobID(1)

var errLast = errors.New("the last message")

// consume reads the topic from its begin to the last message, by a new connection whenever one breaks.
func (b *broker) consume(ctx context.Context) error {
	next, over, seen := int64(0), error(nil), map[string]bool{}
	for {
		err := b.kind.read(ctx, b.Endpoint(), next, func(m message) error {
			next = m.offset + 1
			if id := m.of("id"); !m.again || !seen[id] {
				seen[id] = true
				over = b.take(m)
			}
			return over
		})
		if over != nil && !errors.Is(over, errLast) || ctx.Err() != nil {
			return errors.Join(over, err, ctx.Err())
		}
		if over != nil {
			return nil
		}
		_ = loop.Wait(ctx, againAfter) // the next reading sees the end of ctx
	}
}

// take writes the journal of a message. It has begun and ended well when it was sent.
func (b *broker) take(m message) error {
	id, version, _ := strings.Cut(m.of("id"), ".")
	job, err := tocsin.ParseJobID(id)
	if job == last {
		return errLast
	}
	v, wrong := strconv.ParseUint(version, 10, 32)
	attempt, none := strconv.Atoi(m.of("tocsinattempt"))
	due, never := time.Parse(time.RFC3339, m.of("time"))
	if err := errors.Join(err, wrong, none, never); err != nil {
		return fmt.Errorf("message at offset %d, id %q: %w", m.offset, m.of("id"), err)
	}
	r := record{
		Begin: true, JobID: job, Version: uint32(v), Attempts: attempt - 1, Node: path.Base(m.of("source")), At: m.at, Due: due,
		Offset: strconv.FormatInt(m.offset, 10),
	}
	b.journal.write(r)
	r.Begin, r.OK = false, true
	b.journal.write(r)
	return nil
}

// readWithin is how long the consumer may take to read what it has not read yet.
const readWithin = 2 * time.Minute

// readAll sends the last message, and returns when the consumer has it.
func (b *broker) readAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	maker, err := b.kind.sink(sinkOf(b.Endpoint(), "harness"))
	if err != nil {
		return err
	}
	defer func() { _ = maker.Close(context.WithoutCancel(ctx)) }()
	to, err := maker.Sink(tocsin.Policy{Name: hook.Name(), Sink: toBroker})
	if err != nil {
		return err
	}
	for {
		err := to.Deliver(ctx, []tocsin.Info{{JobID: last, BizType: hook.Name(), Payload: "{}", DueTime: time.Now()}})[0]
		if err == nil {
			break
		}
		if loop.Wait(ctx, againAfter) != nil {
			return fmt.Errorf("the broker takes no message: %w", err)
		}
	}
	select {
	case <-b.ended:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("the consumer has not read all messages within %s", readWithin)
	}
}

// stop ends the consumer and the broker for good.
func (b *broker) stop() error {
	b.end()
	<-b.ended
	err := b.Kill()
	if s, is := b.brokerProcess.(interface{ Stop() error }); is {
		err = errors.Join(err, s.Stop())
	}
	return errors.Join(err, b.journal.close())
}

// harmBroker kills or freezes the broker. Nothing else harms it until that is undone.
func (s *Site) harmBroker(how Fault) (undo, error) {
	s.broker.harm.Lock()
	harm := kill[brokerProcess]
	if how == FreezeBroker {
		harm = freeze[brokerProcess]
	}
	end, err := harm(s.broker.brokerProcess)
	return func(ctx context.Context) error {
		defer s.broker.harm.Unlock()
		return end(ctx)
	}, err
}

// killBoth kills the broker and a node at once, as if they were on one machine.
func (s *Site) killBoth(ctx context.Context, step Step) (undo, error) {
	noted := s.log.begin(Step{Fault: KillNode, Node: step.Node, Length: step.Length})
	broker, err := s.harmBroker(KillBroker)
	node, failed := s.harmProcess(ctx, KillNode, s.seats[step.Node])
	return func(ctx context.Context) error {
		defer noted()
		return errors.Join(broker(ctx), node(ctx))
	}, errors.Join(err, failed)
}
