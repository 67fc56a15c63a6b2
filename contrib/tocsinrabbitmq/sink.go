package tocsinrabbitmq

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// publisher publishes the tasks of one policy. It implements sink.Sink.
type publisher struct {
	m     *Maker
	route *sink.Route
	room  *sink.Share // of the channels: a queue that never confirms leaves some to other policies
}

// prefix begins the names of CloudEvents attributes, by the binding for AMQP.
const prefix = "cloudEvents:"

// message is one as it is published.
type message struct {
	amqp.Publishing
	key   string // routing key
	route *sink.Route
}

// Deliver implements sink.Sink. Its tasks go through one channel, at most window at once.
func (s *publisher) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	within, cancel := sink.Within(ctx)
	defer cancel()
	if s.room.Take(within, 1) == 0 {
		return sink.All(len(tasks), sink.Unavailable(s.m.noneFree()))
	}
	defer s.room.Give(1)
	errs := make([]error, len(tasks))
	var batch []message
	var of []int // the task of each message
	for i, task := range tasks {
		m, err := s.message(task)
		if err != nil {
			errs[i] = err
			continue
		}
		batch, of = append(batch, m), append(of, i)
	}
	for len(batch) > 0 {
		n := min(len(batch), window)
		for i, err := range s.m.send(within, batch[:n]) {
			errs[of[i]] = err
			if err == nil {
				tocsin.OutputOf(ctx, tasks[of[i]].JobID, s.m.place(batch[i].key))
			}
		}
		batch, of = batch[n:], of[n:]
	}
	return errs
}

// message makes the message of a task. Its errors are sink.Unfit.
func (s *publisher) message(task tocsin.Info) (message, error) {
	m, err := s.route.Message(task)
	if err != nil {
		return message{}, err
	}
	headers := amqp.Table{}
	for _, h := range m.Headers {
		if err := short("the name of a header", h.Name); err != nil {
			return message{}, sink.Unfit(s.m.cfg.Errorf("%w", err))
		}
		headers[h.Name] = h.Text
	}
	for _, a := range m.Attributes {
		headers[prefix+a.Name] = a.Text
	}
	return message{key: m.Topic, route: s.route, Publishing: amqp.Publishing{
		Headers:      headers,
		ContentType:  m.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    m.ID,
		Timestamp:    task.DueTime,
		Type:         task.BizType,
		AppId:        "tocsin",
		Body:         m.Value,
	}}, nil
}

// place is where the messages of a routing key go.
func (m *Maker) place(key string) string {
	if m.cfg.Exchange == "" {
		return key
	}
	return m.cfg.Exchange + "/" + key
}

// job is what a worker does for a delivery.
type job struct {
	ctx   context.Context
	batch []message
	done  chan<- []error // takes an error for each message, without a wait
}

// send publishes messages, at most window, and returns what became of each. It returns when ctx ends.
func (m *Maker) send(ctx context.Context, batch []message) []error {
	inner, cancel := sink.Within(ctx) // ends first, so that a worker tells what it knows by then
	defer cancel()
	done := make(chan []error, 1)
	m.use()
	for {
		changed, why := m.state()
		if why != nil {
			return sink.All(len(batch), sink.Unavailable(why))
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			return sink.All(len(batch), sink.Unavailable(m.noneFree()))
		case m.jobs <- job{inner, batch, done}:
		}
		select {
		case errs := <-done:
			return errs
		case <-ctx.Done():
			return sink.All(len(batch), sink.Unavailable(m.notConfirmed()))
		}
	}
}

func (m *Maker) noneFree() error { return m.cfg.Errorf("no channel to RabbitMQ was free in time") }

func (m *Maker) notConfirmed() error {
	return m.cfg.Errorf("RabbitMQ did not confirm the message in time: it is overloaded, or a quorum queue lacks its majority")
}
