package operator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestRunsOfATaskThatANodeDelivered(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.StartWith(t,
		biztype.Policy{Name: closing.Name(), Number: 1, History: true},
		biztype.Policy{Name: remind.Name(), Number: 2})
	o, err := operator.Open(t.Context(), cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var handlers node.Handlers
	var done sync.WaitGroup
	done.Add(2)
	node.Handle(&handlers, closing, func(ctx context.Context, task *tocsin.Task[string]) error {
		tocsin.Output(ctx, fmt.Sprint("attempt ", task.Attempts+1))
		if task.Attempts == 0 {
			return tocsin.RetryIn(0, errors.New("no answer"))
		}
		done.Done()
		return nil
	})
	node.Handle(&handlers, remind, func(ctx context.Context, _ *tocsin.Task[string]) error {
		tocsin.Output(ctx, "nobody keeps this")
		done.Done()
		return nil
	})
	n, err := node.New(nodetest.Config(t, cluster), &handlers)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	kept, other := add(t, cluster, closing.New(7, "p", tocsin.In(0))), add(t, cluster, remind.New(7, "p", tocsin.In(0)))
	done.Wait()
	stop() // what is settled and recorded last is there when Run has returned
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	runs, err := o.Runs(t.Context(), operator.RunsQuery{JobID: kept, Limit: 10})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%+v, %v", runs, err)
	}
	for i, want := range []string{"2 completed attempt 2", "1 retried no answer\nattempt 1"} {
		r := runs[i]
		if got := fmt.Sprint(r.Attempt, " ", r.Outcome, " ", r.Output); got != want || r.BizType != "order.close" || r.JobID != kept || time.Since(r.Started) > time.Minute {
			t.Errorf("%q, want %q: %+v", got, want, r)
		}
	}
	page, err := o.Runs(t.Context(), operator.RunsQuery{JobID: kept, Before: runs[0].ID, Limit: 10})
	if err != nil || len(page) != 1 || page[0] != runs[1] {
		t.Errorf("%+v, %v", page, err)
	}
	if none, err := o.Runs(t.Context(), operator.RunsQuery{JobID: other, Limit: 10}); err != nil || none == nil || len(none) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
}
