// Package quantile is the authority for what p50 and p99 mean in results, reports and tests: the smallest value that at least
// that share of all values lies at or below. Nothing is interpolated, so a quantile is a value that was measured.
package quantile

import (
	"math"
	"slices"
)

// Of returns the quantile q, 0 to 1, of values in ascending order, and the zero value if there are none.
func Of[T any](sorted []T, q float64) (value T) {
	if len(sorted) == 0 {
		return value
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Median returns the middle one of a few figures in any order, or the mean of the two in the middle, and 0 if there are none.
func Median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
