package tocsinkafka

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

// nextWithin is how long a relay waits for a commit: its rows in flight wait meanwhile.
const nextWithin = 500 * time.Millisecond

// An empty answer about a record that was read before is asked for again, and then ends the turn.
const (
	emptyTries = 5
	emptyPause = 20 * time.Millisecond // more after each
)

// conn is the outbox.Conn of a session.
type conn struct {
	part  *partition
	id    [16]byte    // of the topic
	a     *assignment // nil: the partition is not this process's
	leads bool
	asked bool // rows were read
	ahead page // behind what was read
	again page // of what was read before
}

// identity is that of the outbox.
func (c *conn) identity() string { return identity(c.id, int(c.part.number)) }

func identity(topic [16]byte, partition int) string {
	return "k." + hex.EncodeToString(topic[:]) + "." + strconv.Itoa(partition)
}

// IdentityNow returns the identity: records were read by the topic's id.
func (c *conn) IdentityNow(context.Context) (string, error) { return c.identity(), c.own() }

// own returns an error unless the partition is this process's.
func (c *conn) own() error {
	if c.a == nil || c.a.over.Err() != nil {
		return outbox.ErrNotLeading
	}
	return nil
}

// within ends a context with the assignment.
func (c *conn) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.a.over, func() { cancel(outbox.ErrNotLeading) })
	return ctx, func() { stop(); cancel(nil) }
}

// Lead waits until the group gives the partition to this process. It returns an error if the partition does not have what the group's
// offset says.
func (c *conn) Lead(ctx context.Context, wait time.Duration) (bool, error) {
	if c.a = c.part.await(ctx, wait); c.a == nil {
		return false, ctx.Err()
	}
	start, err := c.offset(ctx, -2)
	if err != nil {
		return false, err
	}
	end, err := c.offset(ctx, -1)
	if err != nil {
		return false, err
	}
	from, none := c.a.start()
	switch {
	case from > end:
		return false, fmt.Errorf("%s ends at offset %d, and group %s is at %d: it has lost records. Look what was lost, then stop the relays of the group and set its offset to that end", c.part, end, c.part.of.Group, from)
	case from < start && !none:
		c.eaten(from, start)
	}
	c.a.begin(max(from, start), end)
	c.leads = true
	return true, nil
}

// eaten tells that retention was faster.
func (c *conn) eaten(from, start uint64) {
	c.part.of.log.Error("commands are gone: the topic's retention has deleted records that were not done",
		"entrance", c.part.of.name, "partition", c.part.number, "from", from, "to", start)
}

// offset asks for the first offset of the partition (-2), or for the end (-1).
func (c *conn) offset(ctx context.Context, which int64) (uint64, error) {
	client, err := c.part.of.open()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, topic, p := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = c.part.number, which
	topic.Topic, topic.Partitions = c.part.of.topic, append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = errors.New("no answer about the partition")
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if err = kerr.ErrorForCode(p.ErrorCode); err == nil {
					return uint64(max(p.Offset, 0)), nil
				}
			}
		}
	}
	return 0, c.part.of.wrap("ask for the offsets of", err)
}

// Read returns records that were read before and are not done, and new ones if a range has them.
func (c *conn) Read(ctx context.Context, in []outbox.Range, limit int, skip func(id uint64) bool) (rows []outbox.Row, err error) {
	if err := c.own(); err != nil {
		return nil, err
	}
	c.asked = true
	ctx, cancel := c.within(ctx)
	defer cancel()
	for _, r := range in {
		top, ids := c.a.known(r, limit, skip)
		for len(ids) > 0 {
			row, there, err := c.reread(ctx, ids[0])
			if err != nil {
				return nil, err
			}
			if there {
				rows = append(rows, row)
			}
			if outbox.Full(rows, limit) {
				return rows, nil
			}
			r.First = ids[0] + 1
			if ids = ids[1:]; len(ids) == 0 { // some of them may be gone, and others follow
				_, ids = c.a.known(r, limit, skip)
			}
		}
		if r.Last > top {
			return c.readNew(ctx, rows, limit)
		}
	}
	return rows, nil
}

// known returns the last id that was read, and the open ids of a range.
func (a *assignment) known(r outbox.Range, most int, skip func(uint64) bool) (top uint64, ids []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turn.top, a.turn.in(r, most, skip)
}

// reread returns a record that was read before.
func (c *conn) reread(ctx context.Context, id uint64) (row outbox.Row, there bool, err error) {
	r, err := c.record(ctx, id)
	if err != nil {
		return row, false, err
	}
	if r == nil { // compacted away, or deleted by retention
		c.finish(id)
		return row, false, nil
	}
	return c.part.of.row(r, c.again.asked, c.again.answered), true, nil
}

// record returns the record with an id; nil: it is gone. An empty answer does not say that: a new leader may not know yet how far it
// may be read, and one that fetches from afar may be slow.
func (c *conn) record(ctx context.Context, id uint64) (r *kgo.Record, err error) {
	for tries := 0; !c.again.has(id - 1); tries++ {
		if tries == emptyTries {
			return nil, fmt.Errorf("%s: its leader does not show offset %d, which was read before", c.part, id-1)
		}
		_ = loop.Wait(ctx, time.Duration(tries)*emptyPause) // fetch sees that ctx has ended
		if c.again, err = c.fetch(ctx, id-1); err != nil {
			return nil, err
		}
	}
	return c.again.at(id - 1), nil
}

// readNew reads what was not read before. One request at most: a poll follows.
func (c *conn) readNew(ctx context.Context, rows []outbox.Row, limit int) ([]outbox.Row, error) {
	top := c.a.top()
	if !c.ahead.has(top) {
		var err error
		if c.ahead, err = c.fetch(ctx, top); err != nil {
			return nil, err
		}
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	turn := c.a.turn
	for _, r := range c.ahead.from0(turn.top) {
		if outbox.Full(rows, limit) || len(turn.open) >= c.part.of.most {
			return rows, nil
		}
		turn.read(uint64(r.Offset) + 1)
		rows = append(rows, c.part.of.row(r, c.ahead.asked, c.ahead.answered))
	}
	turn.top = max(turn.top, c.ahead.to)
	return rows, nil
}

func (a *assignment) top() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turn.top
}

// Delete moves the mark up to which all is done. It is committed each second, by Next, and when the session ends.
func (c *conn) Delete(_ context.Context, keys []outbox.Key) error {
	if err := c.own(); err != nil {
		return err
	}
	ids := make([]uint64, len(keys))
	for i, key := range keys {
		ids[i] = key.ID
	}
	c.finish(ids...)
	return nil
}

// finish notes that records are done.
func (c *conn) finish(ids ...uint64) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.a.turn == nil {
		return
	}
	for _, id := range ids {
		delete(c.a.turn.open, id)
	}
}

// Next commits what is done, and returns the id of the next record.
func (c *conn) Next(ctx context.Context) (uint64, error) {
	if err := c.own(); err != nil {
		return 0, err
	}
	soon, cancel := context.WithTimeout(ctx, nextWithin)
	defer cancel()
	if err := c.part.of.commit(soon, c.a); err != nil && ctx.Err() == nil && isAny(err, context.DeadlineExceeded, kerr.RebalanceInProgress) {
		return 0, outbox.ErrLater
	} else if err != nil {
		return 0, c.part.of.wrap("commit offsets of", err)
	}
	end, err := c.offset(ctx, -1)
	if err != nil {
		return 0, err
	}
	c.a.heard(end)
	return end + 1, c.own() // else nothing was committed
}

// heard notes the end of the partition.
func (a *assignment) heard(end uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = max(a.end, end)
}

// waiting returns how many records are not done.
func (c *conn) waiting() uint64 {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.a.turn == nil {
		return 0
	}
	return max(c.a.end, c.a.turn.top) - c.a.turn.top + uint64(len(c.a.turn.open))
}

// Present returns which rows the group has not left behind.
func (c *conn) Present(_ context.Context, keys []outbox.Key) (map[outbox.Key]bool, error) {
	if err := c.own(); err != nil {
		return nil, err
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	present := make(map[outbox.Key]bool)
	for _, key := range keys {
		if key.ID > c.a.committed {
			present[key] = true
		}
	}
	return present, nil
}

// Writers returns none. Reads see committed records only, and a record that is written later gets a higher offset.
func (c *conn) Writers(context.Context) (outbox.Writers, error) { return nil, nil }

// Settled returns the ranges that were read and have nothing open. A turn that has not read yet asks whether an earlier one had done
// what the group's offset is before.
func (c *conn) Settled(_ context.Context, in []outbox.Range, _ outbox.Writers) (settled []outbox.Range, err error) {
	if err := c.own(); err != nil {
		return nil, err
	}
	for _, r := range in {
		top, open := c.a.known(r, 1, nil)
		switch {
		case r.Last <= top && len(open) == 0:
			settled = append(settled, r)
		case !c.asked && r.First == 0:
			return nil, fmt.Errorf("%s: %w: group %s is at offset %d, and commands before offset %d were carried out: stop the relays of the group, then set it to %d, or start one with --replay to have them carried out again",
				c.part, outbox.ErrRewound, c.part.of.Group, top, r.Last, r.Last)
		}
	}
	return settled, nil
}

// SetAside writes the record to the dead-letter topic. While that fails, the partition pauses.
func (c *conn) SetAside(ctx context.Context, key outbox.Key, reason string) error {
	if err := c.own(); err != nil {
		return err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	r, err := c.record(ctx, key.ID)
	if err != nil {
		return err
	}
	reason = outbox.Reason(reason) // it may repeat what is in the record
	for r != nil {
		if err = c.bury(ctx, r, reason); err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.part.of.limit.Of(c.part.of.log, "dead letter").Error("partition pauses: a command is refused, and the dead-letter topic can't be written",
			"error", err, "entrance", c.part.of.name, "partition", c.part.number, "offset", r.Offset, "refused", reason)
		_ = loop.Wait(ctx, time.Second) // the loop ends with ctx
	}
	c.finish(key.ID)
	return nil
}

// Close commits what is done, and lets the partition go to another process.
func (c *conn) Close() {
	if !c.leads {
		return
	}
	c.leads = false
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	if err := c.part.of.commit(ctx, c.a); err != nil && c.a.over.Err() == nil {
		c.part.of.limit.Of(c.part.of.log, "commit").Warn("offsets are not committed: the next relay looks at commands again", "error", err, "entrance", c.part.of.name)
	}
	c.a.rest()
}
