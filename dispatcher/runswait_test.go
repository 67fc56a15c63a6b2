package dispatcher

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// Tests of schedules that are locked, or slow to read.

// heldSchedules are turns of schedules that somebody has locked, apart from schedule 1.
type heldSchedules struct{ *turns }

func (h heldSchedules) Begin(ctx context.Context, t *schedule.Turn, row *store.Row, by string, hold time.Duration) (schedule.Began, error) {
	if key, _ := ids.ParseRunKey(row.DedupKey); key.Schedule == 1 {
		return h.turns.Begin(ctx, t, row, by, hold)
	}
	return schedule.Began{}, cmp.Or(loop.Wait(ctx, time.Second), mysql.ErrLocked)
}

// TestLockedSchedulesHoldUpNoOtherTask: their runs wait for locks, and neither the loaders nor runs that end wait for them.
func TestLockedSchedulesHoldUpNoOtherTask(t *testing.T) {
	eachWay(t, testLockedSchedulesHoldUpNoOtherTask)
}

func testLockedSchedulesHoldUpNoOtherTask(t *testing.T) {
	var late, run atomic.Int64
	p := policy("order.close", 1)
	p.Concurrency = 200
	inBubbleWith(t, p, handler(func(_ context.Context, task tocsin.Info) error {
		if int64(task.JobID) == run.Load() {
			time.Sleep(time.Second)
			return nil
		}
		late.Store(int64(time.Since(task.ActionTime)))
		return nil
	}), func(cfg *Config) { cfg.Runs = heldSchedules{&turns{memory: cfg.Store.(*memory)}} }, func(r *rig) {
		own := r.insertRun(1, 0)
		run.Store(int64(own))
		r.offer(own)
		pass(100 * time.Millisecond)
		for i := range 2 * loaders { // each meets some
			for n := range 10 {
				r.runOf(uint64(10*i+n+10), 0)
			}
			pass(20 * time.Millisecond)
		}
		id := r.add(0, 1, 100*time.Millisecond)
		pass(1500 * time.Millisecond)
		r.status(own, tocsin.Done)
		pass(8500 * time.Millisecond)
		r.status(id, tocsin.Done)
		if late := time.Duration(late.Load()); late > 50*time.Millisecond {
			t.Errorf("it began %s late", late)
		}
	})
}

// TestRunsThatStillWaitToBeginAtTheEndAreNotClaimed: they would be given back.
func TestRunsThatStillWaitToBeginAtTheEndAreNotClaimed(t *testing.T) {
	eachWay(t, testRunsThatStillWaitToBeginAtTheEndAreNotClaimed)
}

func testRunsThatStillWaitToBeginAtTheEndAreNotClaimed(t *testing.T) {
	var tries atomic.Int32
	p := policy("order.close", 1)
	p.Concurrency = 200
	inBubbleWith(t, p, handler(succeeds), func(cfg *Config) {
		cfg.Runs = heldSchedules{&turns{memory: cfg.Store.(*memory), began: func(*store.Row) schedule.Began { tries.Add(1); return schedule.Began{} }}}
	}, func(r *rig) {
		for n := range 40 {
			r.runOf(uint64(n+10), 0)
		}
		pass(500 * time.Millisecond)
		last := r.runOf(1, 0)
		pass(100 * time.Millisecond)
		r.stop()
		pass(2 * time.Second)
		r.status(last, tocsin.Pending)
		if n := tries.Load(); n > 0 {
			t.Errorf("%d tries", n)
		}
	})
}

// slowSchedules are turns of schedules that take long to read.
type slowSchedules struct{ *turns }

func (s slowSchedules) Look(ctx context.Context, server int, rows []store.Row) map[tocsin.JobID]*schedule.Turn {
	time.Sleep(3 * time.Second)
	return s.turns.Look(ctx, server, rows)
}

// TestASlowReadOfSchedulesHoldsUpTheirRunsAlone, however the rows came.
func TestASlowReadOfSchedulesHoldsUpTheirRunsAlone(t *testing.T) {
	eachWay(t, testASlowReadOfSchedulesHoldsUpTheirRunsAlone)
}

func testASlowReadOfSchedulesHoldsUpTheirRunsAlone(t *testing.T) {
	load := func(r *rig, ids ...tocsin.JobID) {
		var both []duequeue.Entry // at once, so that one load has both
		for _, row := range r.rows(ids...) {
			both = append(both, duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action})
		}
		r.Offer(0, both)
	}
	for name, c := range map[string]struct {
		ahead time.Duration
		find  func(r *rig, ids ...tocsin.JobID)
	}{
		"in one load":                            {0, load},
		"in one load, before the run's own time": {5 * time.Millisecond, load},
		"in one pull":                            {0, func(r *rig, ids ...tocsin.JobID) { r.hand(r.room(len(ids)), r.rows(ids...)) }},
	} {
		t.Run(name, func(t *testing.T) {
			var began sync.Map // by job_id
			inBubbleWith(t, policy("order.close", 1), handler(func(_ context.Context, task tocsin.Info) error {
				began.Store(task.JobID, time.Now())
				return nil
			}), func(cfg *Config) { cfg.Runs = slowSchedules{&turns{memory: cfg.Store.(*memory)}} }, func(r *rig) {
				run, other := r.insertRun(1, c.ahead), r.insert(0, 1, 0)
				due := time.Now()
				c.find(r, run, other)
				pass(4 * time.Second)
				for id, least := range map[tocsin.JobID]time.Duration{run: 3 * time.Second, other: 0} {
					at, _ := began.Load(id)
					if at, is := at.(time.Time); !is || !near(at.Sub(due), least) {
						t.Errorf("task %s began at %v, want %s after %s", id, at, least, due)
					}
				}
				r.idle()
			})
		})
	}
}

// TestSlowReadsOfSchedulesTakeNoLoader from other tasks.
func TestSlowReadsOfSchedulesTakeNoLoader(t *testing.T) {
	eachWay(t, testSlowReadsOfSchedulesTakeNoLoader)
}

func testSlowReadsOfSchedulesTakeNoLoader(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 200
	inBubbleWith(t, p, handler(succeeds), func(cfg *Config) { cfg.Runs = slowSchedules{&turns{memory: cfg.Store.(*memory)}} }, func(r *rig) {
		for range 2 * loaders { // each meets one
			r.runOf(1, 0)
			pass(10 * time.Millisecond)
		}
		id := r.add(0, 1, 0)
		pass(100 * time.Millisecond)
		r.status(id, tocsin.Done)
		pass(30 * time.Second)
		r.idle()
	})
}
