package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Bounds of the waits for locks of one AddMany on one server.
const (
	lockBrief = 2 * time.Second  // of one chunk, while others wait behind it
	lockSpent = 20 * time.Second // of all chunks, before locked ones are given up at once
	lockLast  = 10 * time.Second // at the end, of the tables that were locked
)

// batch stores the chunks of one AddMany on one server. Its methods but finish
// may run at once for different chunks.
type batch struct {
	client *Client
	server *server
	facts  *facts
	ledger *ledger               // of Move; nil: these tasks come from no outbox
	gone   atomic.Pointer[error] // the server can't be reached: later chunks are not tried
	spent  atomic.Int64          // nanoseconds of waits for locks
	until  time.Time             // finish waits for locks; zero before it

	mu     sync.Mutex
	locked []chunk // left to finish: each of one table

	held map[uint64]bool // of Move, whose chunks come one after the other: biz_ids of rows that are not stored
}

// chunk is rows in order of their tables. maybe says that an earlier try may have stored them.
type chunk struct {
	rows  []*Row
	maybe bool
}

// store stores a chunk. Where the server refuses it for something in it, it is halved until only the culprit is
// left out.
func (b *batch) store(ctx context.Context, of chunk) {
	rows := slices.DeleteFunc(slices.Clone(of.rows), (*Row).stored)
	if gone := b.gone.Load(); gone != nil {
		if of.maybe {
			b.report(rows, true, *gone)
		} else {
			fail(rows, *gone)
		}
		return
	}
	if rows = b.unheld(rows); len(rows) == 0 {
		return
	}
	began := time.Now()
	maybe, err := b.try(ctx, rows, of.maybe)
	switch {
	case err == nil:
	case mysql.ClassOf(err) == mysql.Contended && b.until.IsZero() && b.spent.Add(int64(time.Since(began))) < int64(lockSpent):
		b.apart(ctx, chunk{rows, maybe})
	case len(rows) > 1 && splits(err):
		half := len(rows) / 2
		b.store(ctx, chunk{rows[:half], maybe})
		b.store(ctx, chunk{rows[half:], maybe})
	default:
		b.report(rows, maybe, err)
	}
}

// apart tries each table of a chunk alone, where a locked one holds up the
// others, and leaves the locked one to finish.
func (b *batch) apart(ctx context.Context, of chunk) {
	rows := of.rows
	if rows[0].table != rows[len(rows)-1].table {
		groups(rows, tableOf, func(table []*Row) { b.store(ctx, chunk{table, of.maybe}) })
		return
	}
	if b.ledger != nil { // a relay tries again by itself
		b.report(rows, false, errTableLocked)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked = append(b.locked, of)
}

// errTableLocked is the fate of rows that are not waited for.
var errTableLocked = errors.New("another transaction holds a lock on the table")

// finish stores the tables that were locked, if they are free before long.
func (b *batch) finish(ctx context.Context) {
	b.until = time.Now().Add(lockLast)
	for _, of := range b.locked {
		b.store(ctx, of)
	}
}

// patience is how long the locks of one chunk are waited for.
func (b *batch) patience() time.Duration {
	switch {
	case b.ledger != nil:
		return moveBrief
	case b.until.IsZero():
		return lockBrief
	}
	return max(time.Until(b.until), time.Millisecond)
}

// errHeld is the fate of rows from an outbox behind one of the same biz_id that is not stored.
var errHeld = errors.New("an earlier row of its biz_id is not stored")

// unheld leaves out rows from an outbox behind one of the same biz_id that is not stored.
func (b *batch) unheld(rows []*Row) []*Row {
	if len(b.held) == 0 {
		return rows
	}
	var rest []*Row
	for _, r := range rows {
		if b.held[r.bizID] {
			r.Out = Added{Err: errHeld}
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}

// hold notes that a row is not stored.
func (b *batch) hold(r *Row) {
	if b.ledger == nil {
		return
	}
	if b.held == nil {
		b.held = map[uint64]bool{}
	}
	b.held[r.bizID] = true
}

// splits reports whether a part of the chunk may go in without the rest.
func splits(err error) bool {
	class := mysql.ClassOf(err)
	return class == mysql.Other || class == mysql.Missing || class == mysql.Denied || class == mysql.Full
}

// report gives every row of a chunk that is not known to be stored the error
// that it failed with.
func (b *batch) report(rows []*Row, maybe bool, err error) {
	t := tries{maybe: maybe}
	for _, r := range rows {
		if r.Out.JobID != 0 {
			continue
		}
		b.hold(r)
		r.Out = Added{JobID: unsureID(maybe, r.id), Err: t.failure(r.id, b.client.Where(r.table), err)}
	}
	if b.gone.Load() == nil && mysql.ClassOf(err).OfServer() {
		gone := fmt.Errorf("server %s is %w", b.server.Name, outage(err))
		b.gone.Store(&gone)
	}
}

// try stores a chunk over as many connections as it takes. maybe says, with an
// error, that rows of it may be stored; before, that an earlier call may have stored them.
func (b *batch) try(ctx context.Context, rows []*Row, before bool) (maybe bool, err error) {
	t := newTries()
	t.maybe = before
	for {
		sent, err := b.once(ctx, rows, t.maybe)
		if err == nil || !t.again(ctx, sent, err) {
			return t.maybe, err
		}
	}
}

// once stores a chunk over one connection. The rows that were not inserted are
// read back, and those whose id was taken go in again under the next one. maybe
// says that an earlier try may have stored the chunk.
func (b *batch) once(ctx context.Context, rows []*Row, maybe bool) (sent bool, err error) {
	conn, err := b.server.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := b.server.admit(ctx, conn, b.databases(rows)...); err != nil {
		return false, err
	}
	for range maxCollisions {
		rows, err = b.pass(ctx, conn, rows, maybe)
		if err != nil || len(rows) == 0 {
			return true, err
		}
		maybe = false // no earlier try had the ids that they have now
	}
	return true, fmt.Errorf("%d ids in a row are taken", maxCollisions)
}

// databases returns the databases of rows, which are in order of their tables.
func (b *batch) databases(rows []*Row) []int {
	all := make([]int, len(rows))
	for i, r := range rows {
		all[i] = b.client.layout.DatabaseOf(r.table)
	}
	return slices.Compact(all)
}

// pass inserts rows in one transaction and returns those that have to be sent again: their id was taken, or that of
// another row, and they have new ones.
func (b *batch) pass(ctx context.Context, conn *sql.Conn, rows []*Row, maybe bool) (taken []*Row, err error) {
	var p *packet
	err = mysql.RetryFor(ctx, b.patience(), func() (err error) {
		p = b.packet(rows, maybe)
		return b.send(ctx, conn, p)
	})
	switch {
	case err != nil && b.ledger != nil:
		taken, err = b.again(ctx, conn, rows, err)
		b.renew(taken)
		return taken, err
	case mysql.ClassOf(err) == mysql.Duplicate && !maybe:
		return rows, b.renewTaken(ctx, conn, rows)
	case err != nil:
		return nil, err
	}
	for i, group := range p.tables {
		if found, some := p.partly[i]; some {
			taken = append(taken, tell(found, group)...)
		} else {
			for _, r := range group {
				r.Out = Added{JobID: r.id}
			}
		}
	}
	b.renew(taken)
	return taken, nil
}

// renew gives rows new ids.
func (b *batch) renew(rows []*Row) {
	for _, r := range rows {
		r.id = b.client.IDs.Next(time.Now(), r.table)
	}
}

// renewTaken gives those rows new ids whose own is another task's. Nothing of the rows is stored.
func (b *batch) renewTaken(ctx context.Context, conn *sql.Conn, rows []*Row) (err error) {
	groups(rows, tableOf, func(group []*Row) {
		if err != nil {
			return
		}
		var found standing
		found, err = b.client.readBack(ctx, conn, group)
		b.renew(slices.DeleteFunc(slices.Clone(group), func(r *Row) bool { return !slices.ContainsFunc(found, func(s stored) bool { return s.id == r.id }) }))
	})
	return err
}

// again returns the rows of a packet from an outbox that have to be sent again with other ids: those that were not moved
// before, or all of them if the id of one was taken. A packet is stored as a whole, or not at all.
func (b *batch) again(ctx context.Context, conn *sql.Conn, rows []*Row, err error) ([]*Row, error) {
	switch err = b.ledger.meaning(err); {
	case errors.Is(err, errMovedBefore):
		return b.ledger.unmoved(ctx, conn, rows)
	case errors.Is(err, errCollision):
		return rows, nil
	}
	return nil, err
}

// send sends the packet. For each table where some rows were not inserted, it then
// reads what is stored there, and ends the transaction of a packet that waits for that.
func (b *batch) send(ctx context.Context, conn *sql.Conn, p *packet) error {
	counts, err := mysql.ExecMulti(ctx, conn, p.query(), p.args...)
	if err == nil {
		err = b.lookBack(ctx, conn, p, counts[p.ahead:])
	}
	if err == nil && b.ledger != nil {
		err = p.stranger() // it must not stand in the ledger
	}
	if err == nil && b.ledger != nil && p.collided() {
		err = errCollision
	}
	if err == nil && p.waits {
		_, err = mysql.ExecMulti(ctx, conn, p.end(b))
	}
	if err != nil {
		mysql.Rollback(ctx, conn) // the packet stopped half-way
	}
	return err
}

// lookBack reads the stored rows that kept others of the same table from being
// inserted, of all tables with such rows at once: the transaction holds them.
func (b *batch) lookBack(ctx context.Context, conn *sql.Conn, p *packet, counts []int64) error {
	var short []int
	var groups [][]*Row
	for i, group := range p.tables {
		if counts[i] != int64(len(group)) {
			short, groups = append(short, i), append(groups, group)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	found, err := b.client.readBackEach(ctx, conn, groups)
	if err != nil {
		return err
	}
	for n, i := range short {
		p.partly[i] = found[n]
	}
	return nil
}

// tell says what became of the rows of one table of which some were not
// inserted, and gives back those whose id was taken.
func tell(found standing, rows []*Row) (taken []*Row) {
	for _, r := range rows {
		if found.has(r) {
			r.Out = Added{JobID: r.id}
		} else if s := found.holder(r); s != nil {
			added, err := r.existing(s)
			added.Err = err
			r.Out = added
		} else {
			taken = append(taken, r)
		}
	}
	return taken
}
