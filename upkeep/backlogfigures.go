package upkeep

import (
	"math"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// spot is where tasks of one biz type are counted.
type spot struct {
	typeCode uint64
	database int
}

// overdue is what one walk over a server's tables found. The zero overdue is of no walk.
type overdue struct {
	layout tocsin.Layout
	at     time.Time                // the end of the walk
	oldest map[spot]time.Duration   // for how long the oldest task has been due
	rows   map[uint64]int           // by biz type
	capped map[int]int              // by database: tables with more than were counted
	failed map[int]int              // by database: tables that could not be read
	unsure map[uint64]bool          // types with rows in capped tables
	shrink map[uint64]time.Duration // by biz type: until nothing is overdue, at the pace since the walk before; -1: never; missing: not known
}

func newOverdue(layout tocsin.Layout) overdue {
	return overdue{
		layout: layout, oldest: make(map[spot]time.Duration), rows: make(map[uint64]int),
		capped: make(map[int]int), failed: make(map[int]int), unsure: make(map[uint64]bool), shrink: make(map[uint64]time.Duration),
	}
}

// add notes what one statement found, at now by the server's clock.
func (o *overdue) add(found []store.Late, failed map[int]error, now int64) {
	total := make(map[int]int)
	for _, f := range found {
		at := spot{f.Type, o.layout.DatabaseOf(f.Table)}
		o.oldest[at] = max(o.oldest[at], time.Duration(now-f.Oldest)*time.Millisecond)
		o.rows[f.Type] += f.Rows
		total[f.Table] += f.Rows
	}
	for _, f := range found {
		o.unsure[f.Type] = o.unsure[f.Type] || total[f.Table] >= overdueMost
	}
	for table, rows := range total {
		if rows >= overdueMost {
			o.capped[o.layout.DatabaseOf(table)]++
		}
	}
	for table := range failed {
		o.failed[o.layout.DatabaseOf(table)]++
	}
}

// compare estimates by the walk before when nothing will be overdue.
func (o *overdue) compare(before overdue) {
	if before.at.IsZero() {
		return
	}
	for t, rows := range o.rows {
		if o.unsure[t] || before.unsure[t] {
			continue
		}
		o.shrink[t] = drainTime(before.rows[t], rows, o.at.Sub(before.at))
	}
}

// drainTime returns how long it takes until nothing is left at the pace at which before became now; -1 if it grows or stays.
func drainTime(before, now int, in time.Duration) time.Duration {
	switch {
	case now == 0:
		return 0
	case now >= before || in <= 0:
		return -1
	}
	left := float64(now) / float64(before-now) * float64(in)
	return time.Duration(min(left, math.MaxInt64/2))
}

// counts is what one walk over a server's tables counted.
type counts struct {
	layout        tocsin.Layout
	at            time.Time
	pending       map[spot]int
	claimed, dead map[uint64]int
}

func newCounts(layout tocsin.Layout) counts {
	return counts{layout: layout, pending: make(map[spot]int), claimed: make(map[uint64]int), dead: make(map[uint64]int)}
}

func (c *counts) add(found []store.Count) {
	for _, f := range found {
		c.pending[spot{f.Type, c.layout.DatabaseOf(f.Table)}] += f.Pending
		c.claimed[f.Type] += f.Claimed
		c.dead[f.Type] += f.Dead
	}
}
