package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/runkey"
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
	from := s.maker.openFrom(ctx, p.id)
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
		return nil, false, refuse(ErrNotFound, "the schedule is gone")
	}
	if c.tried != nil && h.row.Revision == c.tried.Revision && h.row.alike(c.tried) {
		return h.row, true, nil // the answer to the commit was lost
	}
	next := h.row.clone()
	changed, err := decide(next, h.now)
	if err != nil || !changed {
		return h.row, false, err
	}
	if next.Revision++; next.Revision > runkey.MaxRevision {
		return nil, false, refuse(ErrInvalid, "schedule %s has been changed too often: delete it, and make another", next.Name)
	}
	next.Failures = 0 // they were those of another revision
	c.tried = next
	return next, true, h.replace(ctx, next, reason, c.lead)
}

// replace stores a row in place of the one that is locked: it cancels pending runs, and makes the first window.
func (h *here) replace(ctx context.Context, next *row, reason string, lead time.Duration) error {
	old := h.row
	next.Modified = h.now
	from, to := h.cursor(next, lead)
	if err := h.cancel(ctx, h.from, runkey.First(uint64(old.ID), next.Revision), reason, from, to); err != nil {
		return err
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
		return refuse(ErrRevision, "schedule %s was changed while it was locked", old.Name)
	case to.After(from):
		return h.inTime(ctx, to.Add(-lead/2))
	}
	return nil
}

// cursor sets made_until of the next row. It returns the span in which pending runs are left alone, which is empty unless
// the schedule stays active.
func (h *here) cursor(next *row, lead time.Duration) (from, to time.Time) {
	next.MadeUntil = h.now
	if h.row.State != Active && h.row.State != Ended || next.State != Active { // one that has ended may have runs to come
		return h.now, h.now
	}
	offset := time.Duration(0)
	if times, err := h.row.Times(); err == nil {
		offset = times.Offset()
	}
	from, to = h.now.Add(-dueBefore), h.now.Add(lead)
	unmade := later(h.row.MadeUntil, h.now.Add(-offset)) // what nobody has made, and is not due yet
	next.MadeUntil = to.Add(-offset)
	if unmade.Before(next.MadeUntil) {
		next.MadeUntil = unmade
	}
	next.MadeUntil = later(next.MadeUntil, next.Anchor)
	return from, to
}

// inTime fails if a time has passed.
func (h *here) inTime(ctx context.Context, limit time.Time) error {
	var now time.Time
	var horizon, worksWith int64
	if err := h.conn.QueryRowContext(ctx, h.sql(readNow)).Scan(&now, &horizon, &worksWith); err != nil {
		return err
	}
	if now.After(limit) {
		return errSlow
	}
	return nil
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
