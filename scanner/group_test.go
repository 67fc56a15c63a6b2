package scanner

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func drawGroup(t *rapid.T, next *int) *group {
	g := newGroup(owner, nil)
	for range rapid.IntRange(0, 9).Draw(t, "tables") {
		g.tables = append(g.tables, *next)
		*next++
	}
	for _, typ := range []uint64{1, 2} {
		if rapid.Bool().Draw(t, "read") {
			g.read[typ] = rapid.Int64Range(1, 5).Draw(t, "until")
		}
	}
	g.busy = rapid.IntRange(0, 4).Draw(t, "busy") == 0
	if rapid.Bool().Draw(t, "fully read") {
		g.nextFull = start.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "next full")))
	}
	if len(g.tables) == 1 && rapid.Bool().Draw(t, "failing") {
		g.failures = 1
	}
	return g
}

// readings returns, for each table, how far it is read.
func readings(groups []*group) map[int][2]int64 {
	all := make(map[int][2]int64)
	for _, g := range groups {
		for _, table := range g.tables {
			all[table] = [2]int64{g.read[1], g.read[2]}
		}
	}
	return all
}

// Merging loses no table, makes no group too large, and calls nothing read that is not.
func TestCompact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		next := 0
		var groups []*group
		for range rapid.IntRange(0, 12).Draw(t, "groups") {
			groups = append(groups, drawGroup(t, &next))
		}
		before := readings(groups)
		small := 0
		after := compact(slices.Clone(groups), size)
		for _, g := range after {
			if !slices.Contains(groups, g) && len(g.tables) > size {
				t.Fatalf("a merged group has %d tables", len(g.tables))
			}
			if g.settled() && len(g.tables) <= size/2 {
				small++
			}
		}
		if small > 1 {
			t.Fatalf("%d small groups are left", small)
		}
		now := readings(after)
		if len(now) != len(before) {
			t.Fatalf("%d tables became %d", len(before), len(now))
		}
		for table, old := range before {
			for i, until := range now[table] {
				if until > old[i] {
					t.Fatalf("table %d: %v became %v", table, old, now[table])
				}
			}
		}
	})
}

// The next slot is within an interval, and the slots of one group are an
// interval apart.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "interval"))
		now := start.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now")))
		first := rapid.IntRange(0, 8191).Draw(t, "first")
		grid := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "grid"))
		slot := slotAfter(start, now, first, interval, grid)
		if !slot.After(now) || slot.Sub(now) > interval {
			t.Fatalf("the slot after %s is %s", now, slot)
		}
		if next := slotAfter(start, slot, first, interval, grid); next.Sub(slot) != interval {
			t.Fatalf("the slots %s and %s are not %s apart", slot, next, interval)
		}
	})
}

func TestSlotsAreSpread(t *testing.T) {
	const groups, parts = 128, 16
	var count [parts]int
	for i := range groups {
		slot := slotAfter(start, start, i*64, time.Second, 10*time.Millisecond)
		count[int(slot.Sub(start)*parts/time.Second)%parts]++
	}
	if low, high := slices.Min(count[:]), slices.Max(count[:]); low < 4 || high > 12 {
		t.Errorf("%d groups fall on the parts of the interval as %v", groups, count)
	}
}

func TestFailWait(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 5: time.Minute, 500: time.Minute} {
		if got := failWait(failures, 5*time.Second); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

func TestNoPeekBeginsAheadOfAClockThatWasSetBack(t *testing.T) {
	sv := newServer(Config{Interval: time.Second, FullEvery: time.Hour}.withDefaults(), 0, "db1", newMetrics())
	const read, clock = 1_000_000, 900_000
	v := view{now: time.Now(), clock: clock, wanted: []uint64{1}}
	g := newGroup(owner, []int{3})
	g.nextFull, g.read[1], g.recent = v.now.Add(time.Hour), read, read
	sv.groups = []*group{g}
	if j := sv.regular(g, v); j == nil || j.from > clock {
		t.Errorf("%+v reads nothing that is due at %d", j, clock)
	}
}

// A type that the last peek left out is peeked soon after it is wanted again, and what fell due meanwhile is pulled. Of one that a full
// look left out, all that is due is pulled.
func TestATypeThatWasLeftOut(t *testing.T) {
	for name, full := range map[string]bool{"of a regular peek": false, "of a full look": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer(Config{}.withDefaults(), 0, "db1", newMetrics())
				g := newGroup(owner, []int{3, 4})
				sv.groups = []*group{g}
				peek := func(wanted ...uint64) *job {
					now := time.Now()
					j, _ := sv.pick(view{now: now, clock: now.UnixMilli(), wanted: wanted})
					if j != nil {
						sv.finish(j, result{})
					}
					return j
				}
				peek(1, 2)
				read := g.read[1]
				if time.Sleep(DefaultInterval); full {
					read = 0
					time.Sleep(DefaultFullEvery)
				}
				peek(2)
				if peek(1, 2) != nil {
					t.Error("it is peeked again at once")
				}
				time.Sleep(lagEvery)
				if j := peek(1, 2); j == nil || j.full {
					t.Errorf("%+v", j)
				}
				if due, _ := sv.lane(1).next(); due != read || len(sv.lane(1).spans) != 2 || len(sv.lane(2).spans) > 0 {
					t.Errorf("unread from %d, want %d", due, read)
				}
			})
		})
	}
}

func TestHowOftenAGroupIsPeeked(t *testing.T) {
	const base = 4 * time.Second
	for name, c := range map[string]struct {
		found  []int // of 64 tables, peek by peek
		want   time.Duration
		sparse bool
	}{
		"never peeked":                        {nil, base, false},
		"full":                                {[]int{64, 64}, base, false},
		"few entries":                         {[]int{64, 16}, base, true},
		"once empty":                          {[]int{64, 0}, base, true},
		"empty for long":                      {[]int{64, 0, 0, 0, 0}, base * 3 / 2, true},
		"empty for long, and not any more":    {[]int{0, 0, 0, 0, 1}, base, true},
		"empty for long, and suddenly in use": {[]int{0, 0, 0, 0, 300}, base, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(owner, make([]int, 64))
			for _, n := range c.found {
				g.note(n)
			}
			if got := g.interval(base); got != c.want || g.sparse() != c.sparse {
				t.Errorf("each %s, sparse %t; want %s, %t", got, g.sparse(), c.want, c.sparse)
			}
		})
	}
}

func TestAMergedGroupIsPeekedAsOftenAsThatOfThePartsWhichNeedsItMost(t *testing.T) {
	silent, busy := newGroup(owner, []int{1}), newGroup(owner, []int{2})
	for range silentPeeks {
		silent.note(0)
	}
	busy.note(1)
	if got := merge(silent, busy).interval(time.Second); got != time.Second {
		t.Errorf("each %s", got)
	}
}
