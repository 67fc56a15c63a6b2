package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestDroppedTablesStartNothing(t *testing.T) { eachWay(t, testDroppedTablesStartNothing) }

func testDroppedTablesStartNothing(t *testing.T) {
	var calls atomic.Int32
	inBubble(t, policy("order.close", 1), func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig) {
		gone := r.add(0, 1, time.Second)
		kept := r.add(1, 1, time.Second)
		r.Set([]int{0}, nil)
		if err := r.Drain(context.Background(), []int{0}); err != nil {
			t.Error(err)
		}
		pass(3 * time.Second)
		r.status(gone, tocsin.Pending)
		r.status(kept, tocsin.Done)
		r.Set([]int{0}, &duequeue.Access{Owner: "me"})
		r.offer(gone)
		pass(time.Second)
		r.status(gone, tocsin.Done)
		if calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

func TestDrainClaimsWhatIsInDelivery(t *testing.T) { eachWay(t, testDrainClaimsWhatIsInDelivery) }

func testDrainClaimsWhatIsInDelivery(t *testing.T) {
	cases := map[string]struct {
		err  error
		want tocsin.Status
	}{
		"that completes": {nil, tocsin.Done},
		"that retries":   {errors.New("busy"), tocsin.Pending},
		"that is buried": {tocsin.Bury(errors.New("never")), tocsin.Dead},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Timeout = biztype.Duration(time.Minute)
			inBubble(t, p, func(context.Context, tocsin.Info) error {
				time.Sleep(10 * time.Second)
				return c.err
			}, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(time.Second)
				r.Set([]int{0}, nil)
				began := time.Now()
				if err := r.Drain(context.Background(), []int{0}); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d < handOverAfter || d > handOverAfter+50*time.Millisecond {
					t.Errorf("drained in %s", d)
				}
				r.status(id, tocsin.Claimed)
				pass(9 * time.Second)
				r.status(id, c.want)
				if _, n := r.store.counts(store.Stored); n != 1 {
					t.Errorf("%d outcomes stored, want 1", n)
				}
			})
		})
	}
}

func TestTheEndOfRunWaitsForDeliveries(t *testing.T) { eachWay(t, testTheEndOfRunWaitsForDeliveries) }

func testTheEndOfRunWaitsForDeliveries(t *testing.T) {
	inBubble(t, policy("order.close", 1), func(context.Context, tocsin.Info) error {
		time.Sleep(time.Second)
		return nil
	}, func(r *rig) {
		started := r.add(0, 1, 0)
		later := r.add(0, 1, 500*time.Millisecond)
		pass(200 * time.Millisecond)
		r.stop()
		pass(2 * time.Second)
		r.status(started, tocsin.Done)
		r.status(later, tocsin.Pending)
	})
}

// An outcome that was refused for minutes is next tried in a minute, but at once if
// its table is admitted again: its fault may have been mended.
func TestWhatWasSetAsideIsTriedWhenItsTableIsAdmittedAgain(t *testing.T) {
	eachWay(t, testWhatWasSetAsideIsTriedWhenItsTableIsAdmittedAgain)
}

func testWhatWasSetAsideIsTriedWhenItsTableIsAdmittedAgain(t *testing.T) {
	inBubble(t, policy("order.close", 1), succeeds, func(r *rig) {
		r.failOn("settle", errors.New("refused"))
		id := r.insert(0, 1, 0)
		r.offer(id)
		pass(2 * time.Minute)
		r.store.fail(nil)
		r.Set([]int{0}, nil)
		r.Set([]int{0}, &duequeue.Access{Owner: "me", Unclean: true})
		pass(2 * time.Second)
		r.status(id, tocsin.Done)
	})
}

// TestASweepLeavesWhatWasRetried: between a sweep's peek and its load the owner
// may have retried the row, and delivers it without a claim.
func TestASweepLeavesWhatWasRetried(t *testing.T) {
	cases := map[string]struct {
		overdue, timeout time.Duration
		want             tocsin.Status
	}{
		"overdue as it was peeked":                 {time.Minute, time.Second, tocsin.Done},
		"retried since":                            {0, time.Second, tocsin.Pending},
		"retried a while ago":                      {time.Minute - time.Millisecond, time.Second, tocsin.Pending},
		"by less than two of its type's time-outs": {2 * time.Minute, 2 * time.Minute, tocsin.Pending},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Timeout = biztype.Duration(c.timeout)
			inBubbleWith(t, p, handler(succeeds), func(cfg *Config) { cfg.ClaimAll = true }, func(r *rig) {
				id := r.insert(0, 1, -c.overdue)
				peeked := duequeue.Entry{JobID: id, Type: 1, Due: time.Now().Add(-time.Hour).UnixMilli()}
				if refused := r.Offer(0, []duequeue.Entry{peeked}); refused != nil {
					t.Error("refused")
				}
				pass(10 * time.Millisecond)
				r.status(id, c.want)
				if held, _, _ := r.Lane(0, 1); held != 0 {
					t.Error("the sweep goes on with the row")
				}
			})
		})
	}
}
