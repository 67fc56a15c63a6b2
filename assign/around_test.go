package assign

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// missing is misses in short: "a" misses the blocks 1 and 3.
func missing(block int, by map[string][]int) misses {
	m := misses{block: block, by: make(map[string]map[int]bool)}
	for id, blocks := range by {
		for _, b := range blocks {
			m.add(id, b)
		}
	}
	return m
}

func TestPlanAround(t *testing.T) {
	t.Parallel()
	two := []Member{{"a", 1}, {"b", 1}}
	for name, c := range map[string]struct {
		nodes  []Member
		owners string
		by     map[string][]int
		want   string
	}{
		"nobody misses any":            {two, "aabb", nil, "aabb"},
		"the shares stay as they are":  {two, "abab", map[string][]int{"a": {0}}, "bbaa"},
		"what is right stays":          {two, "bbaa", map[string][]int{"a": {0}}, "bbaa"},
		"free tables are dealt around": {two, "    ", map[string][]int{"a": {0}}, "bbaa"},
		"both miss something":          {two, "aabb", map[string][]int{"a": {0}, "b": {1}}, "bbaa"},
		"there is nothing left for it": {two, "aabb", map[string][]int{"a": {0, 1}}, "bbbb"},
		"and that stays":               {two, "bbbb", map[string][]int{"a": {0, 1}}, "bbbb"},
		"a draining node gets nothing": {[]Member{{"a", 1}, {"b", 0}, {"c", 1}}, "aacc", map[string][]int{"a": {0}}, "ccaa"},
		"no other could have it":       {[]Member{{"a", 1}, {"b", 0}}, "aaaa", map[string][]int{"a": {0}}, "aaaa"},
	} {
		owners := make([]string, len(c.owners))
		for i, o := range c.owners {
			if o != ' ' {
				owners[i] = string(o)
			}
		}
		var got string
		for _, o := range PlanAround(c.nodes, owners, missing(2, c.by)) {
			got += o
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// drawMisses draws who can't reach which block of 5 tables. Somebody with a weight reaches each, as view.misses has it.
func drawMisses(t *rapid.T, members []Member, tables int) misses {
	m := misses{block: 5, by: make(map[string]map[int]bool)}
	for b := range (tables + 4) / 5 {
		reaching := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Weight == 0 })
		for _, one := range members {
			alone := len(reaching) == 1 && reaching[0].ID == one.ID
			if len(reaching) == 0 || alone || rapid.IntRange(0, 3).Draw(t, "misses") > 0 {
				continue
			}
			m.add(one.ID, b)
			reaching = slices.DeleteFunc(reaching, func(m Member) bool { return m.ID == one.ID })
		}
	}
	return m
}

func TestNobodyIsToHaveWhatItCannotReach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		owners := drawOwners(t, members)
		m := drawMisses(t, members, len(owners))
		target := PlanAround(members, owners, m)
		for table, id := range target {
			if m.missed(id, table) {
				t.Fatalf("table %d goes to %s, which misses it", table, id)
			}
		}
		if again := PlanAround(members, target, m); !slices.Equal(again, target) {
			t.Fatalf("not stable: %q, then %q", target, again)
		}
	})
}

// One node that misses one of at least three databases costs no balance, and moves no more than what it misses and what it
// gets for that.
func TestWhatOneNodeMissesIsExchanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "nodes")
		members := make([]Member, n)
		for i := range members {
			members[i] = Member{ID: fmt.Sprintf("n%d", i), Weight: 1}
		}
		databases := rapid.IntRange(3, 8).Draw(t, "databases")
		m := missing(5, map[string][]int{"n0": {rapid.IntRange(0, databases-1).Draw(t, "missed")}})
		owners := Plan(members, make([]string, 5*databases))
		target, had := PlanAround(members, owners, m), 0
		for table, id := range owners {
			if m.missed(id, table) {
				had++
			}
		}
		if moves := movesOf(members, owners, target); moves > 2*had {
			t.Fatalf("%d moves for %d tables: %q to %q", moves, had, owners, target)
		}
		floor := len(owners) / n
		for id, tables := range countOf(target) {
			if tables < floor || tables > floor+1 {
				t.Fatalf("%s has %d of %d tables", id, tables, len(owners))
			}
		}
	})
}

func TestNodesThatMissTablesConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawMembers(t)
		w := newWorld(all, withoutStrangers(all, drawOwners(t, all)))
		w.misses = drawMisses(t, all, len(w.now().owners))
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
				w.setIdle(drawIdle(t, all))
				continue
			}
			node := rapid.SampledFrom(all).Draw(t, "node").ID
			w.step(node, rapid.IntRange(0, w.rev()).Draw(t, "view"), rapid.IntRange(1, 5).Draw(t, "limit"))
		}
		w.rounds(t)
		w.checkFree(t)
		w.setIdle(nil)
		w.rounds(t)
		w.check(t)
	})
}
