// Package tocsinrabbitmq delivers due tasks to RabbitMQ (docs/sinks.md): New makes the maker of the sinks of one broker. It is a
// module of its own, so that programs without RabbitMQ do not require its client.
//
// A policy's topic is the routing key. It goes to sink.Config's Exchange, or to the default exchange, where the routing key is the name of a
// queue. Nothing is declared here: exchanges, queues and bindings belong to those who consume. An address is host:port, or
// host:port/vhost.
//
// A task is done when RabbitMQ has confirmed its message, which is persistent and mandatory: all queues that it was routed to have it, and
// there is at least one.
//
// A Maker has one connection, made at first use and again whenever it is lost, and a channel for each of up to 128 deliveries at once,
// which policies share as sink.Room says. A delivery has its channel to itself, since RabbitMQ closes a channel over one bad message, and says not
// which.
//
// On failure:
//   - RabbitMQ is away, blocks publishers, or does not confirm in time: sink.Unavailable. What it has stored all the same comes again.
//   - There is no such exchange, no right to publish, or no queue for the routing key: sink.Unavailable for these tasks. If headers make the
//     routing key, no right and no queue are a failed attempt, so that one task does not hold up the others.
//   - A queue refuses the message (nack): sink.Unavailable, as it is full or has failed, and any message would fare the same.
//   - A message that RabbitMQ never takes, as it is over max_message_size: tocsin.Bury, for that one.
package tocsinrabbitmq
