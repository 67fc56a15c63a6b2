package tocsinpg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

const (
	answerWithin = 30 * time.Second       // one statement; a connection that hangs ends
	leadPause    = 500 * time.Millisecond // between two attempts at the lock
)

// conn is the outbox.Conn of a session.
type conn struct {
	server *server
	conn   *pgx.Conn
	lock   int64 // of the one relay, by the identity
	own    int64 // of those that relay this very table
}

// lockOf is the number of a lock, by its name. Locks are apart by database.
func lockOf(name string) int64 {
	sum := sha256.Sum256([]byte("tocsin outbox " + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Close ends the connection, and so gives the lock up.
func (c *conn) Close() { _ = closeNow(c.conn) }

// IdentityNow returns the identity that the outbox has now: its table may have been replaced.
func (c *conn) IdentityNow(ctx context.Context) (string, error) {
	var comment string
	if err := c.one(ctx, []any{&comment}, identitySQL, c.server.quoted()); err != nil {
		return "", c.server.wrap("read the identity of", err)
	}
	identity := outbox.Identity(comment)
	if identity == "" {
		return "", fmt.Errorf("%s: %w", c.server, outbox.ErrNoIdentity)
	}
	return identity, nil
}

// one reads the one row of an answer.
func (c *conn) one(ctx context.Context, into []any, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return c.conn.QueryRow(ctx, statement, args...).Scan(into...)
}

// each scans each row of an answer into into, and then calls do.
func (c *conn) each(ctx context.Context, tried string, into []any, do func(), statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	found, err := c.conn.Query(ctx, c.server.render(statement, ""), args...)
	if err == nil {
		_, err = pgx.ForEachRow(found, into, func() error { do(); return nil })
	}
	return c.server.wrap(tried, err)
}

// exec runs a statement that returns no rows.
func (c *conn) exec(ctx context.Context, tried, statement string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	done, err := c.conn.Exec(ctx, c.server.render(statement, ""), args...)
	return done, c.server.wrap(tried, err)
}

// Lead takes the lock of this table before that of the identity. Whoever has the one and not the other has met the relay of
// another table with the same identity. Locks are apart by database, so it looks into the others for a copy, too.
func (c *conn) Lead(ctx context.Context, within time.Duration) (bool, error) {
	if own, err := c.take(ctx, c.own, within); err != nil || !own {
		return false, err
	}
	leads, err := c.take(ctx, c.lock, within)
	if err != nil {
		return false, err
	}
	if err := c.copied(ctx, !leads); err != nil {
		return false, err
	}
	return leads, nil
}

// take asks for a lock again and again: a statement that waits for it would keep the server from cleaning up meanwhile.
func (c *conn) take(ctx context.Context, lock int64, within time.Duration) (bool, error) {
	until := time.Now().Add(within)
	for {
		var got bool
		if err := c.one(ctx, []any{&got}, leadSQL, lock); err != nil || got {
			return got, c.server.wrap("take the lock of", err)
		}
		if time.Until(until) < leadPause {
			return false, nil
		}
		if err := loop.Wait(ctx, leadPause); err != nil {
			return false, err
		}
	}
}

// copied says who has the lock of the identity, in this database or in another one of the server.
func (c *conn) copied(ctx context.Context, here bool) error {
	var holder int
	var database string
	err := c.one(ctx, []any{&holder, &database}, holderSQL, c.lock, here)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // nobody, or no more
	case err != nil:
		return c.server.wrap("look who has the lock of", err)
	}
	return fmt.Errorf("%s: another table, in database %s, has the same identity, and the server's process %d relays it: one is a copy of the other; empty the comment of the copy and run `tocsin outbox apply`",
		c.server, database, holder)
}

// bounds are the ends of ranges. Ids that PostgreSQL can't have are left out.
func bounds(in []outbox.Range) (first, last []int64) {
	for _, r := range in {
		if r.First <= math.MaxInt64 {
			first = append(first, int64(r.First))
			last = append(last, int64(min(r.Last, math.MaxInt64)))
		}
	}
	return first, last
}

// Read returns the first rows with ids in any of the ranges, which are in order, as one snapshot: that of one statement. It
// ends early behind the row with which outbox.PageBytes are reached.
func (c *conn) Read(ctx context.Context, in []outbox.Range, limit int, skip func(id uint64) bool) ([]outbox.Row, error) {
	return c.read(ctx, "", in, limit, skip)
}

func (c *conn) read(ctx context.Context, condition string, in []outbox.Range, limit int, skip func(id uint64) bool) ([]outbox.Row, error) {
	if len(in) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	first, last := bounds(in)
	begin := time.Now() // before the read: a row is at least as old
	found, err := c.conn.Query(ctx, c.server.render(readSQL, condition), first, last, limit)
	if err != nil {
		return nil, c.server.wrap("read", err)
	}
	defer found.Close()
	var rows []outbox.Row
	var answered time.Time
	before := uint64(0)
	for bytes := 0; bytes < outbox.PageBytes && found.Next(); {
		if answered.IsZero() {
			answered = time.Now()
		}
		row, err := scan(found)
		if err != nil {
			return nil, c.server.wrap("read", err)
		}
		if row.ID < before {
			return nil, fmt.Errorf("read %s: row %d came after row %d", c.server, row.ID, before)
		}
		before, row.Read, row.Answered = row.ID, begin, answered
		if skip == nil || !skip(row.ID) {
			rows = append(rows, row)
			bytes += row.Size()
		}
	}
	found.Close() // what is left is not wanted
	return rows, c.server.wrap("read", found.Err())
}

func scan(found pgx.Rows) (r outbox.Row, err error) {
	var id, age int64
	var bizID string
	var due, delay *int64
	err = found.Scan(&id, &r.Op, &r.BizType, &bizID, &due, &delay, &r.Dedup, &r.Headers, &r.BizKey, &r.Payload, &r.Created, &age, &r.Attempts, &r.LastError)
	if err != nil {
		return r, err
	}
	r.ID, r.Created, r.Age = uint64(id), r.Created.UTC(), outbox.AgeOf(age)
	r.BizID, _ = strconv.ParseUint(bizID, 10, 64) // 0 is refused, without a key
	r.Place()
	if due != nil {
		r.Due = time.UnixMicro(*due).UTC()
	}
	if delay != nil {
		r.Delay = outbox.DelayOf(*delay)
	}
	return r, nil
}

// Delete deletes rows that were moved. Rows that got their ids later stay.
func (c *conn) Delete(ctx context.Context, keys []outbox.Key) error {
	ids, created := make([]int64, len(keys)), make([]time.Time, len(keys))
	for i, k := range keys {
		ids[i], created[i] = int64(k.ID), k.Created
	}
	_, err := c.exec(ctx, "delete from", deleteSQL, ids, created)
	return err
}

// SetAside notes why a row can't be moved. Operators see it, and relays leave the row.
func (c *conn) SetAside(ctx context.Context, key outbox.Key, reason string) error {
	_, err := c.exec(ctx, "set aside a row of", asideSQL, outbox.Reason(reason), int64(key.ID), key.Created)
	return err
}

// Next returns an id above all that were drawn; 0 if this user has no right to read the sequence.
func (c *conn) Next(ctx context.Context) (uint64, error) {
	var next int64
	err := c.one(ctx, []any{&next}, nextSQL, c.server.quoted())
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return uint64(next), c.server.wrap("ask for the next id of", err)
}

// Present returns which of the rows are in the outbox.
func (c *conn) Present(ctx context.Context, keys []outbox.Key) (map[outbox.Key]bool, error) {
	ids := make([]uint64, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	present := make(map[outbox.Key]bool)
	var id int64
	var created time.Time
	err := c.each(ctx, "look into", []any{&id, &created}, func() {
		present[outbox.Key{ID: uint64(id), Created: created.UTC()}] = true
	}, presentSQL, numbers(ids))
	return present, err
}

// Writers returns the transactions that hold the lock of those who write into the outbox.
func (c *conn) Writers(ctx context.Context) (writers outbox.Writers, err error) {
	var writer string
	err = c.each(ctx, "look for open transactions in", []any{&writer}, func() { writers = append(writers, writer) }, writersSQL, c.server.quoted())
	return writers, err
}

// Settled returns the ranges in which no row is, if all transactions of since have ended. One that was prepared keeps its
// name. The rows are looked for last, and so as the transactions have left them.
func (c *conn) Settled(ctx context.Context, in []outbox.Range, since outbox.Writers) ([]outbox.Range, error) {
	now, err := c.Writers(ctx)
	open := func(writer string) bool { return slices.Contains(since, writer) }
	if err != nil || len(in) == 0 || slices.ContainsFunc(now, open) {
		return nil, err
	}
	first, last := bounds(in)
	var from, to int64
	var settled []outbox.Range
	err = c.each(ctx, "look for rows in", []any{&from, &to}, func() {
		settled = append(settled, outbox.Range{First: uint64(from), Last: uint64(to)})
	}, emptySQL, first, last)
	return settled, err
}
