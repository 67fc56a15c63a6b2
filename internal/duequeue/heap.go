package duequeue

import "math/bits"

// minMax is a min-max heap of slots: levels alternate, every slot on an even
// level is the earliest of its subtree and every one on an odd level the latest.
// So both ends are at hand in one array, and one array is half the memory and
// half the work of two heaps.
type minMax []int32

// before orders by action time, then by id, so that the order is total.
func (q *Queue) before(a, b int32) bool {
	x, y := &q.slots[a], &q.slots[b]
	if x.Due != y.Due {
		return x.Due < y.Due
	}
	return x.JobID < y.JobID
}

// ahead reports whether the slot at i belongs nearer to the root than the one at
// j, on levels of the given kind.
func (q *Queue) ahead(h minMax, i, j int, early bool) bool {
	if early {
		return q.before(h[i], h[j])
	}
	return q.before(h[j], h[i])
}

func earlyLevel(i int) bool { return bits.Len(uint(i+1))&1 == 1 }

func (q *Queue) swap(h minMax, i, j int) {
	h[i], h[j] = h[j], h[i]
	q.slots[h[i]].pos, q.slots[h[j]].pos = int32(i), int32(j)
}

// remove takes the slot at i out and returns it.
func (q *Queue) remove(h *minMax, i int) int32 {
	last := len(*h) - 1
	q.swap(*h, i, last)
	slot := (*h)[last]
	*h = (*h)[:last]
	if i < last {
		q.fix(*h, i)
	}
	return slot
}

// fix restores the order after the slot at i has changed. Moving up may leave
// its former parent at i, which then has to move down.
func (q *Queue) fix(h minMax, i int) {
	q.up(h, i)
	q.down(h, i)
}

// up moves the slot at i towards the root: first to the parent's kind of level
// if it belongs there, then in steps of two levels.
func (q *Queue) up(h minMax, i int) {
	if i == 0 {
		return
	}
	early := earlyLevel(i)
	if parent := (i - 1) / 2; q.ahead(h, parent, i, early) {
		q.swap(h, i, parent)
		i, early = parent, !early
	}
	for i > 2 {
		grand := (i - 3) / 4
		if !q.ahead(h, i, grand, early) {
			return
		}
		q.swap(h, i, grand)
		i = grand
	}
}

// down moves the slot at i away from the root, past children and grandchildren
// that belong before it.
func (q *Queue) down(h minMax, i int) {
	early := earlyLevel(i)
	for {
		m := q.foremost(h, i, early)
		if m < 0 || !q.ahead(h, m, i, early) {
			return
		}
		q.swap(h, m, i)
		if m <= 2*i+2 {
			return // a child: below it is only what it was ahead of
		}
		if parent := (m - 1) / 2; q.ahead(h, parent, m, early) {
			q.swap(h, m, parent)
		}
		i = m
	}
}

// foremost gives the first in order of the children and grandchildren of i, or
// -1 where there are none.
func (q *Queue) foremost(h minMax, i int, early bool) int {
	best := -1
	consider := func(from, to int) {
		for j := from; j <= to && j < len(h); j++ {
			if best < 0 || q.ahead(h, j, best, early) {
				best = j
			}
		}
	}
	consider(2*i+1, 2*i+2)
	consider(4*i+3, 4*i+6)
	return best
}

// last gives the position of the latest slot; the earliest is at 0. The heap must
// not be empty.
func (q *Queue) last(h minMax) int {
	switch {
	case len(h) <= 2:
		return len(h) - 1
	case q.before(h[1], h[2]):
		return 2
	}
	return 1
}
