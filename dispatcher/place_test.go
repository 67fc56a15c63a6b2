package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
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

func TestALaneSaysSinceWhenItIsFull(t *testing.T) {
	slow := policy("order.close", 1)
	slow.Concurrency, slow.Timeout = 2, biztype.Duration(time.Hour)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		block := handler(func(context.Context, tocsin.Info) error { <-release; return nil })
		r := newRig(t, 1, map[string]Sink{slow.Name: block}, nil)
		r.SetPolicies([]biztype.Policy{slow})
		r.run()
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
		r.finish()
	})
}

func TestATaskIsUnsettledUntilItsOutcomeIsStored(t *testing.T) {
	policies, sinks := one(policy("order.close", 1), func(context.Context, tocsin.Info) error { return nil })
	inBubbleMetered(t, policies, sinks, func(r *rig, _ func(string) map[string]float64) {
		r.store.fail(func(statement string, _ []tocsin.JobID) error {
			if statement == "settle" {
				return errLost
			}
			return nil
		})
		id, began := r.add(0, 1, 0), time.Now()
		pass(time.Minute)
		if p := r.Place(0, id); p.Stage != Unsettled || p.Since.Sub(began) > time.Second {
			t.Errorf("while nothing can be stored: %+v", p)
		}
		r.store.fail(nil)
		pass(time.Minute)
		if p := r.Place(0, id); p.Stage != Nowhere {
			t.Errorf("afterwards: %+v", p)
		}
	})
}
