package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/schedule"
)

// TimerLoad says which schedules there are, and what is done to them.
type TimerLoad struct {
	Schedules int           // a quarter fires each second, the others each minute, hour and day
	Changes   float64       // a second: edits, deactivations, activations, deletes, runs by hand, backfills and cancels of single runs
	Measure   time.Duration // how long the cost is measured, before the faults; 0: it is not
}

// Bounds of the load.
const (
	timersAtOnce  = 8                // changes side by side
	changeWithin  = 20 * time.Second // one change
	kindsWithin   = 2 * time.Minute  // one of each kind
	recallWithin  = time.Minute      // to find out what became of one
	missedWithin  = 2 * time.Second  // start_within of the schedules whose late runs are passed over
	smallJitter   = 300 * time.Millisecond
	cancelsWithin = 100 // a run that is cancelled alone is one of the next so many
)

// zones are those of the schedules, by turns. In three of them hours begin at other minutes than in UTC.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "America/St_Johns", "Pacific/Apia",
}

// keeper makes schedules and changes them.
type keeper struct {
	site      *Site
	load      TimerLoad
	schedules *schedule.Schedules
	timers    []*timer     // by number
	busy      []sync.Mutex // by timer: it is being changed
}

// newKeeper draws the schedules. Those that fire each hour or day do so once within length.
func (s *Site) newKeeper(ctx context.Context, load TimerLoad) (*keeper, error) {
	schedules, err := schedule.Open(ctx, s.tables(s.harness))
	if err != nil {
		return nil, err
	}
	k := &keeper{site: s, load: load, schedules: schedules, busy: make([]sync.Mutex, load.Schedules)}
	for i := range load.Schedules {
		k.timers = append(k.timers, newTimer(i))
	}
	s.log.timers = slices.Clone(k.timers)
	return k, nil
}

// firstBeat is what the schedule of a number has first: a quarter fires each second. Of those of each hour and day the first
// fire time is within so long after now.
func firstBeat(number int, zone string, now time.Time, length time.Duration) beat {
	minutes := max(int(length/time.Minute)-1, 1)
	at := now.Add(time.Duration(1+number/8%minutes) * time.Minute).In((&timer{Zone: zone}).location())
	switch number % 8 {
	case 0, 4:
		return beat{Every: time.Second}
	case 3:
		return beat{Minute: at.Minute()}
	case 7:
		return beat{Daily: true, Hour: at.Hour(), Minute: at.Minute()}
	}
	return beat{Step: 1}
}

// forAll does something to all schedules, some of them at once.
func (k *keeper) forAll(do func(number int, t *timer) error) error {
	var g errgroup.Group
	g.SetLimit(timersAtOnce)
	for i, t := range k.timers {
		g.Go(func() error { return do(i, t) })
	}
	return g.Wait()
}

// create makes all schedules. Nothing is broken yet.
func (k *keeper) create(ctx context.Context, length time.Duration) error {
	return k.forAll(func(i int, t *timer) error {
		want := timing{firstBeat(i, t.Zone, time.Now(), length), 1, true}
		by := t.begin(createTimer, want)
		made, err := k.schedules.Create(ctx, t.definition(i, want))
		by.answered(err, made.Revision)
		t.ID = made.ID
		return err
	})
}

// begin notes what is about to be done.
func (t *timer) begin(kind string, want timing) *timerOp {
	by := &timerOp{Kind: kind, Want: want, asked: asked{Sent: time.Now()}}
	t.changes = append(t.changes, by)
	return by
}

func (c *timerOp) answered(err error, revision uint32) {
	c.asked.answered(err)
	c.Revision = revision
}

// run changes schedules at the rate until ctx ends, and returns when all answers are there.
func (k *keeper) run(ctx context.Context) {
	work := context.WithoutCancel(ctx)
	var g errgroup.Group
	g.SetLimit(timersAtOnce)
	atRate(ctx, k.load.Changes, func(n int) {
		for range n {
			number := rand.IntN(len(k.timers))
			g.TryGo(func() error {
				if k.busy[number].TryLock() {
					defer k.busy[number].Unlock()
					k.change(work, number)
				}
				return nil
			})
		}
	})
	_ = g.Wait()
}

// change does one thing to a schedule that nobody else changes.
func (k *keeper) change(ctx context.Context, number int) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	t := k.timers[number]
	want := t.want()
	pick := rand.IntN(100)
	switch {
	case !want.Active && pick < 70, t.pauseAfter > 0 && pick < 35: // it may be paused
		k.turn(ctx, t, true)
	case pick < 18:
		want.Mark++
		k.edit(ctx, number, want)
	case pick < 32:
		want.Beat, want.Mark = k.otherBeat(want.Beat), want.Mark+1
		k.edit(ctx, number, want)
	case pick < 45:
		k.turn(ctx, t, false)
	case pick < 58:
		k.runNow(ctx, t)
	case pick < 70:
		k.backfill(ctx, t)
	case pick < 75:
		k.remove(ctx, number)
	default:
		k.cancelOne(ctx, number)
	}
}

// otherBeat is another expression of about the same pace.
func (k *keeper) otherBeat(b beat) beat {
	switch {
	case b.Every > 0:
		b.Every = 3*time.Second - b.Every // each second, or each two
	case b.Step > 0:
		b.Step = 3 - b.Step
	default:
		b.Minute = (b.Minute + 1 + rand.IntN(5)) % 60
	}
	return b
}

func (k *keeper) edit(ctx context.Context, number int, want timing) {
	t := k.timers[number]
	by := t.begin(editTimer, want)
	made, err := k.schedules.Update(ctx, t.definition(number, want), 0)
	by.answered(err, made.Revision)
	k.recall(ctx, t, by)
}

func (k *keeper) turn(ctx context.Context, t *timer, on bool) {
	want, kind, do := t.want(), deactivateTimer, k.schedules.Deactivate
	if on {
		kind, do = activateTimer, k.schedules.Activate
	}
	want.Active = on
	by := t.begin(kind, want)
	after, _, err := do(ctx, t.Name)
	by.answered(err, after.Revision)
	k.recall(ctx, t, by)
}

func (k *keeper) runNow(ctx context.Context, t *timer) {
	by := t.begin(runTimer, t.want())
	made, err := k.schedules.RunNow(ctx, t.Name)
	by.answered(err, 0)
	by.Job = made.JobID
}

// recall finds out what a schedule is after a change whose answer was no success, so that the next change follows from it.
func (k *keeper) recall(ctx context.Context, t *timer, by *timerOp) {
	if by.Word == acknowledged {
		return
	}
	before := t.wantBefore(by)
	found, err := patientFor(recallWithin, func(ctx context.Context) (schedule.Schedule, error) { return k.schedules.Get(ctx, t.Name) })(context.WithoutCancel(ctx))
	active := found.State == schedule.Active || found.State == schedule.Paused // what is paused is to be active, for the harness
	if err == nil && found.Cron == by.Want.Beat.cron() && markOf(found.Payload) == by.Want.Mark && active == by.Want.Active {
		return
	}
	by.after = &before
}

// finish deactivates all schedules, so that the checker knows which fire times there were.
func (k *keeper) finish(ctx context.Context) error {
	return k.forAll(func(_ int, t *timer) error {
		for until := time.Now().Add(recallWithin); t.want().Active; {
			k.turn(ctx, t, false)
			if time.Now().After(until) {
				return errors.New("schedule " + t.Name + " can't be deactivated: " + t.String())
			}
		}
		return nil
	})
}

// cancelOne cancels one of the next runs of a schedule.
func (k *keeper) cancelOne(ctx context.Context, number int) {
	t := k.timers[number]
	table := k.site.opts.Layout.TableOf(uint64(number + 1))
	d := k.site.databaseOf(table)
	rows, err := readAll[tocsin.JobID](ctx, d.direct, d.String(), strings.ReplaceAll(nextRunsSQL, "{table}", k.site.opts.Layout.Table(table)), number+1, cancelsWithin)
	if err != nil || len(rows) == 0 {
		return // the server is away, or there is no run
	}
	by := t.begin(cancelRun, t.want())
	by.Job = rows[rand.IntN(1+rand.IntN(len(rows)))] // sooner ones more often
	change, err := k.site.client.Cancel(ctx, tocsin.ByID(by.Job))
	by.answered(err, 0)
	by.Changed = change.Changed == 1
}

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
	span := time.Duration(1+rand.IntN(5)) * time.Second
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
