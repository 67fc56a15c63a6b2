// Package alarm is a timer that rings within a fraction of a millisecond.
//
//	Set(d) --> kernel's timer --> runtime's poller --> C
//
// Go's own timers wait in epoll_wait, which counts whole milliseconds: in an
// otherwise idle process they ring up to a millisecond late. On Linux an Alarm is a
// timerfd (timerfd_create(2)), which wakes the runtime's poller on time. Elsewhere,
// or if the kernel refuses a timerfd, an Alarm is a Go timer.
package alarm

import "time"

// Alarm rings once for each Set. It belongs to one goroutine.
type Alarm struct {
	C <-chan struct{} // rings; one slot, rings coalesce

	ring  chan struct{}
	timer timer
}

// timer rings an Alarm.
type timer interface {
	set(d time.Duration)
	close()
}

// New makes an Alarm that is as precise as the platform allows. It must be closed. In
// terms of testing/synctest, a goroutine that waits for it is not durably blocked.
func New() *Alarm {
	a := newAlarm()
	if a.timer = precise(a.wake); a.timer == nil {
		a.timer = coarse(a.wake)
	}
	return a
}

// Coarse makes an Alarm from a Go timer, for tests that use synctest's time.
func Coarse() *Alarm {
	a := newAlarm()
	a.timer = coarse(a.wake)
	return a
}

func newAlarm() *Alarm {
	ring := make(chan struct{}, 1)
	return &Alarm{C: ring, ring: ring}
}

// Set makes the alarm ring after d, at once if d is not above 0, instead of at the
// time set before. A ring that is already on its way may still come, so the receiver
// must check the clock.
func (a *Alarm) Set(d time.Duration) {
	if d <= 0 {
		a.wake()
		return
	}
	a.timer.set(d)
}

// Close ends the alarm. It may ring once more.
func (a *Alarm) Close() { a.timer.close() }

func (a *Alarm) wake() {
	select {
	case a.ring <- struct{}{}:
	default:
	}
}

// goTimer is the timer of Go's runtime.
type goTimer struct{ *time.Timer }

func coarse(wake func()) timer {
	t := time.AfterFunc(time.Hour, wake)
	t.Stop()
	return goTimer{t}
}

func (t goTimer) set(d time.Duration) { t.Reset(d) }
func (t goTimer) close()              { t.Stop() }
