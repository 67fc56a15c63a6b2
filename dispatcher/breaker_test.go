package dispatcher

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

type absent struct{}

func (absent) Error() string    { return "dial: connection refused" }
func (absent) NotReached() bool { return true }

type tired time.Duration

func (tired) Error() string            { return "callback answered 503" }
func (r tired) RestFor() time.Duration { return time.Duration(r) }

// target counts its calls and their tasks, and fails them with what it is told to.
type target struct {
	calls atomic.Int32
	tasks atomic.Int32
	fails atomic.Pointer[error]
}

func (g *target) fail(err error) {
	if err == nil {
		g.fails.Store(nil)
		return
	}
	g.fails.Store(&err)
}

func (g *target) Deliver(_ context.Context, tasks []tocsin.Info) []error {
	g.calls.Add(1)
	g.tasks.Add(int32(len(tasks)))
	if err := g.fails.Load(); err != nil {
		return same(*err, len(tasks))
	}
	return make([]error, len(tasks))
}

// untouched checks that the tasks are pending and have no attempt.
func (r *rig) untouched(ids []tocsin.JobID) {
	r.t.Helper()
	for _, id := range ids {
		if row := r.store.row(id); row.Status != tocsin.Pending || row.Attempts != 0 {
			r.t.Errorf("task %s is %s after %d attempts", id, row.Status, row.Attempts)
		}
	}
}

func (r *rig) done(ids []tocsin.JobID) {
	r.t.Helper()
	for _, id := range ids {
		if row := r.store.row(id); row.Status != tocsin.Done || row.Attempts != 0 {
			r.t.Errorf("task %s is %s after %d attempts", id, row.Status, row.Attempts)
		}
	}
}

// dueNow stores rows that are due, and offers them.
func (r *rig) dueNow(n int) []tocsin.JobID {
	ids := make([]tocsin.JobID, n)
	for i := range ids {
		ids[i] = r.insert(0, 1, 0)
	}
	for _, id := range ids {
		r.offer(id)
	}
	return ids
}

// statements counts those that the dispatcher sends from now on.
func (r *rig) statements() *atomic.Int32 {
	n := new(atomic.Int32)
	r.store.fail(func(statement string, _ []tocsin.JobID) error {
		if statement != "commit" && !strings.HasPrefix(statement, "claim_") { // these are parts of one
			n.Add(1)
		}
		return nil
	})
	return n
}

func TestWhileTheTargetIsAwayItsTasksWaitAndUseNoAttempt(t *testing.T) {
	eachWay(t, testWhileTheTargetIsAwayItsTasksWaitAndUseNoAttempt)
}

func testWhileTheTargetIsAwayItsTasksWaitAndUseNoAttempt(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 8
	for name, size := range map[string]int{"one by one": 1, "in batches": 10} {
		t.Run(name, func(t *testing.T) {
			var g target
			g.fail(absent{})
			inBubbleWith(t, p, &g, inBatches(&g, size), func(r *rig) {
				ids := r.dueNow(400)
				began := time.Now()
				pass(900 * time.Millisecond)
				l := r.laneReport(p.Name)
				if l.State != Away || !near(l.AwaySince.Sub(began), 0) || !near(l.NextTry.Sub(began), time.Second) || l.Why != "dial: connection refused" {
					t.Errorf("20 deliveries could not reach it: %+v", l)
				}
				if n := g.calls.Load(); n < breakAfter || n > breakAfter+8 {
					t.Errorf("%d deliveries until it opened", n)
				}
				if n := g.tasks.Load(); n > int32(8*size+breakAfter+8) { // after the first ones, one in each
					t.Errorf("%d tasks until it opened", n)
				}
				breaks, missed, state := r.read("breaks"), r.read("not_reached"), r.read("lane_state")
				if breaks["_total order.close away"] != 1 || missed["_total order.close"] < breakAfter || state[" order.close"] != 4 {
					t.Errorf("breaks %v, not reached %v, state %v", breaks, missed, state)
				}
				calls, statements := g.calls.Load(), r.statements()
				pass(59 * time.Second) // probes after 1, 3, 7, 15 and 31 s
				if n := g.calls.Load() - calls; n != 5 {
					t.Errorf("%d probes in a minute", n)
				}
				if n := statements.Load(); n > 10 {
					t.Errorf("%d statements in a minute", n)
				}
				r.untouched(ids)
				if failed := r.read("failures"); len(failed) > 0 {
					t.Errorf("failed attempts: %v", failed)
				}
				calls = g.calls.Load()
				g.fail(nil)
				pass(2 * time.Second) // the probe after 61 s
				r.done(ids)
				if n, want := int(g.calls.Load()-calls), len(ids)/size; n < want || n > want+want/2 {
					t.Errorf("%d deliveries of %d tasks in batches of %d", n, len(ids), size)
				}
				if l := r.laneReport(p.Name); l.State != Open || !l.AwaySince.IsZero() {
					t.Errorf("afterwards: %+v", l)
				}
			})
		})
	}
}

// Until the breaker opens, a task goes back for a second, claimed or not.
// own refuses a task without asking the target.
type own struct{}

func (own) Error() string { return "the task has no header" }
func (own) Unsent() bool  { return true }

func TestATaskThatIsRefusedUnsentShowsNothingOfItsTarget(t *testing.T) {
	eachWay(t, testATaskThatIsRefusedUnsentShowsNothingOfItsTarget)
}

func testATaskThatIsRefusedUnsentShowsNothingOfItsTarget(t *testing.T) {
	for name, c := range map[string]struct {
		errs           []error
		missed, silent bool
	}{
		"none was sent":          {[]error{tocsin.Bury(own{}), tocsin.Bury(own{})}, false, true},
		"the others were missed": {[]error{tocsin.Bury(own{}), absent{}}, true, false},
		"another was delivered":  {[]error{tocsin.Bury(own{}), absent{}, nil}, false, false},
	} {
		replies := make([]reply, len(c.errs))
		for i, err := range c.errs {
			replies[i] = replyOf(err)
		}
		if f := find(replies); f.missed != c.missed || f.silent != c.silent {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// gone is a target that is known to be away.
type gone struct{ absent }

func (gone) Away() bool { return true }

func TestATargetThatIsKnownToBeAwayIsLeftAloneAtOnce(t *testing.T) {
	eachWay(t, testATargetThatIsKnownToBeAwayIsLeftAloneAtOnce)
}

func testATargetThatIsKnownToBeAwayIsLeftAloneAtOnce(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	var g target
	g.fail(gone{})
	inBubbleWith(t, p, &g, inBatches(&g, 10), func(r *rig) {
		ids := r.dueNow(100)
		pass(900 * time.Millisecond)
		if l, n := r.laneReport(p.Name), g.calls.Load(); l.State != Away || n != 1 {
			t.Errorf("%d deliveries, %+v: want one", n, l)
		}
		r.untouched(ids)
		g.fail(nil)
		pass(3 * time.Second)
		r.done(ids)
	})
}

func TestATaskThatCouldNotReachItsTargetGoesBackForASecond(t *testing.T) {
	eachWay(t, testATaskThatCouldNotReachItsTargetGoesBackForASecond)
}

func testATaskThatCouldNotReachItsTargetGoesBackForASecond(t *testing.T) {
	for name, strict := range map[string]bool{"unclaimed": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Strict = strict
			var g target
			g.fail(absent{})
			inBubbleWith(t, p, &g, nil, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(5500 * time.Millisecond)
				if n := g.calls.Load(); n < 5 || n > 6 {
					t.Errorf("%d deliveries in 5.5 s", n)
				}
				r.untouched([]tocsin.JobID{id})
				g.fail(nil)
				pass(1100 * time.Millisecond)
				r.done([]tocsin.JobID{id})
			})
		})
	}
}

// A target that answers is there, whatever it answers.
func TestFailedAttemptsOpenNoBreaker(t *testing.T) { eachWay(t, testFailedAttemptsOpenNoBreaker) }

func testFailedAttemptsOpenNoBreaker(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	p.Ladder = []biztype.Duration{biztype.Duration(time.Hour)}
	var calls atomic.Int32
	inBubble(t, p, func(context.Context, tocsin.Info) error {
		if calls.Add(1)%breakAfter == 0 {
			return errors.New("callback answered 500")
		}
		return absent{}
	}, func(r *rig) {
		r.dueNow(60)
		pass(500 * time.Millisecond)
		if l := r.laneReport(p.Name); l.State != Open || calls.Load() != 60 {
			t.Errorf("never were %d of the %d deliveries in a row without an answer: %+v", breakAfter, calls.Load(), l)
		}
	})
}

func TestATargetThatWantsToRestGetsOneDeliveryAfterIt(t *testing.T) {
	eachWay(t, testATargetThatWantsToRestGetsOneDeliveryAfterIt)
}

func testATargetThatWantsToRestGetsOneDeliveryAfterIt(t *testing.T) {
	for name, c := range map[string]struct{ asked, rests time.Duration }{
		"as long as it says": {5 * time.Second, 5 * time.Second},
		"for 30 s at most":   {time.Hour, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Concurrency = 1
			var g target
			g.fail(tocsin.RetryIn(c.asked, tired(c.asked)))
			inBubbleWith(t, p, &g, inReach(&g, 1), func(r *rig) {
				ids := r.dueNow(10)
				began := time.Now()
				pass(c.rests - 10*time.Millisecond)
				if l := r.laneReport(p.Name); l.State != Busy || l.Rate == 0 || !near(l.NextTry.Sub(began), c.rests) || l.Why != "callback answered 503" || g.calls.Load() != 1 {
					t.Errorf("%d deliveries while it rests: %+v", g.calls.Load(), l)
				}
				pass(time.Second)
				if l := r.laneReport(p.Name); l.State != Busy || g.calls.Load() != 2 {
					t.Errorf("%d deliveries, and it rests again: %+v", g.calls.Load(), l)
				}
				g.fail(nil)
				pass(2*c.asked + time.Minute)
				r.done(ids) // none has an attempt
				pass(forgetAfter)
				if l := r.laneReport(p.Name); l.State != Open || l.Rate != 0 {
					t.Errorf("it is throttled for ever: %+v", l)
				}
			})
		})
	}
}

// A probe that finds no row, or whose row is gone, leaves the next one the probe.
func TestAProbeWaitsForARow(t *testing.T) { eachWay(t, testAProbeWaitsForARow) }

func testAProbeWaitsForARow(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = breakAfter
	var g target
	g.fail(absent{})
	inBubbleWith(t, p, &g, nil, func(r *rig) {
		ids := r.dueNow(breakAfter)
		pass(100 * time.Millisecond)
		for _, id := range ids {
			r.store.change(id, func(row *store.Row) { row.Status = tocsin.Cancelled })
		}
		pass(time.Minute)
		if l := r.laneReport(p.Name); l.State != Away || g.calls.Load() != breakAfter {
			t.Errorf("%d deliveries: %+v", g.calls.Load(), l)
		}
		g.fail(nil)
		late := r.dueNow(5)
		pass(time.Second)
		r.done(late)
	})
}

// A changed policy may name another target: it is tried at once.
func TestAChangedPolicyTriesTheTargetAtOnce(t *testing.T) {
	eachWay(t, testAChangedPolicyTriesTheTargetAtOnce)
}

func testAChangedPolicyTriesTheTargetAtOnce(t *testing.T) {
	p := policy("order.close", 1)
	var g target
	g.fail(absent{})
	inBubbleWith(t, p, &g, nil, func(r *rig) {
		ids := r.dueNow(100)
		pass(20 * time.Second) // the next probe is after 31 s
		g.fail(nil)
		p.Timeout = biztype.Duration(3 * time.Second)
		r.SetPolicies([]biztype.Policy{p})
		pass(time.Second)
		r.done(ids)
	})
}

// A sweep tries each task once, says which it gave back, and starts no more while the target is away.
func TestASweepLeavesTasksWhoseTargetIsAway(t *testing.T) {
	eachWay(t, testASweepLeavesTasksWhoseTargetIsAway)
}

func testASweepLeavesTasksWhoseTargetIsAway(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 4
	var g target
	var missed, others atomic.Int32
	g.fail(absent{})
	sweep := func(c *Config) {
		sweeping(c)
		c.Settled = func(s Settlement) {
			if s.Missed && s.Undone {
				missed.Add(1)
			} else if !s.Undone {
				others.Add(1)
			}
		}
	}
	inBubbleWith(t, p, &g, sweep, func(r *rig) {
		var ids []tocsin.JobID
		before := time.Now().Add(-time.Minute).UnixMilli()
		for range 10 {
			ids = append(ids, r.add(0, 1, -time.Minute))
		}
		pass(10 * time.Second)
		if held, _, open := r.Lane(0, 1); held != 0 || !open || g.calls.Load() != 10 || missed.Load() != 10 {
			t.Errorf("%d held, open %v, after %d deliveries, %d given back", held, open, g.calls.Load(), missed.Load())
		}
		for range 50 {
			ids = append(ids, r.add(0, 1, -time.Minute))
		}
		pass(500 * time.Millisecond)
		if held, _, open := r.Lane(0, 1); open || held < 30 || g.calls.Load() > breakAfter+4 || others.Load() != 0 {
			t.Errorf("%d held, open %v, after %d deliveries", held, open, g.calls.Load())
		}
		r.untouched(ids)
		if after := r.store.row(ids[0]).Action; after != before {
			t.Errorf("the action time moved by %d ms", after-before)
		}
	})
}
