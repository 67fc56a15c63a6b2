package assign

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// onFour has 4 servers of 8 tables.
func onFour(c *Config) { c.ServerOf = func(table int) int { return table / 8 } }

// stall is server 0 while it does not answer. A call that may last longer than those that only look waits for the answer
// past its own end: what others do meanwhile can't have waited for the call.
type stall struct {
	t            *testing.T
	begun, ended atomic.Int32  // such calls
	over         chan struct{} // closed when it answers again
}

func newStall(t *testing.T) *stall { return &stall{t: t, over: make(chan struct{})} }

// hold is what a call does first.
func (s *stall) hold(ctx context.Context, tables []int) {
	if !slices.ContainsFunc(tables, func(table int) bool { return table/8 == 0 }) {
		return
	}
	deadline, _ := ctx.Deadline()
	patient := time.Until(deadline) > 2*quickly
	if patient {
		s.begun.Add(1)
		defer s.ended.Add(1)
		ctx = s.t.Context() // which ends with a test that has failed
	}
	select {
	case <-ctx.Done():
	case <-s.over:
	}
}

// others counts the tables of a node that are not on server 0. Called under the lock.
func (d *desk) others() (n int) {
	for table := range d.held {
		if table/8 != 0 {
			n++
		}
	}
	return n
}

// A drop on a server that does not answer takes seconds; the tables of the other servers move meanwhile.
func TestADropThatStallsHoldsUpNoOtherServer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, s := c.node(onFour, slow), newStall(t)
	a.onDrop, a.failDrop = func(ctx context.Context, tables []int) { s.hold(ctx, tables) }, stuckOn()
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join(onFour, slow)
	c.await("the other servers' tables have moved", func() bool { return b.others() == 12 && a.others() == 12 })
	poll(t, "a drop that waits", func() bool { return s.begun.Load() > 0 })
	c.update(func() { a.failDrop = nil })
	close(s.over)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}

func TestATakeThatStallsHoldsUpNoOtherServer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, s := c.node(onFour, slow), newStall(t)
	a.onTake = s.hold
	c.start(a)
	c.await("the other servers' tables are taken", func() bool { return a.others() == 24 })
	b := c.join(onFour, slow)
	c.await("and shared", func() bool { return b.others() == 12 && a.others() == 12 })
	if n := s.begun.Load(); n != 1 {
		t.Errorf("%d takes on the server that stalls", n)
	}
	close(s.over)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}

// The keys of the other servers' tables do not wait for those that are stuck.
func TestANodeThatLeavesGivesUpWhatDoesNotStallAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	b := c.join(onFour, slow)
	c.awaitCounts(map[*desk]int{b: 32})
	a, s := c.node(onFour, slow, func(cfg *Config) { cfg.LeaveTimeout = patience }), newStall(t)
	a.onDrop, a.failDrop = func(ctx context.Context, tables []int) { s.hold(ctx, tables) }, stuckOn()
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	a.cancel()
	c.await("the other has what is not stuck", func() bool { return len(a.held) <= 4 && len(b.held) == 32-len(a.held) })
	poll(t, "a drop that waits", func() bool { return s.begun.Load() > 0 })
	if !a.LeaseOK() {
		t.Error("the lease is not kept for what is stuck")
	}
	c.update(func() { a.failDrop = nil })
	close(s.over)
	a.leave()
	c.awaitCounts(map[*desk]int{b: 32})
}

// What is dropped sooner on one server than on another makes a plan of its own: that moves no more tables.
func TestServersThatDropOneAfterTheOtherMoveNothingTwice(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node(onFour)
	a.onDrop = func(_ context.Context, tables []int) { time.Sleep(time.Duration(tables[0]/8) * quickly / 4) }
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join(onFour)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	time.Sleep(100 * time.Millisecond) // several plans
	c.update(func() {
		if a.drops != 16 || b.drops != 0 {
			t.Errorf("%d and %d tables were given up, 16 would do", a.drops, b.drops)
		}
	})
}

// What a former Take has not answered yet is neither dropped nor started on again.
func TestATableIsInOneHandAtATime(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, s := c.node(onFour, short), newStall(t)
	a.onTake = s.hold
	var early atomic.Bool
	a.onDrop = func(_ context.Context, tables []int) {
		for _, table := range tables {
			if table/8 == 0 && s.ended.Load() == 0 {
				early.Store(true)
			}
		}
	}
	c.start(a)
	c.await("the other servers' tables are taken", func() bool { return a.others() == 24 })
	if _, err := c.client.Delete(t.Context(), spaceOf(c.cluster, "g").table(1)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // several rounds
	close(s.over)
	c.awaitTaken(32, a)
	if early.Load() {
		t.Error("dropped while it was being taken")
	}
}

// stuckOn refuses to drop the tables up to 3, as when their server is away.
func stuckOn() error {
	return &Refused{Tables: []int{0, 1, 2, 3}, Err: errors.New("server 0 is away")}
}

func TestALostTableThatIsStuckHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node()
	a.failDrop = stuckOn()
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	key := spaceOf(c.cluster, "g").table(0)
	if _, err := c.client.Put(t.Context(), key, "by hand"); err != nil {
		t.Fatal(err)
	}
	b := c.join()
	c.await("what is not stuck has moved", func() bool { return len(b.held) > 8 && len(a.held)+len(b.held) == 32 })
	c.update(func() { a.failDrop = nil })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}
