package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Tests of what a sweep needs from its dispatcher.

// sweeping makes a dispatcher claim each row, and stop within a second.
func sweeping(c *Config) {
	c.ClaimAll, c.SweepGrace, c.DrainTimeout = true, time.Nanosecond, time.Second
}

// until waits for the end of ctx, like a target that hangs.
func until(ctx context.Context, _ tocsin.Info) error {
	<-ctx.Done()
	return ctx.Err()
}

// undoing counts outcomes that are stored: rows that are given back, and rows settled in other ways.
type undoing struct{ back, completed, other atomic.Int32 }

func (u *undoing) settled(s Settlement) {
	switch {
	case s.Fate != store.Stored:
		u.other.Add(1)
	case s.Undone:
		u.back.Add(1)
	case s.Verb == tocsin.Completed:
		u.completed.Add(1)
	default:
		u.other.Add(1)
	}
}

func TestASweepThatStopsGivesBackWhatItHasNotBegunAsItFoundIt(t *testing.T) {
	eachWay(t, testASweepThatStopsGivesBackWhatItHasNotBegunAsItFoundIt)
}

func testASweepThatStopsGivesBackWhatItHasNotBegunAsItFoundIt(t *testing.T) {
	p := policy("order.close", 1)
	p.Timeout, p.Concurrency = biztype.Duration(time.Minute), 2
	var u undoing
	var begun sync.Map
	var inTime atomic.Uint64 // the one that ends within the second that a stop leaves to deliveries in hand
	var over chan struct{}   // made in the bubble
	sinks := map[string]Sink{p.Name: handler(func(ctx context.Context, task tocsin.Info) error {
		if task.BizID > 10 {
			return nil // the first ones are quick, so that more is claimed ahead
		}
		begun.Store(task.JobID, true)
		if inTime.CompareAndSwap(0, uint64(task.JobID)) {
			<-over
			return nil
		}
		return until(ctx, task)
	})}
	inBubbleOf(t, []biztype.Policy{p}, sinks, func(c *Config) { sweeping(c); c.Settled = u.settled }, func(r *rig) {
		r.seq, over = 10, make(chan struct{})
		for range 50 {
			r.add(0, 1, -3*time.Second)
		}
		pass(time.Second)
		r.seq = 0
		found := map[tocsin.JobID]int64{}
		for range 10 {
			found[r.add(0, 1, -2*time.Second)] = time.Now().Add(-2 * time.Second).UnixMilli()
		}
		pass(time.Second)
		stopped := time.Now()
		r.stop()
		pass(500 * time.Millisecond)
		close(over)
		pass(3 * time.Second)
		unbegun := 0
		for id, action := range found {
			if uint64(id) == inTime.Load() {
				r.status(id, tocsin.Done)
				continue
			}
			row := r.store.row(id)
			_, cut := begun.Load(id)
			if row.Status != tocsin.Pending || row.Attempts != 0 || cut && row.Action < stopped.UnixMilli() || !cut && row.Action != action {
				t.Errorf("%s (cut off: %t) was due at %d; it is %s, due at %d, after %d attempts", id, cut, action, row.Status, row.Action, row.Attempts)
			}
			if !cut {
				unbegun++
			}
		}
		if claims, _ := r.store.counts(store.Stored); claims <= 52 || unbegun != 8 || u.completed.Load() != 51 || int(u.back.Load()) != claims-51 || u.other.Load() != 0 {
			t.Errorf("%d claims, %d completed, %d not begun, %d given back, %d settled otherwise", claims, u.completed.Load(), unbegun, u.back.Load(), u.other.Load())
		}
	})
}

func TestASweepClaimsAgainWhatWaitedTooLongForASlot(t *testing.T) {
	eachWay(t, testASweepClaimsAgainWhatWaitedTooLongForASlot)
}

func testASweepClaimsAgainWhatWaitedTooLongForASlot(t *testing.T) {
	p := policy("order.close", 1)
	p.Timeout, p.Concurrency = biztype.Duration(10*time.Second), 1
	var hung atomic.Uint64 // the first of those that are added last: they start in any order
	sinks := map[string]Sink{p.Name: handler(func(ctx context.Context, task tocsin.Info) error {
		if task.BizID > 50 && hung.CompareAndSwap(0, uint64(task.JobID)) {
			return until(ctx, task)
		}
		return nil
	})}
	inBubbleOf(t, []biztype.Policy{p}, sinks, sweeping, func(r *rig) {
		for range 50 {
			r.add(0, 1, -3*time.Second)
		}
		pass(time.Second)
		var ids []tocsin.JobID
		for range 4 {
			ids = append(ids, r.add(0, 1, -2*time.Second))
		}
		pass(15 * time.Second)
		if claims, _ := r.store.counts(store.Stored); claims <= 54 {
			t.Errorf("%d claims: nothing was claimed again", claims)
		}
		for _, id := range ids {
			want := tocsin.Done
			if uint64(id) == hung.Load() {
				want = tocsin.Pending // it timed out
			}
			r.status(id, want)
		}
	})
}

func TestATargetsOwnSnoozeIsNotCutOff(t *testing.T) { eachWay(t, testATargetsOwnSnoozeIsNotCutOff) }

func testATargetsOwnSnoozeIsNotCutOff(t *testing.T) {
	p := policy("order.close", 1)
	var u undoing
	inBubbleWith(t, p, handler(func(context.Context, tocsin.Info) error { return tocsin.Snooze(0) }), func(c *Config) { sweeping(c); c.Settled = u.settled }, func(r *rig) {
		r.add(0, 1, -2*time.Second)
		pass(time.Second)
		if u.back.Load() != 0 || u.other.Load() != 1 {
			t.Errorf("%d given back, %d snoozed", u.back.Load(), u.other.Load())
		}
	})
}

func TestALaneSaysWhatItHoldsAndTakes(t *testing.T) { eachWay(t, testALaneSaysWhatItHoldsAndTakes) }

func testALaneSaysWhatItHoldsAndTakes(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	inBubbleOf(t, nil, map[string]Sink{p.Name: handler(until)}, func(c *Config) { sweeping(c); c.QueueCap = 5 }, func(r *rig) {
		lane := func(want string) {
			t.Helper()
			held, room, open := r.Lane(0, 1)
			if got := [3]any{held, room, open}; want != fmt.Sprint(got) {
				t.Errorf("holds, takes, is open: %v, want %s", got, want)
			}
		}
		lane("[0 0 false]")
		r.SetPolicies([]biztype.Policy{p})
		lane("[0 5 true]")
		for range 3 {
			r.add(0, 1, -2*time.Second)
		}
		pass(time.Second)
		lane("[3 2 true]") // one of them is in delivery
		p.Paused = true
		r.SetPolicies([]biztype.Policy{p})
		lane("[3 2 false]")
		pass(3 * time.Second) // it times out
		lane("[2 3 false]")
	})
}

// A claim outlasts its intake by at most the drain time-out: a stop does not wait
// longer for a server that hangs.
func TestAClaimOutlastsItsIntakeByTheDrainTimeout(t *testing.T) {
	eachWay(t, testAClaimOutlastsItsIntakeByTheDrainTimeout)
}

func testAClaimOutlastsItsIntakeByTheDrainTimeout(t *testing.T) {
	p := policy("order.close", 1)
	p.Timeout = biztype.Duration(time.Minute)
	done := handler(succeeds)
	var hung *frozen
	inBubbleWith(t, p, done, func(c *Config) {
		sweeping(c)
		hung = &frozen{Store: c.Store}
		c.Store = hung
	}, func(r *rig) {
		r.add(0, 1, -2*time.Second)
		pass(10 * time.Second)
		if hung.gave.Load() != 0 {
			t.Error("a claim was cut off while the dispatcher runs")
		}
		r.stop()
		pass(1100 * time.Millisecond)
		if hung.gave.Load() != 1 {
			t.Error("the claim goes on after the drain time-out")
		}
	})
}

// frozen is a store whose claims hang until their context ends.
type frozen struct {
	Store
	gave atomic.Int32
}

func (f *frozen) Claim(ctx context.Context, _ store.Claim) ([]store.Row, error) {
	<-ctx.Done()
	f.gave.Add(1)
	return nil, errors.Join(errLost, ctx.Err())
}

func (f *frozen) ClaimRows(ctx context.Context, c store.RowsClaim) (store.ClaimedRows, error) {
	_, err := f.Claim(ctx, store.Claim{})
	return store.ClaimedRows{}, err
}
