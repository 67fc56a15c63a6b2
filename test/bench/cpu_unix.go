//go:build unix

package bench

import (
	"runtime"
	"syscall"
	"time"
)

// processUsed returns the processor time of this process, user and system, and
// the most memory that it had.
func processUsed() (cpu time.Duration, megabytes float64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	unit := 1024.0
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), float64(u.Maxrss) * unit / 1e6
}
