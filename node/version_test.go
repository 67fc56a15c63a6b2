package node_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// parcel is a payload in its second version: several orders. Programs of the first know one order, and can't read it.
type parcel []order

// UnmarshalJSON reads both versions.
func (p *parcel) UnmarshalJSON(text []byte) error {
	var one order
	if json.Unmarshal(text, &one) == nil {
		*p = parcel{one}
		return nil
	}
	return json.Unmarshal(text, (*[]order)(p))
}

var (
	shipV1 = tocsin.Define[order]("order.ship").Version(1)
	shipV2 = tocsin.Define[parcel]("order.ship").Version(2)
)

// shipPolicy lets no attempt fail.
func shipPolicy() biztype.Policy {
	return biztype.Policy{Name: "order.ship", Number: 9, Group: "orders", Attempts: 1, Timeout: biztype.Duration(20 * time.Second)}
}

// deploy is a group of nodes whose programs change.
type deploy struct {
	t     *testing.T
	p     place
	calls chan call
	next  uint64
}

// start runs a node with the handler of one version.
func (d *deploy) start(name string, version int) (n *node.Node, stop func()) {
	d.t.Helper()
	cfg := d.p.config("orders")
	cfg.Name = name
	return run(d.t, cfg, d.handlers(name, version))
}

// handlers are those of a program of one version.
func (d *deploy) handlers(name string, version int) *node.Handlers {
	var h node.Handlers
	if version == 1 {
		node.Handle(&h, shipV1, func(_ context.Context, task *tocsin.Task[order]) error {
			d.calls <- call{task.Key(), name}
			return nil
		})
	} else {
		node.Handle(&h, shipV2, func(_ context.Context, task *tocsin.Task[parcel]) error {
			d.calls <- call{task.Key(), name}
			return nil
		})
	}
	return &h
}

// leaving waits until the nodes leave the type to newer ones, or do so no longer.
func (d *deploy) leaving(want bool, nodes ...*node.Node) {
	d.t.Helper()
	until(d.t, "the nodes leave the type to newer ones, or no longer", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node.Node) bool {
			r, running := n.Report()
			return !running || (r.Lacks[shipV1.Name()] != "") != want
		})
	})
}

// deliver adds tasks to each table, of the first version and, if asked for, of the second, and wants them delivered by
// these nodes at the first attempt.
func (d *deploy) deliver(second bool, by ...string) {
	d.t.Helper()
	var ids []tocsin.JobID
	for _, n := range d.p.oneInEach(&d.next) {
		ids = append(ids, add(d.t, d.p, shipV1.New(n, order{n}, tocsin.In(0))))
		if second {
			ids = append(ids, add(d.t, d.p, shipV2.New(n, parcel{{n}, {n}}, tocsin.In(0))))
		}
	}
	for range ids {
		if c := receive(d.t, d.calls, "a delivery"); !slices.Contains(by, c.node) {
			d.t.Errorf("delivered by %s, want one of %v", c.node, by)
		}
	}
	for _, id := range ids {
		await(d.t, d.p, id, "its outcome", withStatus(tocsin.Done))
	}
}

// wait adds tasks of the second version, in each table, of which one was due before and one is due later, and waits until
// both nodes, which know the first one alone, say that they leave some.
func (d *deploy) wait(nodes ...*node.Node) (ids []tocsin.JobID) {
	d.t.Helper()
	for _, n := range d.p.oneInEach(&d.next) {
		ids = append(ids, add(d.t, d.p, shipV2.New(n, parcel{{n}, {n}}, tocsin.At(time.Now().Add(-time.Hour)))),
			add(d.t, d.p, shipV2.New(n, parcel{{n}, {n}}, tocsin.In(500*time.Millisecond)).Header("tenant", "a")))
	}
	until(d.t, "the nodes say that they leave tasks to newer ones", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node.Node) bool {
			r, running := n.Report()
			return !running || r.Newer[shipV2.Name()] != 2
		})
	})
	return ids
}

// untouched wants that nobody has done anything with tasks.
func (d *deploy) untouched(ids []tocsin.JobID) {
	d.t.Helper()
	for _, id := range ids {
		info, err := d.p.client.Get(d.t.Context(), id)
		if err != nil || info.Status != tocsin.Pending || info.Attempts != 0 || info.Crashes != 0 || info.ClaimedBy != "" || info.LastError != "" || !info.Modified.Equal(info.Created) {
			d.t.Errorf("it was not left as it was: %+v, %v", info, err)
		}
	}
}

// Nobody sweeps, and a task that is delivered by the wrong program is dead.
func TestNodesLeaveATypeToThoseThatKnowANewerPayload(t *testing.T) {
	t.Parallel()
	inEach(t, rolls, shipPolicy())
}

// rolls deploys a new version of a payload.
func rolls(t *testing.T, p place) {
	d := &deploy{t: t, p: p, calls: make(chan call, 1000), next: 1}
	old1, stop1 := d.start("old1", 1)
	old2, stop2 := d.start("old2", 1)
	d.deliver(false, "old1", "old2")
	_, stopNew1 := d.start("new1", 2)
	d.leaving(true, old1, old2)
	d.deliver(true, "new1")
	stopNew1() // the deploy is broken off
	d.leaving(false, old1, old2)
	waiting := d.wait(old1, old2)
	d.deliver(false, "old1", "old2")
	d.untouched(waiting)
	d.start("new2", 2) // and begins again
	for range waiting {
		if c := receive(t, d.calls, "a delivery of what waited"); c.node != "new2" {
			t.Errorf("delivered by %s", c.node)
		}
	}
	for _, id := range waiting {
		await(t, p, id, "its outcome", withStatus(tocsin.Done))
	}
	d.leaving(true, old1, old2)
	d.deliver(true, "new2")
	stop1()
	d.start("new3", 2)
	d.deliver(true, "new2", "new3")
	stop2()
	d.deliver(true, "new2", "new3")
	if len(d.calls) != 0 {
		t.Errorf("%d deliveries too many", len(d.calls))
	}
}

// A sweep of the program that a broken-off deploy leaves behind claims no task with a newer payload, and says so.
func TestASweepLeavesNewerPayloads(t *testing.T) {
	t.Parallel()
	d := &deploy{t: t, p: newPlace(t, shipPolicy()), calls: make(chan call, 100), next: 1}
	var ids []tocsin.JobID
	for n := range uint64(10) {
		ids = append(ids, add(t, d.p, shipV2.New(n+1, parcel{{n}, {n}}, tocsin.In(0))))
	}
	old := add(t, d.p, shipV1.New(1, order{1}, tocsin.In(0)))
	sweep := func(h *node.Handlers) node.SweepResult {
		s := newSweeper(t, d.p.sweepConfig(), h)
		result, err := s.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	r := sweep(d.handlers("old", 1))
	if r.Delivered != 1 || r.Claimed != 1 || r.Elsewhere != 0 || r.Left["order.ship (newer payload)"] != 10 || r.Err() == nil {
		t.Errorf("%s, %v", r, r.Err())
	}
	d.untouched(ids)
	await(t, d.p, old, "its outcome", withStatus(tocsin.Done))
	if r := sweep(d.handlers("new", 2)); r.Delivered != 10 || r.LeftTotal() != 0 {
		t.Errorf("%s", r)
	}
}
