package assign

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestADryRunSaysWhatWouldMoveFromWhomToWhom(t *testing.T) {
	t.Parallel()
	two := []Member{{"a", 1}, {"b", 1}}
	for name, c := range map[string]struct {
		change Change
		owners []string
		moves  int
		least  int
		flows  []Flow
	}{
		"nothing is to be done":      {Change{}, []string{"a", "b"}, 0, 0, []Flow{}},
		"a node comes":               {Change{Add: 1}, []string{"a", "a", "a", "b", "b", "b"}, 2, 2, []Flow{{"a", "new-1", 1}, {"b", "new-1", 1}}},
		"a heavy node comes":         {Change{Add: 1, Weight: 2}, []string{"a", "a", "b", "b"}, 2, 2, []Flow{{"a", "new-1", 1}, {"b", "new-1", 1}}},
		"a node goes":                {Change{Remove: []string{"b"}}, []string{"a", "b", "b", ""}, 3, 3, []Flow{{"", "a", 1}, {"b", "a", 2}}},
		"one goes and one comes":     {Change{Add: 1, Remove: []string{"b"}}, []string{"a", "b"}, 1, 1, []Flow{{"b", "new-1", 1}}},
		"all go":                     {Change{Remove: []string{"a", "b"}}, []string{"a", "b", ""}, 2, 2, []Flow{{"a", "", 1}, {"b", "", 1}}},
		"nobody has anything so far": {Change{}, []string{"", ""}, 2, 2, []Flow{{"", "a", 1}, {"", "b", 1}}},
	} {
		members, err := c.change.apply(append([]Member(nil), two...))
		if err != nil {
			t.Fatal(err)
		}
		d := dryRun(members, c.owners, misses{})
		if d.Moves != c.moves || d.Least != c.least || !reflect.DeepEqual(d.Flows, c.flows) || d.Tables != len(c.owners) {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	if _, err := (Change{Remove: []string{"x"}}).apply(two); !errors.Is(err, ErrNoNode) || err.Error() != "remove x: no such node" {
		t.Errorf("got %v", err)
	}
}

func TestADryRunAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		owners := withoutStrangers(members, drawOwners(t, members))
		d, target := dryRun(members, owners, misses{}), Plan(members, owners)
		flowing := 0
		for _, f := range d.Flows {
			flowing += f.Tables
			if f.Tables < 1 || f.From == f.To {
				t.Fatalf("%+v", f)
			}
		}
		differ := 0
		for i := range owners {
			if owners[i] != target[i] {
				differ++
			}
		}
		if d.Moves != differ || flowing != differ || d.Least > d.Moves {
			t.Fatalf("%d tables differ: %+v", differ, d)
		}
		had, have, equal := countOf(owners), countOf(target), true
		for i, s := range d.Shares {
			equal = equal && s.Weight == d.Shares[0].Weight
			if s.Owns != had[s.ID] || s.Gets != have[s.ID] || i > 0 && s.ID <= d.Shares[i-1].ID {
				t.Fatalf("%+v", d.Shares)
			}
		}
		if equal && d.Moves != d.Least {
			t.Fatalf("equal weights, and %d moves where %d are enough", d.Moves, d.Least)
		}
	})
}

// leastMoves counts without trying; here every choice of who gets an odd table is tried.
func TestTheLeastMovesAreTheLeastOfAllBalancedPlans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		owners := withoutStrangers(members, drawOwners(t, members))
		sum, had, best := 0, countOf(owners), -1
		for _, m := range members {
			sum += m.Weight
		}
		for mask := range 1 << len(members) {
			moves, shared := had[""], 0
			for i, m := range members {
				share, odd := 0, mask>>i&1
				if sum > 0 {
					share = len(owners)*m.Weight/sum + odd
				}
				if odd > 0 && (sum == 0 || len(owners)*m.Weight%sum == 0) {
					share = len(owners) + 1 // not within one table
				}
				shared += share
				moves += max(had[m.ID]-share, 0)
			}
			if shared == len(owners) && (best < 0 || moves < best) {
				best = moves
			}
		}
		if got := leastMoves(members, owners); sum > 0 && got != best {
			t.Fatalf("got %d, want %d", got, best)
		}
	})
}
