package schedule

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// A run that is due at about the time of a change may have started, so the change leaves it alone: its fire time is
// neither lost nor gets a second run. This applies to runs due from dueBefore before the change until the lead after it.
// The change must be committed well before the lead has passed; otherwise it is made again with a longer lead.
const (
	dueBefore = time.Second
	firstLead = time.Second
	longLead  = 16 * time.Second
)

// errSlow ends a change that took longer than half of its lead.
var errSlow = errors.New("the server takes too long")

// changing is one change of a schedule, over as many tries as it takes.
type changing struct {
	lead  time.Duration
	tried *row // what the last try stored
}

// decision changes a copy of a locked row, at a time of its server. False: nothing is to be changed.
type decision func(next *row, now time.Time) (bool, error)

// change locks a schedule, has decide change a copy of its row, and stores that with the next revision.
// The result is the row as it is stored then, and whether it was changed.
func (s *Schedules) change(ctx context.Context, p place, reason string, decide decision) (after *row, changed bool, err error) {
	c := &changing{lead: firstLead}
	if p.tx != nil {
		c.lead = longLead // when the caller commits is not known
	}
	from := s.maker.openFrom(ctx, p.id, p.tx == nil)
	for {
		err = s.within(ctx, p, func(h *here) error {
			h.from = from
			after, changed, err = c.try(ctx, h, reason, decide)
			return err
		})
		if !errors.Is(err, errSlow) || c.lead >= longLead {
			return after, changed, err
		}
		c.lead *= 2
	}
}

func (c *changing) try(ctx context.Context, h *here, reason string, decide decision) (*row, bool, error) {
	if h.row == nil {
		return nil, false, client.Refuse(ErrNotFound, "the schedule is gone")
	}
	if c.tried != nil && h.row.Revision == c.tried.Revision && h.row.alike(c.tried) {
		return h.row, true, nil // the answer to the commit was lost
	}
	next := h.row.clone()
	changed, err := decide(next, h.now)
	if err != nil || !changed {
		return h.row, false, err
	}
	if next.Revision++; next.Revision > ids.MaxRevision {
		return nil, false, client.Refuse(ErrInvalid, "schedule %s has been changed too often: delete it, and make another", next.Name)
	}
	next.Failures = 0 // they were those of another revision
	c.tried = next
	return next, true, h.replace(ctx, next, reason, c.lead)
}

// replace stores a row in place of the one that is locked: it cancels pending runs, and makes the first window.
func (h *here) replace(ctx context.Context, next *row, reason string, lead time.Duration) error {
	old := h.row
	next.Modified = h.now
	from, to, offset := h.cursor(next, lead)
	until := ids.FirstRunKey(uint64(old.ID), next.Revision)
	if err := h.cancel(ctx, h.from, until, reason, from, to); err != nil {
		return err
	}
	if to.After(from) {
		kept, err := h.kept(ctx, until)
		if err != nil {
			return err
		}
		next.MadeUntil = later(next.MadeUntil, kept.Add(-offset))
	}
	if next.NextFire = (time.Time{}); next.State == Active {
		if _, err := h.window(ctx, next); err != nil {
			return err
		}
	}
	n, err := h.exec(ctx, updateRow, append(next.stored(), at(next.Modified), uint64(old.ID), old.Revision)...)
	switch {
	case err != nil:
		return err
	case n != 1:
		return client.Refuse(ErrRevision, "schedule %s was changed while it was locked", old.Name)
	case to.After(from):
		return h.inTime(ctx, to.Add(-lead/2))
	}
	return nil
}

// cursor sets made_until of the next row: fire times whose runs are not due yet are its own, apart from those up to the last run that is
// kept. It returns the span in which pending runs are left alone, which is empty unless the schedule stays active, and how much later than
// their fire times runs are due.
func (h *here) cursor(next *row, lead time.Duration) (from, to time.Time, offset time.Duration) {
	next.MadeUntil = h.now
	if h.row.State != Active && h.row.State != Ended || next.State != Active { // one that has ended may have runs to come
		return h.now, h.now, 0
	}
	if times, err := h.row.Times(); err == nil {
		offset = times.Offset()
	}
	next.MadeUntil = later(h.now.Add(-offset), next.Anchor)
	return h.now.Add(-dueBefore), h.now.Add(lead), offset
}

// readKept reads when the last of a schedule's pending runs with keys of a range is due. A range of uk_biz. Parameters: biz_id, biz type, the first key,
// the first key behind them.
const readKept = `SELECT /* tocsin schedule kept */
    CAST(MAX(due_time) AS CHAR)
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key >= ?
    AND dedup_key < ?
    AND status = 0`

// kept returns when the last run is due that a change has left alone; the zero time: there is none.
func (h *here) kept(ctx context.Context, until string) (time.Time, error) {
	var last instant
	question := readKept
	if h.conn == nil {
		question += "\nLOCK IN SHARE MODE" // a caller's snapshot may be older than runs
	}
	err := h.sets(ctx, question, []any{h.row.subject(), h.row.number, []byte(h.from), []byte(until)}, func(_ int, rows *sql.Rows) error {
		return rows.Scan(&last)
	})
	return last.Time, err
}

// inTime fails if a time has passed.
func (h *here) inTime(ctx context.Context, limit time.Time) error {
	err := h.sets(ctx, readNow, nil, h.tick)
	if err == nil && h.now.After(limit) {
		return errSlow
	}
	return err
}

// clone copies a row.
func (r *row) clone() *row {
	next := *r
	return &next
}

// alike reports whether a stored row is as a change has left it, apart from the columns that makers and judges update.
func (r *row) alike(other *row) bool {
	state := r.State == other.State || r.State == Ended
	return state && r.Anchor.Equal(other.Anchor) && slices.Equal(fieldsOf(r.Definition), fieldsOf(other.Definition))
}
