package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/schedule"
)

var fetch = tocsin.Define[order]("stock.fetch")

// fetchPolicy has workers ask for the tasks of fetch.
func fetchPolicy() biztype.Policy {
	return biztype.Policy{Name: fetch.Name(), Number: 9, Group: "orders", Pull: &biztype.Pull{Lease: biztype.Duration(5 * time.Second)}, History: true}
}

// reserve waits for tasks, until there is one.
func reserve(t *testing.T, n *node.Node, most int) []pull.Task {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		tasks, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: most, Wait: time.Second})
		if err != nil && !errors.Is(err, pull.ErrNotRunning) {
			t.Fatal(err)
		}
		if len(tasks) > 0 {
			return tasks
		}
	}
	t.Fatal("waited too long for a task")
	return nil
}

// settle ends a lease at a node.
func settle(t *testing.T, n *node.Node, s pull.Settling, want pull.Result) {
	t.Helper()
	became, err := n.Pull().Settle(t.Context(), []pull.Settling{s}, nil)
	if err != nil || became[0].Err != nil || became[0].Result != want {
		t.Errorf("settle: %+v, %v; want %s", became, err, want)
	}
}

func TestWorkersTakeAndEndTasksAtAnyNode(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		here, _ := run(t, p.config("orders"), closing(closes))
		other := p.config("orders")
		other.Name = "other"
		there, _ := run(t, other, closing(closes))
		one := func() pull.Task { return reserve(t, here, 1)[0] }

		id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
		task := one()
		if task.JobID != id || task.Payload != `{"id":1}` || task.BizType != fetch.Name() || task.For != 5*time.Second || task.Attempts != 0 {
			t.Errorf("reserved %+v", task)
		}
		became, err := there.Pull().Extend(t.Context(), []string{task.Lease}, nil)
		if err != nil || became[0].Result != pull.OK || became[0].Until.Before(task.Until) {
			t.Errorf("extend: %+v, %v", became, err)
		}
		settle(t, there, pull.Settling{Lease: task.Lease, Output: "42 in stock", Worker: "php-7"}, pull.Done)
		settle(t, here, pull.Settling{Lease: task.Lease}, pull.Already)
		settle(t, here, pull.Settling{Lease: task.Lease, Release: true}, pull.Lost)
		await(t, p, id, "its end", withStatus(tocsin.Done))

		id = add(t, p, fetch.New(2, order{2}, tocsin.In(0)))
		settle(t, there, pull.Settling{Lease: one().Lease, Answer: tocsin.RetryIn(0, errors.New("no stock"))}, pull.Done)
		task = one()
		if task.JobID != id || task.Attempts != 1 || task.LastError != "no stock" {
			t.Errorf("after a retry: %+v", task)
		}
		settle(t, there, pull.Settling{Lease: task.Lease, Release: true}, pull.Done)
		settle(t, there, pull.Settling{Lease: one().Lease, Answer: tocsin.Snooze(0)}, pull.Done)
		settle(t, there, pull.Settling{Lease: one().Lease, Answer: tocsin.Bury(errors.New("sold out"))}, pull.Done)
		if dead := await(t, p, id, "its death", withStatus(tocsin.Dead)); dead.LastError != "sold out" || dead.Attempts != 2 {
			t.Errorf("dead: %+v", dead)
		}

		id = add(t, p, fetch.New(3, order{3}, tocsin.In(0)))
		task = one()
		if _, err := p.client.Cancel(t.Context(), fetch.Of(3)); err != nil {
			t.Fatal(err)
		}
		if became, err = here.Pull().Extend(t.Context(), []string{task.Lease}, nil); err != nil || became[0].Result != pull.Unwanted {
			t.Errorf("extend after a cancel: %+v, %v", became, err)
		}
		settle(t, here, pull.Settling{Lease: task.Lease}, pull.Lost)
		await(t, p, id, "its cancel", withStatus(tocsin.Cancelled))
	}, fetchPolicy())
}

func TestALeaseThatRanOutIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		n, _ := run(t, p.config("orders"), closing(closes))
		id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
		first := reserve(t, n, 1)[0]
		second := reserve(t, n, 1)[0]
		if second.JobID != id || second.Attempts != 1 || second.Crashes != 0 || second.Lease == first.Lease {
			t.Errorf("after %+v came %+v", first, second)
		}
		if early := second.Until.Sub(first.Until); early < 10*time.Second {
			t.Errorf("the second lease began %s after the first, which lasts 5s and may be settled for 5s more", early)
		}
		settle(t, n, pull.Settling{Lease: first.Lease, Answer: errors.New("late")}, pull.Lost)
		settle(t, n, pull.Settling{Lease: first.Lease}, pull.Done) // the work is done
		settle(t, n, pull.Settling{Lease: second.Lease}, pull.Already)
	}, fetchPolicy())
}

func TestWorkersOfOneNodeGetTheTasksOfAllTables(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		here, _ := run(t, p.config("orders"), closing(closes))
		other := p.config("orders")
		other.Name = "other"
		run(t, other, closing(closes))
		next := uint64(1)
		wanted := map[tocsin.JobID]bool{}
		for _, bizID := range p.oneInEach(&next) {
			wanted[add(t, p, fetch.New(bizID, order{bizID}, tocsin.In(0)))] = true
		}
		for len(wanted) > 0 {
			for _, task := range reserve(t, here, pull.MaxTasks) {
				if !wanted[task.JobID] {
					t.Errorf("a second time, or unknown: %+v", task)
				}
				delete(wanted, task.JobID)
				settle(t, here, pull.Settling{Lease: task.Lease}, pull.Done)
			}
		}
	}, fetchPolicy())
}

func TestWorkersGetAnEmptyAnswerWhenTheirNodeStops(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		n, stop := run(t, p.config("orders"), closing(closes))
		id := add(t, p, fetch.New(1, order{1}, tocsin.In(0)))
		task := reserve(t, n, 1)[0]
		answer := make(chan error, 1)
		go func() {
			tasks, err := n.Pull().Reserve(context.Background(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1, Wait: pull.MaxWait})
			if len(tasks) > 0 {
				err = errors.New("it got a task")
			}
			answer <- err
		}()
		until(t, "it waits", func() bool { return n.Pull().Asked()[fetch.Name()].Waiting == 1 })
		stop()
		if err := receive(t, answer, "its answer"); err != nil {
			t.Error(err)
		}
		if _, err := n.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1}); !errors.Is(err, pull.ErrNotRunning) {
			t.Error(err)
		}
		next, _ := run(t, p.config("orders"), closing(closes))
		until(t, "it serves", func() bool { // the lease has outlived its node
			became, err := next.Pull().Settle(t.Context(), []pull.Settling{{Lease: task.Lease}}, nil)
			return err == nil && became[0].Result == pull.Done
		})
		await(t, p, id, "its end", withStatus(tocsin.Done))
	}, fetchPolicy())
}

func TestRunsOfSchedulesWaitForTheLeaseOfTheOneBefore(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		here, _ := run(t, p.config("orders"), closing(closes))
		other := p.config("orders")
		other.Name = "other"
		there, _ := run(t, other, closing(closes))
		plans := newPlanned(t, p)
		d := schedule.Definition{Name: "stock", BizType: fetch.Name(), Cron: "0 0 1 1 *", Overlap: schedule.OverlapQueue, Payload: `{"id":7}`}
		if _, err := plans.Schedules.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		byHand := func() tocsin.JobID {
			run, err := plans.RunNow(t.Context(), d.Name)
			if err != nil {
				t.Fatal(err)
			}
			return run.JobID
		}
		first, second := byHand(), byHand()
		one := reserve(t, here, 1)[0]
		if one.JobID != first || one.Schedule != d.Name {
			t.Errorf("first came %+v", one)
		}
		if more, err := here.Pull().Reserve(t.Context(), pull.Request{BizTypes: []string{fetch.Name()}, Max: 1, Wait: time.Second}); err != nil || len(more) > 0 {
			t.Errorf("beside an open run came %+v, %v", more, err)
		}
		settle(t, there, pull.Settling{Lease: one.Lease, Answer: tocsin.Bury(errors.New("no stock"))}, pull.Done)
		two := reserve(t, here, 1)[0]
		if two.JobID != second {
			t.Errorf("then came %+v", two)
		}
		settle(t, there, pull.Settling{Lease: two.Lease}, pull.Done)
	}, fetchPolicy())
}
