package tocsinkafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a record in the dead-letter topic.
const (
	errorHeader  = "tocsin-error"
	originHeader = "tocsin-origin"

	cutTo     = 1000 // bytes of the value, of a record that is too large for the dead-letter topic
	cutReason = " (cut: the record is too large for this topic)"
)

// maxLetter bounds a record of the dead-letter topic before it is compressed: the topic's own bound counts after that.
const maxLetter = 64 << 20

// bury writes a record to the dead-letter topic, or a part of it if the topic takes no more.
func (c *conn) bury(ctx context.Context, r *kgo.Record, reason string) error {
	t := c.part.of
	client, err := t.letters()
	if err != nil {
		return err
	}
	origin := kgo.RecordHeader{Key: originHeader, Value: fmt.Appendf(nil, "%s/%d@%d", r.Topic, r.Partition, r.Offset)}
	letter := kgo.Record{Topic: t.DeadLetter, Key: r.Key, Value: r.Value,
		Headers: append(r.Headers[:len(r.Headers):len(r.Headers)], kgo.RecordHeader{Key: errorHeader, Value: []byte(reason)}, origin)}
	part := kgo.Record{Topic: t.DeadLetter, Value: r.Value[:min(len(r.Value), cutTo)],
		Headers: []kgo.RecordHeader{{Key: errorHeader, Value: []byte(reason + cutReason)}, origin}}
	if len(r.Key) <= cutTo {
		part.Key = r.Key
	}
	err = client.ProduceSync(ctx, &letter).FirstErr()
	if isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge) {
		err = client.ProduceSync(ctx, &part).FirstErr()
	}
	if err == nil {
		return nil
	}
	t.failed(client)
	switch {
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID):
		return fmt.Errorf("topic %s is missing: create it, as Tocsin never does", t.DeadLetter)
	case isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge):
		return fmt.Errorf("topic %s takes no record of this size: raise its max.message.bytes above that of %s", t.DeadLetter, t)
	}
	return fmt.Errorf("write to topic %s: %s", t.DeadLetter, oneLine(err))
}

// letters returns the client that writes to the dead-letter topic. It is no member of the group, so that another can take its place.
func (t *topic) letters() (*kgo.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, kgo.ErrClientClosed
	case t.writer != nil:
		return t.writer, nil
	}
	opts, err := connecting("", t.Brokers)
	if err == nil {
		t.writer, err = kgo.NewClient(append(opts, kgo.RecordDeliveryTimeout(answerWithin), kgo.ProducerBatchMaxBytes(maxLetter))...)
	}
	return t.writer, err
}

// failed closes a client that could not write: it may know the topic by a former id, or have been refused an id of its own, for good.
func (t *topic) failed(client *kgo.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writer == client {
		t.writer = nil
		client.Close()
	}
}
