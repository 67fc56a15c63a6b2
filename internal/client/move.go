package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// freshFor is how long a row of an outbox may be moved after it was read. A relay that hung for longer reads it again:
// another one may have moved it meanwhile, and forgotten that it did.
const freshFor = time.Minute

var errStale = errors.New("it was read too long ago")

// Move moves rows of an outbox, which all belong to one database. Each is stored in one transaction with a row of the
// ledger, under the outbox's identity and the row's key; what stands in the ledger is not stored again. Adds are stored
// together, as far as they can be. Of one biz_id the rows must be adds alone, or one other row.
func (c *Client) Move(ctx context.Context, identity string, rows []outbox.Row) []outbox.Result {
	m := &move{client: c, identity: identity, results: make([]outbox.Result, len(rows)), refused: map[uint64]uint64{}}
	var adds, changes []int
	for i, r := range rows {
		m.lookFor(ctx, r.BizType)
		if why := r.Problem(); why != "" {
			m.refuse(i, r, Refuse(ErrInvalid, "%s", why))
		} else if r.Op == outbox.Add {
			adds = append(adds, i)
		} else {
			changes = append(changes, i)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		atOnce(changesAtOnce, changes, func(i int) {
			changed, err := m.change(ctx, rows[i])
			m.results[i] = fateOf(err)
			m.results[i].Changed = changed
		})
	})
	m.add(ctx, rows, adds)
	all.Wait()
	return m.results
}

// changesAtOnce is how many cancels and reschedules of a Move run side by side. Each is a transaction, which mostly waits for
// the server's disk; they are of different biz_ids, as are the adds beside them.
const changesAtOnce = 4

// moveBrief is how long a Move waits for locks on tasks, a lane's other rows with it. A relay tries again by itself. An insert
// waits once, as long as the session says.
const moveBrief = 50 * time.Millisecond

// move is one Move under way.
type move struct {
	client   *Client
	identity string
	results  []outbox.Result
	asked    bool              // for a biz type that was not known
	refused  map[uint64]uint64 // biz_id -> its first row that is not tried: later ones wait
}

// refuse notes the fate of a row that is not stored.
func (m *move) refuse(i int, r outbox.Row, err error) {
	m.results[i] = fateOf(err)
	if first, some := m.refused[r.BizID]; !some || r.ID < first {
		m.refused[r.BizID] = r.ID
	}
}

// lookFor has the names of biz types read anew if one is not known: a row must not be refused for what was so a moment ago.
func (m *move) lookFor(ctx context.Context, bizType string) {
	if _, known := m.client.Types.Numbers()[bizType]; !known && !m.asked {
		m.asked = true
		m.client.Types.askAgain(ctx)
	}
}

// fateOf tells what an error of moving a row means.
func fateOf(err error) outbox.Result {
	switch {
	case err == nil:
		return outbox.Result{}
	case errors.Is(err, ErrInDelivery):
		return outbox.Result{Fate: outbox.InDelivery, Err: err}
	case errors.Is(err, errStale):
		return outbox.Result{Fate: outbox.Stale, Err: err}
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnknownBizType), errors.Is(err, ErrKeyCollision), mysql.RowRefused(err):
		return outbox.Result{Fate: outbox.Refused, Err: err}
	}
	return outbox.Result{Fate: outbox.Failed, Err: err}
}

// server returns the server of a biz_id and what its databases said at most a second ago, if that database takes tasks.
func (m *move) server(ctx context.Context, bizID uint64) (*server, *facts, error) {
	c := m.client
	db := c.layout.DatabaseOf(c.layout.TableOf(bizID))
	s := c.home[db]
	f := s.facts.Load()
	if f == nil || f.cluster != c.want.Cluster || f.term != s.Term() || time.Since(f.read) > lookAgain {
		var err error
		if f, err = s.check(ctx); err != nil {
			return nil, nil, err
		}
	}
	s.anchors.keep(f)
	return s, f, f.refused[db]
}

// when is the action time that a row asks for, by the server's clock. A delay counts from the row's creation, by the
// clock of the outbox's server: what is left of it counts from now.
func (m *move) when(r outbox.Row, f *facts) When {
	switch {
	case r.Op == outbox.Cancel:
		return When{}
	case r.Delay != nil:
		now := time.Now() // one for both: what passes between two would be missing
		return At(f.latest(now).Add(r.Left(now)))
	}
	return At(r.Due)
}

// until is when a row must not be moved any more, by the server's clock. It is counted from a reading of that clock before
// the row was read: while a virtual machine is paused, its own clocks may stand still.
func (m *move) until(r outbox.Row, s *server, f *facts) time.Time {
	if a := s.anchors.before(r.Read, f.term); a != nil {
		return a.now.Add(r.Read.Sub(a.read) + freshFor)
	}
	return f.clock().Add(freshFor - r.SinceRead())
}

// anchors are readings of a server's clock, the later one at least freshFor after the other.
type anchors struct {
	mu           sync.Mutex
	former, last *facts
}

// keep takes a reading, if the last one is old enough.
func (a *anchors) keep(f *facts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil || f.read.Sub(a.last.read) >= freshFor || f.term != a.last.term {
		a.former, a.last = a.last, f
	}
}

// before returns the last reading from before a time, nil if none is known.
func (a *anchors) before(at time.Time, term int64) *facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range []*facts{a.last, a.former} {
		if f != nil && f.term == term && f.read.Before(at) {
			return f
		}
	}
	return nil
}

// add stores the rows that are adds.
func (m *move) add(ctx context.Context, rows []outbox.Row, adds []int) {
	if len(adds) == 0 {
		return
	}
	s, f, err := m.server(ctx, rows[adds[0]].BizID)
	if err != nil {
		for _, i := range adds {
			m.results[i] = fateOf(err)
		}
		return
	}
	added, ready := make([]Row, len(adds)), make([]*Row, 0, len(adds))
	for n, i := range adds {
		r := &added[n]
		*r, err = m.row(ctx, rows[i], f)
		if first, some := m.refused[rows[i].BizID]; some && first < rows[i].ID {
			err = fmt.Errorf("row %d of its biz_id is not stored", first)
		}
		if err == nil && rows[i].Locked {
			err = m.unlocked(ctx, s, r)
		}
		if err != nil {
			r.Out.Err = err
			m.refuse(i, rows[i], err)
			continue
		}
		r.origin = &origin{rows[i].Key, m.until(rows[i], s, f)}
		ready = append(ready, r)
	}
	m.store(ctx, s, f, ready)
	for n, i := range adds {
		m.results[i] = fateOf(added[n].Out.Err)
	}
}

// unlocked asks, for a row that has met a lock, whether the task with its dedup_key is locked still. An insert would wait for
// that, and all rows that are stored with it.
func (m *move) unlocked(ctx context.Context, s *server, r *Row) error {
	if r.dedup == nil {
		return nil
	}
	var holder stored
	query := m.client.layout.Render(holderSQL+noWaitSQL, r.table)
	err := QueryRow(ctx, s.DB, query, r.bizID, r.bizType, r.dedup)(&holder.id, &holder.status, &holder.bizKey, &holder.strict)
	if mysql.ClassOf(err) == mysql.Contended {
		return fmt.Errorf("the task with its dedup_key in %s: %w", m.client.Where(r.table), err)
	}
	return nil // another error comes again
}

// row makes a task of a row of the outbox.
func (m *move) row(ctx context.Context, of outbox.Row, f *facts) (Row, error) {
	t := Task{BizType: of.BizType, BizID: of.BizID, BizKey: of.BizKey, When: m.when(of, f), Dedup: of.Dedup, Payload: of.Payload}
	marked, version := TakeVersion(of.Headers)
	t.Version = version
	headers, err := ReadHeaders(marked)
	if err != nil {
		t.Err = Refuse(ErrInvalid, "%s", err)
	}
	t.Headers = t.Headers.with(headers)
	r, err := m.client.Row(ctx, t)
	r.when = t.When // who wrote the row has spread it, or did not want that
	return r, err
}

// store stores rows that are ready, several tables to a transaction.
func (m *move) store(ctx context.Context, s *server, f *facts, rows []*Row) {
	sortRows(rows)
	b := &batch{client: m.client, server: s, facts: f, ledger: &ledger{client: m.client, identity: m.identity}}
	for _, part := range split(rows, min(chunkBytes, f.packet/2)) {
		b.store(ctx, chunk{rows: part})
	}
}

// change cancels or reschedules, in a transaction with the ledger. changed reports, beside ErrInDelivery, whether it changed other tasks.
func (m *move) change(ctx context.Context, r outbox.Row) (changed bool, err error) {
	c := m.client
	s, f, err := m.server(ctx, r.BizID)
	if err != nil {
		return false, err
	}
	ref := Ref{BizType: r.BizType, BizID: r.BizID, BizKey: r.BizKey}
	ch, err := c.change(ctx, r.Op, ref, m.when(r, f))
	if err != nil {
		return false, err
	}
	if r.Again && r.Op == outbox.Reschedule {
		ch.unless, ch.but = notYetSQL, ch.set[:2]
	}
	ch.status, ch.partly = ch.status+noWaitSQL, true
	note := &Row{table: ch.table, origin: &origin{r.Key, m.until(r, s, f)}}
	l := &ledger{client: c, identity: m.identity}
	busy := false
	err = mysql.RetryFor(ctx, moveBrief, func() error {
		return mysql.InTx(ctx, s.DB, func(conn *sql.Conn) (err error) {
			if err := s.admit(ctx, conn, c.layout.DatabaseOf(ch.table)); err != nil {
				return err
			}
			busy, changed, err = m.apply(ctx, conn, l, note, ch)
			return err
		})
	})
	switch {
	case err == nil && busy:
		return changed, ErrInDelivery
	case errors.Is(err, errMovedBefore), err == nil:
		return false, nil
	case errors.Is(err, errElsewhere):
		return false, Refuse(ErrLayout, "%s takes no tasks: its database is retired, held or not that of cluster %q", c.Where(ch.table), c.want.Cluster)
	}
	return false, fmt.Errorf("%s in %s: %w", ch.verb, c.Where(ch.table), outage(err))
}

// apply writes the ledger and makes the change. While a task of a strict biz type is in delivery, which may end in a retry, the
// row has to be tried again: then what is pending is changed now, and the ledger does not keep the row. busy reports that.
func (m *move) apply(ctx context.Context, conn *sql.Conn, l *ledger, note *Row, ch change) (busy, changed bool, err error) {
	if err := l.insert(ctx, conn, note); err != nil {
		return false, false, err
	}
	done, err := m.client.apply(ctx, conn, ch)
	if !errors.Is(err, ErrInDelivery) {
		return false, false, err
	}
	return true, done.Changed > 0, l.remove(ctx, conn, note)
}
