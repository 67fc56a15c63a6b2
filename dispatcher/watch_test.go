package dispatcher

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

// patient is a handler that waits for the end of its context and returns the cause.
func patient(ctx context.Context, _ tocsin.Info) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// long is a policy whose deliveries may take a minute.
func long(name string, number uint64) biztype.Policy {
	p := policy(name, number)
	p.Timeout = biztype.Duration(time.Minute)
	return p
}

func cancelled(r *store.Row) { r.Status = tocsin.Cancelled }

// inAnHour is what a reschedule of a row that is pending or claimed makes of it.
func inAnHour(r *store.Row) {
	r.Status, r.ClaimedBy, r.ActionTime = tocsin.Pending, "", time.Now().Add(time.Hour)
	r.Action = r.ActionTime.UnixMilli()
	r.Version++
}

func TestALongDeliveryLearnsThatItsTaskIsNotWantedAnyMore(t *testing.T) {
	eachWay(t, testALongDeliveryLearnsThatItsTaskIsNotWantedAnyMore)
}

func testALongDeliveryLearnsThatItsTaskIsNotWantedAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*store.Row)
		claims bool // every row is claimed
		last   bool // a failure would be the last
		cause  error
		fate   store.Fate
	}{
		"cancelled":                      {cancelled, false, false, tocsin.ErrCancelled, store.Cancelled},
		"cancelled, claimed":             {cancelled, true, false, tocsin.ErrCancelled, store.Cancelled},
		"cancelled, its last attempt":    {cancelled, false, true, tocsin.ErrCancelled, store.Cancelled},
		"rescheduled":                    {inAnHour, false, false, tocsin.ErrRescheduled, store.Rescheduled},
		"rescheduled, claimed":           {inAnHour, true, false, tocsin.ErrRescheduled, store.Rescheduled},
		"rescheduled, the last, claimed": {inAnHour, true, true, tocsin.ErrRescheduled, store.Rescheduled},
	} {
		t.Run(name, func(t *testing.T) {
			var log devtest.Log
			var got []error
			var mu sync.Mutex
			p := long("order.close", 1)
			if p.Strict = c.claims; c.last {
				p.Attempts = 1
			}
			inBubbleWith(t, p, handler(func(ctx context.Context, task tocsin.Info) error {
				err := patient(ctx, task)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, err)
				return err
			}), func(cfg *Config) { cfg.Logger = log.Logger() }, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(5 * time.Second)
				r.store.change(id, c.change)
				want := r.store.row(id)
				pass(2500 * time.Millisecond)
				if len(got) != 1 || got[0] != c.cause {
					t.Errorf("the contexts ended with %v, want %v once", got, c.cause)
				}
				if _, n := r.store.counts(c.fate); n != 1 || r.store.row(id) != want {
					t.Errorf("%d outcomes %s, the row is %+v, was %+v", n, c.fate, r.store.row(id), want)
				}
				if lines := log.Lines(); len(lines) > 0 {
					t.Errorf("logged %v", lines)
				}
			})
		})
	}
}

// TestABatchEndsWhenNoneOfItsTasksIsWanted: as long as one is, the handler goes on; what it returns for the others has no effect.
func TestABatchEndsWhenNoneOfItsTasksIsWanted(t *testing.T) {
	eachWay(t, testABatchEndsWhenNoneOfItsTasksIsWanted)
}

func testABatchEndsWhenNoneOfItsTasksIsWanted(t *testing.T) {
	var ended error
	var began int
	target := batchHandler(func(ctx context.Context, tasks []tocsin.Info) []error {
		began = len(tasks)
		<-ctx.Done()
		ended = context.Cause(ctx)
		return same(errors.New("interrupted"), len(tasks))
	})
	inBubbleOf(t, []biztype.Policy{long("order.close", 1)}, nil, inBatches(target, 3), func(r *rig) {
		ids := r.together(3)
		pass(3 * time.Second)
		if began != 3 {
			t.Fatalf("the batch has %d tasks", began)
		}
		r.store.change(ids[0], cancelled)
		r.store.change(ids[1], inAnHour)
		pass(10 * time.Second)
		if ended != nil {
			t.Fatalf("ended with %v though a task is wanted", ended)
		}
		r.store.change(ids[2], cancelled)
		pass(2500 * time.Millisecond)
		if !errors.Is(ended, tocsin.ErrCancelled) {
			t.Errorf("ended with %v", ended)
		}
		_, gone := r.store.counts(store.Cancelled)
		if _, moved := r.store.counts(store.Rescheduled); gone != 2 || moved != 1 {
			t.Errorf("%d outcomes cancelled, %d rescheduled", gone, moved)
		}
	})
}

func TestShortDeliveriesAreNotRechecked(t *testing.T) { eachWay(t, testShortDeliveriesAreNotRechecked) }

func testShortDeliveriesAreNotRechecked(t *testing.T) {
	p := long("order.close", 1)
	p.Concurrency = 1000
	inBubble(t, p, func(_ context.Context, task tocsin.Info) error {
		if task.JobID.Table() == 1 {
			time.Sleep(10 * time.Second)
		} else {
			time.Sleep(900 * time.Millisecond)
		}
		return nil
	}, func(r *rig) {
		for i := range 1000 {
			r.add(0, 1, time.Duration(i)*7*time.Millisecond)
		}
		pass(10 * time.Second)
		if n := r.store.rechecked(); n != 0 {
			t.Errorf("%d statements for deliveries of 900 ms, and none", n)
		}
		for range 600 {
			r.add(1, 1, 0)
		}
		pass(20 * time.Second)
		if n := r.store.rechecked(); n < 8 || n > 9 {
			t.Errorf("%d calls for 600 deliveries of 10 s, want one a second", n)
		}
	})
}

func (m *memory) rechecked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rechecks
}

// TestAFailedRecheckStopsNothing: deliveries go on, and the next recheck may succeed.
func TestAFailedRecheckStopsNothing(t *testing.T) { eachWay(t, testAFailedRecheckStopsNothing) }

func testAFailedRecheckStopsNothing(t *testing.T) {
	var cause error
	inBubble(t, long("order.close", 1), func(ctx context.Context, task tocsin.Info) error {
		cause = patient(ctx, task)
		return cause
	}, func(r *rig) {
		r.failOn("recheck", errLost)
		id := r.add(0, 1, 0)
		pass(time.Second)
		r.store.change(id, cancelled)
		pass(10 * time.Second)
		if cause != nil {
			t.Errorf("ended with %v", cause)
		}
		r.store.fail(nil)
		pass(1500 * time.Millisecond)
		if cause != tocsin.ErrCancelled {
			t.Errorf("ended with %v", cause)
		}
	})
}
