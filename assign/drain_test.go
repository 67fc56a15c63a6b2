package assign

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// drain tells a node to drain.
func (c *crowd) drain(d *desk) {
	c.t.Helper()
	if err := c.registry().Drain(c.t.Context(), "g", d.ID()); err != nil {
		c.t.Fatal(err)
	}
}

// state reads a node as its group sees it.
func (c *crowd) state(d *desk) NodeState {
	c.t.Helper()
	found, ok := c.find(d)
	if !ok {
		c.t.Fatalf("%s is not registered", d.ID())
	}
	return found
}

// find is state, and reports whether the node is registered: one that comes back has its new id before.
func (c *crowd) find(d *desk) (NodeState, bool) {
	c.t.Helper()
	nodes, err := c.registry().Nodes(c.t.Context(), "g")
	if err != nil {
		c.t.Fatal(err)
	}
	i := slices.IndexFunc(nodes, func(n NodeState) bool { return n.ID == d.ID() })
	if i < 0 {
		return NodeState{}, false
	}
	return nodes[i], true
}

func TestADrainedNodeGivesUpItsTablesAndStays(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(), c.join()
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	if err := c.registry().Drain(t.Context(), "g", "node-nobody"); !errors.Is(err, ErrNoNode) {
		t.Errorf("of nobody: %v", err)
	}
	if err := c.registry().Undrain(t.Context(), "g", b.ID()); !errors.Is(err, ErrNotDraining) {
		t.Errorf("the end of none: %v", err)
	}
	c.drain(b)
	c.drain(b) // no error
	c.awaitCounts(map[*desk]int{a: 32, b: 0})
	if err := c.registry().Drain(t.Context(), "g", a.ID()); !errors.Is(err, ErrLastNode) {
		t.Errorf("of the last node: %v", err)
	}
	if n := c.keys(); n != 32+2+1 {
		t.Errorf("%d keys, want those of 32 tables, 2 nodes and 1 drain", n)
	}
	if n := c.state(b); n.Mode != ModeDraining || n.Tables != 0 || n.Wanted != 0 || n.Weight != 1 || !b.LeaseOK() {
		t.Errorf("lease %v, %+v", b.LeaseOK(), n)
	}
	if n := c.state(a); n.Mode != ModeOwnership || n.Wanted != 32 {
		t.Errorf("%+v", n)
	}
	other := c.join()
	c.awaitCounts(map[*desk]int{a: 16, b: 0, other: 16})
	if err := c.registry().Undrain(t.Context(), "g", b.ID()); err != nil {
		t.Fatal(err)
	}
	other.leave()
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	if n := c.state(b); n.Mode != ModeOwnership {
		t.Errorf("%+v", n)
	}
}

func TestADrainEndsWithItsNode(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, left, killed := c.join(short), c.join(short), c.join(short)
	for _, d := range []*desk{left, killed} {
		c.await("some tables", func() bool { return len(d.held) > 9 })
		c.drain(d)
	}
	c.awaitCounts(map[*desk]int{a: 32, left: 0, killed: 0})
	left.leave()
	if n := c.keys(); n != 32+2+1 {
		t.Errorf("%d keys, want those of 32 tables, 2 nodes and 1 drain", n)
	}
	killed.kill()
	key := spaceOf(c.cluster, "g").drain(killed.ID())
	c.awaitKey(key, func(value []byte, _ int64) bool { return value == nil })
}

func TestDrainsAtOnceLeaveOneNode(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ids := []string{"one", "two", "three", "four"}
	for _, id := range ids {
		newWriter(t, c, id)
	}
	for range 20 {
		errs := make([]error, len(ids))
		var wg sync.WaitGroup
		for i, id := range ids {
			wg.Go(func() { errs[i] = c.registry().Drain(t.Context(), "g", id) })
		}
		wg.Wait()
		refused := 0
		for i, err := range errs {
			if errors.Is(err, ErrLastNode) {
				refused++
			} else if err = errors.Join(err, c.registry().Undrain(t.Context(), "g", ids[i])); err != nil {
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Fatalf("%d of %d drains at once were refused, want 1", refused, len(ids))
		}
	}
}

func TestANewIncarnationDrainsOn(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b, w := c.joinWired()
	c.drain(b)
	c.awaitCounts(map[*desk]int{a: 32, b: 0})
	id, keys := b.ID(), spaceOf(c.cluster, "g")
	w.Cut()
	c.awaitKey(keys.node(id), func(value []byte, _ int64) bool { return value == nil })
	w.Mend(t)
	c.await("registered anew", func() bool { return b.ID() != id && b.LeaseOK() && b.Peers() == 2 })
	poll(t, "drains on", func() bool { found, ok := c.find(b); return ok && found.Mode == ModeDraining })
	time.Sleep(100 * time.Millisecond) // several plans
	c.awaitCounts(map[*desk]int{a: 32, b: 0})
	c.awaitKey(keys.drain(id), func(value []byte, _ int64) bool { return value == nil })
}
