package webhook

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// patience is how soon after its context's end a sink must return.
const patience = 2 * time.Second

// conforms tests what the dispatcher relies on. The receiver of the first sink takes every task, that of the second never
// answers.
func conforms(t *testing.T, accepting, hanging *Sink) {
	wantAll := func(t *testing.T, n int) {
		errs := accepting.Deliver(t.Context(), tasks(n))
		if len(errs) != n {
			t.Errorf("%d results for %d tasks", len(errs), n)
		}
		for i, err := range errs {
			if err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		}
	}
	wantNone := func(t *testing.T, errs []error, n int) {
		if len(errs) != n {
			t.Errorf("%d results for %d tasks", len(errs), n)
		}
		for i, err := range errs {
			if err == nil {
				t.Errorf("task %d counts as complete", i)
			}
		}
	}
	t.Run("one result for each task", func(t *testing.T) {
		for n := range 4 {
			wantAll(t, n)
		}
	})
	t.Run("concurrent use", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { wantAll(t, 2) })
		}
		wg.Wait()
	})
	t.Run("the context bounds it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		errs := hanging.Deliver(ctx, tasks(2))
		if took := time.Since(began); took > patience {
			t.Errorf("returned %s after the start, with a time-out of 50ms", took)
		}
		wantNone(t, errs, 2)
	})
	t.Run("a context that has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantNone(t, accepting.Deliver(ctx, tasks(1)), 1)
	})
}

// nth makes the n-th of the tasks that the tests send.
func nth(n int) tocsin.Info {
	due := time.Date(2026, 12, 1, 12, 0, n, 0, time.UTC)
	return tocsin.Info{
		JobID: tocsin.JobID(1<<40 + n), BizID: uint64(1000 + n), BizType: "sink.test",
		ActionTime: due, DueTime: due, Payload: fmt.Sprintf(`{"n": %d}`, n),
	}
}

func tasks(n int) []tocsin.Info {
	all := make([]tocsin.Info, n)
	for i := range all {
		all[i] = nth(i)
	}
	return all
}
