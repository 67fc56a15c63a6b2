package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// What changes while a row waits to start, or is in delivery.

func TestAClaimOutlivesTheDeliveryAfterTheTimeoutHasGrown(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict, p.Concurrency, p.Timeout = true, 1, biztype.Duration(5*time.Second)
	grown := p
	grown.Timeout = biztype.Duration(time.Minute)
	var r *rig
	var calls atomic.Int32
	sinks := map[string]Sink{p.Name: handler(func(ctx context.Context, task tocsin.Info) error {
		calls.Add(1)
		end, _ := ctx.Deadline()
		if claimed := time.UnixMilli(r.store.row(task.JobID).Action); claimed.Before(end) {
			t.Errorf("the claim ends %s before the delivery may", end.Sub(claimed))
		}
		time.Sleep(3 * time.Second)
		return nil
	})}
	inBubbleOf(t, []biztype.Policy{p}, sinks, nil, func(in *rig) {
		r = in
		r.add(0, 1, 0)
		r.add(0, 1, 0)
		pass(time.Second)
		if n, _ := r.store.counts(store.Stored); n != 2 {
			t.Fatalf("%d claims, want the second row claimed ahead", n)
		}
		r.SetPolicies([]biztype.Policy{grown})
		pass(10 * time.Second)
		if calls.Load() != 2 {
			t.Errorf("%d deliveries, want 2", calls.Load())
		}
	})
}

func TestAHandedOverClaimOutlivesTheDeliveryAfterTheTimeoutHasShrunk(t *testing.T) {
	p := policy("order.close", 1)
	p.Timeout = biztype.Duration(time.Minute)
	inBubble(t, p, func(context.Context, tocsin.Info) error { time.Sleep(30 * time.Second); return nil }, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(time.Second)
		r.SetPolicies([]biztype.Policy{policy("order.close", 1)})
		r.Set([]int{0}, nil)
		if err := r.Drain(context.Background(), []int{0}); err != nil {
			t.Error(err)
		}
		if left := time.Until(time.UnixMilli(r.store.row(id).Action)); left < time.Minute {
			t.Errorf("claimed for %s, the delivery may take a minute", left)
		}
		pass(40 * time.Second)
		r.status(id, tocsin.Done)
	})
}

// slowAnswer is memory whose rows come a second after they were read.
type slowAnswer struct{ *memory }

func (s slowAnswer) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	loaded, err := s.memory.Load(ctx, server, ids)
	time.Sleep(time.Second)
	return loaded, err
}

func TestARowReadBeforeItsTableWasAnothersIsReadAgain(t *testing.T) {
	var calls atomic.Int32
	adapt := func(c *Config) { c.Store = slowAnswer{c.Store.(*memory)} }
	inBubbleWith(t, policy("order.close", 1), handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil }), adapt, func(r *rig) {
		theirs, ours := r.add(0, 1, 0), r.add(0, 1, 0)
		pass(500 * time.Millisecond)
		r.Set([]int{0}, nil)
		r.store.change(theirs, func(row *store.Row) { row.Status = tocsin.Done })
		r.Set([]int{0}, &duequeue.Access{Owner: "me"})
		pass(5 * time.Second)
		if calls.Load() != 1 {
			t.Errorf("%d deliveries, want that of the row which is still pending", calls.Load())
		}
		r.status(ours, tocsin.Done)
	})
}
