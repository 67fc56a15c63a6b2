// Package verdict holds the error by which a sink ends a task as cancelled. Only this module can make one, so a handler
// can't: it is how the judge of scheduled runs ends those that its schedule does not want.
package verdict

// Skip ends a task as cancelled, undelivered.
type Skip struct {
	Reason string // for last_error: "missed: 5m0s late"; its first word says what became of the run
}

// Error returns the reason.
func (s Skip) Error() string { return s.Reason }
