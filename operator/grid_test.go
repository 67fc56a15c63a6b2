package operator

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
