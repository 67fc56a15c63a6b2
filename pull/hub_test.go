package pull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/store"
)

// pullPolicies are n biz types a, b, ... that workers ask for.
func pullPolicies(n int) (all []biztype.Policy) {
	for i := range n {
		all = append(all, biztype.Policy{Name: string(rune('a' + i)), Number: uint64(i + 1), Group: "g", Pull: &biztype.Pull{}, Attempts: 3})
	}
	return all
}

// opened is a Hub with a line for each policy, whose backend knows no store.
func opened(policies []biztype.Policy) *Hub {
	h := NewHub()
	for _, p := range policies {
		h.Target(p)
	}
	h.Open(Backend{
		Policies: func() []biztype.Policy { h.Target(policies[0]); return policies }, // as it may be under the lock of the policies
		Mine:     func(biztype.Policy) bool { h.Asked(); return true },
		Ask:      func(uint64) { h.Asked() },
	})
	return h
}

// claimed are tasks with a lease, numbered from first on.
func claimed(first, n int) (tasks []tocsin.Info) {
	for i := range n {
		tasks = append(tasks, tocsin.Info{JobID: tocsin.JobID(first + i), ClaimedBy: store.NewLease(1)})
	}
	return tasks
}

// idle reports what a Hub in which nobody waits must not have.
func idle(t *testing.T, h *Hub) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting != 0 {
		t.Errorf("%d wait", h.waiting)
	}
	for name, l := range h.lines {
		if w := l.wants.Load(); w != 0 || len(l.waiters) != 0 || len(l.offers) != 0 {
			t.Errorf("line %s: wants %d, %d waiters, %d offers", name, w, len(l.waiters), len(l.offers))
		}
	}
}

func TestARequestOutOfBoundsIsRefusedAndHoldsNothing(t *testing.T) {
	t.Parallel()
	h := opened(pullPolicies(1))
	a := []string{"a"}
	for _, r := range []Request{{Max: 1}, {BizTypes: a}, {BizTypes: a, Max: -1}, {BizTypes: a, Max: MaxTasks + 1}, {BizTypes: a, Max: 1, Wait: -1}, {BizTypes: a, Max: 1, Wait: MaxWait + 1}} {
		if _, err := h.Reserve(t.Context(), r); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := h.Reserve(t.Context(), Request{BizTypes: []string{"a", "z"}, Max: 1}); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Error(err)
	}
	idle(t, h)
}

func TestATaskWithoutALeaseGoesToNoWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := opened(pullPolicies(1))
		done := make(chan []Task)
		go func() {
			tasks, _ := h.Reserve(t.Context(), Request{BizTypes: []string{"a"}, Max: 5, Wait: MaxWait})
			done <- tasks
		}()
		synctest.Wait()
		of := append(claimed(1, 1), tocsin.Info{JobID: 2, ClaimedBy: "host-1-abcdefgh"}, tocsin.Info{JobID: 3, ClaimedBy: store.NewLease(1), Attempts: 3})
		errs := h.lines["a"].Deliver(t.Context(), of)
		if !errors.Is(errs[0], dispatcher.ErrLeased) || !errors.Is(errs[1], dispatcher.ErrUntaken) || !errors.Is(errs[2], errLastLease) {
			t.Error(errs)
		}
		if tasks := <-done; len(tasks) != 1 || tasks[0].JobID != 1 || !strings.HasPrefix(tasks[0].Lease, "1.0.") {
			t.Errorf("%+v", tasks)
		}
		idle(t, h)
	})
}

func TestAWorkerThatDoesNotWaitGetsWhatIsClaimedForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := opened(pullPolicies(1))
		b := h.backend
		b.Ask = func(uint64) { // the database takes a moment
			go func() {
				time.Sleep(leastWait / 5)
				h.lines["a"].Deliver(t.Context(), claimed(1, 1))
			}()
		}
		if tasks, err := h.Reserve(t.Context(), Request{BizTypes: []string{"a"}, Max: 1}); err != nil || len(tasks) != 1 {
			t.Error(tasks, err)
		}
		idle(t, h)
	})
}

// TestAHubReadsPoliciesWithoutItsLock: a node reads them under a lock that it holds while it asks the Hub for targets.
func TestAHubReadsPoliciesWithoutItsLock(t *testing.T) {
	t.Parallel()
	h := opened(pullPolicies(1))
	b := *h.backend
	b.Policies = func() []biztype.Policy {
		if !h.mu.TryLock() {
			t.Error("the Hub is locked")
		} else {
			h.mu.Unlock()
		}
		return pullPolicies(1)
	}
	h.Open(b)
	if _, err := h.Reserve(t.Context(), Request{BizTypes: []string{"a"}, Max: 1}); err != nil {
		t.Error(err)
	}
}

func TestCloseAnswersAllAndAnOfferOutlivesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := opened(pullPolicies(3))
		answers := make(chan error)
		for range 20 {
			go func() {
				tasks, err := h.Reserve(t.Context(), Request{BizTypes: []string{"a", "b"}, Max: 3, Wait: MaxWait})
				if len(tasks) > 0 {
					err = fmt.Errorf("%d tasks", len(tasks))
				}
				answers <- err
			}()
		}
		errs := make(chan []error)
		go func() { errs <- h.lines["c"].Deliver(t.Context(), claimed(1, 2)) }()
		synctest.Wait()
		began := time.Now()
		h.Close()
		h.Close()
		for range 20 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if got := <-errs; !errors.Is(got[0], dispatcher.ErrUntaken) || !errors.Is(got[1], dispatcher.ErrUntaken) {
			t.Error(got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they were answered after %s", took)
		}
		if got := h.lines["a"].Deliver(t.Context(), claimed(3, 1)); !errors.Is(got[0], dispatcher.ErrUntaken) {
			t.Error(got)
		}
		idle(t, h)
	})
}

// player plays workers and lanes with a Hub, and checks that each task goes to one worker at most.
type player struct {
	*Hub
	has  map[tocsin.JobID]int // workers
	got  chan []Task
	told chan told
}

type told struct {
	tasks []tocsin.Info
	errs  []error
}

func TestEachTaskGoesToOneWorkerAtMost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			policies := pullPolicies(4)
			p := player{opened(policies), map[tocsin.JobID]int{}, make(chan []Task, 1000), make(chan told, 1000)}
			p.play(t, rand.New(rand.NewPCG(seed, 1)), policies)
		})
	}
}

func (p player) play(t *testing.T, rnd *rand.Rand, policies []biztype.Policy) {
	next, asked, offered := 1, 0, 0
	for range 40 {
		switch rnd.IntN(8) {
		case 0, 1, 2:
			var names []string
			for i := range 1 + rnd.IntN(len(policies)) {
				names = append(names, policies[i].Name)
			}
			r := Request{BizTypes: names, Max: 1 + rnd.IntN(10), Wait: time.Duration(rnd.IntN(3000)) * time.Millisecond}
			asked++
			go func() {
				tasks, _ := p.Reserve(t.Context(), r)
				if len(tasks) > r.Max {
					t.Errorf("%d tasks of %d", len(tasks), r.Max)
				}
				p.got <- tasks
			}()
		case 3, 4:
			l, of := p.lines[policies[rnd.IntN(len(policies))].Name], claimed(next, 1+rnd.IntN(8))
			next += len(of)
			offered++
			go func() { p.told <- told{of, l.Deliver(t.Context(), of)} }()
		case 5:
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
		case 6:
			p.Target(policies[0])
		case 7:
			if rnd.IntN(10) == 0 {
				p.Close()
				p.Open(*opened(policies).backend)
			}
		}
		synctest.Wait()
		p.sound(t)
	}
	for range asked {
		for _, task := range <-p.got {
			p.has[task.JobID]++
		}
	}
	for range offered {
		of := <-p.told
		for i, task := range of.tasks {
			want := 0
			if errors.Is(of.errs[i], dispatcher.ErrLeased) {
				want = 1
			}
			if p.has[task.JobID] != want {
				t.Errorf("task %d: %v, and %d workers have it", task.JobID, of.errs[i], p.has[task.JobID])
			}
		}
	}
	idle(t, p.Hub)
}

// sound checks what holds at any time: a line's demand is that of its waiters, and nothing is offered beside somebody who waits for it.
func (p player) sound(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, l := range p.lines {
		wants := 0
		for _, w := range l.waiters {
			wants += w.max
		}
		if got := int(l.wants.Load()); got != wants || len(l.waiters) > 0 && len(l.offers) > 0 {
			t.Errorf("line %s: wants %d of %d, %d waiters, %d offers", name, got, wants, len(l.waiters), len(l.offers))
		}
	}
}

func TestTasksThatComeAsTheirWorkerGoesAreNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := opened(pullPolicies(1))
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			answer := make(chan error)
			go func() {
				_, err := h.Reserve(ctx, Request{BizTypes: []string{"a"}, Max: 1, Wait: MaxWait})
				answer <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-answer; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		idle(t, h)
	})
}
