package scanner

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/store"
)

func drawGroup(t *rapid.T, next *int) *group {
	g := newGroup(owner, nil)
	for range rapid.IntRange(0, 9).Draw(t, "tables") {
		g.tables = append(g.tables, *next)
		*next++
	}
	for _, typ := range []uint64{1, 2} {
		if rapid.Bool().Draw(t, "read") {
			g.read[typ] = reading{floor: rapid.Int64Range(0, 5).Draw(t, "floor"), behind: rapid.Bool().Draw(t, "behind")}
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

// readings gives, for each table, how far it is read.
func readings(groups []*group) map[int][2]reading {
	all := make(map[int][2]reading)
	for _, g := range groups {
		for _, table := range g.tables {
			all[table] = [2]reading{g.read[1], g.read[2]}
		}
	}
	return all
}

// Merging loses no table, makes no group too large, and raises no floor.
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
			for i, r := range now[table] {
				if r.floor > old[i].floor || (old[i].behind && r.floor != 0 && !r.behind) {
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

func TestGroup(t *testing.T) {
	cases := map[string]func(t *testing.T, g *group){
		"what is refused lowers the floor and leaves the group behind": func(t *testing.T, g *group) {
			g.done([]uint64{1}, 100, false)
			g.lower(1, 40)
			if g.read[1] != (reading{floor: 40, behind: true}) {
				t.Errorf("%v", g.read)
			}
		},
		"what is pushed out while a job is under way outlives the job": func(t *testing.T, g *group) {
			g.busy = true
			g.lower(1, 40)
			g.done([]uint64{1}, 100, false)
			if g.read[1] != (reading{floor: 40, behind: true}) {
				t.Errorf("%v", g.read)
			}
		},
		"a type that is left out keeps its floor and is behind": func(t *testing.T, g *group) {
			g.done([]uint64{1, 2}, 100, false)
			g.skip([]uint64{2}, false)
			g.done([]uint64{2}, 200, false)
			if g.read[1] != (reading{floor: 100, behind: true}) || g.read[2] != (reading{floor: 200, behind: false}) {
				t.Errorf("%v", g.read)
			}
		},
		"a type that is left out of a full peek is owed one": func(t *testing.T, g *group) {
			g.done([]uint64{1, 2}, 100, false)
			g.skip([]uint64{2}, true)
			if g.read[1] != (reading{floor: 0, behind: true}) {
				t.Errorf("%v", g.read)
			}
		},
		"a full peek that is owed outlives a pause": func(t *testing.T, g *group) {
			g.done([]uint64{1}, 100, true)
			g.owe([]uint64{1})
			g.skip(nil, false)
			g.done([]uint64{1}, 200, false)
			if g.read[1].floor != 0 {
				t.Errorf("%v", g.read)
			}
		},
		"a type that was never read is behind from the beginning": func(t *testing.T, g *group) {
			g.done([]uint64{1}, 100, false)
			if got := g.behind([]uint64{1, 2}); !slices.Equal(got, []uint64{2}) || g.floor(got) != 0 {
				t.Errorf("%v from %d", got, g.floor(got))
			}
		},
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) { check(t, newGroup(owner, []int{0})) })
	}
}

func TestWhatIsRefusedOfOneTypeLeavesTheOthersAsTheyAre(t *testing.T) {
	g := newGroup(owner, []int{0})
	g.done([]uint64{1, 2}, 100, false)
	g.busy = true
	g.lower(2, 40)
	if g.read[1] != (reading{floor: 100}) || g.read[2] != (reading{floor: 40, behind: true}) {
		t.Errorf("%v", g.read)
	}
	g.done([]uint64{1, 2}, 200, false)
	if g.read[1] != (reading{floor: 200}) || g.read[2] != (reading{floor: 40, behind: true}) {
		t.Errorf("after the job: %v", g.read)
	}
}

func TestWhatIsRefusedWhereItWillStillBeReadEndsNoStream(t *testing.T) {
	g := newGroup(owner, []int{0})
	under := reading{floor: 50, behind: true, backlog: &backlog{rest: []store.Place{{Table: 0, Due: 60}}, began: 100}}
	g.streamed(1, under)
	if g.lower(1, 100); g.read[1] != under {
		t.Errorf("behind where it began: %v", g.read)
	}
	if g.lower(1, 99); g.read[1] != (reading{floor: 50, behind: true}) {
		t.Errorf("in a table that it may be done with: %v", g.read)
	}
}

func TestFailWait(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 5: time.Minute, 500: time.Minute} {
		if got := failWait(failures, 5*time.Second); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

func TestNoFloorIsAheadOfAClockThatWasSetBack(t *testing.T) {
	m := newMetrics()
	sv := newServer(Config{Interval: time.Second, FullEvery: time.Hour}.withDefaults(), 0, "db1", m)
	const floor, clock = 1_000_000, 900_000
	v := view{now: time.Now(), clock: clock, wanted: []uint64{1}}
	for name, behind := range map[string]bool{"regular": false, "catch-up": true} {
		g := newGroup(owner, []int{3})
		g.nextFull, g.read[1] = v.now.Add(time.Hour), reading{floor: floor, behind: behind}
		sv.groups = []*group{g}
		pick := func() *job { return sv.regular(g, v) }
		if behind {
			pick = func() *job { return sv.behind(v) }
		}
		if j := pick(); j == nil || j.from > clock {
			t.Errorf("%s: %+v reads nothing that is due at %d", name, j, clock)
		}
	}
}

// TestNothingIsStreamedBeforeItsFirstPeek: streams of tables that hold nothing due
// would hold up the first peeks of the others.
func TestNothingIsStreamedBeforeItsFirstPeek(t *testing.T) {
	m := newMetrics()
	cfg := Config{Intake: newLanes(1), Interval: time.Second, FullEvery: time.Hour}.withDefaults()
	sv := newServer(cfg, 0, "db1", m)
	sv.set(owned(8*cfg.TablesPerStatement), owner)
	v := view{now: time.Now(), clock: 900_000, wanted: []uint64{1, 2}}
	for n := 0; ; n++ {
		j, _ := sv.pick(v)
		if j == nil {
			if n != parallel {
				t.Errorf("%d first peeks at once, not %d", n, parallel)
			}
			return
		}
		if j.stream || !j.first {
			t.Fatalf("job %d of tables that were never peeked: %+v", n, j)
		}
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
