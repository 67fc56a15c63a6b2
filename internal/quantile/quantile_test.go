package quantile

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for name, c := range map[string]struct {
		of   []int
		q    float64
		want int
	}{
		"nothing":           {nil, 0.99, 0},
		"one":               {[]int{7}, 0.5, 7},
		"the middle of two": {[]int{1, 2}, 0.5, 1},
		"the middle of odd": {[]int{1, 2, 9}, 0.5, 2},
		"p50 of a hundred":  {hundred, 0.5, 50},
		"p99 of a hundred":  {hundred, 0.99, 99},
		"p99 of four":       {[]int{1, 2, 3, 4}, 0.99, 4},
		"the smallest":      {[]int{1, 2, 9}, 0, 1},
		"the largest":       {[]int{1, 2, 9}, 1, 9},
	} {
		if got := Of(c.of, c.q); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of   []float64
		want float64
	}{
		"nothing":   {nil, 0},
		"one":       {[]float64{7}, 7},
		"two":       {[]float64{3, 1}, 2},
		"unordered": {[]float64{9, 1, 2}, 2},
	} {
		if got := Median(c.of); got != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}
