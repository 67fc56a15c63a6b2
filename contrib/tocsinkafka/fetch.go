package tocsinkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pageBytes = 512 << 10        // of one fetch; a batch of records may be larger
	pageKept  = 20 * time.Second // then it is fetched again: a relay moves no row that was read long ago
)

// page has what one fetch has returned: all records with offsets from from up to, but without, to.
type page struct {
	from, to        uint64
	records         []*kgo.Record
	asked, answered time.Time
}

// has reports whether a page has what is at an offset, if anything is.
func (p page) has(offset uint64) bool {
	return p.from <= offset && offset < p.to && time.Since(p.asked) < pageKept
}

// at returns the record at an offset; nil: there is none.
func (p page) at(offset uint64) *kgo.Record {
	if some := p.from0(offset); len(some) > 0 && uint64(some[0].Offset) == offset {
		return some[0]
	}
	return nil
}

// from0 returns the records from an offset on.
func (p page) from0(offset uint64) []*kgo.Record {
	return p.records[sort.Search(len(p.records), func(i int) bool { return uint64(p.records[i].Offset) >= offset }):]
}

// fetch asks the partition's leader for records from an offset on. It does not wait for any, and returns none of open transactions.
func (c *conn) fetch(ctx context.Context, offset uint64) (p page, err error) {
	t := c.part.of
	client, err := t.open()
	if err != nil {
		return p, err
	}
	leader, _, err := client.PartitionLeader(t.topic, c.part.number)
	if err == nil && leader < 0 {
		err = errors.New("its leader is not known")
	}
	if err != nil {
		client.ForceMetadataRefresh()
		return p, t.wrap("read", err)
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p.asked = time.Now()
	req := c.request(offset)
	resp, err := client.Broker(int(leader)).RetriableRequest(within, req)
	p.answered = time.Now()
	if err != nil {
		client.ForceMetadataRefresh()
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		return p, t.wrap("read", err)
	}
	if req.Version < 13 { // without ids of topics: the topic may be another one by now
		if f, err := t.look(ctx); err != nil || f.id != c.id {
			return p, errors.Join(err, fmt.Errorf("%s was created anew", t))
		}
	}
	got := resp.(*kmsg.FetchResponse)
	err = kerr.ErrorForCode(got.ErrorCode)
	if err == nil && len(got.Topics) == 0 { // a quota: the client waits before its next request
		p.from, p.to = offset, offset
		return p, nil
	}
	if err == nil && (len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1) {
		err = errors.New("no answer about the partition")
	}
	if err != nil {
		return p, t.wrap("read", err)
	}
	return c.page(ctx, client, p, offset, &got.Topics[0].Partitions[0])
}

func (c *conn) request(offset uint64) *kmsg.FetchRequest {
	req, topic, p := kmsg.NewPtrFetchRequest(), kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = c.part.number, int64(offset), pageBytes
	topic.Topic, topic.TopicID, topic.Partitions = c.part.of.topic, c.id, append(topic.Partitions, p)
	req.MaxBytes, req.IsolationLevel, req.SessionEpoch, req.Topics = pageBytes, 1, -1, append(req.Topics, topic)
	return req
}

// page reads an answer.
func (c *conn) page(ctx context.Context, client *kgo.Client, p page, offset uint64, answer *kmsg.FetchResponseTopicPartition) (page, error) {
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: int64(offset), IsolationLevel: kgo.ReadCommitted(), Topic: c.part.of.topic, Partition: c.part.number,
	}, answer, kgo.DefaultDecompressor(), nil)
	switch {
	case errors.Is(got.Err, kerr.OffsetOutOfRange):
		start, err := c.offset(ctx, -2)
		if err == nil && start <= offset {
			err = fmt.Errorf("%s has lost records: it ends before offset %d", c.part, offset)
		}
		if err == nil {
			c.eaten(offset, start)
		}
		p.from, p.to = offset, start
		return p, err
	case got.Err != nil:
		client.ForceMetadataRefresh()
		return p, c.part.of.wrap("read", got.Err)
	}
	c.a.heard(uint64(max(got.HighWatermark, 0)))
	p.from, p.to = offset, uint64(next)
	p.records = slices.DeleteFunc(got.Records, func(r *kgo.Record) bool { return uint64(r.Offset) < offset })
	return p, nil
}
