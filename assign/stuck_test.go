package assign

import (
	"errors"
	"testing"
)

// stuckOn refuses to drop the tables up to 3, as when their server is away.
func stuckOn() error {
	return &Refused{Tables: []int{0, 1, 2, 3}, Err: errors.New("server 0 is away")}
}

func TestTablesThatAreStuckHoldUpNoOtherWhenANodeComes(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node()
	a.failDrop = stuckOn()
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join()
	c.await("what is not stuck has moved", func() bool { return len(b.held) > 8 && len(a.held)+len(b.held) == 32 })
	c.update(func() { a.failDrop = nil })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}

func TestALostTableThatIsStuckHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node()
	a.failDrop = stuckOn()
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	key := spaceOf(c.cluster, "g").table(0)
	if _, err := c.client.Put(t.Context(), key, "by hand"); err != nil {
		t.Fatal(err)
	}
	b := c.join()
	c.await("what is not stuck has moved", func() bool { return len(b.held) > 8 && len(a.held)+len(b.held) == 32 })
	c.update(func() { a.failDrop = nil })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}

func TestTablesThatAreStuckHoldUpNoOtherWhenANodeLeaves(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join()
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join()
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	c.update(func() { b.failDrop = nil; a.failDrop = stuckOn() })
	a.cancel()
	c.await("what is not stuck is with the other", func() bool { return len(a.held) <= 4 && len(b.held) == 32-len(a.held) })
	if !a.LeaseOK() {
		t.Error("the lease is not kept for what is stuck")
	}
	c.update(func() { a.failDrop = nil })
	a.leave()
	c.awaitCounts(map[*desk]int{b: 32})
}
