package tocsinkafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// open joins the group, at the first call.
func (t *topic) open() (*kgo.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, kgo.ErrClientClosed
	case t.client != nil:
		return t.client, nil
	case t.leaving:
		return nil, fmt.Errorf("%s was created anew: its partitions are given anew", t)
	}
	client, err := kgo.NewClient(append(t.opts, kgo.AdjustFetchOffsetsFn(t.given), kgo.OnPartitionsRevoked(t.revoked), kgo.OnPartitionsLost(t.lost))...)
	if err != nil {
		return nil, err
	}
	client.PauseFetchTopics(t.topic) // partitions are read with requests of their own: see conn.fetch
	ctx, stop := context.WithCancel(context.Background())
	t.client, t.stop = client, stop
	t.keeping.Go(func() {
		for ctx.Err() == nil { // no records come, as the topic is paused
			client.PollFetches(ctx).EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					t.limit.Of(t.log, "group").Warn("group of consumers can't be joined, or was left: its partitions wait",
						"error", t.wrap("join group "+t.Group+" for", err), "entrance", t.name)
				}
			})
		}
	})
	t.keeping.Go(func() {
		for loop.Wait(ctx, commitEvery) == nil {
			if err := t.commit(ctx, t.all()...); err != nil && ctx.Err() == nil {
				t.limit.Of(t.log, "commit").Warn("offsets are not committed: commands are looked at again if this process dies", "error", err, "entrance", t.name)
			}
		}
	})
	return client, nil
}

// Close leaves the group. The sessions of all partitions are closed.
func (t *topic) Close() error {
	t.mu.Lock()
	t.closed = true
	client, stop, writer := t.client, t.stop, t.writer
	t.mu.Unlock()
	if client != nil {
		stop()
	}
	if writer != nil {
		writer.Close()
	}
	t.keeping.Wait()
	if client == nil {
		return nil
	}
	return leave(client)
}

func leave(client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	err := client.LeaveGroupContext(ctx)
	client.Close()
	return err
}

// knows compares the topic's id with the one that a client knows: it keeps that for good, and with it the offsets. If the topic was
// made anew, nothing more is committed of the former one, and the next call of open joins the group with another client.
func (t *topic) knows(client *kgo.Client, id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	former := t.id
	switch {
	case t.closed || client != t.client || id == former:
		return
	case former == [16]byte{}:
		t.id = id
		return
	}
	for _, p := range t.parts {
		if a := p.end(); a != nil {
			a.give()
		}
	}
	t.stop()
	t.client, t.id, t.leaving = nil, [16]byte{}, true
	t.keeping.Go(func() {
		_ = leave(client) // without an answer the group gives its partitions to others a little later
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leaving = false
	})
}

// given notes partitions that the group has given to this process, and the offsets that it has for them.
func (t *topic) given(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for number, offset := range offsets[t.topic] {
		t.part(number).set(offset.EpochOffset().Offset)
	}
	return offsets, nil
}

// revoked waits until what is under way has ended in partitions that go to others, and commits.
func (t *topic) revoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	ctx, cancel := context.WithTimeout(ctx, handOver/2)
	defer cancel()
	var over []*assignment
	for _, number := range gone[t.topic] {
		if a := t.part(number).end(); a != nil {
			over = append(over, a)
		}
	}
	for _, a := range over {
		a.rests(ctx)
		a.give()
	}
}

// lost notes that others may have the partitions by now.
func (t *topic) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	for _, number := range gone[t.topic] {
		if a := t.part(number).end(); a != nil {
			a.give()
		}
	}
}

// commit moves the offsets of the group to what is done. While the group is rebalanced it waits.
func (t *topic) commit(ctx context.Context, of ...*assignment) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	select {
	case t.commits <- struct{}{}:
		defer func() { <-t.commits }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.mu.Lock()
	client := t.client // before the offsets: those of a former one are not committed with it
	t.mu.Unlock()
	offsets := map[int32]kgo.EpochOffset{}
	for _, a := range of {
		if low, more := a.done(); more {
			offsets[a.number] = kgo.EpochOffset{Epoch: -1, Offset: int64(low)}
		}
	}
	if len(offsets) == 0 || client == nil {
		return nil
	}
	failed := map[int32]error{}
	client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{t.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, refused error) {
			if err = refused; err != nil {
				return
			}
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					failed[p.Partition] = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		})
	for _, a := range of {
		offset, sent := offsets[a.number]
		if no, answered := failed[a.number]; sent && err == nil && answered && no == nil {
			a.commit(uint64(offset.Offset))
		} else if no != nil {
			err = errors.Join(err, fmt.Errorf("partition %d: %w", a.number, no))
		}
	}
	return err
}
