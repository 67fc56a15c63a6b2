package dispatcher

import "time"

// alarm is a timer that rings within a fraction of a millisecond. It rings once for each set, and belongs to one goroutine.
//
//	set(d) --> kernel's timer --> runtime's poller --> C
//
// Go's own timers wait in epoll_wait, which counts whole milliseconds: in an otherwise idle process they ring up to a
// millisecond late. On Linux an alarm is a timerfd (timerfd_create(2)), which wakes the runtime's poller on time. Elsewhere, or
// if the kernel refuses a timerfd, an alarm is a Go timer.
type alarm struct {
	C     chan struct{} // rings; one slot, rings coalesce
	timer timer
}

// timer rings an alarm.
type timer interface {
	set(d time.Duration)
	close()
}

// newAlarm makes an alarm that must be closed: as precise as the platform allows, or of a Go timer. In terms of testing/synctest,
// a goroutine that waits for a precise one is not durably blocked.
func newAlarm(exact bool) *alarm {
	a := &alarm{C: make(chan struct{}, 1)}
	wake := func() { signal(a.C) }
	if exact {
		a.timer = precise(wake)
	}
	if a.timer == nil {
		t := time.AfterFunc(time.Hour, wake)
		t.Stop()
		a.timer = goTimer{t}
	}
	return a
}

// set makes the alarm ring after d, at once if d is not above 0, instead of at the
// time set before. A ring that is already on its way may still come, so the receiver
// must check the clock.
func (a *alarm) set(d time.Duration) {
	if d <= 0 {
		signal(a.C)
		return
	}
	a.timer.set(d)
}

// close ends the alarm. It may ring once more.
func (a *alarm) close() { a.timer.close() }

// goTimer is the timer of Go's runtime.
type goTimer struct{ *time.Timer }

func (t goTimer) set(d time.Duration) { t.Reset(d) }
func (t goTimer) close()              { t.Stop() }
