package tocsinkafka

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// topics is the sink of a policy.
type topics struct {
	maker *Maker
	route *sink.Route
}

// Deliver sends a record for each task and waits for the acks of all.
func (t *topics) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	within, cancel := sink.Within(ctx)
	defer cancel()
	errs, records := make([]error, len(tasks)), make([]*kgo.Record, len(tasks))
	for i, task := range tasks {
		records[i], errs[i] = t.record(task)
	}
	sent := t.send(within, together, records)
	if suspects := suspects(records, sent); suspects != nil {
		for i, err := range t.send(within, alone, suspects) {
			if suspects[i] != nil {
				sent[i], records[i] = err, suspects[i]
			}
		}
	}
	healed := map[string]bool{} // by topic
	for i, task := range tasks {
		switch {
		case records[i] == nil: // errs has its error
		case sent[i] == nil:
			tocsin.OutputOf(ctx, task.JobID, fmt.Sprintf("%s/%d@%d", records[i].Topic, records[i].Partition, records[i].Offset))
		default:
			topic := records[i].Topic
			errs[i] = t.outcome(topic, sent[i])
			healed[topic] = healed[topic] || t.maker.heal(topic, sent[i])
		}
	}
	return errs
}

// record makes the record of a task. The error is final.
func (t *topics) record(task tocsin.Info) (*kgo.Record, error) {
	m, err := t.route.Message(task)
	if err != nil {
		return nil, err
	}
	headers := []kgo.RecordHeader{{Key: contentType, Value: []byte(m.ContentType)}}
	for _, a := range m.Attributes {
		headers = append(headers, kgo.RecordHeader{Key: attribute + a.Name, Value: []byte(a.Text)})
	}
	for _, h := range m.Headers {
		if name := strings.ToLower(h.Name); name != contentType && !strings.HasPrefix(name, attribute) {
			headers = append(headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Text)})
		}
	}
	return &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: headers}, nil
}

// Headers of CloudEvents' binding for Kafka. Headers of a task with such names are left out.
const (
	contentType = "content-type"
	attribute   = "ce_"
)

// suspects returns copies, as they were before they were sent, of the records whose batch was refused because of one of its
// records; nil if there are none.
func suspects(records []*kgo.Record, errs []error) (found []*kgo.Record) {
	for i, err := range errs {
		if !isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord) {
			continue
		}
		if found == nil {
			found = make([]*kgo.Record, len(records))
		}
		r := records[i]
		found[i] = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	return found
}

// ack is the answer to a record, by its place.
type ack struct {
	place int
	err   error
}

// send sends the records that are not nil by a client, and returns an error for each place. Until a record's ack the client may still change it.
func (t *topics) send(ctx context.Context, which int, records []*kgo.Record) []error {
	client, err := t.maker.client(which)
	if err != nil {
		return sink.All(len(records), err)
	}
	errs := produce(ctx, client, records)
	if !slices.ContainsFunc(errs, isFinal) {
		return errs
	}
	if err := t.maker.hasID(ctx, which, client); isFinal(err) { // that is what these records have failed with
		for i := range errs {
			if isFinal(errs[i]) {
				errs[i] = err
			}
		}
	}
	return errs
}

func produce(ctx context.Context, client *kgo.Client, records []*kgo.Record) []error {
	errs := sink.All(len(records), context.DeadlineExceeded) // until the ack comes
	acks := make(chan ack, len(records))                     // has room for all: the client never waits
	waiting := 0
	for i, record := range records {
		if record != nil {
			waiting++
			client.Produce(ctx, record, func(_ *kgo.Record, err error) { acks <- ack{i, err} })
		}
	}
	for ; waiting > 0; waiting-- {
		select {
		case a := <-acks:
			errs[a.place] = a.err
		case <-ctx.Done():
			for len(acks) > 0 {
				a := <-acks
				errs[a.place] = a.err
			}
			return errs
		}
	}
	return errs
}

// outcome turns the error of a record into that of its task.
func (t *topics) outcome(topic string, err error) error {
	becomes, told := t.maker.explain(topic, err)
	switch {
	case becomes == dead:
		return tocsin.Bury(told)
	case becomes == attempt:
		return told
	case becomes == waitsOrAttempt:
		return t.route.Unserved(told)
	}
	return sink.Unavailable(told)
}
