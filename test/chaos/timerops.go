package chaos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/schedule"
)

// eachKind makes one change of each kind, of schedules that fire each second, before anything is broken: the kinds of the others are chance.
func (k *keeper) eachKind(ctx context.Context) {
	if k.load.Changes <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, kindsWithin)
	defer cancel()
	of := func(nth int) int { return 4 * nth % len(k.timers) }
	k.turn(ctx, k.timers[of(0)], false)
	_ = loop.Wait(ctx, 4*time.Second) // until some fire times have passed, which a backfill may make
	edited := k.timers[of(1)].want()
	edited.Mark++
	k.edit(ctx, of(1), edited)
	k.runNow(ctx, k.timers[of(2)])
	k.backfill(ctx, k.timers[of(3)])
	k.remove(ctx, of(5)) // the one between them may be paused
	k.cancelOne(ctx, of(6))
	k.turn(ctx, k.timers[of(0)], true)
}

// backfill makes runs of fire times that have just passed, one or some.
func (k *keeper) backfill(ctx context.Context, t *timer) {
	span := time.Duration(1+k.rng.IntN(5)) * time.Second
	if t.want().Beat.Every == 0 {
		span *= 60
	}
	by := t.begin(backfillTimer, t.want())
	by.To = by.Sent.Add(-time.Second).Truncate(time.Millisecond)
	by.From = by.To.Add(-span)
	b, err := k.schedules.Backfill(ctx, t.Name, by.From, by.To, false)
	by.answered(err, 0)
	by.Runs = b.Made + b.There
}

// remove deletes a schedule, and makes one of the same name.
func (k *keeper) remove(ctx context.Context, number int) {
	t := k.timers[number]
	want := t.want()
	want.Active = false
	by := t.begin(deleteTimer, want)
	err := k.schedules.Delete(ctx, t.Name)
	by.answered(err, 0)
	gone := err == nil
	if !gone {
		gone, err = patientFor(recallWithin, func(ctx context.Context) (bool, error) {
			_, err := k.schedules.Get(ctx, t.Name)
			if errors.Is(err, schedule.ErrNotFound) {
				return true, nil
			}
			return false, err
		})(context.WithoutCancel(ctx))
	}
	if gone && err == nil {
		k.again(context.WithoutCancel(ctx), number, t.wantBefore(by).Beat)
		return
	}
	by.after = new(t.wantBefore(by))
}

// again makes a schedule in place of one that was deleted. One that is there after an error is the harness's own.
func (k *keeper) again(ctx context.Context, number int, b beat) {
	ctx, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	t := newTimer(number)
	want := timing{b, 1, true}
	by := t.begin(createTimer, want)
	for first := true; ; first = false {
		made, err := k.schedules.Create(ctx, t.definition(number, want))
		if by.answered(err, made.Revision); errors.Is(err, schedule.ErrExists) && !first {
			by.Word = unknownWord
			made, err = k.schedules.Get(ctx, t.Name)
		}
		if t.ID = made.ID; err == nil || loop.Wait(ctx, evidencePause) != nil {
			break
		}
	}
	k.timers[number] = t
	k.site.log.mu.Lock()
	defer k.site.log.mu.Unlock()
	k.site.log.timers = append(k.site.log.timers, t)
}

// want is what the schedule should be after its changes so far.
func (t *timer) want() timing {
	if len(t.changes) == 0 {
		return timing{}
	}
	return t.changes[len(t.changes)-1].now()
}

// wantBefore is what the schedule should be without the last change.
func (t *timer) wantBefore(by *timerOp) timing {
	i := slices.Index(t.changes, by)
	if i == 0 {
		return timing{}
	}
	return t.changes[i-1].now()
}

// now is what the schedule is after the change, as far as the harness knows.
func (c *timerOp) now() timing {
	if c.after != nil {
		return *c.after
	}
	return c.Want
}
