package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

func TestDroppedTablesStartNothing(t *testing.T) {
	var calls atomic.Int32
	policies, sinks := one(policy("order.close", 1), func(context.Context, tocsin.Info) error { calls.Add(1); return nil })
	inBubble(t, 1, policies, sinks, func(r *rig) {
		gone := r.add(0, 1, time.Second)
		kept := r.add(1, 1, time.Second)
		r.Drop([]int{0})
		if err := r.Drain(context.Background(), []int{0}); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		r.status(gone, tocsin.Pending)
		r.status(kept, tocsin.Done)
		r.Admit([]int{0}, false)
		r.offer(gone)
		time.Sleep(time.Second)
		r.status(gone, tocsin.Done)
		if calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

func TestDrainClaimsWhatIsInDelivery(t *testing.T) {
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
			policies, sinks := one(p, func(context.Context, tocsin.Info) error {
				time.Sleep(10 * time.Second)
				return c.err
			})
			inBubble(t, 1, policies, sinks, func(r *rig) {
				id := r.add(0, 1, 0)
				time.Sleep(time.Second)
				r.Drop([]int{0})
				began := time.Now()
				if err := r.Drain(context.Background(), []int{0}); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d < handOverAfter || d > handOverAfter+50*time.Millisecond {
					t.Errorf("drained in %s", d)
				}
				r.status(id, tocsin.Claimed)
				time.Sleep(9 * time.Second)
				r.status(id, c.want)
				if _, n := r.store.counts(store.Stored); n != 1 {
					t.Errorf("%d outcomes stored, want 1", n)
				}
			})
		})
	}
}

func TestTheEndOfRunWaitsForDeliveries(t *testing.T) {
	policies, sinks := one(policy("order.close", 1), func(context.Context, tocsin.Info) error {
		time.Sleep(time.Second)
		return nil
	})
	inBubble(t, 1, policies, sinks, func(r *rig) {
		started := r.add(0, 1, 0)
		later := r.add(0, 1, 500*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		r.stop()
		time.Sleep(2 * time.Second)
		r.status(started, tocsin.Done)
		r.status(later, tocsin.Pending)
	})
}

func TestTheEndOfRunCountsNoAttemptAgainstATask(t *testing.T) {
	sinks := map[string]Sink{"order.close": handler(func(ctx context.Context, _ tocsin.Info) error {
		<-ctx.Done()
		return ctx.Err()
	})}
	p := policy("order.close", 1)
	p.Timeout = biztype.Duration(time.Hour)
	inBubbleWith(t, sinks, func(c *Config) { c.DrainTimeout = 3 * time.Second }, func(r *rig) {
		r.SetPolicies([]biztype.Policy{p})
		id := r.add(0, 1, 0)
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(10 * time.Second)
		if row := r.store.row(id); row.Attempts != 0 || row.Status != tocsin.Pending {
			t.Errorf("%s after %d attempts", row.Status, row.Attempts)
		}
		if _, n := r.store.counts(store.Stored); n != 1 {
			t.Errorf("%d outcomes stored, want 1", n)
		}
	})
}

func TestARefusedOutcomeHoldsUpNoOther(t *testing.T) {
	policies, sinks := one(policy("order.close", 1), func(context.Context, tocsin.Info) error { return nil })
	inBubble(t, 1, policies, sinks, func(r *rig) {
		var culprit tocsin.JobID
		r.store.fail(func(statement string, ids []tocsin.JobID) error {
			for _, id := range ids {
				if id == culprit && statement == "settle" {
					return errors.New("refused")
				}
			}
			return nil
		})
		var others []tocsin.JobID
		for i := range 100 {
			id := r.insert(i%2, 1, 0)
			others = append(others, id)
		}
		culprit = others[50]
		for _, id := range others {
			r.offer(id)
		}
		time.Sleep(100 * time.Millisecond)
		for _, id := range others {
			if id != culprit {
				r.status(id, tocsin.Done)
			}
		}
		if st := r.Stats(); st.Aside != 1 || st.Unsettled != 1 {
			t.Errorf("%+v", st)
		}
		r.store.fail(nil)
		time.Sleep(5 * time.Second)
		r.status(culprit, tocsin.Done)
	})
}

func TestSweptRows(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 2
	policies, sinks := one(p, func(context.Context, tocsin.Info) error { time.Sleep(time.Second); return nil })
	inBubble(t, 1, policies, sinks, func(r *rig) {
		r.Drop([]int{0, 1, 2, 3}) // a sweep owns nothing
		var rows []store.Row
		for i := range 20 {
			kind := uint64(1 + i/19) // the last one is of a type without a target
			id := r.insert(0, kind, -time.Hour)
			r.store.change(id, func(row *store.Row) {
				row.Status, row.Action = tocsin.Claimed, time.Now().Add(7*time.Second).UnixMilli()
			})
			rows = append(rows, r.store.row(id))
		}
		var done, back atomic.Int32
		settled := func(_ store.Row, f store.Fate, v tocsin.Verb) {
			switch {
			case f == store.Stored && v == tocsin.Complete:
				done.Add(1)
			case f == store.Stored && v == tocsin.Defer:
				back.Add(1)
			}
		}
		if err := r.Deliver(context.Background(), rows, settled); err != nil {
			t.Error(err)
		}
		if err := r.Flush(context.Background()); err != nil {
			t.Error(err)
		}
		// Two at once, each a second, started within the 4 s that the claim leaves.
		if done.Load() < 8 || done.Load() > 10 || done.Load()+back.Load() != 20 {
			t.Errorf("%d done, %d given back", done.Load(), back.Load())
		}
	})
}
