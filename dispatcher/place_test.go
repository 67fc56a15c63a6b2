package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// laneReport returns the report of one biz type.
func (r *rig) laneReport(name string) LaneReport {
	r.t.Helper()
	for _, l := range r.Lanes() {
		if l.BizType == name {
			return l
		}
	}
	r.t.Fatalf("no lane of %s: %+v", name, r.Lanes())
	return LaneReport{}
}

func TestALaneSaysSinceWhenItIsFull(t *testing.T) { eachWay(t, testALaneSaysSinceWhenItIsFull) }

func testALaneSaysSinceWhenItIsFull(t *testing.T) {
	slow := policy("order.close", 1)
	slow.Concurrency, slow.Timeout = 2, biztype.Duration(time.Hour)
	var release chan struct{} // made in the bubble
	inBubble(t, slow, func(context.Context, tocsin.Info) error { <-release; return nil }, func(r *rig) {
		release = make(chan struct{})
		first := r.add(0, 1, 0)
		pass(time.Second)
		if l := r.laneReport(slow.Name); l.Running != 1 || l.Limit != 2 || l.State != Open || !l.FullSince.IsZero() {
			t.Errorf("one slot is in use: %+v", l)
		}
		r.add(0, 1, 0)
		pass(time.Second)
		full := time.Now()
		third := r.add(0, 1, 0)
		later := r.add(0, 1, time.Hour)
		pass(time.Minute)
		if l := r.laneReport(slow.Name); l.Running != 2 || full.Sub(l.FullSince) > time.Second || l.FullSince.After(full) || l.Queued+l.Ready != 2 {
			t.Errorf("both slots are in use since %s: %+v", full, l)
		}
		for id, want := range map[tocsin.JobID]Stage{first: InDelivery, third: Queued, later: Queued, third + 1: Nowhere} {
			if p := r.Place(0, id); p.Stage != want && !(want == Queued && p.Stage == Loaded) || !p.Admitted || p.Overrun {
				t.Errorf("task %s: %+v, want %s", id, p, want)
			}
		}
		if p := r.Place(0, first); time.Since(p.Since).Round(time.Second) != 62*time.Second {
			t.Errorf("it is in delivery since %s, at %s", p.Since, time.Now())
		}
		slow.Concurrency = 3
		r.SetPolicies([]biztype.Policy{slow})
		pass(time.Second)
		if l := r.laneReport(slow.Name); l.Limit != 3 || !l.FullSince.After(full) {
			t.Errorf("a third slot was added, and taken at once: %+v", l)
		}
		close(release)
		pass(time.Second)
		if l := r.laneReport(slow.Name); l.Running != 0 || !l.FullSince.IsZero() {
			t.Errorf("all slots are free: %+v", l)
		}
	})
}
