//go:build !linux

package dispatcher

// precise returns nil: this platform has no better timer than Go's.
func precise(func()) timer { return nil }
