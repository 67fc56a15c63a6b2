// Package alarm is a timer that rings within a fraction of a millisecond.
//
//	Set(d) --> kernel's timer --> runtime's poller --> C
//
// Go's own timers wait in epoll_wait, which counts whole milliseconds: in a
// process that is otherwise idle they ring up to a millisecond late. On Linux an
// Alarm is a timerfd (timerfd_create(2)), which wakes the runtime's poller when
// its time has come. Elsewhere, or if the kernel refuses one, an Alarm is a Go
// timer.
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

// New makes an Alarm that is as precise as the platform allows. It must be
// closed. A goroutine that waits for it is not durably blocked in the sense of
// testing/synctest.
func New() *Alarm {
	a := newAlarm()
	if a.timer = precise(a.wake); a.timer == nil {
		a.timer = coarse(a.wake)
	}
	return a
}

// Coarse makes an Alarm that is a Go timer, for tests whose time is synctest's.
func Coarse() *Alarm {
	a := newAlarm()
	a.timer = coarse(a.wake)
	return a
}

func newAlarm() *Alarm {
	ring := make(chan struct{}, 1)
	return &Alarm{C: ring, ring: ring}
}

// Set has the alarm ring after d, at once if d is not above 0, instead of when
// it was set to ring before. A ring that is under way may still come: whoever
// hears it looks at the clock.
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
