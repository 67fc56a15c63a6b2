package assign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	two := []Member{{"a", 1}, {"b", 1}}
	for name, c := range map[string]struct {
		nodes  []Member
		owners []string
		want   []string
	}{
		"nobody is there":                     {nil, []string{"", "a"}, []string{"", ""}},
		"nobody has a weight":                 {[]Member{{"a", 0}}, []string{"a", ""}, []string{"", ""}},
		"free tables are dealt in turn":       {two, []string{"", "", "", ""}, []string{"a", "b", "a", "b"}},
		"a dead node's tables are free":       {two, []string{"x", "a", "x", "b"}, []string{"a", "a", "b", "b"}},
		"what is balanced stays":              {two, []string{"b", "a", "b"}, []string{"b", "a", "b"}},
		"a newcomer gets some from each part": {two, []string{"a", "a", "a", "a"}, []string{"a", "b", "a", "b"}},
		"a leaving node gives up everything":  {[]Member{{"a", 0}, {"b", 1}}, []string{"a", "b"}, []string{"b", "b"}},
		"weights count":                       {[]Member{{"a", 3}, {"b", 1}}, []string{"", "", "", ""}, []string{"a", "b", "a", "a"}},
		"the order of nodes does not matter":  {[]Member{{"b", 1}, {"a", 1}}, []string{"", ""}, []string{"a", "b"}},
	} {
		if got := Plan(c.nodes, c.owners); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// drawMembers draws nodes with distinct ids; some weigh nothing.
func drawMembers(t *rapid.T) []Member {
	n := rapid.IntRange(1, 12).Draw(t, "nodes")
	equal := rapid.Bool().Draw(t, "equal")
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("n%d", i), Weight: 1}
		if !equal {
			members[i].Weight = rapid.IntRange(0, 9).Draw(t, "weight")
		}
	}
	return members
}

// drawOwners draws owners among members, gone nodes and nobody.
func drawOwners(t *rapid.T, members []Member) []string {
	names := []string{"", "gone"}
	for _, m := range members {
		names = append(names, m.ID)
	}
	return rapid.SliceOfN(rapid.SampledFrom(names), 0, 60).Draw(t, "owners")
}

func countOf(owners []string) map[string]int {
	counts := make(map[string]int)
	for _, o := range owners {
		counts[o]++
	}
	return counts
}

// checkPlan fails unless the target is balanced, moves no more than it must, and is its own plan.
func checkPlan(t *rapid.T, members []Member, owners, target []string) {
	sum, have, had := 0, countOf(target), countOf(owners)
	for _, m := range members {
		sum += m.Weight
	}
	surplus := 0
	for _, m := range members {
		if sum == 0 {
			break
		}
		exact := len(owners) * m.Weight // times sum
		if got := have[m.ID] * sum; got <= exact-sum || got >= exact+sum {
			t.Fatalf("%s has %d of %d tables with weight %d of %d", m.ID, have[m.ID], len(owners), m.Weight, sum)
		}
		surplus += max(had[m.ID]-have[m.ID], 0)
	}
	if sum > 0 && have[""] > 0 {
		t.Fatalf("%d tables are nobody's", have[""])
	}
	if moves := movesOf(members, owners, target); sum > 0 && moves != surplus {
		t.Fatalf("%d moves, %d are enough: %q to %q", moves, surplus, owners, target)
	}
	if again := Plan(members, target); !slices.Equal(again, target) {
		t.Fatalf("not stable: %q, then %q", target, again)
	}
}

// movesOf counts the tables that a live node has to give up.
func movesOf(members []Member, owners, target []string) int {
	moves := 0
	for i, o := range owners {
		live := slices.ContainsFunc(members, func(m Member) bool { return m.ID == o })
		if live && target[i] != o {
			moves++
		}
	}
	return moves
}

func TestPlanIsBalancedFrugalAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		owners := drawOwners(t, members)
		target := Plan(members, owners)
		checkPlan(t, members, owners, target)
		shuffled := rapid.Permutation(members).Draw(t, "order")
		if other := Plan(shuffled, owners); !slices.Equal(other, target) {
			t.Fatalf("another order of nodes gives another plan: %q, %q", target, other)
		}
	})
}

// Pausing members keep their tables and get none; the rest is planned for the others.
func TestPlanMeanwhileGivesNothingToWhoPauses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		owners := drawOwners(t, members)
		idle := drawIdle(t, members)
		busy := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return idle[m.ID] })
		target := PlanMeanwhile(members, owners, misses{}, idle)
		if len(idle) == 0 || !slices.ContainsFunc(busy, func(m Member) bool { return m.Weight > 0 }) {
			checkPlan(t, members, owners, target)
			return
		}
		var rest, planned []string
		for table, id := range target {
			switch owner := owners[table]; {
			case idle[owner] && id != owner:
				t.Fatalf("table %d of %q is taken from %s, who pauses: %q", table, owners, owner, target)
			case idle[id] && id != owner:
				t.Fatalf("table %d of %q goes to %s, who pauses: %q", table, owners, id, target)
			case !idle[owner]:
				rest, planned = append(rest, owner), append(planned, id)
			}
		}
		checkPlan(t, busy, rest, planned)
		if other := PlanMeanwhile(rapid.Permutation(members).Draw(t, "order"), owners, misses{}, idle); !slices.Equal(other, target) {
			t.Fatalf("another order of nodes gives another plan: %q, %q", target, other)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	members := make([]Member, 200)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("node-%03d", i), Weight: 1}
	}
	r, owners := rand.New(rand.NewPCG(1, 2)), make([]string, 8192)
	for i := range owners {
		owners[i] = members[r.IntN(len(members))].ID
	}
	for b.Loop() {
		Plan(members, owners)
	}
}
