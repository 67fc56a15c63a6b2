package bench

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestEveryDrainHasOneWithoutAHistoryOnBothSides(t *testing.T) {
	t.Parallel()
	first := 0
	for range 100 {
		order := turns(3, 4)
		if len(order) != 2+4*4 || order[0] != without || order[len(order)-1] != without {
			t.Fatalf("%v", order)
		}
		for round := range slices.Chunk(order[1:len(order)-1], 4) {
			if got := slices.Sorted(slices.Values(round)); !slices.Equal(got, []int{without, 0, 1, 2}) {
				t.Fatalf("%v in %v", got, order)
			}
		}
		if order[1] == without {
			first++
		}
	}
	if first == 0 || first == 100 {
		t.Errorf("%d of 100 orders begin with two drains without a history: want a random order", first)
	}
}

func TestARatioComparesWithTheNearestDrainsOfBothSides(t *testing.T) {
	t.Parallel()
	cost := func(kind int, seconds float64) sample { return sample{kind: kind, usage: Usage{Seconds: seconds}} }
	for name, c := range map[string]struct {
		all  []sample
		want []float64
	}{
		"beside both":             {[]sample{cost(without, 2), cost(0, 8), cost(without, 4)}, []float64{0.375}},
		"others between":          {[]sample{cost(without, 9), cost(without, 1), cost(1, 50), cost(0, 4), cost(1, 60), cost(without, 3), cost(without, 9)}, []float64{0.5}},
		"two, in order":           {[]sample{cost(without, 1), cost(0, 1), cost(0, 2), cost(without, 1)}, []float64{1, 0.5}},
		"an unknown cost":         {[]sample{cost(without, 1), cost(0, math.NaN()), cost(without, 1)}, nil},
		"an unknown cost without": {[]sample{cost(without, 1), cost(0, 1), cost(without, math.NaN())}, nil},
		"no drain of the kind":    {[]sample{cost(without, 1), cost(1, 1), cost(without, 1)}, nil},
	} {
		if got := compare(c.all, 0, sample.seconds); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestADrainIsNotChargedForNodesThatWait(t *testing.T) {
	t.Parallel()
	all := []sample{
		{recorded: Usage{ProcessCPU: 5, ServerCPU: 7}, span: 2, idle: Usage{Seconds: 1, ProcessCPU: 0.5, ServerCPU: 1}},
		{recorded: Usage{ProcessCPU: 9, ServerCPU: 9}, span: 4, idle: Usage{Seconds: 1, ProcessCPU: 1.5, ServerCPU: 1}},
	}
	lessIdle(all)
	if all[0].cpu() != 5-2+7-2 || all[1].cpu() != 9-4+9-4 {
		t.Errorf("%g and %g seconds", all[0].cpu(), all[1].cpu())
	}
}

func TestQuartilesLieBetweenFigures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of   []float64
		want Quartiles
	}{
		"nothing": {nil, Quartiles{}},
		"one":     {[]float64{7}, Quartiles{7, 7, 7}},
		"two":     {[]float64{3, 1}, Quartiles{1.5, 2, 2.5}},
		"five":    {[]float64{5, 1, 4, 2, 3}, Quartiles{2, 3, 4}},
	} {
		if got := quartiles(c.of); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := (Quartiles{0.5, 0.75, 1}).text("%.2f"); got != "0.75 (0.50 to 1.00)" {
		t.Error(got)
	}
}

func TestFiguresOfRunsThatAreNotAllAccountedForAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   int
		runs   runCount
		stored storedRuns
		says   string // "": accepted
	}{
		"all recorded":               {0, runCount{recorded: 10}, storedRuns{n: 10}, ""},
		"a part dropped, and told":   {0, runCount{recorded: 8, dropped: 2}, storedRuns{n: 8}, ""},
		"none without a history":     {without, runCount{}, storedRuns{}, ""},
		"runs without a history":     {without, runCount{recorded: 3}, storedRuns{n: 3}, "want 0 together"},
		"left-overs without history": {without, runCount{}, storedRuns{n: 3}, "3 runs are stored"},
		"none at all":                {0, runCount{}, storedRuns{}, "0 runs recorded and 0 dropped, want 10"},
		"drops that are not told":    {0, runCount{recorded: 8}, storedRuns{n: 8}, "8 runs recorded and 0 dropped, want 10"},
		"more than there are tasks":  {0, runCount{recorded: 11}, storedRuns{n: 11}, "want 10"},
		"said, but not stored":       {0, runCount{recorded: 10}, storedRuns{n: 9}, "9 runs are stored"},
		"all dropped":                {0, runCount{dropped: 10}, storedRuns{}, "all of 10 runs were dropped"},
		"a refusal":                  {0, runCount{recorded: 9, failed: 1}, storedRuns{n: 9}, "1 of 10 runs could not be recorded"},
		"another output":             {0, runCount{recorded: 10}, storedRuns{n: 10, other: 1}, "another length"},
	} {
		err := sample{kind: c.kind, tasks: 10, runs: c.runs}.check(c.stored)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestAHistoryThatIsNotRecordedFailsTheMeasure(t *testing.T) {
	t.Parallel()
	o := given(t, tocsin.Layout{Databases: 1, Tables: 2})
	o.Tasks, o.Rounds, o.Outputs = 50, 1, []int{0}
	s := open(t, o)
	for _, pool := range s.pools {
		if _, err := pool.DB.ExecContext(context.Background(), "ALTER TABLE "+s.config.Layout.Database(0)+".run MODIFY node CHAR(1) NOT NULL"); err != nil {
			t.Fatal(err)
		}
	}
	err := newHistories(s).measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "50 of 50 runs could not be recorded") {
		t.Errorf("%v", err)
	}
}
