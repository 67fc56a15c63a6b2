package client

import "time"

// When is the time at which to act. The zero When is refused; make one with In
// or At.
type When struct {
	at  time.Time     // of At, in whole milliseconds, UTC; zero for In
	in  time.Duration // of In, in whole milliseconds, not negative; of At -1
	set bool
}

// In acts after d, counted by the database's clock from the moment it stores
// the task, and rounded up to the millisecond. A negative d is due at once.
func In(d time.Duration) When {
	return When{in: ceil(min(max(d, 0), forever)), set: true}
}

// forever is further than MaxAhead, and can be rounded up.
const forever = 100 * 365 * 24 * time.Hour

// At acts at t, rounded up to the millisecond. A t in the past is due at once;
// the zero time is refused.
func At(t time.Time) When {
	whole := t.UTC().Truncate(time.Millisecond)
	if whole.Before(t) {
		whole = whole.Add(time.Millisecond)
	}
	return When{at: whole, in: -1, set: true}
}

// ceil rounds up to whole milliseconds.
func ceil(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest != 0 {
		return d - rest + time.Millisecond
	}
	return d
}

// absolute tells At from In.
func (w When) absolute() bool { return w.in < 0 }

// Valid refuses what can't be meant, by this machine's clock: the limits are
// years, so its error does not matter.
func (w When) Valid(now time.Time) error {
	switch {
	case !w.set:
		return Refuse(ErrInvalid, "no action time: use tocsin.In or tocsin.At")
	case !w.absolute() && now.Add(w.in).After(now.AddDate(MaxAhead, 0, 0)):
		return Refuse(ErrInvalid, "action time in %s: more than %d years away", w.in, MaxAhead)
	case !w.absolute():
		return nil
	case w.at.IsZero():
		return Refuse(ErrInvalid, "action time is the zero time")
	case w.at.Unix() > now.AddDate(MaxAhead, 0, 0).Unix(): // see CheckTime
		return Refuse(ErrInvalid, "action time %s: more than %d years away", w.at.Format(time.RFC3339), MaxAhead)
	}
	return CheckTime("action time", w.at)
}

// due is the time asked for, where it is now.
func (w When) due(now time.Time) time.Time {
	if w.absolute() {
		return w.at
	}
	return now.Add(w.in)
}

// action is when to act: not before now.
func (w When) action(now time.Time) time.Time {
	if due := w.due(now); due.After(now) {
		return due
	}
	return now
}

// until is how far away w is from now, which may be another clock's.
func (w When) until(now time.Time) time.Duration {
	return w.due(now).Sub(now)
}

// Near reports whether a task at this time is to ring the doorbell, whose horizon this is.
func (w When) Near(horizon time.Duration) bool { return w.until(time.Now()) < horizon+nearMargin }

// Args are the parameters of dueSQL.
func (w When) Args() (text any, micros int64) {
	if w.absolute() {
		return w.at.Format(TimeForm), 0
	}
	return nil, w.in.Microseconds()
}
