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
	cfg := d.p.config("orders")
	cfg.Name = name
	return run(d.t, cfg, &h)
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
	for seen := map[int]bool{}; len(seen) < d.p.cfg.Layout.Total(); d.next++ {
		if table := d.p.cfg.Layout.TableOf(d.next); !seen[table] {
			seen[table] = true
			ids = append(ids, add(d.t, d.p, shipV1.New(d.next, order{d.next}, tocsin.In(0))))
			if second {
				ids = append(ids, add(d.t, d.p, shipV2.New(d.next, parcel{{d.next}, {d.next}}, tocsin.In(0))))
			}
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

// rolls deploys a new version of a payload. Nobody sweeps, and a task that is delivered by the wrong program is dead.
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
	d.deliver(false, "old1", "old2")
	d.start("new2", 2) // and begins again
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

func TestNodesLeaveATypeToThoseThatKnowANewerPayload(t *testing.T) {
	t.Parallel()
	rolls(t, newPlace(t, shipPolicy()))
}

func TestNodesThatClaimRowsLeaveATypeToThoseThatKnowANewerPayload(t *testing.T) {
	t.Parallel()
	rolls(t, newOpenPlace(t, shipPolicy()))
}
