package node_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// The order that the package promises: first the tables, then the lease, while
// deliveries in hand go on under their claims and are settled when they end.
func TestDeliveriesInHandEndAndAreSettledAfterTheTablesAreGivenUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	begun, over := make(chan bool, 1), make(chan struct{})
	h := closing(func(context.Context, *tocsin.Task[order]) error {
		begun <- true
		<-over
		return nil
	})
	_, stop := run(t, p.config("orders"), h)
	id := add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	receive(t, begun, "the delivery")
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	until(t, "the node is not registered any more", func() bool { return len(nodesOf(t, p, "orders")) == 0 })
	ownersAre(t, p, "no table has an owner", func(owners []string) bool {
		return !slices.ContainsFunc(owners, func(id string) bool { return id != "" })
	})
	if info := await(t, p, id, "the claim", withStatus(tocsin.Claimed)); info.Attempts != 0 {
		t.Errorf("%d attempts are counted", info.Attempts)
	}
	select {
	case <-ended:
		t.Error("the node has ended before the delivery in hand")
	default:
	}
	close(over)
	<-ended
	await(t, p, id, "the outcome", withStatus(tocsin.Done))
}

// If outcomes can't be stored, giving up the tables and draining share the drain
// time-out; 5 s for the outcomes follow.
func TestANodeEndsWithinItsDrainTimeoutAndFiveSecondsWhileAServerIsAway(t *testing.T) {
	t.Parallel()
	const drain = 15 * time.Second
	p := onTwoServers(t, closePolicy())
	apart, way := p.throughRelay(t)
	begun, over := make(chan int, 100), make(chan struct{})
	t.Cleanup(func() { close(over) })
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		begun <- task.JobID.Table()
		<-over // ignores its context
		return nil
	})
	cfg := apart.config("orders")
	var log devtest.Log
	cfg.LeaseTTL, cfg.DrainTimeout, cfg.Logger = 10*time.Second, drain, log.Logger()
	_, stop, ended := start(t, cfg, h)
	for id := uint64(1); ; id++ {
		if p.cfg.Layout.TableOf(id) >= 4 {
			add(t, p, orderClose.New(id, order{id}, tocsin.In(0)))
			break
		}
	}
	receive(t, begun, "a delivery of the second server")
	way.Cut()
	stopped := time.Now()
	stop()
	if err := receive(t, ended, "the end of the node"); err == nil {
		t.Error("the node has ended well, though an outcome is not stored")
	}
	took := time.Since(stopped)
	t.Logf("the node has ended after %s", took.Round(time.Millisecond))
	if took >= 2*drain { // one after the other, the two would take as long
		t.Errorf("the node has ended after %s, want less than %s, and %s on an idle machine", took, 2*drain, drain+5*time.Second)
	}
	if n := len(log.Lines("the drain time-out is over: deliveries in hand are cut off, and their tasks delivered again by others")); n != 1 {
		t.Errorf("%d lines say that the drain time-out is over:\n%v", n, log.Lines())
	}
}

// A node that is stopped while it asks for its biz types has failed at nothing.
func TestANodeThatIsStoppedWhileItStartsEndsWell(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	proxy, dsn := devtest.NewProxy(t, p.cfg.Servers[0].DSN)
	p.cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	held, release := proxy.HoldAt("/* tocsin biz read */")
	defer release()
	_, stop, ended := start(t, p.config("orders"), closing(closes))
	receive(t, held, "the question for the biz types")
	stop()
	if err := receive(t, ended, "the end of the node"); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
