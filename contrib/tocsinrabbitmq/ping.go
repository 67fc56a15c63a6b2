package tocsinrabbitmq

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// Ping implements sink.Maker, over a connection of its own. It finds out whether the exchange is there; of the default exchange, whether
// the queue is. Only a message shows whether another exchange has a queue for the routing key, and whether the user may write.
func (m *Maker) Ping(ctx context.Context, p tocsin.Policy) error {
	route, err := sink.NewRoute(m.cfg, p, fits)
	if err != nil {
		return err
	}
	if m.ctx.Err() != nil {
		return m.isClosed()
	}
	l, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.CloseDeadline(time.Now().Add(closeWithin)) }()
	free := context.AfterFunc(ctx, func() { _ = l.socket.Close() })
	defer free()
	ch, err := l.Channel()
	if err != nil {
		return m.cfg.Errorf("no channel to RabbitMQ: %w", err)
	}
	switch {
	case m.cfg.Exchange != "":
		err = ch.ExchangeDeclarePassive(m.cfg.Exchange, amqp.ExchangeDirect, true, false, false, false, nil) // of any kind
	case route.Fixed():
		_, err = ch.QueueDeclarePassive(route.Topic(), true, false, false, false, nil)
	}
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		return err
	}
	switch {
	case refused.Code == amqp.AccessRefused || refused.Code == amqp.ResourceLocked:
		return nil // it may be there for messages
	case refused.Code == amqp.NotFound && m.cfg.Exchange == "":
		return m.noQueue(route.Topic())
	}
	return m.refused(refused, message{key: route.Topic(), route: route})
}
