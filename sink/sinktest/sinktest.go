// Package sinktest is the conformance suite of delivery targets: what the
// dispatcher relies on, whatever a sink talks to. A sink's own tests call Run
// with functions that make it talk to a target that answers, and to one that
// never does. A sink that breaks the contract fails the suite by name.
package sinktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Sink is what is tested, the dispatcher's side of a delivery target.
type Sink interface {
	Deliver(ctx context.Context, tasks []tocsin.Info) []error
}

// patience is how soon after its context's end a sink must return.
const patience = 2 * time.Second

// Run tests a sink. Accepting makes one whose target takes every task, hanging
// one whose target never answers; both clean up through t.
func Run(t *testing.T, accepting, hanging func(t *testing.T) Sink) {
	t.Run("one result for each task", func(t *testing.T) { results(t, accepting(t)) })
	t.Run("no task, no result", func(t *testing.T) { none(t, accepting(t)) })
	t.Run("concurrent use", func(t *testing.T) { concurrent(t, accepting(t)) })
	t.Run("the context bounds it", func(t *testing.T) { bounded(t, hanging(t)) })
	t.Run("a context that has ended", func(t *testing.T) { ended(t, accepting(t)) })
}

// Task makes the n-th of the suite's tasks.
func Task(n int) tocsin.Info {
	due := time.Date(2026, 12, 1, 12, 0, n, 0, time.UTC)
	return tocsin.Info{
		JobID:      tocsin.JobID(1<<40 + n),
		BizID:      uint64(1000 + n),
		BizType:    "sink.test",
		ActionTime: due,
		DueTime:    due,
		Payload:    fmt.Sprintf(`{"n": %d}`, n),
	}
}

func tasks(n int) []tocsin.Info {
	all := make([]tocsin.Info, n)
	for i := range all {
		all[i] = Task(i)
	}
	return all
}

func results(t *testing.T, s Sink) {
	for n := 1; n <= 3; n++ {
		wantAll(t, s.Deliver(t.Context(), tasks(n)), n)
	}
}

func wantAll(t *testing.T, errs []error, n int) {
	t.Helper()
	if len(errs) != n {
		t.Errorf("%d results for %d tasks", len(errs), n)
	}
	for i, err := range errs {
		if err != nil {
			t.Errorf("task %d: %v", i, err)
		}
	}
}

func none(t *testing.T, s Sink) {
	if errs := s.Deliver(t.Context(), nil); len(errs) != 0 {
		t.Errorf("%d results for no task", len(errs))
	}
}

func concurrent(t *testing.T, s Sink) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { wantAll(t, s.Deliver(t.Context(), tasks(2)), 2) })
	}
	wg.Wait()
}

func bounded(t *testing.T, s Sink) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	errs := s.Deliver(ctx, tasks(2))
	if took := time.Since(began); took > patience {
		t.Errorf("returned %s after the start, with a time-out of 50ms", took)
	}
	wantNone(t, errs, 2)
}

func ended(t *testing.T, s Sink) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantNone(t, s.Deliver(ctx, tasks(1)), 1)
}

func wantNone(t *testing.T, errs []error, n int) {
	t.Helper()
	if len(errs) != n {
		t.Errorf("%d results for %d tasks", len(errs), n)
	}
	for i, err := range errs {
		if err == nil {
			t.Errorf("task %d counts as complete", i)
		}
	}
}
