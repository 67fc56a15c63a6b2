package relay

import (
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/outbox"
)

// settle decides what follows from the fates of rows that were in flight.
func (t *turn) settle(got landing) {
	l := got.lane
	t.flying--
	flight := l.flight
	l.flight = nil
	defer l.weigh()
	if t.databaseIsAway(l, flight, got.results) {
		return
	}
	l.away = 0
	moved := map[string]int{}
	for i, row := range flight {
		switch result := got.results[i]; result.Fate {
		case outbox.Moved:
			t.done = append(t.done, row.Key)
			delete(t.met, row.ID)
			moved[row.Op]++
		case outbox.Stale:
			t.unhand(l, row)
			t.unreadAll(l) // else a later row of its biz_id might pass it
		case outbox.Refused:
			t.refuse(row, result.Err)
		default: // a delivery is under way, or a lock is held
			t.block(row)
			t.meet(row, result)
			if result.Fate != outbox.InDelivery {
				t.limit.Of(t.cfg.Logger, "failed "+t.outbox.Name).Warn("rows of an outbox can't be moved now: they are tried again",
					"error", result.Err, "outbox", t.outbox.Name)
			}
		}
	}
	for op, n := range moved {
		t.gauges.moved.WithLabelValues(op).Add(float64(n))
	}
}

// refuse has a row set aside, or tried again if its biz type may still be applied. It stays if an operator can retry it.
func (t *turn) refuse(row outbox.Row, err error) {
	t.block(row)
	met := t.met[row.ID]
	final := t.session.Patience > 0
	if final && errors.Is(err, tocsin.ErrUnknownBizType) && (met.times == 0 || time.Since(met.first) < t.session.Patience) {
		t.meet(row, outbox.Result{Fate: outbox.Refused})
		return
	}
	t.refused = append(t.refused, refusal{row.Key, err})
	t.gauges.refused.WithLabelValues(reasonOf(err)).Inc()
	text := "row of an outbox is set aside, and later rows of its biz_id wait: see `tocsin outbox list --stuck`"
	if final {
		text = "row of an outbox is refused, and later rows of its biz_id go on"
	} else {
		t.stuck++
	}
	t.limit.Of(t.cfg.Logger, "refused "+t.outbox.Name).Error(text, "error", err, "outbox", t.outbox.Name, "id", row.ID, "biz_id", row.BizID)
}

// meet notes that a row met a delivery or a lock, or has no biz type yet. Most end in a moment; the others are tried less and less often.
func (t *turn) meet(row outbox.Row, result outbox.Result) {
	m := t.met[row.ID]
	if m.times == 0 {
		m.first = time.Now()
	}
	m.next = time.Now().Add(min(laterFirst<<min(m.times, 10), laterPause))
	m.times++
	m.again = m.again || result.Changed
	m.lock = result.Fate == outbox.Failed
	t.met[row.ID] = m
	t.retry(row)
}

// retry has a row that met something read again when it is to be tried.
func (t *turn) retry(row outbox.Row) {
	m := t.met[row.ID]
	t.soon(m.next)
	if m.lock && (t.locked.IsZero() || made(row).Before(t.locked)) {
		t.locked = made(row)
	}
}

// soon has what is aside read again at a time, though not so often that reading it takes more than its share of the time.
func (t *turn) soon(at time.Time) { t.nextAside = later(earlier(t.nextAside, at), t.asideFrom) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// databaseIsAway reports whether all rows failed for a reason that concerns their whole database, and puts them back.
func (t *turn) databaseIsAway(l *lane, flight []outbox.Row, results []outbox.Result) bool {
	for _, result := range results {
		if result.Fate != outbox.Failed || !ofDatabase(result.Err) {
			return false
		}
	}
	l.isAway()
	l.queue = append(flight, l.queue...)
	t.unreadAll(l) // it may take long, and memory is for others
	t.limit.Of(t.cfg.Logger, "away "+t.cfg.Tables.Layout.Database(l.database)).Warn("database takes no tasks from outboxes: its rows wait",
		"error", results[0].Err, "outbox", t.outbox.Name, "database", t.cfg.Tables.Layout.Database(l.database))
	return true
}

// again reads all rows that are aside. An operator may have retried or dropped some, and deliveries that held up others
// may have ended. It reads all of them before anything else, so that no row passes another of its biz_id. If there are
// many, it runs less often.
func (t *turn) again(ctx context.Context) error {
	begin := time.Now()
	t.nextAside = begin.Add(t.cfg.Whole)
	left := t.aside
	t.aside, t.blocked, t.stuck, t.locked = nil, map[uint64]uint64{}, 0, time.Time{}
	for len(left) > 0 {
		in := left[:min(len(left), mostRanges)]
		rows, last, err := t.readIn(ctx, in, t.page)
		if err != nil {
			return err
		}
		left.remove(outbox.Range{First: 0, Last: last})
		for _, row := range rows {
			if row.LastError == "" && !t.waits(row) && t.laneOf(row).parked.has(row.ID) {
				continue // it waits there
			}
			t.take(row, nil)
		}
	}
	t.asideFrom = begin.Add(asideShare * time.Since(begin))
	t.nextAside = later(t.nextAside, t.asideFrom)
	return nil
}

// whole looks for rows where none should be, since an emptied outbox gives ids again. It also takes old gaps out of the
// polls if no transaction is open in them.
func (t *turn) whole(ctx context.Context) error {
	t.nextWhole = time.Now().Add(t.cfg.Whole)
	gone := append(ids(nil), t.known...)
	gone.removeAll(t.waiting())
	for left := gone; len(left) > 0; {
		in := left[:min(len(left), mostRanges)]
		rows, err := t.session.Read(ctx, in, len(t.hand)+1, func(id uint64) bool { return t.hand[id] })
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			return errReused
		}
		left = left[len(in):]
	}
	switch err := t.closeGaps(ctx); {
	case errors.Is(err, outbox.ErrLater):
		return nil
	case err != nil: // Next, too, may not have noted what is gone
		return err
	}
	t.noteGone(gone)
	return nil
}

// mark says how far the ids went at a time, and which transactions wrote into the outbox then.
type mark struct {
	at      time.Time
	last    uint64
	writers outbox.Writers
}

// closeGaps takes gaps out of the polls that are a minute old and in which no transaction is open.
func (t *turn) closeGaps(ctx context.Context) error {
	next, err := t.session.Next(ctx) // before the writers: who has a lower id is among them
	if err != nil {
		return err
	}
	last := max(next, 1) - 1
	if n := len(t.known); n > 0 {
		last = max(last, t.known[n-1].Last)
	}
	writers, err := t.session.Writers(ctx)
	if err != nil {
		return err
	}
	now, old := time.Now(), mark{}
	t.marks = append(t.marks, mark{now, last, writers})
	for len(t.marks) > 0 && now.Sub(t.marks[0].at) >= t.cfg.GapAge {
		old, t.marks = t.marks[0], t.marks[1:]
	}
	if old.last == 0 {
		return nil
	}
	t.marks = append([]mark{{now.Add(-t.cfg.GapAge), old.last, old.writers}}, t.marks...)
	settled, err := t.session.Settled(ctx, t.known.gaps().upTo(old.last), old.writers)
	if err != nil {
		return err
	}
	for _, gap := range settled {
		t.known.addRange(gap)
		t.gone.addRange(gap)
	}
	t.aside.join(t.known)
	for _, l := range t.lanes {
		l.parked.join(t.known)
	}
	return nil
}

// figures updates the metrics.
func (t *turn) figures(now time.Time) {
	t.nextFigures = now.Add(figuresRate)
	oldest, parked := now, uint64(0)
	if !t.locked.IsZero() {
		oldest = t.locked
	}
	for _, l := range t.lanes {
		for _, rows := range [][]outbox.Row{l.flight, l.queue} {
			if len(rows) > 0 {
				oldest = earlier(oldest, made(rows[0]))
			}
		}
		if len(l.parked) > 0 {
			oldest = earlier(oldest, l.oldest)
		}
		for _, r := range l.parked {
			parked += r.Last - r.First + 1
		}
	}
	t.gauges.lag.Set(now.Sub(oldest).Seconds())
	t.gauges.parked.Set(float64(parked))
	t.gauges.stuck.Set(float64(t.stuck))
	if t.session.Waiting != nil {
		t.gauges.waiting.WithLabelValues().Set(float64(t.session.Waiting()))
	}
}
