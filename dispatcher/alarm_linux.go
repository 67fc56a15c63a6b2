package dispatcher

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelTimer is a timerfd, and a goroutine that hears it.
type kernelTimer struct {
	file  *os.File // of fd; Close wakes the reader
	fd    int
	ended chan struct{} // closed when the reader has ended
}

// precise makes a timerfd; nil if the kernel refuses one.
func precise(wake func()) timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return heard(fd, wake)
}

// heard makes a timer of a timerfd; nil, and the descriptor is closed, if the
// runtime's poller can't wait for it: there may be too many, and reading would fail.
func heard(fd int, wake func()) timer {
	// os.NewFile hands a non-blocking descriptor to the runtime's poller.
	t := &kernelTimer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd, ended: make(chan struct{})}
	if err := t.file.SetReadDeadline(time.Time{}); err != nil { // which only a polled file has
		_ = t.file.Close()
		return nil
	}
	go t.hear(wake)
	return t
}

// hear wakes each time the timer has run out, until the file is closed.
func (t *kernelTimer) hear(wake func()) {
	defer close(t.ended)
	var expirations [8]byte
	for {
		if _, err := t.file.Read(expirations[:]); err != nil {
			return
		}
		wake()
	}
}

func (t *kernelTimer) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	_ = unix.TimerfdSettime(t.fd, 0, &spec, nil) // fails only for a time out of range, and d is above 0
}

func (t *kernelTimer) close() {
	_ = t.file.Close()
	<-t.ended
}
