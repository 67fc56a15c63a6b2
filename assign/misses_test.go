package assign

import (
	"context"
	"slices"
	"testing"
	"time"
)

// inBlocks has 4 databases of 8 tables, and a short life.
func inBlocks(c *Config) {
	short(c)
	c.Block = 8
}

func TestWhatANodeCannotReachGoesToThoseThatCan(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(inBlocks), c.join(inBlocks)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	before := time.Now()
	a.Miss([]int{1})
	c.await("the others have what it can't reach", func() bool {
		n := 0
		for table := range b.held {
			if table/8 == 1 {
				n++
			}
		}
		return n == 8
	})
	t.Logf("after %.1f s", time.Since(before).Seconds())
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	if got := c.state(a).Misses; !slices.Equal(got, []int{1}) {
		t.Errorf("its misses are shown as %v", got)
	}
	if plan, err := c.registry().Try(t.Context(), "g", Change{}); err != nil || plan.Moves != 0 {
		t.Errorf("the operator's plan: %+v, %v", plan, err)
	}
	a.Miss(nil)
	c.awaitKey(string(spaceOf(c.cluster, "g").node(a.ID())), func(value []byte, _ int64) bool { return !slices.Contains(value, '[') })
	b.leave()
	c.awaitCounts(map[*desk]int{a: 32})
}

func TestWhatNobodyReachesStays(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(inBlocks), c.join(inBlocks)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	c.mu.Lock()
	drops := a.drops + b.drops
	c.mu.Unlock()
	all := []int{0, 1, 2, 3}
	a.Miss(all)
	b.Miss(all)
	for _, d := range []*desk{a, b} {
		c.awaitKey(string(spaceOf(c.cluster, "g").node(d.ID())), func(value []byte, _ int64) bool { return slices.Contains(value, '3') })
	}
	third := c.join(inBlocks, func(c *Config) { c.Weight = 2 }) // a plan is made after their misses have settled
	third.Miss(all)
	c.awaitCounts(map[*desk]int{a: 8, b: 8, third: 16})
	c.mu.Lock()
	defer c.mu.Unlock()
	if moved := a.drops + b.drops - drops; moved != 16 {
		t.Errorf("%d tables were dropped, want the 16 that the third node got", moved)
	}
}

func TestWhatOthersReachIsGivenUpThoughItIsStuck(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	s, d := newIdleSession(t, c)
	d.failDrop = &Refused{Tables: []int{9}, Err: context.DeadlineExceeded}
	s.held = map[int]int64{9: 1, 20: 1}
	if err := s.drop(t.Context(), []int{9, 20}, dropTimeout); err == nil || len(s.held) != 1 {
		t.Errorf("stuck, and nobody reaches it better: %v, holds %v", err, s.held)
	}
	s.apart = missing(8, map[string][]int{s.id: {1}})
	if err := s.drop(t.Context(), []int{9}, dropTimeout); err != nil || len(s.held) != 0 {
		t.Errorf("stuck, and others reach it: %v, holds %v", err, s.held)
	}
}
