package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// The drain time-out ends at one fixed moment, however late Run's context ends.
func TestDeliveriesAreCutOffOnceTheDrainTimeoutIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // from the node's stop until the end of Run's context
		away bool          // whether the server is away from then on
		cut  time.Duration // after the node's stop
		ends time.Duration // after the node's stop
	}{
		"left at once":                    {left: 0, cut: 10 * time.Second, ends: 10 * time.Second},
		"left late":                       {left: 8 * time.Second, cut: 10 * time.Second, ends: 10 * time.Second},
		"left when it is over":            {left: 10 * time.Second, cut: 10 * time.Second, ends: 10 * time.Second},
		"left after it":                   {left: 11 * time.Second, cut: 11 * time.Second, ends: 11 * time.Second},
		"left late, and nothing is taken": {left: 8 * time.Second, away: true, cut: 10 * time.Second, ends: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var cut chan time.Time // made in the bubble
			sinks := map[string]Sink{"order.close": handler(func(ctx context.Context, _ tocsin.Info) error {
				<-ctx.Done()
				cut <- time.Now()
				return ctx.Err()
			})}
			p := policy("order.close", 1)
			p.Timeout = biztype.Duration(time.Hour)
			inBubbleOf(t, nil, sinks, func(cfg *Config) { cfg.DrainTimeout = 10 * time.Second }, func(r *rig) {
				cut = make(chan time.Time, 1)
				r.SetPolicies([]biztype.Policy{p})
				r.add(0, 1, 0)
				pass(time.Second)
				if c.away {
					r.store.fail(func(string, []tocsin.JobID) error { return errLost })
				}
				end := time.Now()
				r.DrainBy(end.Add(10 * time.Second))
				pass(c.left)
				r.stop()
				if got := (<-cut).Sub(end); !near(got, c.cut) {
					t.Errorf("cut off after %s, want %s", got, c.cut)
				}
				err := <-r.ended
				if got := time.Since(end); !near(got, c.ends) || (err != nil) != c.away {
					t.Errorf("ended after %s with %v, want %s", got, err, c.ends)
				}
				r.ended <- nil // for finish
			})
		})
	}
}
