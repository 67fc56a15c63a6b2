package dispatcher

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// lockedTable is memory with a table that is locked: who reads it waits.
type lockedTable struct {
	*memory
	table int
	open  atomic.Bool
}

func (l *lockedTable) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	var others []tocsin.JobID
	for _, id := range ids {
		if l.open.Load() || id.Table() != l.table {
			others = append(others, id)
		}
	}
	if len(others) < len(ids) {
		time.Sleep(2 * time.Second)
	}
	loaded, err := l.memory.Load(ctx, server, others)
	if len(others) < len(ids) {
		loaded.Failed = map[int]error{l.table: errors.New("locked")}
	}
	return loaded, err
}

func TestALockedTableHoldsUpNoOtherOfItsLane(t *testing.T) {
	eachWay(t, testALockedTableHoldsUpNoOtherOfItsLane)
}

func testALockedTableHoldsUpNoOtherOfItsLane(t *testing.T) {
	var last, late atomic.Int64
	p := policy("order.close", 1)
	p.Concurrency = 8
	var locked *lockedTable
	inBubbleWith(t, p, handler(func(_ context.Context, task tocsin.Info) error {
		if task.JobID.Table() == 1 {
			last.Add(1)
			late.Store(max(late.Load(), int64(time.Since(task.ActionTime))))
		}
		return nil
	}), func(c *Config) {
		locked = &lockedTable{memory: c.Store.(*memory)}
		c.Store = locked
	}, func(r *rig) {
		for range 3000 {
			r.add(0, 1, -10*time.Second)
		}
		pass(5 * time.Second) // to meet the lock takes its time
		for i := range 200 {
			r.add(1, 1, time.Duration(i)*50*time.Millisecond)
		}
		pass(12 * time.Second)
		if got := time.Duration(late.Load()); last.Load() != 200 || got > 200*time.Millisecond {
			t.Errorf("%d of 200 delivered beside the locked table, the latest %s late", last.Load(), got)
		}
		locked.open.Store(true)
		pass(10 * time.Second)
		if _, n := r.store.counts(store.Stored); n != 3200 {
			t.Errorf("%d of 3200 stored after the lock is gone", n)
		}
	})
}

func TestATaskRescheduledInFlightIsDeliveredAgainAtOnce(t *testing.T) {
	eachWay(t, testATaskRescheduledInFlightIsDeliveredAgainAtOnce)
}

func testATaskRescheduledInFlightIsDeliveredAgainAtOnce(t *testing.T) {
	var calls atomic.Int32
	inBubble(t, policy("order.close", 1), func(context.Context, tocsin.Info) error {
		calls.Add(1)
		time.Sleep(time.Second)
		return nil
	}, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(500 * time.Millisecond)
		r.store.reschedule(id, time.Now())
		r.offer(id) // the bell
		pass(600 * time.Millisecond)
		if calls.Load() != 2 {
			t.Errorf("%d deliveries, want the second at once", calls.Load())
		}
		pass(time.Second)
		r.status(id, tocsin.Done)
	})
}

func TestAnEndlessSnoozeIsNotAnImmediateOne(t *testing.T) {
	for _, err := range []error{tocsin.Snooze(math.MaxInt64), tocsin.RetryIn(math.MaxInt64, errors.New("later"))} {
		end := endingOf(policy("order.close", 1).WithDefaults(), &store.Row{}, replyOf(err), 1000, func() float64 { return 0 })
		if want := 1000 + maxPutOff.Milliseconds(); end.next != want {
			t.Errorf("%v: next %d, want %d", err, end.next, want)
		}
	}
}

func TestANewRateCountsAtOnce(t *testing.T) { eachWay(t, testANewRateCountsAtOnce) }

func testANewRateCountsAtOnce(t *testing.T) {
	var calls atomic.Int32
	slow := policy("order.close", 1)
	slow.Rate = 0.001
	inBubble(t, slow, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig) {
		r.add(0, 1, 0)
		r.add(0, 1, 0)
		pass(time.Second)
		if calls.Load() != 1 {
			t.Errorf("%d deliveries at the slow rate, want 1", calls.Load())
		}
		r.SetPolicies([]biztype.Policy{policy("order.close", 1)})
		pass(time.Second)
		if calls.Load() != 2 {
			t.Error("the old rate holds on")
		}
	})
}

func TestADrainNamesTheTablesThatAreStuck(t *testing.T) {
	eachWay(t, testADrainNamesTheTablesThatAreStuck)
}

func testADrainNamesTheTablesThatAreStuck(t *testing.T) {
	inBubbleWith(t, policy("order.close", 1), handler(succeeds), onServers(2), func(r *rig) {
		r.store.fail(func(statement string, ids []tocsin.JobID) error {
			if statement == "settle" && ids[0].Table()%2 == 0 {
				return errLost
			}
			return nil
		})
		for table := range 4 {
			if table != 2 {
				r.add(table, 1, 0)
			}
		}
		pass(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		r.Set([]int{0, 1, 2, 3}, nil)
		var stuck *Undrained
		err := r.Drain(ctx, []int{0, 1, 2, 3})
		if !errors.As(err, &stuck) || !errors.Is(err, context.DeadlineExceeded) || len(stuck.Tables) != 1 || stuck.Tables[0] != 0 {
			t.Errorf("got %v, want table 0 of all to be stuck", err)
		}
		r.store.fail(nil)
		if err := r.Drain(context.Background(), []int{0}); err != nil {
			t.Error(err)
		}
	})
}

// Just after its server has moved to another address nobody knows the clock there. What is put off then is put off from the time that
// the deliveries tell, and what is given back keeps its time.
func TestWhatEndsJustAfterAFailOverIsPutOffInFull(t *testing.T) {
	eachWay(t, testWhatEndsJustAfterAFailOverIsPutOffInFull)
}

func testWhatEndsJustAfterAFailOverIsPutOffInFull(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict, p.Concurrency = true, 1
	sinks := map[string]Sink{}
	inBubbleOf(t, nil, sinks, nil, func(r *rig) {
		want := map[tocsin.JobID]int64{}
		var first, ended atomic.Int64 // the task that is delivered, and when that ends
		sinks[p.Name] = handler(func(_ context.Context, task tocsin.Info) error {
			time.Sleep(500 * time.Millisecond)
			first.Store(int64(task.JobID))
			ended.Store(time.Now().UnixMilli())
			return tocsin.Snooze(time.Hour)
		})
		r.SetPolicies([]biztype.Policy{p})
		for i := range 2 {
			id := r.insert(i, 1, -time.Second)
			want[id] = r.store.row(id).Action // read before it is offered, and so before a claim can move it
			r.offer(id)
		}
		pass(300 * time.Millisecond) // one is in delivery, and one waits for the slot
		for id := range want {
			r.status(id, tocsin.Claimed)
		}
		r.store.moved.Store(true)
		r.Set([]int{0, 1, 2, 3}, nil)
		pass(time.Second)
		want[tocsin.JobID(first.Load())] = ended.Load() + time.Hour.Milliseconds()
		for id, at := range want {
			if row := r.store.row(id); row.Status != tocsin.Pending || row.Action < at || row.Action > at+100 {
				t.Errorf("%s for %s, want %s", row.Status, time.UnixMilli(row.Action).UTC(), time.UnixMilli(at).UTC())
			}
		}
		r.store.moved.Store(false)
	})
}

// So is what the first delivery from a server puts off, which began while nobody knew the clock.
func TestAFirstDeliveryAfterAFailOverIsPutOffInFull(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict = true
	inBubble(t, p, func(context.Context, tocsin.Info) error { return tocsin.Snooze(time.Hour) }, func(r *rig) {
		r.store.failing = func(statement string, _ []tocsin.JobID) error {
			if statement == "claim" {
				time.Sleep(400 * time.Millisecond)
			}
			return nil
		}
		id := r.add(0, 1, -time.Second)
		pass(300 * time.Millisecond)
		r.store.moved.Store(true)
		pass(time.Second)
		if row, now := r.store.row(id), time.Now(); row.Status != tocsin.Pending || row.Action < now.Add(59*time.Minute).UnixMilli() || row.Action > now.Add(time.Hour).UnixMilli() {
			t.Errorf("%s for %s, want pending in an hour", row.Status, time.UnixMilli(row.Action).UTC())
		}
		r.store.moved.Store(false)
	})
}
