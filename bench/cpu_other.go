//go:build !unix

package bench

import "time"

// Nothing is known of processes here.
func processCPU() time.Duration { return 0 }
func largestResident() float64  { return 0 }
