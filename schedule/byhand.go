package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// Run is a run that was made by hand.
type Run struct {
	JobID tocsin.JobID `json:"job_id"`
	Time  time.Time    `json:"time"` // nominal fire time; of RunNow, when it was made
	Due   time.Time    `json:"due"`

	Existing bool `json:"existing,omitempty"` // RunOnce: an earlier call has made it; Time and Due are those of this one
}

// RunNow makes a run that is due now, whatever the state of the schedule. It is a run of its own besides those of the
// fire times; the schedule's overlap policy applies to it.
func (s *Schedules) RunNow(ctx context.Context, name string) (Run, error) {
	return s.RunOnce(ctx, name, "")
}

// RunOnce is RunNow unless a run was made with the same idempotency key, is stored and is not cancelled: then it returns that
// run. Without a key it always makes one.
func (s *Schedules) RunOnce(ctx context.Context, name, idempotencyKey string) (Run, error) {
	return through(ctx, s, "run_now", name, "", func(ctx context.Context) (Run, error) { return s.runOnce(ctx, name, idempotencyKey) })
}

func (s *Schedules) runOnce(ctx context.Context, name, idempotencyKey string) (made Run, err error) {
	p, err := s.place(ctx, name)
	if err != nil {
		return Run{}, err
	}
	id := tocsin.JobID(s.maker.ids.Next(time.Now(), p.id.Table())) // the same for all tries, and so is the key
	err = s.within(ctx, p, func(h *here) error {
		if h.row == nil {
			return missing(name)
		}
		number := uint64(id)
		if sum := sha256.Sum256([]byte(idempotencyKey)); idempotencyKey != "" {
			number = binary.BigEndian.Uint64(sum[:])
		}
		key := ids.OfManual(uint64(p.id), number).String()
		made = Run{JobID: id, Time: h.now, Due: h.now}
		runs, err := h.byHand(ctx, []run{{id: id, key: key, due: h.now}})
		if err != nil {
			return err
		}
		if len(runs) > 0 {
			made.JobID = runs[0].id
			return nil
		}
		there, err := h.there(ctx, h.row, key)
		if err == nil {
			made.JobID, made.Existing = there[key], there[key] != id
		}
		return err
	})
	if err != nil {
		return Run{}, fmt.Errorf("run schedule %s: %w", name, err)
	}
	return made, nil
}

// MaxBackfill is the largest number of fire times of one Backfill.
const MaxBackfill = 1000

// Backfilled is what a Backfill has done, or would do.
type Backfilled struct {
	Times []Fire `json:"times"` // the fire times of the span
	Made  int    `json:"made"`  // runs that were made now
	There int    `json:"there"` // runs that an earlier Backfill has made, and that are still stored
}

// Backfill makes a run, due now, for each fire time t of the past with from <= t < to, whatever became of its run; the
// schedule may have any state. A fire time that was backfilled before gets no other run until that one is cancelled or
// purged. Spans with more than MaxBackfill fire times, and those that reach into the future, are refused. With dryRun it
// only returns the fire times.
func (s *Schedules) Backfill(ctx context.Context, name string, from, to time.Time, dryRun bool) (Backfilled, error) {
	if dryRun {
		return s.backfill(ctx, name, from, to, true)
	}
	return through(ctx, s, "backfill", name, "", func(ctx context.Context) (Backfilled, error) { return s.backfill(ctx, name, from, to, false) })
}

func (s *Schedules) backfill(ctx context.Context, name string, from, to time.Time, dryRun bool) (b Backfilled, err error) {
	r, _, err := s.find(ctx, name)
	if err != nil {
		return b, err
	}
	times, err := r.Times()
	if err != nil {
		return b, err
	}
	if b.Times, err = span(name, times, from, to); err != nil {
		return b, err
	}
	p := place{id: r.ID}
	if dryRun || len(b.Times) == 0 {
		return b, s.maker.at(ctx, r.ID, func(h *here) error { return h.past(name, to) })
	}
	tried := 0 // runs of a try whose answer was lost
	for part := range slices.Chunk(b.Times, MaxRuns) {
		made := 0
		err = s.within(ctx, p, func(h *here) error {
			if err := h.past(name, to); err != nil {
				return err
			}
			runs := make([]run, len(part))
			for i, f := range part {
				runs[i] = run{key: ids.OfBackfill(uint64(r.ID), f.Time).String(), due: f.Due}
			}
			stored, err := h.byHand(ctx, runs)
			made = max(len(stored), tried)
			tried = made
			return err
		})
		if err != nil {
			return b, fmt.Errorf("backfill schedule %s: %d runs are made: %w", name, b.Made, err)
		}
		b.Made, b.There, tried = b.Made+made, b.There+len(part)-made, 0
	}
	return b, nil
}

// past refuses a schedule that is gone, and a span that reaches into the future.
func (h *here) past(name string, to time.Time) error {
	if h.row == nil {
		return missing(name)
	}
	if to.After(h.now) {
		return client.Refuse(ErrInvalid, "backfill of schedule %s until %s: it is %s now, and a backfill makes runs for the past only", name, shown(to), shown(h.now))
	}
	return nil
}

// span lists the fire times from one time to before another.
func span(name string, times *firetimes.Times, from, to time.Time) (all []Fire, err error) {
	if from.IsZero() {
		return nil, client.Refuse(ErrInvalid, "backfill of schedule %s: from is the zero time", name)
	}
	if !from.Before(to) {
		return nil, client.Refuse(ErrInvalid, "backfill of schedule %s from %s to %s: to must be after from", name, shown(from), shown(to))
	}
	if err := client.CheckSpan("from", from, "to", to); err != nil {
		return nil, client.Refuse(ErrInvalid, "backfill of schedule %s: %s", name, err)
	}
	for _, t := range between(times, from.Add(-time.Nanosecond), to, MaxBackfill+1) {
		all = append(all, Fire{Time: t, Due: t.Add(times.Offset())})
	}
	if len(all) > MaxBackfill {
		return nil, client.Refuse(ErrInvalid, "backfill of schedule %s has more than %d fire times, the %dth is %s: use shorter spans",
			name, MaxBackfill, MaxBackfill, shown(all[MaxBackfill-1].Time))
	}
	return all, nil
}
