package dispatcher

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// asking stands for workers that ask: the first want tasks are theirs, others find nobody.
type asking struct {
	mu    sync.Mutex
	want  int
	takes time.Duration // of each Deliver
	got   []tocsin.JobID
	calls int
	wrong []string // claimers that are no lease
}

func (a *asking) demand() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.want
}

func (a *asking) Deliver(_ context.Context, tasks []tocsin.Info) []error {
	defer time.Sleep(a.takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := make([]error, len(tasks))
	a.calls++
	for i, t := range tasks {
		if _, _, ok := store.LeaseBegan(t.ClaimedBy); !ok {
			a.wrong = append(a.wrong, t.ClaimedBy)
		}
		errs[i] = ErrUntaken
		if a.want > 0 {
			a.want--
			a.got, errs[i] = append(a.got, t.JobID), ErrLeased
		}
	}
	return errs
}

func (a *asking) ask(r *rig, n int) {
	a.mu.Lock()
	a.want += n
	a.mu.Unlock()
	r.Ask(1)
}

// inPull runs f with a dispatcher whose one biz type workers ask for.
func inPull(t *testing.T, servers int, adapt func(*biztype.Policy), f func(*rig, *asking)) {
	t.Helper()
	a := &asking{}
	p := biztype.Policy{Name: "order.pick", Number: 1, Group: "g", Pull: &biztype.Pull{Lease: biztype.Duration(30 * time.Second)}}
	if adapt != nil {
		adapt(&p)
	}
	inBubbleOf(t, []biztype.Policy{p}, nil, func(c *Config) {
		onServers(servers)(c)
		c.Target = func(biztype.Policy) (Target, bool) { return Target{Sink: a, Batch: 100, Demand: a.demand}, true }
	}, func(r *rig) { f(r, a) })
	if len(a.wrong) > 0 {
		t.Errorf("claimed by %v", a.wrong)
	}
}

func TestNothingIsClaimedBeforeAWorkerWaits(t *testing.T) {
	eachWay(t, testNothingIsClaimedBeforeAWorkerWaits)
}

func testNothingIsClaimedBeforeAWorkerWaits(t *testing.T) {
	inPull(t, 1, nil, func(r *rig, a *asking) {
		id := r.add(0, 1, 0)
		pass(time.Minute)
		if r.claims() != 0 || a.calls != 0 {
			t.Errorf("%d claims, %d deliveries", r.claims(), a.calls)
		}
		a.ask(r, 1)
		pass(time.Second)
		r.status(id, tocsin.Claimed)
		if st := r.Stats(); len(a.got) != 1 || st.Open != 0 || st.Queued != 0 {
			t.Errorf("%v has been taken: %+v", a.got, st)
		}
		pass(10 * time.Minute) // what a worker has is no matter of the dispatcher
		r.status(id, tocsin.Claimed)
	})
}

// The process is stopped while workers take tasks. Only when it goes on it learns which tasks workers have.
func TestAHandOverThatTakesLongIsNoFailedAttempt(t *testing.T) {
	eachWay(t, testAHandOverThatTakesLongIsNoFailedAttempt)
}

func testAHandOverThatTakesLongIsNoFailedAttempt(t *testing.T) {
	inPull(t, 1, nil, func(r *rig, a *asking) {
		a.takes = 5 * time.Second
		id := r.add(0, 1, 0)
		a.ask(r, 1)
		pass(4 * time.Second)
		r.status(id, tocsin.Claimed)
		pass(time.Minute)
		r.status(id, tocsin.Claimed)
		if row := r.store.row(id); row.Attempts != 0 || a.calls != 1 {
			t.Errorf("%d attempts, %d deliveries", row.Attempts, a.calls)
		}
	})
}

// A worker that wants one task meets a backlog on each of 4 servers: what nobody takes keeps its place, and counts no attempt.
func TestWhatNoWorkerTookKeepsItsPlace(t *testing.T) { eachWay(t, testWhatNoWorkerTookKeepsItsPlace) }

func testWhatNoWorkerTookKeepsItsPlace(t *testing.T) {
	inPull(t, 4, nil, func(r *rig, a *asking) {
		var ids []tocsin.JobID
		for table := range 4 {
			ids = append(ids, r.add(table, 1, 0))
			pass(2 * time.Millisecond)
		}
		due := map[tocsin.JobID]int64{}
		for _, id := range ids {
			due[id] = r.store.row(id).Action
		}
		pass(time.Second)
		a.ask(r, 1)
		pass(time.Minute)
		taken := 0
		for _, id := range ids {
			switch row := r.store.row(id); {
			case row.Status == tocsin.Claimed:
				taken++
			case row.Action != due[id] || row.Attempts != 0:
				t.Errorf("task %s: due %d ms later, %d attempts", id, row.Action-due[id], row.Attempts)
			}
		}
		if taken != 1 || r.claims() > 4 {
			t.Errorf("%d are taken, after %d claims", taken, r.claims())
		}
		a.ask(r, 3)
		pass(time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Claimed)
		}
	})
}

func TestWhatNoWorkerTookUsesUpNoRate(t *testing.T) { eachWay(t, testWhatNoWorkerTookUsesUpNoRate) }

func testWhatNoWorkerTookUsesUpNoRate(t *testing.T) {
	inPull(t, 4, func(p *biztype.Policy) { p.Rate = .1 }, func(r *rig, a *asking) {
		for table := range 4 {
			r.add(table, 1, 0)
		}
		for range 4 { // each as the one before has its task
			a.ask(r, 1)
			for begun := time.Now(); a.demand() > 0; {
				pass(time.Second)
				if waited := time.Since(begun); waited > 11*time.Second {
					t.Fatalf("%s, and no task", waited)
				}
			}
		}
	})
}

// A policy that had a webhook, and strict, has claimed a row for the node when it becomes one of workers.
func TestARowThatWasClaimedForAWebhookIsClaimedAnewForAWorker(t *testing.T) {
	eachWay(t, testARowThatWasClaimedForAWebhookIsClaimedAnewForAWorker)
}

func testARowThatWasClaimedForAWebhookIsClaimedAnewForAWorker(t *testing.T) {
	a := &asking{}
	was := policy("order.pick", 1)
	was.Strict, was.Concurrency = true, 1
	busy := handler(func(context.Context, tocsin.Info) error { time.Sleep(time.Second); return errors.New("busy") })
	inBubbleOf(t, []biztype.Policy{was}, nil, func(c *Config) {
		c.Target = func(p biztype.Policy) (Target, bool) {
			if p.Pull == nil {
				return Target{Sink: busy}, true
			}
			return Target{Sink: leasedOnly{a}, Batch: 100, Demand: a.demand}, true
		}
	}, func(r *rig) {
		for range 3 {
			r.add(0, 1, 0)
		}
		pass(100 * time.Millisecond)
		r.SetPolicies([]biztype.Policy{{Name: "order.pick", Number: 1, Group: "g", Pull: &biztype.Pull{}}})
		a.ask(r, 3)
		pass(time.Minute)
		if len(a.got) != 3 {
			t.Errorf("%v of 3 are taken", a.got)
		}
	})
}

// leasedOnly leaves what has no lease, as pull.Hub does.
type leasedOnly struct{ *asking }

func (l leasedOnly) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	if _, _, ok := store.LeaseBegan(tasks[0].ClaimedBy); !ok {
		errs := make([]error, len(tasks))
		for i := range errs {
			errs[i] = ErrUntaken
		}
		return errs
	}
	return l.asking.Deliver(ctx, tasks)
}
