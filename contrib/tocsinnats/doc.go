// Package tocsinnats sends due tasks to subjects of NATS that a stream of JetStream has (docs/sinks.md). It is a module of its own,
// so that only programs that use NATS require its client.
//
// A task is delivered when the stream has acknowledged its message. The header Nats-Msg-Id is the task's key, job_id.version, so that
// the stream drops a repeat within its duplicate window. Messages are CloudEvents 1.0 in binary mode.
//
//	never taken (dead)     a message larger than the server or stream takes; a header or subject that NATS can't carry
//	unavailable (waits)    no connection, no ack in time, no stream has the subject, no right to publish, a stream that is full or sealed
//	failed attempt         any other refusal of the message; or a subject that is made of a task's header, and that nobody takes now
//
// All sinks of a Maker share one connection. nats.go opens it again after it broke, and keeps no message for then: a message is sent
// only while there is a connection.
package tocsinnats
