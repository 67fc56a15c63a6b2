package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// A rate is kept though each third delivery takes three times as long as the rate allows for one; and however long deliveries take,
// while there are slots.
func TestARateIsKept(t *testing.T) { eachWay(t, testARateIsKept) }

func testARateIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		slots int
		takes func(call int32) time.Duration
	}{
		"each third takes longer": {100, 1, func(call int32) time.Duration { return time.Duration(call%3/2) * 30 * time.Millisecond }},
		"all take long":           {10, 200, func(int32) time.Duration { return 20 * time.Second }},
	} {
		p := policy("order.close", 1)
		p.Rate, p.Concurrency, p.Timeout = c.rate, c.slots, biztype.Duration(time.Minute)
		var calls atomic.Int32
		inBubble(t, p, func(context.Context, tocsin.Info) error { time.Sleep(c.takes(calls.Add(1))); return nil }, func(r *rig) {
			for range int(20 * c.rate) {
				r.add(0, 1, 0)
			}
			pass(10 * time.Second)
			if n := float64(calls.Load()); n < 9.5*c.rate || n > 10.5*c.rate {
				t.Errorf("%s: %g deliveries in 10 s, want %g", name, n, 10*c.rate)
			}
			pass(time.Minute)
		})
	}
}

// The lanes of all servers share a rate. Rows that waited too long for it are loaded again, and cost it nothing.
func TestARateOverManyServers(t *testing.T) { eachWay(t, testARateOverManyServers) }

func testARateOverManyServers(t *testing.T) {
	for _, c := range []struct{ rate, want float64 }{{100, 250}, {0.8, 2}} { // of four nodes, in 10 s
		p := policy("order.close", 1)
		p.Rate = c.rate
		var calls atomic.Int32
		adapt := func(c *Config) { onServers(rigTables)(c); c.Peers = func() int { return 4 } }
		inBubbleWith(t, p, handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil }), adapt, func(r *rig) {
			for i := range 2000 {
				r.add(i%rigTables, 1, 0)
			}
			pass(10 * time.Second)
			if n := float64(calls.Load()); n < c.want*0.95 || n > c.want*1.05+1 {
				t.Errorf("rate %g: %g deliveries in 10 s, want %g", c.rate, n, c.want)
			}
		})
	}
}

// Slots that one server's backlog keeps taken change hands: the rows of another server get some.
func TestABacklogOfOneServerLeavesSlotsToAnother(t *testing.T) {
	eachWay(t, testABacklogOfOneServerLeavesSlotsToAnother)
}

func testABacklogOfOneServerLeavesSlotsToAnother(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 2
	inBubbleWith(t, p, handler(func(context.Context, tocsin.Info) error { time.Sleep(10 * time.Millisecond); return nil }), onServers(2), func(r *rig) {
		for range 4000 {
			r.add(0, 1, -time.Second)
		}
		pass(3 * time.Second)
		for range 20 {
			other := r.add(1, 1, 0)
			pass(300 * time.Millisecond)
			r.status(other, tocsin.Done)
		}
	})
}

// What a rate allowed for a batch that did not start, it allows once more, and no more than that.
func TestABatchThatDoesNotStartCostsTheRateNothing(t *testing.T) {
	eachWay(t, testABatchThatDoesNotStartCostsTheRateNothing)
}

func testABatchThatDoesNotStartCostsTheRateNothing(t *testing.T) {
	p := policy("order.close", 1)
	p.Rate = 100
	var calls atomic.Int32
	b := &batches{answer: func(tasks []tocsin.Info) []error { calls.Add(int32(len(tasks))); return make([]error, len(tasks)) }}
	b.inBubble(t, p, 100, func(r *rig) {
		for i := range 4000 {
			r.add(i%rigTables, 1, -time.Second)
		}
		for range 4 {
			pass(1500 * time.Millisecond)
			r.store.moved.Store(true) // nothing starts while the clock is not known
			pass(1200 * time.Millisecond)
			r.store.moved.Store(false)
		}
		from := calls.Load()
		pass(10 * time.Second)
		if n := calls.Load() - from; n < 900 || n > 1300 {
			t.Errorf("%d deliveries in 10 s, want 1000 and what was not started before", n)
		}
	})
}

// Batches stay full though the backlogs of several servers share one slot.
func TestBatchesOfManyServersStayFull(t *testing.T) { eachWay(t, testBatchesOfManyServersStayFull) }

func testBatchesOfManyServersStayFull(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	var calls, tasks atomic.Int32
	b := &batches{answer: func(batch []tocsin.Info) []error {
		calls.Add(1)
		tasks.Add(int32(len(batch)))
		time.Sleep(500 * time.Millisecond)
		return make([]error, len(batch))
	}}
	inBubbleOf(t, []biztype.Policy{p}, nil, func(c *Config) { onServers(4)(c); inBatches(b, 50)(c) }, func(r *rig) {
		for i := range 4000 {
			r.add(i%rigTables, 1, -time.Second)
		}
		pass(30 * time.Second)
		if each := float64(tasks.Load()) / float64(calls.Load()); calls.Load() < 50 || each < 45 {
			t.Errorf("%d batches of %g tasks each, want 60 of 50", calls.Load(), each)
		}
	})
}
