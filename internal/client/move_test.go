package client

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// A row of an outbox is moved within a minute of the server's clock, as it was read before the row: not as this machine
// counts, whose clocks may stand still.
func TestARowAgesByAReadingFromBeforeItWasRead(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-10 * time.Minute)
	clock := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) *facts {
		return &facts{read: begin.Add(time.Duration(s) * time.Second), now: clock.Add(time.Duration(s) * time.Second)}
	}
	s, m := new(server), &move{}
	s.anchors.keep(at(0))
	s.anchors.keep(at(59)) // too soon
	s.anchors.keep(at(61))
	late := at(62)
	late.now = late.now.Add(15 * time.Minute) // the machine was paused
	s.anchors.keep(late)
	for read, from := range map[int]int{30: 0, 60: 0, 62: 61} {
		row := outbox.Row{Read: begin.Add(time.Duration(read) * time.Second)}
		want := at(from).now.Add(time.Duration(read-from)*time.Second + freshFor)
		if got := m.until(row, s, late); !got.Equal(want) {
			t.Errorf("read at %d s: may be moved until %s, want %s", read, got, want)
		}
	}
	fresh := outbox.Row{Read: time.Now()}
	now := &facts{read: time.Now(), now: clock, term: 1} // another address: the anchors are another server's
	if got := m.until(fresh, s, now); got.Before(clock.Add(freshFor-time.Second)) || got.After(clock.Add(freshFor+time.Second)) {
		t.Errorf("without an anchor: until %s", got)
	}
}

// What is left of a delay counts from the answer, and by the latest that the server's clock can be.
func TestADelayIsNeverCountedShort(t *testing.T) {
	t.Parallel()
	delay, now := 5*time.Second, time.Now()
	row := outbox.Row{Op: outbox.Add, Delay: &delay, Age: time.Second, Read: now.Add(-3 * time.Second), Answered: now}
	asked := &facts{now: now, asked: now.Add(-2 * time.Second), read: now}
	got := (&move{}).when(row, asked)
	if left := got.at.Sub(now); left < 6*time.Second-10*time.Millisecond {
		t.Errorf("due in %s: 4 s are left, and the server's clock may be 2 s ahead", left)
	}
}

// The server's clock and what is left of a delay are taken at one moment. A process that waited for a core in between would
// move the task early by that.
func TestADelayLosesNothingWhileItIsCounted(t *testing.T) {
	t.Parallel()
	delay, clock := 5*time.Second, time.Date(2026, 5, 1, 0, 0, 0, 1, time.UTC) // a nanosecond less is a millisecond, rounded up
	for range 100 {
		now := time.Now()
		row := outbox.Row{Op: outbox.Add, Delay: &delay, Read: now, Answered: now}
		if got := (&move{}).when(row, &facts{now: clock, asked: now, read: now}); got.at.Before(clock.Add(delay)) {
			t.Fatalf("due %s, want %s or later", got.at, clock.Add(delay))
		}
	}
}
