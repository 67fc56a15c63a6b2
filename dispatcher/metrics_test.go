package dispatcher

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// read returns the counters and gauges whose name begins with the prefix, by name and labels; those of 0 are left out.
func (r *rig) read(prefix string) map[string]float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, family := range families {
		name, ok := strings.CutPrefix(family.GetName(), "tocsin_dispatcher_"+prefix)
		for _, m := range family.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if !ok || value == 0 {
				continue
			}
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = value
		}
	}
	return all
}

func TestDeliveriesOfATaskWithACrashAreSecondOnes(t *testing.T) {
	eachWay(t, testDeliveriesOfATaskWithACrashAreSecondOnes)
}

func testDeliveriesOfATaskWithACrashAreSecondOnes(t *testing.T) {
	inBubble(t, policy("order.close", 1), succeeds, func(r *rig) {
		crashed := r.add(0, 1, time.Minute)
		r.store.change(crashed, func(row *store.Row) { row.Crashes = 1 })
		r.add(0, 1, time.Minute)
		pass(2 * time.Minute)
		if got := r.read("second_deliveries_total"); !maps.Equal(got, map[string]float64{" crashed": 1}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestLanesAreExported(t *testing.T) { eachWay(t, testLanesAreExported) }

func testLanesAreExported(t *testing.T) {
	slow, paused := policy("order.close", 1), policy("coupon.remind", 2)
	slow.Concurrency, slow.Timeout, paused.Paused = 2, biztype.Duration(time.Hour), true
	limited := policy("cart.remind", 3)
	limited.Rate = 0.01
	var release chan struct{} // made in the bubble
	block := handler(func(context.Context, tocsin.Info) error { <-release; return nil })
	done := handler(succeeds)
	sinks := map[string]Sink{slow.Name: block, paused.Name: done, limited.Name: done}
	inBubbleOf(t, []biztype.Policy{slow, paused, limited}, sinks, nil, func(r *rig) {
		release = make(chan struct{})
		for range 50 {
			r.add(0, 1, 0)
			r.add(0, 3, 0)
		}
		pass(2 * time.Second)
		got := r.read("lane_")
		for key, want := range map[string]float64{
			"running order.close": 2, "limit order.close": 2, "state order.close": 0,
			"state coupon.remind": 2, "queued coupon.remind": 0, "state cart.remind": 1,
		} {
			if got[key] != want {
				t.Errorf("%s is %v, want %v (all: %v)", key, got[key], want, got)
			}
		}
		if got["queued order.close"] == 0 || got["queued cart.remind"] == 0 {
			t.Errorf("nothing is queued: %v", got)
		}
		close(release)
		r.SetPolicies([]biztype.Policy{paused, limited})
		if got := r.read("lane_state"); got[" order.close"] != 3 {
			t.Errorf("a type that the node lacks: %v", got)
		}
	})
}

func TestATaskIsUnsettledUntilItsOutcomeIsStored(t *testing.T) {
	eachWay(t, testATaskIsUnsettledUntilItsOutcomeIsStored)
}

func testATaskIsUnsettledUntilItsOutcomeIsStored(t *testing.T) {
	inBubble(t, policy("order.close", 1), succeeds, func(r *rig) {
		r.failOn("settle", errLost)
		id, began := r.add(0, 1, 0), time.Now()
		pass(time.Minute)
		if age := r.read("unsettled_age")["_seconds"]; age < 59 || age > 61 {
			t.Errorf("after a minute the age is %v", age)
		}
		if p := r.Place(0, id); p.Stage != Unsettled || p.Since.Sub(began) > time.Second {
			t.Errorf("while nothing can be stored: %+v", p)
		}
		r.store.fail(nil)
		pass(time.Minute)
		if age, p := r.read("unsettled_age")["_seconds"], r.Place(0, id); age != 0 || p.Stage != Nowhere {
			t.Errorf("nothing waits any more, and the age is %v, the task at %+v", age, p)
		}
	})
}

// TestWhatAProcessCompletesTwiceIsNotCountedAsElsewhere, nor is it lost in the history if the answer was.
func TestWhatAProcessCompletesTwiceIsNotCountedAsElsewhere(t *testing.T) {
	eachWay(t, testWhatAProcessCompletesTwiceIsNotCountedAsElsewhere)
}

func testWhatAProcessCompletesTwiceIsNotCountedAsElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		takes  time.Duration // the first delivery
		lost   bool          // the answer to the outcome
		second map[string]float64
		runs   []string
	}{
		"the answer to its outcome is lost": {lost: true, second: map[string]float64{}, runs: []string{"1 completed: "}},
		"it returns after its next attempt": {
			takes: 5 * time.Second, second: map[string]float64{" overlapped": 1},
			runs: []string{"1 retried: delivery timed out after 2s", "2 completed: ", "1 lost: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorded(t, kept(overrunPolicy()), handler(stubborn(c.takes, nil).deliver), func(r *rig, b *book) {
				lost := !c.lost
				r.store.fail(func(statement string, ids []tocsin.JobID) error {
					if statement != "settle" || lost {
						return nil
					}
					lost = true
					r.store.rows[ids[0]].Status = tocsin.Done
					return errLost
				})
				id := r.add(0, 1, 0)
				pass(6 * time.Second)
				r.status(id, tocsin.Done)
				if got := r.read("second_deliveries_total"); !maps.Equal(got, c.second) || !slices.Equal(b.lines(), c.runs) {
					t.Errorf("%v, history %q; want %v, %q", got, b.lines(), c.second, c.runs)
				}
			})
		})
	}
}

// An error has the class that the store's metrics, and the runbook, call it by.
func TestErrorsAreCountedByTheirClass(t *testing.T) { eachWay(t, testErrorsAreCountedByTheirClass) }

func testErrorsAreCountedByTheirClass(t *testing.T) {
	inBubble(t, policy("order.close", 1), succeeds, func(r *rig) {
		r.failOn("settle", &mysql.MySQLError{Number: 1114, Message: "The table is full"})
		r.add(0, 1, 0)
		pass(100 * time.Millisecond)
		if got := r.read("errors_total"); got[" full settle"] == 0 || len(got) != 1 {
			t.Errorf("%v", got)
		}
		r.store.fail(nil)
	})
}

func TestMetricsOfADeliveryAllocateNothing(t *testing.T) {
	m := newMetrics(nil, func() Stats { return Stats{} }).of("order.close")
	m.fail(byTimeout)
	m.timeOut()
	if n := testing.AllocsPerRun(100, func() {
		m.lateness.Observe(.001)
		m.took.Observe(.001)
		m.end(tocsin.Completed)
		m.fail(byTimeout)
		m.timeOut()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
