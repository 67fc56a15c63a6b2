package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// loseCommits makes the first commit of a claim get no answer, and the server stay
// away for a while after it. With undone, the commit did not happen.
func (r *rig) loseCommits(away time.Duration, undone bool) (lost *atomic.Bool) {
	lost = new(atomic.Bool)
	var back time.Time
	r.store.fail(func(statement string, ids []tocsin.JobID) error {
		switch {
		case statement == "commit" && lost.CompareAndSwap(false, true):
			back = time.Now().Add(away)
			for _, id := range ids {
				if row := r.store.rows[id]; undone {
					row.Status, row.ClaimedBy, row.Action = tocsin.Pending, "", row.DueTime.UnixMilli()
				}
			}
			return errLost
		case time.Now().Before(back):
			return errLost
		}
		return nil
	})
	return lost
}

// A claim whose commit got no answer is read back and its task is delivered, before
// the claim runs out.
func TestAClaimWithoutAnAnswerIsReadBack(t *testing.T) {
	cases := map[string]struct {
		away   time.Duration
		undone bool
		within time.Duration // until the task is done
		claims int
	}{
		"the connection was lost":                                      {within: 100 * time.Millisecond, claims: 1},
		"the server is back while the claim leaves the time-out":       {away: 3 * time.Second, within: 5 * time.Second, claims: 1},
		"the server is back when the claim is too old to start":        {away: 6 * time.Second, within: 12 * time.Second, claims: 2},
		"the server is back when the claim has run out":                {away: time.Minute, within: 66 * time.Second, claims: 2},
		"the connection was lost before the commit reached the server": {undone: true, within: 2 * time.Second, claims: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Strict = true
			inBubble(t, p, succeeds, func(r *rig) {
				lost := r.loseCommits(c.away, c.undone)
				ids := []tocsin.JobID{r.insert(0, 1, 0), r.insert(1, 1, 0)}
				var both []duequeue.Entry // at once, so that one claim takes both
				for _, id := range ids {
					both = append(both, duequeue.Entry{JobID: id, Type: 1, Due: r.store.row(id).Action})
				}
				r.Offer(0, both)
				pass(c.within)
				for _, id := range ids {
					r.status(id, tocsin.Done)
				}
				if n, _ := r.store.counts(store.Stored); n != c.claims*len(ids) || !lost.Load() {
					t.Errorf("%d claims, want %d", n, c.claims*len(ids))
				}
			})
		})
	}
}

// A row that another process claimed while the server was away stays with that
// process.
func TestAClaimThatIsReadBackTooLateIsAnothers(t *testing.T) {
	var calls atomic.Int32
	p := policy("order.close", 1)
	p.Strict = true
	inBubble(t, p, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig) {
		r.loseCommits(time.Minute, false)
		id := r.add(0, 1, 0)
		pass(30 * time.Second)
		r.store.change(id, func(row *store.Row) { // recovered, and claimed by another process
			row.Crashes, row.ClaimedBy, row.Action = 1, "node-2", time.Now().Add(time.Hour).UnixMilli()
		})
		pass(time.Minute)
		if row := r.store.row(id); row.ClaimedBy != "node-2" || calls.Load() != 0 {
			t.Errorf("claimed by %s, %d deliveries", row.ClaimedBy, calls.Load())
		}
	})
}

// A node that stops while a server is away waits for its claims for at most the drain
// time-out.
func TestTheEndOfRunDoesNotWaitForAClaimInDoubt(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict = true
	inBubbleWith(t, p, handler(succeeds), func(c *Config) { c.DrainTimeout = 3 * time.Second }, func(r *rig) {
		r.loseCommits(time.Hour, false)
		r.add(0, 1, 0)
		pass(time.Second)
		stopped := time.Now()
		r.finish()
		if took := time.Since(stopped); took > 4*time.Second {
			t.Errorf("it took %s", took)
		}
		r.ended <- nil // for the rig, which asks once more
	})
}

// When a table is given up, rows in delivery are claimed. If the answer to that claim
// is lost, the outcome is settled all the same, with the claim or without it. Though it may be settled twice, it is told once.
func TestAClaimInDeliveryWithoutAnAnswerLosesNoOutcome(t *testing.T) {
	cases := map[string]struct {
		away   time.Duration
		undone bool
	}{
		"read back at once":                {},
		"read back after the outcome came": {away: 2 * time.Second},
		"the table's end does not wait":    {away: 30 * time.Second},
		"it was not claimed":               {undone: true},
		"it was not, nobody knew for long": {away: 30 * time.Second, undone: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int32
			b := &book{}
			inBubbleWith(t, kept(policy("order.close", 1)), handler(func(context.Context, tocsin.Info) error {
				time.Sleep(1900 * time.Millisecond)
				return errors.New("no route")
			}), func(cfg *Config) { cfg.Record, cfg.Settled = b.record, func(Settlement) { told.Add(1) } }, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(time.Millisecond)
				lost := r.loseCommits(c.away, c.undone)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				r.Set([]int{0}, nil)
				err := r.Drain(ctx, []int{0})
				if stuck := (*Undrained)(nil); errors.As(err, &stuck) != (c.away > 5*time.Second) {
					t.Errorf("drained: %v", err)
				}
				pass(40 * time.Second)
				if row := r.store.row(id); row.Status != tocsin.Pending || row.Attempts != 1 || !lost.Load() {
					t.Errorf("%s after %d attempts", row.Status, row.Attempts)
				}
				if left := r.Stats().Unsettled; left != 0 {
					t.Errorf("%d outcomes are not stored", left)
				}
				if got := b.lines(); !slices.Equal(got, []string{"1 retried: no route"}) || told.Load() != 1 || len(r.read("second_deliveries_total")) > 0 {
					t.Errorf("history %q, told %d times, second deliveries %v", got, told.Load(), r.read("second_deliveries_total"))
				}
			})
		})
	}
}

// Nor does it leave a claim behind if the target could not be reached: the task is given back, whether the claim stands or not.
func TestAClaimInDoubtOfADeliveryThatReachedNobodyIsGivenBack(t *testing.T) {
	for name, undone := range map[string]bool{"it stands": false, "it was not made": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, policy("order.close", 1), func(context.Context, tocsin.Info) error {
				time.Sleep(1900 * time.Millisecond)
				return absent{}
			}, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(time.Millisecond)
				lost := r.loseCommits(1500*time.Millisecond, undone)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				r.Set([]int{0}, nil)
				if err := r.Drain(ctx, []int{0}); err == nil {
					t.Error("drained, though nobody knew of the claim")
				}
				pass(5 * time.Second)
				if row := r.store.row(id); row.Status != tocsin.Pending || row.Attempts != 0 || !lost.Load() {
					t.Errorf("%s after %d attempts", row.Status, row.Attempts)
				}
				r.idle()
			})
		})
	}
}
