// Package tocsinkafka delivers due tasks to topics of Kafka, and of brokers that speak its protocol (docs/sinks.md), and lets relays
// carry out the commands of a topic: see Entrance. It is a module of its own, so that services without Kafka do not require franz-go.
//
//	maker, err := tocsinkafka.New(sink.Config{Name: "orders-kafka", Addresses: []string{"kafka:9092"}, Topics: []string{"orders.*"}})
//	cfg.Sinks = map[string]sink.Maker{"orders-kafka": maker} // of node.Config
//
// A task is done when all replicas in sync have its record: acks=all, with an idempotent producer and without lingering. Topics are
// never created. The package logs nothing: what went wrong is in the errors of deliveries. One producer serves all sinks of a Maker; the first delivery or Ping opens it.
//
// On failure:
//   - No broker answers: the delivery is Unavailable once its records are 3 s old and no request is under way. A broker that
//     hangs is found when the delivery's deadline comes, or after 20 s.
//   - A record was sent and its ack is missing: the delivery is Unavailable, and the record may be in the topic. It comes again
//     with the same id.
//   - A record is refused: a batch of records is refused as a whole, so each of its records is sent once more, alone. Only one that is
//     refused alone is buried.
//   - A topic is missing or was made anew: the producer forgets it, and asks the brokers again at the next delivery.
//   - A deadline ends the records that wait for the same partition, those of other deliveries too. These are Unavailable.
//
// An Entrance is an outbox.Driver. A client of its own is a member of the group, which says which partitions this process relays. What is
// done is committed each second and when a partition goes to another process; the ledgers keep what was not committed from being done
// twice. A partition whose refused command can't be written to the dead-letter topic pauses.
package tocsinkafka
