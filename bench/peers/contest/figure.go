package contest

import (
	"math"
	"slices"
	"time"
)

// perSecond is n over the time.
func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return round(float64(n)/d.Seconds(), 0)
}

// round cuts a figure to so many decimals.
func round(x float64, decimals int) float64 {
	by := math.Pow10(decimals)
	return math.Round(x*by) / by
}

// quantile is the smallest value that at least the share q of sorted lies at or
// below, in milliseconds; 0 of nothing.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	d := sorted[min(max(rank, 0), len(sorted)-1)]
	return round(float64(d.Microseconds())/1000, 2)
}

// median of an even number of values is the mean of the middle two; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// ratio is a over b, 0 where there is none.
func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return round(a/b, 2)
}
