package dispatcher

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// The drain time-out ends at one fixed moment, however late Run's context ends. What it cuts off counts as no attempt, and leaves a run.
func TestDeliveriesAreCutOffOnceTheDrainTimeoutIsOver(t *testing.T) {
	eachWay(t, testDeliveriesAreCutOffOnceTheDrainTimeoutIsOver)
}

func testDeliveriesAreCutOffOnceTheDrainTimeoutIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		left   time.Duration // from the node's stop until the end of Run's context
		unsaid bool          // whether the dispatcher hears of the node's stop only then
		away   bool          // whether the server is away from then on
		cut    time.Duration // after the node's stop
		ends   time.Duration // after the node's stop
	}{
		"left at once":                    {left: 0, cut: 10 * time.Second, ends: 10 * time.Second},
		"left late":                       {left: 8 * time.Second, cut: 10 * time.Second, ends: 10 * time.Second},
		"left late, and unannounced":      {left: 8 * time.Second, unsaid: true, cut: 18 * time.Second, ends: 18 * time.Second},
		"left when it is over":            {left: 10 * time.Second, cut: 10 * time.Second, ends: 10 * time.Second},
		"left after it":                   {left: 11 * time.Second, cut: 11 * time.Second, ends: 11 * time.Second},
		"left late, and nothing is taken": {left: 8 * time.Second, away: true, cut: 10 * time.Second, ends: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var cut chan time.Time // made in the bubble
			var b book
			sink := handler(func(ctx context.Context, _ tocsin.Info) error {
				tocsin.Output(ctx, "half")
				<-ctx.Done()
				cut <- time.Now()
				return ctx.Err()
			})
			adapt := func(cfg *Config) { cfg.DrainTimeout, cfg.Record = 10*time.Second, b.record }
			p := kept(policy("order.close", 1))
			p.Timeout = biztype.Duration(time.Hour)
			inBubbleWith(t, p, sink, adapt, func(r *rig) {
				cut = make(chan time.Time, 1)
				id := r.add(0, 1, 0)
				pass(time.Second)
				if c.away {
					r.store.fail(func(string, []tocsin.JobID) error { return errLost })
				}
				end := time.Now()
				if !c.unsaid {
					r.DrainBy(end.Add(10 * time.Second))
				}
				pass(c.left)
				r.stop()
				if got := (<-cut).Sub(end); !near(got, c.cut) {
					t.Errorf("cut off after %s, want %s", got, c.cut)
				}
				err := <-r.ended
				if got := time.Since(end); !near(got, c.ends) || (err != nil) != c.away {
					t.Errorf("ended after %s with %v, want %s", got, err, c.ends)
				}
				if !c.away {
					r.cutOff(id, b.lines())
				}
				r.ended <- nil // for finish
			})
		})
	}
}

// cutOff checks what is left of the delivery of a task that was cut off.
func (r *rig) cutOff(id tocsin.JobID, runs []string) {
	r.t.Helper()
	if again, failed := r.read("second_deliveries_total"), r.read("failures_total"); again[" cut_off"] != 1 || len(failed) > 0 {
		r.t.Errorf("it counts as a second delivery %v, as a failure %v", again, failed)
	}
	if row := r.store.row(id); row.Attempts != 0 || row.Status != tocsin.Pending {
		r.t.Errorf("%s after %d attempts", row.Status, row.Attempts)
	}
	if _, n := r.store.counts(store.Stored); n != 1 {
		r.t.Errorf("%d outcomes stored, want 1", n)
	}
	if !slices.Equal(runs, []string{"1 cut_off: half"}) {
		r.t.Errorf("history %q", runs)
	}
}
