package tocsinrabbitmq

import (
	"context"
	"slices"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// window is the most messages that a channel has under way. All of them may be returned before the worker looks, and the client
// drops what its listener has no room for.
const window = 256

// worker does jobs, one at a time, on a channel of its own. Its calls to the client may wait for RabbitMQ, at most until the connection
// ends.
type worker struct {
	m     *Maker
	conn  *amqp.Connection
	taken *atomic.Int64 // bytes of the largest message that RabbitMQ has taken over the connection

	ch       *amqp.Channel      // nil: none yet
	closed   <-chan *amqp.Error // why ch was closed
	returned <-chan amqp.Return // what had no queue; RabbitMQ sends it before the confirm
	late     bool               // confirms of ch are outstanding
}

// work takes jobs until ctx ends.
func (w *worker) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-w.m.jobs:
			j.done <- w.do(j.ctx, j.batch)
			w.tidy()
		}
	}
}

// do publishes messages and returns what became of each. One that is larger than any that RabbitMQ has taken goes alone, before the
// others: if it is too large, RabbitMQ closes the channel, and what is not confirmed by then would have to be sent twice.
func (w *worker) do(ctx context.Context, batch []message) []error {
	errs, order := make([]error, len(batch)), make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(batch[b].Body) - len(batch[a].Body) })
	for len(order) > 1 && int64(len(batch[order[0]].Body)) > w.taken.Load() {
		first := order[0]
		order = order[1:]
		errs[first] = w.together(ctx, batch[first:first+1])[0]
		if verb, _, _ := tocsin.AsOutcome(errs[first]); verb != tocsin.Buried {
			break
		}
	}
	slices.Sort(order)
	rest := make([]message, len(order))
	for i, of := range order {
		rest[i] = batch[of]
	}
	for i, err := range w.together(ctx, rest) {
		errs[order[i]] = err
	}
	return errs
}

// together publishes messages without a wait between them. If RabbitMQ closed the channel over one, those that it had not confirmed are
// published again, each alone, to find out which it was.
func (w *worker) together(ctx context.Context, batch []message) []error {
	errs, left, closed := w.publish(ctx, batch)
	if closed == nil {
		return errs
	}
	alone := len(left) > 1 && (closed.Code == amqp.PreconditionFailed ||
		closed.Code == amqp.AccessRefused && slices.ContainsFunc(left, func(i int) bool { return batch[i].key != batch[left[0]].key }))
	for _, i := range left {
		if alone {
			errs[i] = w.together(ctx, batch[i:i+1])[0]
		} else {
			errs[i] = w.m.refused(closed, batch[i])
		}
	}
	return errs
}

// publish publishes messages and waits for their confirms. If the channel was closed, it also returns why, and which messages were not
// confirmed.
func (w *worker) publish(ctx context.Context, batch []message) (errs []error, left []int, closed *amqp.Error) {
	if err := w.open(); err != nil {
		return sink.All(len(batch), sink.Unavailable(err)), nil, nil
	}
	confirms, err := w.start(ctx, batch)
	why := w.await(ctx, confirms)
	if err != nil || w.ch.IsClosed() {
		closed = w.reason(ctx)
	}
	homeless := w.homeless()
	errs = make([]error, len(batch))
	for i, c := range confirms {
		switch {
		case c != nil && c.Acked():
			if n := int64(len(batch[i].Body)); n > w.taken.Load() {
				w.taken.Store(n) // another worker's larger one may get lost, which costs a round trip
			}
			if homeless[batch[i].MessageId] {
				errs[i] = batch[i].route.Unserved(w.m.noQueue(batch[i].key))
			}
		case closed != nil:
			left = append(left, i)
		case c != nil && isDone(c):
			errs[i] = batch[i].route.Unserved(w.m.refusedByQueue(batch[i].key))
		default:
			w.late = true
			errs[i] = sink.Unavailable(why)
		}
	}
	return errs, left, closed
}

// open opens a channel if there is none.
func (w *worker) open() error {
	if w.ch != nil && !w.ch.IsClosed() {
		return nil
	}
	ch, err := w.conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return w.m.cfg.Errorf("no channel to RabbitMQ: %w", err)
	}
	w.ch = ch
	w.closed = ch.NotifyClose(make(chan *amqp.Error, 1))
	w.returned = ch.NotifyReturn(make(chan amqp.Return, window))
	return nil
}

// start publishes messages until ctx ends, or the client fails. The confirm of one that was not published is nil.
func (w *worker) start(ctx context.Context, batch []message) ([]*amqp.DeferredConfirmation, error) {
	confirms := make([]*amqp.DeferredConfirmation, len(batch))
	for i, m := range batch {
		if ctx.Err() != nil {
			break
		}
		var err error
		confirms[i], err = w.ch.PublishWithDeferredConfirm(w.m.cfg.Exchange, m.key, true, false, m.Publishing)
		if err != nil {
			return confirms, err
		}
	}
	return confirms, nil
}

// await returns when all messages are confirmed or their channel is closed, or why it does not wait for that.
func (w *worker) await(ctx context.Context, confirms []*amqp.DeferredConfirmation) error {
	for _, c := range confirms {
		for c != nil && !isDone(c) {
			changed, why := w.m.state()
			if why != nil {
				return why
			}
			select {
			case <-c.Done():
			case <-changed:
			case <-ctx.Done():
				return w.m.notConfirmed()
			}
		}
	}
	return w.m.notConfirmed() // of those that were not published
}

func isDone(c *amqp.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// reason returns why the channel was closed. The client closes confirms after it has told.
func (w *worker) reason(ctx context.Context) *amqp.Error {
	select {
	case e := <-w.closed:
		if e != nil {
			return e
		}
	case <-ctx.Done():
	}
	return amqp.ErrClosed
}

// homeless returns the ids of the messages that had no queue.
func (w *worker) homeless() map[string]bool {
	ids := map[string]bool{}
	for {
		select {
		case r, open := <-w.returned:
			if !open {
				return ids
			}
			ids[r.MessageId] = true
		default:
			return ids
		}
	}
}

// tidy closes a channel whose confirms are outstanding: they would mix with those of the next job.
func (w *worker) tidy() {
	if w.late {
		_ = w.ch.Close() // else it ends with the connection
		w.late = false
	}
}

// refused returns the error of a message over which RabbitMQ closed its channel, or its connection.
func (m *Maker) refused(e *amqp.Error, msg message) error {
	switch e.Code {
	case amqp.PreconditionFailed:
		return tocsin.Bury(m.cfg.Errorf("RabbitMQ does not take this message: %s", e.Reason))
	case amqp.NotFound:
		return sink.Unavailable(m.cfg.Errorf("there is no exchange %s: declare it, or name another in the sink's config: %s", m.cfg.Exchange, e.Reason))
	case amqp.AccessRefused:
		return msg.route.Unserved(m.cfg.Errorf("user %s may not publish to %q: let it write there (rabbitmqctl set_permissions): %q", m.cfg.Username, m.place(msg.key), e.Reason))
	}
	return sink.Unavailable(m.lost(e))
}

// noQueue is the error of a message that RabbitMQ returned.
func (m *Maker) noQueue(key string) error {
	if m.cfg.Exchange == "" {
		return m.cfg.Errorf("there is no queue %q: declare it", key)
	}
	return m.cfg.Errorf("exchange %s has no queue for routing key %q: bind one", m.cfg.Exchange, key)
}

// refusedByQueue is the error of a nack. RabbitMQ sends one if a queue is over its x-max-length with overflow reject-publish, or has
// failed: no fault of the message.
func (m *Maker) refusedByQueue(key string) error {
	return m.cfg.Errorf("a queue of %q refused the message: it is full (x-max-length, reject-publish) or has failed: see to its consumers, or raise its limit", m.place(key))
}
