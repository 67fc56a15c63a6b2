package dispatcher

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// A claim that gets no answer is not read back: what it has got is released, and claimed again.
func TestAClaimWithoutAnAnswerIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		stands   bool
		kill     int // tries to end the connection that fail
		releases int // at least
	}{
		"it stands":   {stands: true, releases: 2},
		"it does not": {releases: 2},
		"its connection can't be ended for some time": {stands: true, kill: 5, releases: 6},
	} {
		t.Run(name, func(t *testing.T) {
			inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
				var lost atomic.Bool
				kills := 0
				var unknown []tocsin.JobID // of the first claim, which may have one of the two rows or both
				r.store.fail(func(statement string, ids []tocsin.JobID) error {
					switch {
					case statement == "commit" && lost.CompareAndSwap(false, true):
						unknown = ids
						for _, id := range ids {
							if row := r.store.rows[id]; !c.stands {
								row.Status, row.ClaimedBy = tocsin.Pending, ""
							}
						}
						return errLost
					case statement == "kill":
						if kills++; kills <= c.kill {
							return errors.New("not now")
						}
					}
					return nil
				})
				one, two := r.add(0, 1, 0), r.add(1, 1, 0)
				pass(900 * time.Millisecond)
				for _, id := range unknown {
					if begun.of(id) != 0 {
						t.Error("started though nobody knows of the claim")
					}
				}
				pass(300 * time.Millisecond)
				for _, id := range []tocsin.JobID{one, two} {
					if begun.of(id) != 1 || r.store.row(id).Status != tocsin.Done {
						t.Errorf("%d deliveries, it is %s", begun.of(id), r.store.row(id).Status)
					}
				}
				pass(20 * time.Second)
				if n := len(r.servers[0].lost); n != 0 || r.store.releases < c.releases || r.store.releases > c.releases+1 {
					t.Errorf("%d claims are looked at, after %d releases", n, r.store.releases)
				}
			})
		})
	}
}

// While its connection lives, a claim may commit late. The last release comes once the connection is gone.
func TestAClaimThatCommitsLateIsReleased(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		var lost atomic.Bool
		var by string
		var gone atomic.Bool
		r.store.fail(func(statement string, ids []tocsin.JobID) error {
			switch {
			case statement == "commit" && lost.CompareAndSwap(false, true):
				row := r.store.rows[ids[0]]
				by = row.ClaimedBy
				row.Status, row.ClaimedBy = tocsin.Claimed, "nobody yet"
				return errLost
			case statement == "kill" && !gone.Load():
				return errors.New("not now")
			}
			return nil
		})
		id := r.add(0, 1, 0)
		due := r.store.row(id).Action
		pass(3500 * time.Millisecond)
		r.store.change(id, func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Claimed, by })
		gone.Store(true)
		pass(3 * time.Second)
		if begun.of(id) != 1 || r.store.row(id).Action < due {
			t.Errorf("%d deliveries", begun.of(id))
		}
		r.status(id, tocsin.Done)
	})
}

// A node that stops waits until its claims without an answer are settled, but not for longer than its last outcomes may take.
func TestTheEndOfRunWaitsForClaimsWithoutAnAnswer(t *testing.T) {
	for name, away := range map[string]time.Duration{"the server answers soon": 2 * time.Second, "it is gone": time.Hour} {
		t.Run(name, func(t *testing.T) {
			short := func(c *Config) { c.DrainTimeout = 3 * time.Second }
			inClaims(t, policy("order.close", 1), short, func(r *rig, begun *calls) {
				began, lost := time.Now(), false
				r.store.fail(func(statement string, _ []tocsin.JobID) error {
					if lost = lost || statement == "commit"; lost && time.Since(began) < away {
						return errLost
					}
					return nil
				})
				id := r.add(0, 1, 0)
				due := r.store.row(id).Action
				pass(500 * time.Millisecond)
				r.stop()
				if err := <-r.ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 9*time.Second || took > away+time.Second {
					t.Errorf("it took %s", took)
				}
				if begun.of(id) != 0 {
					t.Error("it was delivered")
				}
				if away < time.Minute {
					r.free(id, due)
				}
				r.ended <- nil // for the rig, which asks once more
			})
		})
	}
}

func TestClaimsWithoutAnAnswerAreFew(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		r.store.fail(func(statement string, _ []tocsin.JobID) error {
			if statement == "commit" || statement == "kill" {
				return errLost
			}
			return nil
		})
		var all []tocsin.JobID
		for i := range 2 * mostLost {
			all = append(all, r.add(i%rigTables, 1, time.Duration(i)*50*time.Millisecond))
		}
		pass(30 * time.Second)
		if n := len(r.servers[0].lost); n > mostLost {
			t.Errorf("%d are looked at", n)
		}
		r.store.fail(nil)
		for _, id := range all { // the look at the claimed rows of a table
			r.store.change(id, func(row *store.Row) {
				if row.Status == tocsin.Claimed {
					row.Status, row.ClaimedBy = tocsin.Pending, ""
				}
			})
			r.offer(id)
		}
		pass(10 * time.Second)
		for _, id := range all {
			if begun.of(id) != 1 {
				t.Errorf("%d deliveries", begun.of(id))
			}
		}
	})
}
