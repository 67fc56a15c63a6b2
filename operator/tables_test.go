package operator

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

func TestRangesAreTheShortestThatGiveTheNumbersBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 0, 40, rapid.ID).Draw(t, "numbers")
		slices.Sort(numbers)
		ranges := Ranges(numbers)
		var back []int
		for i, r := range ranges {
			from, to := bounds(t, r)
			if i > 0 && from == back[len(back)-1]+1 {
				t.Fatalf("%v: %s goes on where the one before ends", ranges, r)
			}
			for n := from; n <= to; n++ {
				back = append(back, n)
			}
		}
		if !slices.Equal(back, numbers) {
			t.Fatalf("%v of %v gives %v back", ranges, numbers, back)
		}
	})
}

func bounds(t *rapid.T, text string) (from, to int) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	if _, err := fmt.Sscan(first+" "+last, &from, &to); err != nil || isRange && to <= from {
		t.Fatalf("range %q: %v", text, err)
	}
	return from, to
}

func TestSharesAddUpWhatWaitsInEachNodesTables(t *testing.T) {
	t.Parallel()
	owners := []string{"b", "a", "a", "", "b", "a"}
	tallies := map[int]Tally{
		0: {Pending: 1, Overdue: 5}, 4: {Pending: 2, Claimed: 1, Overdue: 3}, 2: {Dead: 4}, 3: {Pending: 7},
	}
	want := []Share{
		{Node: "a", Tables: 3, Ranges: []string{"1-2", "5"}, Tally: Tally{Dead: 4}},
		{Node: "b", Tables: 2, Ranges: []string{"0", "4"}, Tally: Tally{Pending: 3, Claimed: 1, Overdue: 5}},
		{Node: "", Tables: 1, Ranges: []string{"3"}, Tally: Tally{Pending: 7}},
	}
	if got := shares(owners, tallies); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestATallyHasTheTypesOfItsGroup(t *testing.T) {
	t.Parallel()
	counts := []store.Count{
		{Table: 3, Type: 1, Pending: 2, Claimed: 1, Done: 9, Dead: 1, Oldest: 10_000},
		{Table: 3, Type: 2, Pending: 5, Oldest: 4_000},
		{Table: 3, Type: 3, Pending: 100, Oldest: 1},
		{Table: 3, Type: 4, Pending: 1, Claimed: 1, Dead: 1, Oldest: 2},
		{Table: 4, Type: 1, Pending: 1, Oldest: 30_000},
		{Table: 5, Type: 1, Done: 3},
		{Table: 5, Type: 5, Dead: 1}, // of no policy
	}
	want := map[string]map[int]Tally{
		"orders": {3: {Pending: 8, Claimed: 2, Dead: 2, Overdue: 8.5}, 4: {Pending: 1}, 5: {}},
		"others": {3: {Pending: 100, Overdue: 12.499}},
	}
	got := map[string]map[int]Tally{"orders": {}, "others": {}}
	tally(got, []biztype.Policy{{Number: 1, Group: "orders"}, {Number: 2, Group: "orders"}, {Number: 3, Group: "others"}, {Number: 4, Group: "orders", Paused: true}}, counts, 12_500)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
