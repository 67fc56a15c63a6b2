package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// turning is a change of the state of schedules.
type turning struct {
	op, reason string
	decide     decision
}

var activation = turning{"activate", "the schedule was activated anew", func(next *row, now time.Time) (bool, error) {
	if next.State == Active {
		return false, nil
	}
	next.State, next.Reason, next.Failures, next.Anchor = Active, "", 0, next.anchorAt(now)
	return true, next.goesOn(now)
}}

var deactivation = turning{"deactivate", "the schedule was deactivated", func(next *row, _ time.Time) (bool, error) {
	if next.State == Inactive {
		return false, nil
	}
	next.State, next.Reason = Inactive, ""
	return true, nil
}}

// Activate lets an inactive, paused or ended schedule make runs again, for fire times from now on; @every without a start counts from now.
// What was missed meanwhile is not made up for. One that has no fire time left is refused: ErrInvalid. The result says how the
// schedule stands then; changed is false if it was active.
func (s *Schedules) Activate(ctx context.Context, name string) (after Schedule, changed bool, err error) {
	return s.turn(ctx, activation, name, s.place)
}

// Deactivate keeps a schedule from making runs, and cancels those that are pending. Runs that are claimed go on, and so do
// runs by hand and backfills. changed is false if it was inactive.
func (s *Schedules) Deactivate(ctx context.Context, name string) (after Schedule, changed bool, err error) {
	return s.turn(ctx, deactivation, name, s.place)
}

// goesOn refuses a schedule that has no fire time after a time.
func (r *row) goesOn(now time.Time) error {
	times, err := r.Times()
	if err != nil || !times.Next(now).IsZero() {
		return err
	}
	if r.End.IsZero() {
		return client.Refuse(ErrInvalid, "it has no fire time left: apply it with another cron expression")
	}
	return client.Refuse(ErrInvalid, "its end %s leaves it no fire time: apply it with a later end", shown(r.End))
}

// Turned is what became of one of many schedules.
type Turned struct {
	Name     string
	Schedule Schedule // as it is afterwards; zero beside Err
	Changed  bool     // false: it was so before
	Err      error    // why it was not changed, or may not have been
}

// ActivateMany is Activate of many schedules, several side by side. Those of biz types for which sees is false count as missing;
// nil: it sees all. The results are in the order of the names. Beside an error there are none, and nothing was changed.
func (s *Schedules) ActivateMany(ctx context.Context, names []string, sees func(bizType string) bool) ([]Turned, error) {
	return s.turnMany(ctx, activation, names, sees)
}

// DeactivateMany is Deactivate of many schedules, as ActivateMany is Activate.
func (s *Schedules) DeactivateMany(ctx context.Context, names []string, sees func(bizType string) bool) ([]Turned, error) {
	return s.turnMany(ctx, deactivation, names, sees)
}

func (s *Schedules) turnMany(ctx context.Context, t turning, names []string, sees func(string) bool) ([]Turned, error) {
	types, err := s.types(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Turned, 0, len(names))
	var g errgroup.Group
	g.SetLimit(applyAtOnce)
	for part := range slices.Chunk(names, namesAtOnce) {
		rows, failed := s.withNames(ctx, types, part)
		for _, name := range part {
			all = append(all, Turned{Name: name})
			into := &all[len(all)-1]
			g.Go(func() error {
				into.Schedule, into.Changed, into.Err = s.turn(ctx, t, name, func(context.Context, string) (place, error) {
					r, err := s.pick(rows, name, failed)
					if err == nil && sees != nil && !sees(r.BizType) {
						err = missing(name)
					}
					if err != nil {
						return place{}, err
					}
					return place{id: r.ID, types: types}, nil
				})
				return nil
			})
		}
	}
	return all, g.Wait()
}

// turn changes the state of a schedule that find finds.
func (s *Schedules) turn(ctx context.Context, t turning, name string, find func(context.Context, string) (place, error)) (after Schedule, changed bool, err error) {
	after, err = through(ctx, s, t.op, name, "", func(ctx context.Context) (Schedule, error) {
		p, err := find(ctx, name)
		if err != nil {
			return Schedule{}, err
		}
		row, turned, err := s.change(ctx, p, t.reason, t.decide)
		if err != nil {
			return Schedule{}, fmt.Errorf("schedule %s: %w", name, err)
		}
		changed = turned
		return row.Schedule, nil
	})
	return after, changed, err
}

// place finds a schedule that is to be changed.
func (s *Schedules) place(ctx context.Context, name string) (place, error) {
	r, types, err := s.find(ctx, name)
	if err != nil {
		return place{}, err
	}
	return place{id: r.ID, types: types}, nil
}

// Delete forgets a schedule and cancels its pending runs, also those by hand and backfills. Runs that are claimed go on. The
// history of its runs stays until it is purged.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	return s.deleteThrough(ctx, name, func(ctx context.Context) error {
		p, err := s.place(ctx, name)
		if err != nil {
			return err
		}
		return s.delete(ctx, p, 0)
	})
}

// deleteThrough deletes through the functions of Config.UseChanges.
func (s *Schedules) deleteThrough(ctx context.Context, name string, do func(context.Context) error) error {
	_, err := through(ctx, s, "delete", name, "", func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// DeleteID is Delete by schedule_id, for one of two schedules that have the same name.
func (s *Schedules) DeleteID(ctx context.Context, id tocsin.JobID) error {
	return s.deleteThrough(ctx, "", func(ctx context.Context) error { return s.delete(ctx, place{id: id}, 0) })
}

// DeleteRead is Delete of a schedule that was read before, unless somebody has changed it since: ErrRevision.
func (s *Schedules) DeleteRead(ctx context.Context, read Schedule) error {
	return s.deleteThrough(ctx, read.Name, func(ctx context.Context) error { return s.delete(ctx, place{id: read.ID}, read.Revision) })
}

// delete deletes a schedule that has a revision; 0 is any.
func (s *Schedules) delete(ctx context.Context, p place, revision uint32) error {
	tried, from := false, s.maker.openFrom(ctx, p.id, true)
	err := s.within(ctx, p, func(h *here) error {
		if h.row == nil && tried {
			return nil // the answer to the commit was lost
		}
		if h.row == nil {
			return client.Refuse(ErrNotFound, "no schedule has schedule_id %s", p.id)
		}
		if err := h.row.has(revision); err != nil {
			return err
		}
		tried = true
		_, until := ids.RunKeys(uint64(p.id))
		gone, err := h.pending(ctx, from, until)
		if err != nil {
			return err
		}
		dropped := make([]drop, len(gone))
		for i, r := range gone {
			dropped[i] = drop{r, ""}
		}
		if err := h.cancel(ctx, gone, dropped, "the schedule was deleted"); err != nil {
			return err
		}
		_, err = h.exec(ctx, deleteRow, uint64(p.id))
		return err
	})
	if err != nil {
		return fmt.Errorf("delete schedule %s: %w", p.id, err)
	}
	return nil
}
