package node_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// An add that comes while a delivery is under way, after it was settled, and after it was buried: with etcd the row is
// pending during its delivery, unless it began late, and without etcd it is claimed.
func TestUniqueKeysAndDeliveries(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		begun, end := make(chan tocsin.JobID, 10), make(chan error)
		h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
			begun <- task.JobID
			return <-end
		})
		run(t, p.config("orders"), h)
		unique := orderClose.New(7, order{7}, tocsin.In(0)).Unique("sync", tocsin.While(tocsin.Pending, tocsin.Claimed))
		try := func(task tocsin.NewTask) tocsin.Added {
			t.Helper()
			added, err := p.client.Add(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			return added
		}
		finish := func(with error, id tocsin.JobID, status tocsin.Status) {
			t.Helper()
			end <- with
			await(t, p, id, "the end of the delivery", withStatus(status))
		}
		first := try(unique)
		receive(t, begun, "the first delivery")
		if kept := try(unique); !kept.Existing || kept.JobID != first.JobID || p.ownership == node.ByRows && kept.Status != tocsin.Claimed {
			t.Errorf("during the delivery: %+v", kept)
		}
		again := try(unique.OnConflict(tocsin.Reschedule))
		if !again.Rescheduled || again.JobID != first.JobID {
			t.Errorf("debounced during the delivery: %+v", again)
		}
		end <- nil // of the first delivery, or of that after it: the latter begins in any case
		if got := receive(t, begun, "a delivery after the debounce"); got != again.JobID {
			t.Errorf("task %s was delivered, want %s", got, again.JobID)
		}
		finish(nil, again.JobID, tocsin.Done)
		second := try(unique)
		receive(t, begun, "the delivery after it was done")
		if second.Existing || second.JobID == again.JobID {
			t.Errorf("after it was done: %+v", second)
		}
		finish(tocsin.Bury(errors.New("no")), second.JobID, tocsin.Dead)
		third := try(unique.OnConflict(tocsin.Reschedule))
		receive(t, begun, "the delivery after it was buried")
		if third.Existing || third.JobID == second.JobID {
			t.Errorf("after it was buried: %+v", third)
		}
		finish(nil, third.JobID, tocsin.Done)
		if info := await(t, p, second.JobID, "the dead task", withStatus(tocsin.Dead)); info.DedupKey != "" {
			t.Errorf("the dead task still has the key %q", info.DedupKey)
		}
	})
}
