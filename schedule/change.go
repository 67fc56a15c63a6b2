package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// A run that is due by the lead after a change may be in a delivery that its row does not show: see transition. The change must be committed well
// before the lead has passed, or later runs may have begun too; otherwise it is made again with a longer lead.
const (
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

// replace stores a row in place of the one that is locked. What becomes of the runs of both is a transition.
func (h *here) replace(ctx context.Context, next *row, reason string, lead time.Duration) error {
	old := h.row
	next.Modified = h.now
	pending, err := h.pending(ctx, h.from, ids.FirstRunKey(uint64(old.ID), next.Revision))
	if err != nil {
		return err
	}
	t := transitionOf(old, next, pending, h.now, lead)
	if err := h.cancel(ctx, t.gone, t.dropped, reason); err != nil {
		return err
	}
	next.MadeUntil, next.NextFire = t.until, time.Time{}
	next.PassedOver += uint64(t.passedOver)
	if next.State == Active {
		if _, err := h.window(ctx, next, t); err != nil {
			return err
		}
	}
	n, err := h.exec(ctx, updateRow, append(next.stored(), at(next.Modified), uint64(old.ID), old.Revision)...)
	switch {
	case err != nil:
		return err
	case n != 1:
		return client.Refuse(ErrRevision, "schedule %s was changed while it was locked", old.Name)
	case t.goesOn:
		return h.inTime(ctx, h.now.Add(lead/2))
	}
	return nil
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
