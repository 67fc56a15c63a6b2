package contest

import (
	"math"
	"time"

	"github.com/tocsinhq/tocsin/internal/quantile"
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

// millis returns a quantile of sorted times in milliseconds.
func millis(sorted []time.Duration, q float64) float64 {
	return round(float64(quantile.Of(sorted, q).Microseconds())/1000, 2)
}

// ratio is a over b, 0 where there is none.
func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return round(a/b, 2)
}
