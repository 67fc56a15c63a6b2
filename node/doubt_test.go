package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// If a connection is lost with the answer to a claim's commit, the claim is not left
// to run out. That would make the task late and count as a crash.
func TestATaskWhoseClaimGotNoAnswerIsDelivered(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Strict = true // each row is claimed, as in claim mode
	p := newPlace(t, policy)
	seen := p
	proxy, dsn := devtest.NewProxy(t, p.cfg.Servers[0].DSN)
	seen.cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	delivered := make(chan tocsin.JobID, 10)
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		delivered <- task.JobID
		return nil
	})
	run(t, seen.config("orders"), &h)
	first := add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	receive(t, delivered, "a first delivery")
	await(t, p, first, "its end", withStatus(tocsin.Done))

	proxy.BreakAt(devtest.AtCommit, false, 1)
	id := add(t, p, orderClose.New(2, order{2}, tocsin.In(0)))
	receive(t, delivered, "the delivery")
	done := await(t, p, id, "its end", withStatus(tocsin.Done))
	if done.Crashes != 0 || done.Attempts != 0 {
		t.Errorf("%d crashes, %d attempts", done.Crashes, done.Attempts)
	}
	if proxy.Breaks() != 1 {
		t.Errorf("%d connections broke", proxy.Breaks())
	}
	select {
	case id := <-delivered:
		t.Errorf("%s was delivered once more", id)
	case <-time.After(time.Second):
	}
}
