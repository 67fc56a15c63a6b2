package schedule

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Began is what Begin has done with a run. If nothing is set, the row is not as it was read: somebody else has it, or ended it.
type Began struct {
	Deadline int64          // of the claim, Unix ms; 0: it is not claimed
	Next     int64          // it waits, and looks again then; 0: it does not wait
	Ended    string         // why it was cancelled: "missed: ...", "skipped: ...", "cancelled: ..."
	Replaced []tocsin.JobID // cancelled in its favour, in delivery or not
}

// How long a run that waits for its turn waits until it looks again, if nobody brings it forward: the next one for a tenth of the time that it has waited,
// within bounds, and those behind it for longer.
const (
	nearLeast = time.Second
	nearMost  = 10 * time.Second
	farLeast  = 11 * time.Second
	farMost   = 14 * time.Second
)

// beginWithin is the time-out of one Begin or Settle.
const beginWithin = 30 * time.Second

// Begin claims a run that is Alone, if it is its turn: under the session of by, if that is a token, which must exist; else until the server's now + hold. One transaction locks the schedule's row, so that
// no other run of the schedule begins, is made or settled meanwhile, reads the open runs, and decides:
//
//	the schedule was changed, and the run is a retry:        it is cancelled
//	the schedule was changed, and makes no runs:             it is cancelled
//	it is missed by the clock of this transaction:           it is cancelled
//	no other run is in delivery, and no earlier one is open: it is claimed
//	skip:                                                    it is cancelled
//	queue:                                                   it waits; it is cancelled if another one that came on time waits
//	replace:                                                 the earlier ones are cancelled, and it is claimed
//
// A run that has begun before, is by hand, or is made up for waits; it is never skipped, and replaces none. No other run replaces one by hand
// or made up for that has not begun. Begin may be repeated after a lost answer: a claim by the same
// claimer is recognised.
func (r *Runs) Begin(ctx context.Context, t *Turn, row *store.Row, by string, hold time.Duration) (done Began, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	var b *beginning
	err = r.at(ctx, tocsin.JobID(t.key.Schedule), func(h *here) error {
		b = &beginning{here: h, turn: t, by: by, hold: hold, asked: row}
		return b.run(ctx)
	})
	if err != nil {
		r.metrics.count(verdictFailed)
		return Began{}, fmt.Errorf("begin run %s of schedule %s: %w", row.JobID, t.Name, err)
	}
	switch {
	case b.verdict == verdictMissed:
		r.missed(newKnown(b.row), t.Time, row.Type, b.Ended)
	case b.verdict != "":
		r.metrics.count(b.verdict)
	}
	for range b.Replaced {
		r.metrics.count(verdictReplaced)
	}
	return b.Began, nil
}

// waryFor is how long no lock is waited for on a server after a run has met one.
const waryFor = 10 * time.Second

// at is maker.at for a run. Many schedules may be locked at once, by one transaction: runs that wait for them, one after another, would hold up
// those of other schedules.
func (r *Runs) at(ctx context.Context, id tocsin.JobID, fn func(*here) error) error {
	server := r.maker.tables.ServerOf(id.Table())
	r.mu.Lock()
	wary := time.Now().Before(r.wary[server])
	r.mu.Unlock()
	err := r.maker.lockedAt(ctx, id, wary, fn)
	if !wary && mysql.ClassOf(err) == mysql.Contended {
		r.mu.Lock()
		r.wary[server] = time.Now().Add(waryFor)
		r.mu.Unlock()
	}
	return err
}

// errSessionGone refuses the claim of a run.
var errSessionGone = errors.New("the session of this process was ended: others deliver its runs until it has a new one")

// beginning is one try of Begin.
type beginning struct {
	*here
	Began
	turn    *Turn
	asked   *store.Row // as it was loaded
	by      string
	hold    time.Duration
	verdict string
	note    any // for the row of a run that waits; nil: none

	me      sibling
	version uint32
	holder  string // who has claimed the run
	others  []sibling
}

// run decides, and writes what follows. Its row is locked after that of the schedule, as all who lock both do.
func (b *beginning) run(ctx context.Context) error {
	b.unread = true
	if err := b.read(ctx); err != nil {
		return err
	}
	b.unread = false
	now := b.now.UnixMilli()
	switch same := b.me.id != 0 && b.version == b.asked.Version && b.me.attempts == b.asked.Attempts && b.me.crashes == b.asked.Crashes; {
	case same && b.me.status == tocsin.Claimed && b.holder == b.by:
		b.Deadline, b.verdict = b.me.action, verdictDelivered // the answer was lost
		return nil
	case !same || b.me.status != tocsin.Pending || b.me.action > now:
		return nil
	}
	b.decide(now)
	switch {
	case b.Deadline != 0:
		for _, id := range b.Replaced {
			if _, err := b.exec(ctx, cancelReplaced, "replaced: by the run "+b.me.name(), uint64(id)); err != nil {
				return err
			}
		}
		if !store.IsToken(b.by) {
			_, err := b.exec(ctx, claimRun, milli(b.Deadline), b.by, uint64(b.me.id))
			return err
		}
		n, err := b.exec(ctx, claimRunUnder, b.by, uint64(b.me.id), b.by[:store.SessionSize])
		if err == nil && n == 0 {
			err = errSessionGone // the transaction is rolled back, with what was replaced
		}
		return err
	case b.Ended != "":
		if _, err := b.exec(ctx, endRun, cut(b.Ended), uint64(b.me.id)); err != nil {
			return err
		}
		return b.forward(ctx, b.me.id, nil)
	}
	_, err := b.exec(ctx, putOffRun, milli(b.Next), b.note, uint64(b.me.id))
	return err
}

// readMe locks the run. Primary key. Parameter: job_id.
const readMe = `SELECT /* tocsin schedule begin */` + siblingColumns + `, version, claimed_by
FROM {task} FORCE INDEX (PRIMARY)
WHERE job_id = ?
FOR UPDATE`

// readClaimed reads the runs of one schedule that are in delivery, whatever their biz type: one that is redriven, or that was made before the
// schedule had another type, too. All claimed rows of the table, by idx_due. Parameters: biz_id, the first key, the first key behind them.
const readClaimed = `SELECT /* tocsin schedule claimed */` + siblingColumns + `
FROM {task} FORCE INDEX (idx_due)
WHERE status = 1
    AND biz_id = ?
    AND dedup_key >= ?
    AND dedup_key < ?`

// The writes of Begin, each to a row that it has locked or, of those that are replaced, that is open. Primary key.
const (
	claimRun = `UPDATE /* tocsin schedule begin */ {task} FORCE INDEX (PRIMARY)
SET status = 1, action_time = ?, claimed_by = ?, gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status = 0`

	// claimRunUnder claims it under a session: zero rows if that has ended.
	claimRunUnder = `UPDATE /* tocsin schedule begin */ {task} FORCE INDEX (PRIMARY)
SET status = 1, claimed_by = ?, gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status = 0 AND EXISTS (SELECT 1 FROM {database}.session WHERE id = ?)`
	endRun = `UPDATE /* tocsin schedule end */ {task} FORCE INDEX (PRIMARY)
SET status = 3, action_time = UTC_TIMESTAMP(3), dedup_key = NULL, last_error = ?, gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status = 0`
	putOffRun = `UPDATE /* tocsin schedule wait */ {task} FORCE INDEX (PRIMARY)
SET action_time = ?, last_error = COALESCE(?, last_error), gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status = 0`

	// cancelReplaced raises the version of a claimed run before its status changes, as assignments are made from left to right: its outcome changes nothing.
	cancelReplaced = `UPDATE /* tocsin schedule replace */ {task} FORCE INDEX (PRIMARY)
SET version = version + IF(status = 1, 1, 0), status = 3, action_time = UTC_TIMESTAMP(3), dedup_key = NULL, last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status IN (0, 1)`

	// bringForward has a run that waits look now. Parameters: the time, job_id, the time.
	bringForward = `UPDATE /* tocsin schedule forward */ {task} FORCE INDEX (PRIMARY)
SET action_time = ?, gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ? AND status = 0 AND action_time > ?`
)

// read reads the run, and the claimed and open runs of its schedule, in one round trip unless there are many.
func (b *beginning) read(ctx context.Context) error {
	me := readMe
	if b.noWait {
		me += " NOWAIT"
	}
	if b.row == nil {
		return b.sets(ctx, me, []any{uint64(b.asked.JobID)}, b.scanMe)
	}
	key, _ := ids.ParseRunKey(b.asked.DedupKey)
	until := b.asked.DedupKey
	if key.Kind != ids.FireTime {
		until = ids.OfTime(uint64(b.row.ID), b.row.Revision, b.asked.Created.Add(time.Millisecond)).String()
	}
	first, end := ids.RunKeys(uint64(b.row.ID))
	args := []any{uint64(b.asked.JobID), b.row.subject(), []byte(first), []byte(end)}
	seen := map[tocsin.JobID]bool{b.asked.JobID: true}
	spans := b.spans(until, b.row.Overlap == OverlapReplace && key.Kind == ids.FireTime)
	open, err := b.open(ctx, spans, []string{me, readClaimed}, args, func(set int, rows *sql.Rows) error {
		if set == 0 {
			return b.scanMe(set, rows)
		}
		one, err := scanSibling(rows)
		if !seen[one.id] {
			b.others, seen[one.id] = append(b.others, one), true
		}
		return err
	})
	for _, one := range open {
		if !seen[one.id] {
			b.others = append(b.others, one)
		}
	}
	return err
}

func (b *beginning) scanMe(_ int, rows *sql.Rows) error {
	me, err := scanSibling(rows, &b.version, &b.holder)
	me.key, me.of = b.asked.DedupKey, b.turn.key // the row of a run that has ended has no key
	b.me = me
	return err
}

// enoughByHand is how many open runs by hand are looked at, of each kind, by their keys: a retry of one backfill may so wait for a later one.
const enoughByHand = 3

// spans are what is read of the schedule's runs: those for fire times, backfills, those by run-now.
func (h *here) spans(until string, all bool) []pageRange {
	id := uint64(h.row.ID)
	enough := enoughByHand
	if all {
		enough = 1 << 20
	}
	_, end := ids.RunKeys(id)
	return []pageRange{
		{from: h.row.fire, until: until, enough: 1 << 20},
		{from: h.row.hand, until: manual(id), enough: enough},
		{from: max(h.row.hand, manual(id)), until: end, enough: enough},
	}
}

// open reads the open runs of spans, the first page of each in one round trip with other statements, whose rows first takes. It notes how
// far the runs are settled.
func (h *here) open(ctx context.Context, spans []pageRange, text []string, args []any, first func(set int, rows *sql.Rows) error) (open []sibling, err error) {
	pages, others := make([][]sibling, len(spans)), len(text)
	for i := range spans {
		text, args = append(text, readSiblings), append(args, spans[i].args(h.row, spans[i].from, spans[i].page())...)
	}
	err = h.sets(ctx, strings.Join(text, ";\n"), args, func(set int, rows *sql.Rows) error {
		if set < others {
			return first(set, rows)
		}
		one, err := scanSibling(rows)
		pages[set-others] = append(pages[set-others], one)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range spans {
		s := &spans[i]
		next := s.from
		for page, limit := pages[i], s.page(); s.take(page, &next, limit); limit = pageOfRuns {
			page = nil
			if err := h.sets(ctx, readSiblings, s.args(h.row, next, pageOfRuns), func(_ int, rows *sql.Rows) error {
				one, err := scanSibling(rows)
				page = append(page, one)
				return err
			}); err != nil {
				return nil, err
			}
		}
		open = append(open, s.open...)
	}
	fire, hand := "", ""
	if spans[0].passed >= farEnough {
		fire = spans[0].from
	}
	if hands := spans[1]; hands.passed+spans[2].passed >= farEnough {
		if hand = hands.from; len(hands.open) == 0 {
			hand = spans[2].from
		}
	}
	return open, h.mark(ctx, fire, hand)
}

// sets sends statements in one round trip, and hands over the rows of each.
func (h *here) sets(ctx context.Context, query string, args []any, scan func(set int, rows *sql.Rows) error) error {
	return h.maker.tables.ReadIn(ctx, h.in, h.sql(query), args, scan)
}

// forward has the first run that waits look at once: one that it waited for has ended. It tells which.
func (h *here) forward(ctx context.Context, ended tocsin.JobID, told *tocsin.JobID) error {
	if h.row == nil || h.row.Overlap == OverlapAllow {
		return nil
	}
	now := h.now.UnixMilli()
	spans := h.spans(ids.OfTime(uint64(h.row.ID), h.row.Revision, h.now).String(), false)
	open, err := h.open(ctx, spans, nil, nil, nil)
	if err != nil {
		return err
	}
	var next *sibling
	for i := range open {
		if o := &open[i]; o.id != ended && o.time() <= now && (next == nil || o.before(next)) {
			next = o
		}
	}
	if next == nil || next.status != tocsin.Pending || !next.first() || next.action <= now {
		return nil
	}
	if told != nil {
		*told = next.id
	}
	if _, err := h.exec(ctx, bringForward, milli(now), uint64(next.id), milli(now)); err != nil {
		return err
	}
	_, err = h.exec(ctx, ringRuns+ringRun, h.table, uint64(next.id), h.row.number, milli(now))
	return err
}

// milli is an instant in Unix ms for a statement.
func milli(t int64) any { return at(time.UnixMilli(t)) }
