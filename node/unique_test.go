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
	for ownership, claimed := range map[string]bool{node.ByEtcd: false, node.ByRows: true} {
		t.Run(ownership, func(t *testing.T) {
			t.Parallel()
			p := ownedPlace(t, ownership)
			begun, end := make(chan tocsin.JobID, 10), make(chan error)
			var h node.Handlers
			node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
				begun <- task.JobID
				return <-end
			})
			run(t, p.config("orders"), &h)
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
			if kept := try(unique); !kept.Existing || kept.JobID != first.JobID || claimed && kept.Status != tocsin.Claimed {
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
}

// ownedPlace makes a cluster with an ownership.
func ownedPlace(t *testing.T, ownership string) place {
	p := newPlace(t, closePolicy())
	if ownership == node.ByEtcd {
		return p
	}
	p = place{cfg: p.cfg, ownership: ownership}
	p.cfg.Layout.Prefix += "r"
	p.cfg.Cluster = p.cfg.Layout.Prefix
	return p.made(t, closePolicy())
}
