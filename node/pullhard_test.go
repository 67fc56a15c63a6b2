package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/schedule"
)

// extend extends a lease at a node.
func extend(t *testing.T, n *node.Node, lease string, want pull.Result) {
	t.Helper()
	became, err := n.Pull().Extend(t.Context(), []string{lease}, nil)
	if err != nil || became[0].Err != nil || became[0].Result != want {
		t.Errorf("extend: %+v, %v; want %s", became, err, want)
	}
}

// A node that stands in for the owner of tables, as workers ask no other, finds the leases there that ran out as soon as its own.
func TestLeasesRunOutAtTheirTimeInTablesOfOtherNodesToo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	here, _ := run(t, p.config("orders"), closing(closes))
	other := p.config("orders")
	other.Name = "other"
	run(t, other, closing(closes))
	until(t, "both own tables", func() bool { r, ok := here.Report(); return ok && r.Owned > 0 && r.Owned < p.cfg.Layout.Total() })
	next := uint64(1)
	left := map[tocsin.JobID]bool{}
	for _, bizID := range p.oneInEach(&next) {
		left[add(t, p, fetch.New(bizID, order{bizID}, tocsin.In(0)))] = true
	}
	var last time.Time
	for len(left) > 0 { // those who come again meanwhile are of no interest
		for _, task := range reserve(t, here, pull.MaxTasks) {
			if delete(left, task.JobID); task.Attempts == 0 {
				last = task.Until
			}
		}
	}
	again := map[tocsin.JobID]bool{}
	for len(again) < p.cfg.Layout.Total() {
		for _, task := range reserve(t, here, pull.MaxTasks) {
			again[task.JobID] = true
		}
	}
	if late := time.Since(last); late > 40*time.Second { // a full look comes once a minute
		t.Errorf("the last one came %s after the end of its lease", late)
	}
}

func TestALeaseEndsWithItsTask(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	n, _ := run(t, p.config("orders"), closing(closes))
	db := newHourly(t, p)
	id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
	one := reserve(t, n, 1)[0]
	if _, err := p.client.Reschedule(t.Context(), fetch.Of(1), tocsin.In(0)); err != nil {
		t.Fatal(err)
	}
	extend(t, n, one.Lease, pull.Unwanted)
	settle(t, n, pull.Settling{Lease: one.Lease}, pull.Lost)
	two := reserve(t, n, 1)[0]
	if two.JobID != id || two.Version != one.Version+1 {
		t.Errorf("after its reschedule %+v", two)
	}
	became, err := n.Pull().Settle(t.Context(), []pull.Settling{{Lease: one.Lease}, {Lease: two.Lease}, {Lease: two.Lease}}, nil)
	if err != nil || became[0].Result != pull.Lost || became[1].Result != pull.Done || became[2].Result != pull.Already {
		t.Errorf("the leases that a worker had of one task: %+v, %v", became, err)
	}
	extend(t, n, two.Lease, pull.Lost)
	info, err := p.client.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	db.exec("DELETE FROM "+info.Table+" WHERE job_id = ?", uint64(id)) // as a purge
	settle(t, n, pull.Settling{Lease: two.Lease}, pull.Lost)
	extend(t, n, two.Lease, pull.Lost)
}

func TestATaskIsDeadOnceTheLeaseOfItsLastAttemptRanOut(t *testing.T) {
	t.Parallel()
	policy := fetchPolicy()
	policy.Attempts = 1
	p := newPlace(t, closePolicy(), policy)
	n, _ := run(t, p.config("orders"), closing(closes))
	id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
	lease := reserve(t, n, 1)[0].Lease
	until(t, "it is dead", func() bool {
		tasks, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1, Wait: time.Second})
		if err != nil || len(tasks) > 0 {
			t.Fatal(tasks, err)
		}
		info, err := p.client.Get(t.Context(), id)
		return err == nil && info.Status == tocsin.Dead && info.LastError == "the lease of its last attempt ran out" && info.Crashes == 0
	})
	settle(t, n, pull.Settling{Lease: lease}, pull.Done) // a success is never thrown away
}

// A worker has a task when its policy gives up pull: it ends the lease as ever, and a handler gets what comes.
func TestALeaseOutlivesThePolicyThatGaveIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	h := closing(closes)
	node.Handle(h, fetch, closes)
	n, _ := run(t, p.config("orders"), h)
	add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
	lost := add(t, p, fetch.New(2, order{2}, tocsin.In(0)))
	var tasks []pull.Task
	for len(tasks) < 2 {
		tasks = append(tasks, reserve(t, n, 2)...)
	}
	policy := fetchPolicy()
	policy.Pull = nil
	if _, err := biztype.Apply(t.Context(), p.cfg, []biztype.Policy{closePolicy(), policy}); err != nil {
		t.Fatal(err)
	}
	until(t, "workers are refused", func() bool {
		_, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1})
		return errors.Is(err, tocsin.ErrInvalid)
	})
	one, two := tasks[0], tasks[1]
	if two.JobID != lost {
		one, two = two, one
	}
	settle(t, n, pull.Settling{Lease: one.Lease}, pull.Done)
	await(t, p, lost, "its end by the handler", withStatus(tocsin.Done)) // after its lease
	id := add(t, p, fetch.New(3, order{3}, tocsin.In(time.Hour)))
	settle(t, n, pull.Settling{Lease: id.String() + two.Lease[len(lost.String()):]}, pull.Lost) // made up
}

// print makes a schedule of tasks that workers ask for.
func (s *planned) print(cron string, overlap schedule.Overlap) {
	s.Helper()
	d := schedule.Definition{Name: "print", Cron: cron, Overlap: overlap, BizType: fetch.Name(), Payload: `{"id":7}`}
	if _, err := s.Create(s.Context(), d); err != nil {
		s.Fatal(err)
	}
}

// now makes a run by hand.
func (s *planned) now() tocsin.JobID {
	s.Helper()
	made, err := s.RunNow(s.Context(), "print")
	if err != nil {
		s.Fatal(err)
	}
	return made.JobID
}

// nobody checks that workers get nothing.
func nobody(t *testing.T, n *node.Node) {
	t.Helper()
	tasks, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1, Wait: time.Second})
	if err != nil || len(tasks) > 0 {
		t.Errorf("%+v, %v", tasks, err)
	}
}

func TestTheNextRunComesOnceAWorkerHasEndedTheLast(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		n, _ := run(t, p.config("orders"), closing(closes))
		s := newPlanned(t, p)
		s.print("@every 720h", schedule.OverlapQueue)
		first := s.now()
		one := reserve(t, n, 1)[0]
		if one.JobID != first || one.Schedule != "print" {
			t.Errorf("%+v", one)
		}
		settle(t, n, pull.Settling{Lease: one.Lease, Answer: tocsin.RetryIn(0, errors.New("no paper"))}, pull.Done)
		if one = reserve(t, n, 1)[0]; one.JobID != first || one.Attempts != 1 {
			t.Errorf("after a retry %+v", one)
		}
		second := s.now()
		nobody(t, n)
		settle(t, n, pull.Settling{Lease: one.Lease, Answer: tocsin.Bury(errors.New("no paper"))}, pull.Done)
		two := reserve(t, n, 1)[0]
		if two.JobID != second {
			t.Errorf("%+v, want task %s", two, second)
		}
		settle(t, n, pull.Settling{Lease: two.Lease}, pull.Done)
	}, fetchPolicy())
}

func TestARunReplacesTheOneThatAWorkerHas(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	n, _ := run(t, p.config("orders"), closing(closes))
	newPlanned(t, p).print("@every 2s", schedule.OverlapReplace)
	one := reserve(t, n, 1)[0]
	if two := reserve(t, n, 1)[0]; two.JobID == one.JobID || !two.FireTime.After(one.FireTime) {
		t.Errorf("after %+v came %+v", one, two)
	}
	extend(t, n, one.Lease, pull.Unwanted)
	settle(t, n, pull.Settling{Lease: one.Lease}, pull.Lost)
}

func TestRunsAreSkippedWhileAWorkerHasOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	n, _ := run(t, p.config("orders"), closing(closes))
	newPlanned(t, p).print("@every 1s", schedule.OverlapSkip)
	one := reserve(t, n, 1)[0]
	for range 3 {
		nobody(t, n)
		extend(t, n, one.Lease, pull.OK)
	}
	settle(t, n, pull.Settling{Lease: one.Lease}, pull.Done)
	if two := reserve(t, n, 1)[0]; !two.FireTime.After(one.FireTime.Add(time.Second)) {
		t.Errorf("after %+v came %+v", one, two)
	}
}

// The lease of a run runs out: its next attempt is made, and the run after it waits for that.
func TestARunWhoseLeaseRanOutIsMadeAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	n, _ := run(t, p.config("orders"), closing(closes))
	s := newPlanned(t, p)
	s.print("@every 720h", schedule.OverlapQueue)
	first := s.now()
	reserve(t, n, 1)
	second := s.now()
	again := reserve(t, n, 1)[0]
	if again.JobID != first || again.Attempts != 1 || again.Crashes != 0 {
		t.Errorf("%+v, want task %s", again, first)
	}
	settle(t, n, pull.Settling{Lease: again.Lease}, pull.Done)
	if two := reserve(t, n, 1)[0]; two.JobID != second {
		t.Errorf("%+v, want task %s", two, second)
	}
}

// A worker that asks with a wait of 0 gets tasks that are due.
func TestAWorkerThatDoesNotWaitGetsTasks(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		n, _ := run(t, p.config("orders"), closing(closes))
		id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
		looks := 0
		until(t, "it has the task", func() bool {
			tasks, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1})
			if err == nil {
				looks++
			}
			time.Sleep(time.Second) // longer than a claimed task waits for a worker
			return len(tasks) == 1 && tasks[0].JobID == id
		})
		t.Logf("after %d looks", looks)
	}, fetchPolicy())
}

// A server hangs: the leases of others are settled, and its own may be asked for again.
func TestAServerThatHangsFailsItsOwnLeasesAlone(t *testing.T) {
	t.Parallel()
	m := startServer(t)
	p := unmade(t, 2)
	p.ownership = node.ByRows
	p.cfg.Servers = []tocsin.Server{{Name: "db1", DSN: p.cfg.Servers[0].DSN, Databases: []int{0}}, {Name: "db2", DSN: m.DSN(), Databases: []int{1}}}
	policy := fetchPolicy()
	policy.Pull.Lease = biztype.Duration(time.Minute)
	p = p.made(t, closePolicy(), policy)
	n, _ := run(t, p.config("orders"), closing(closes))
	next := uint64(1)
	for _, bizID := range p.oneInEach(&next) {
		add(t, p, fetch.New(bizID, order{bizID}, tocsin.In(0)))
	}
	var all []pull.Settling
	away := map[int]bool{} // places of leases of db2
	for len(all) < p.cfg.Layout.Total() {
		for _, task := range reserve(t, n, pull.MaxTasks) {
			away[len(all)] = p.client.ServerOf(task.BizID) == "db2"
			all = append(all, pull.Settling{Lease: task.Lease})
		}
	}
	_ = m.Signal(syscall.SIGSTOP)
	defer func() { _ = m.Signal(syscall.SIGCONT) }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	became, err := n.Pull().Settle(ctx, all, nil)
	if err != nil || time.Since(began) > 30*time.Second {
		t.Fatal(err, time.Since(began))
	}
	for i, b := range became {
		if (b.Err != nil) != away[i] || !away[i] && b.Result != pull.Done {
			t.Errorf("lease %d, away: %t: %+v", i, away[i], b)
		}
	}
	_ = m.Signal(syscall.SIGCONT)
	until(t, "the others are settled", func() bool {
		became, err := n.Pull().Settle(t.Context(), all, nil)
		return err == nil && !slices.ContainsFunc(became, func(b pull.Became) bool { return b.Result != pull.Done && b.Result != pull.Already })
	})
}

// A worker that waits for 25 s gets what becomes due meanwhile, each time.
func TestNoWorkerWaitsBesideATaskThatIsDue(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		n, _ := run(t, p.config("orders"), closing(closes))
		next := uint64(1)
		add(t, p, fetch.New(next, order{next}, tocsin.In(0)))
		settle(t, n, pull.Settling{Lease: reserve(t, n, 1)[0].Lease}, pull.Done)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		got := make(chan tocsin.JobID, 1000)
		for i := range 5 {
			all.Go(func() {
				for ctx.Err() == nil {
					tasks, err := n.Pull().Reserve(ctx, pull.Request{BizTypes: []string{fetch.Name()}, Max: 1 + i, Wait: pull.MaxWait})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					for _, task := range tasks {
						_, _ = n.Pull().Settle(ctx, []pull.Settling{{Lease: task.Lease}}, nil)
						got <- task.JobID
					}
				}
			})
		}
		var slowest time.Duration
		for range 150 {
			began, wanted := time.Now(), map[tocsin.JobID]bool{}
			for range 1 + next%7 {
				next++
				wanted[add(t, p, fetch.New(next, order{next}, tocsin.In(0)))] = true
			}
			for len(wanted) > 0 {
				delete(wanted, receive(t, got, "a task that is due"))
			}
			slowest = max(slowest, time.Since(began))
		}
		if t.Logf("the slowest tasks came after %s", slowest); slowest > 20*time.Second {
			t.Error("a worker has waited beside them")
		}
	}, fetchPolicy())
}

// A worker waits for a biz type that is paused: it gets the task as soon as the type is resumed.
func TestAWorkerThatWaitsGetsTheTasksOfAResumedType(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy(), fetchPolicy())
	n, _ := run(t, p.config("orders"), closing(closes))
	apply := func(paused bool) {
		policy := fetchPolicy()
		policy.Paused = paused
		if _, err := biztype.Apply(t.Context(), p.cfg, []biztype.Policy{closePolicy(), policy}); err != nil {
			t.Fatal(err)
		}
	}
	add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
	settle(t, n, pull.Settling{Lease: reserve(t, n, 1)[0].Lease}, pull.Done)
	apply(true)
	until(t, "it is paused", func() bool {
		id := add(t, p, fetch.New(2, order{2}, tocsin.In(0)))
		tasks, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 100, Wait: time.Second})
		for _, task := range tasks {
			settle(t, n, pull.Settling{Lease: task.Lease}, pull.Done)
		}
		info, unread := p.client.Get(t.Context(), id)
		return err == nil && unread == nil && len(tasks) == 0 && info.Status == tocsin.Pending
	})
	answer := make(chan []pull.Task, 1)
	began := time.Now()
	go func() {
		tasks, err := n.Pull().Reserve(context.WithoutCancel(t.Context()), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1, Wait: pull.MaxWait})
		if err != nil {
			t.Error(err)
		}
		answer <- tasks
	}()
	until(t, "it waits", func() bool { return n.Pull().Asked()[fetch.Name()].Waiting == 1 })
	apply(false)
	if tasks := receive(t, answer, "its answer"); len(tasks) != 1 {
		t.Errorf("%d tasks after %s", len(tasks), time.Since(began))
	}
}
