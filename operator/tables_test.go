package operator

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
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

func TestAGridHasALineOrMorePerDatabase(t *testing.T) {
	t.Parallel()
	owners := strings.Split(strings.Repeat("b,", 20)+strings.Repeat("a,", 15)+",a,b,b,b,b", ",")
	marks := Marks(owners)
	for name, c := range map[string]struct {
		width int
		want  []GridLine
	}{
		"a database fits a line": {20, []GridLine{{0, 0, strings.Repeat("B", 20)}, {1, 0, strings.Repeat("A", 15) + ".ABBB"}}},
		"it does not: lines of 16": {19, []GridLine{
			{0, 0, strings.Repeat("B", 16)}, {0, 16, "BBBB"}, {1, 0, strings.Repeat("A", 15) + "."}, {1, 16, "ABBB"},
		}},
		"there is no room at all": {-3, []GridLine{
			{0, 0, strings.Repeat("B", 16)}, {0, 16, "BBBB"}, {1, 0, strings.Repeat("A", 15) + "."}, {1, 16, "ABBB"},
		}},
	} {
		if got := Grid(owners[:40], marks, 20, c.width); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestAGridShowsEveryTableOnceInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		databases, tables := rapid.IntRange(1, 4).Draw(t, "databases"), rapid.IntRange(1, 50).Draw(t, "tables")
		owners := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), databases*tables, databases*tables).Draw(t, "owners")
		width := rapid.IntRange(0, 60).Draw(t, "width")
		marks, seen := Marks(owners), 0
		for _, line := range Grid(owners, marks, tables, width) {
			if line.Database*tables+line.First != seen || len(line.Marks) > max(width, gridStep) {
				t.Fatalf("after %d tables: %+v", seen, line)
			}
			for _, mark := range line.Marks {
				if string(mark) != marks[owners[seen]] {
					t.Fatalf("table %d of %q has the mark %c", seen, owners[seen], mark)
				}
				seen++
			}
		}
		if seen != len(owners) {
			t.Fatalf("%d of %d tables", seen, len(owners))
		}
	})
}

func TestEachOwnerHasAMarkOfItsOwnUntilTheyRunOut(t *testing.T) {
	t.Parallel()
	var owners []string
	for i := range 70 {
		owners = append(owners, fmt.Sprintf("node-%02d", i), "")
	}
	marks, uses := Marks(owners), map[string]int{}
	for _, mark := range marks {
		uses[mark]++
	}
	if marks["node-00"] != "A" || marks["node-61"] != "9" || marks["node-62"] != MarkOther || marks[""] != MarkNobody {
		t.Errorf("got %v", marks)
	}
	if len(uses) != 64 || uses[MarkOther] != 8 {
		t.Errorf("uses %v", uses)
	}
}
