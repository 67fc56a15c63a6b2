package contest

import (
	"encoding/json"
	"strings"
	"testing"
)

// turnOf makes a turn with one rate.
func turnOf(drain, p99 float64) Turn {
	return Turn{
		Drain: drain, Insert: 2 * drain, Delivered: 10, Duplicates: 1,
		Lateness: []Lateness{{Rate: 500, Tasks: 5, P50: p99 / 2, P99: p99, Max: 2 * p99, Early: 1}},
	}
}

// resultOf makes a result of Tocsin and another.
func resultOf(tocsin, other []Turn) Result {
	return Result{Layout: "8x16", Tasks: 10, Rates: []float64{500}, Systems: []Record{
		{Name: Reference, Rounds: tocsin}, {Name: "other", Rounds: other, Facts: Facts{Version: "other 2"}},
	}}
}

func TestMergeTakesMediansOfAllRounds(t *testing.T) {
	t.Parallel()
	a := resultOf([]Turn{turnOf(100, 4)}, []Turn{turnOf(20, 40)})
	b := resultOf([]Turn{turnOf(300, 2), turnOf(200, 9)}, []Turn{turnOf(40, 80)})
	r, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	ours, other := r.Systems[0].Median, r.Systems[1].Median
	if ours.Drain != 200 || ours.Insert != 400 || ours.Lateness[0].P99 != 4 || ours.Delivered != 30 || ours.Duplicates != 3 || ours.Lateness[0].Early != 3 {
		t.Errorf("three rounds: %+v", ours)
	}
	if other.Drain != 30 || other.Lateness[0].P99 != 60 || other.Lateness[0].Max != 120 {
		t.Errorf("two rounds: %+v", other)
	}
	if r.Systems[0].Ratio != nil || r.Systems[1].Ratio.Drain != 6.67 || r.Systems[1].Ratio.P99[0] != 15 {
		t.Errorf("ratios %+v", r.Systems[1].Ratio)
	}
	if len(a.Systems[0].Rounds) != 1 {
		t.Error("Merge changed what it was given")
	}
}

func TestMergeRefusesOtherWork(t *testing.T) {
	t.Parallel()
	a, b := resultOf(nil, nil), resultOf(nil, nil)
	b.Tasks = 11
	if _, err := Merge(a, b); err == nil || !strings.Contains(err.Error(), "different work") {
		t.Errorf("%v", err)
	}
	if _, err := Merge(); err == nil {
		t.Error("nothing was merged")
	}
}

func TestResultsAreTheSameAfterJSON(t *testing.T) {
	t.Parallel()
	r, err := Merge(resultOf([]Turn{turnOf(100, 4)}, []Turn{turnOf(20, 40)}))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(text, &again); err != nil || again.String() != r.String() {
		t.Errorf("%v\n%s\n%s", err, again, r)
	}
}

func TestTableHasALineForEach(t *testing.T) {
	t.Parallel()
	r, err := Merge(resultOf([]Turn{turnOf(100, 4)}, []Turn{turnOf(20, 40)}))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(r.String()) {
		rows = append(rows, strings.Fields(line))
	}
	want := []string{"other 20 5.00 40 5.00 20.00 40.00 80.00 1 10.00 10 1", "tocsin 100 - 200 - 2.00 4.00 8.00 1 - 10 1"}
	if got := strings.Join(rows[3], " "); got != want[0] {
		t.Errorf("%s, want %s", got, want[0])
	}
	if got := strings.Join(rows[2], " "); got != want[1] {
		t.Errorf("%s, want %s", got, want[1])
	}
	if !strings.Contains(r.String(), "other 2") {
		t.Error("the facts are missing")
	}
}

func TestARatioOfNothingIsZero(t *testing.T) {
	t.Parallel()
	if ratio(1, 0) != 0 || ratio(0, 1) != 0 || ratio(3, 2) != 1.5 {
		t.Error(ratio(1, 0), ratio(0, 1), ratio(3, 2))
	}
}

func TestBodiesTellTheirNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 123_456_789} {
		if got, err := number(Body(n)); err != nil || got != n {
			t.Errorf("%d came back as %d, %v", n, got, err)
		}
	}
	if _, err := number("short"); err == nil {
		t.Error("a short body has a number")
	}
}
