package dispatcher

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// stubborn ignores its context. Its first attempt takes a set time and returns a set error.
func stubborn(takes time.Duration, err error) *calls {
	return newCalls(func(task tocsin.Info) (time.Duration, error) {
		if task.Attempts > 0 {
			return 0, nil
		}
		return takes, err
	})
}

// overrunPolicy has a time-out of 2 s and retries after half a second.
func overrunPolicy() biztype.Policy {
	p := policy("order.close", 1)
	p.Ladder = []biztype.Duration{biztype.Duration(500 * time.Millisecond)}
	return p
}

func TestTheNextAttemptWaitsForTheLast(t *testing.T) { eachWay(t, testTheNextAttemptWaitsForTheLast) }

func testTheNextAttemptWaitsForTheLast(t *testing.T) {
	for name, c := range map[string]struct {
		takes      time.Duration // of the first attempt
		err        error         // of the first attempt
		most       int           // deliveries of the task at the same time
		starts     []time.Duration
		overlapped float64
	}{
		"it fails after its time-out":    {3 * time.Second, errors.New("no answer"), 1, []time.Duration{0, 3 * time.Second}, 0},
		"it succeeds after its time-out": {3 * time.Second, nil, 1, []time.Duration{0}, 0},
		"it returns before the next":     {2200 * time.Millisecond, errors.New("no answer"), 1, []time.Duration{0, 2500 * time.Millisecond}, 0},
		"it does not return for long":    {25 * time.Second, errors.New("no answer"), 2, []time.Duration{0, 4500 * time.Millisecond}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := stubborn(c.takes, c.err)
			inBubble(t, overrunPolicy(), s.deliver, func(r *rig) {
				begun, id := time.Now(), r.add(0, 1, 0)
				for range 60 { // peeks and bells find it again and again
					pass(100 * time.Millisecond)
					if r.store.row(id).Status == tocsin.Pending {
						r.offer(id)
					}
				}
				r.status(id, tocsin.Done)
				began, most := s.seen()
				if most != c.most || began != len(c.starts) {
					t.Fatalf("%d deliveries, %d at the same time; want %d and %d", began, most, len(c.starts), c.most)
				}
				for i, want := range c.starts {
					if got := s.begun[i].at.Sub(begun); !near(got, want) {
						t.Errorf("delivery %d started after %s, want %s", i, got, want)
					}
				}
				if n := r.read("overlapped_total")[""]; n != c.overlapped {
					t.Errorf("%g overlaps are counted, want %g", n, c.overlapped)
				}
			})
		})
	}
}

func TestWholeRowsWaitForTheirLastAttemptToo(t *testing.T) {
	s := stubborn(3*time.Second, errors.New("no answer"))
	inBubble(t, overrunPolicy(), s.deliver, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(2600 * time.Millisecond)
		r.hand(r.room(10), r.rows(id))
		pass(time.Second)
		r.status(id, tocsin.Done)
		if began, most := s.seen(); most != 1 || began != 2 {
			t.Errorf("%d deliveries, %d at the same time; want 2 and 1", began, most)
		}
	})
}

func TestASweepLeavesATaskWhoseLastDeliveryGoesOn(t *testing.T) {
	eachWay(t, testASweepLeavesATaskWhoseLastDeliveryGoesOn)
}

func testASweepLeavesATaskWhoseLastDeliveryGoesOn(t *testing.T) {
	s := stubborn(30*time.Second, errors.New("no answer"))
	inBubbleWith(t, overrunPolicy(), handler(s.deliver), func(c *Config) { c.ClaimAll, c.SweepGrace = true, time.Nanosecond }, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(2600 * time.Millisecond)
		r.offer(id) // as the next sweep does
		pass(time.Second)
		if began, _ := s.seen(); began != 1 || r.Stats().Queued != 0 {
			t.Errorf("%d deliveries, %d queued; want 1 and 0: a sweep waits for nothing", began, r.Stats().Queued)
		}
		pass(5 * time.Second)
		r.offer(id)
		pass(time.Second)
		r.status(id, tocsin.Done)
	})
}

func TestTasksOfATableThatIsGivenUpDoNotComeBackWhenTheirDeliveryReturns(t *testing.T) {
	eachWay(t, testTasksOfATableThatIsGivenUpDoNotComeBackWhenTheirDeliveryReturns)
}

func testTasksOfATableThatIsGivenUpDoNotComeBackWhenTheirDeliveryReturns(t *testing.T) {
	s := stubborn(4*time.Second, errors.New("no answer"))
	inBubble(t, overrunPolicy(), s.deliver, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(3 * time.Second)
		r.Set([]int{0}, nil)
		pass(3 * time.Second)
		r.status(id, tocsin.Pending)
		began, _ := s.seen()
		if st := r.Stats(); st.Queued != 0 || st.Overrun != 0 || began != 1 {
			t.Errorf("left: %+v after %d deliveries", st, began)
		}
	})
}

func TestDeliveriesThatDoNotReturnAreSaidAndCounted(t *testing.T) {
	eachWay(t, testDeliveriesThatDoNotReturnAreSaidAndCounted)
}

func testDeliveriesThatDoNotReturnAreSaidAndCounted(t *testing.T) {
	var log bytes.Buffer // written by the dispatcher's goroutines one after another
	s := stubborn(130*time.Second, errors.New("no answer"))
	p := overrunPolicy()
	p.Concurrency = 3
	inBubbleWith(t, p, handler(s.deliver), func(c *Config) { c.Logger = devtest.NewLogger(&log) }, func(r *rig) {
		for range 2 {
			r.add(0, 1, 0)
		}
		pass(4 * time.Second)
		if st := r.Stats(); st.Overrun != 2 || st.Open != 0 {
			t.Errorf("%+v, want 2 overrun", st)
		}
		pass(2 * time.Minute)
	})
	text := log.String()
	for part, want := range map[string]int{
		`"deliveries":2,"concurrency":3`: 3, // at once, and each minute
		`is delivered again though`:      1, // one of them, in the only slot that is left; the other after it, within the minute
	} {
		if got := strings.Count(text, part); got < 1 || got > want {
			t.Errorf("%q stands %d times in the log, want 1 to %d:\n%s", part, got, want, text)
		}
	}
}

// A task that is rescheduled while in delivery waits for that delivery as long as a failed one would.
func TestARescheduledTaskWaitsForItsLastDelivery(t *testing.T) {
	eachWay(t, testARescheduledTaskWaitsForItsLastDelivery)
}

func testARescheduledTaskWaitsForItsLastDelivery(t *testing.T) {
	s := stubborn(3500*time.Millisecond, errors.New("no answer")) // the time-out is 2 s, and the bound counts from there
	inBubble(t, policy("order.close", 1), s.deliver, func(r *rig) {
		id := r.add(0, 1, 0)
		pass(200 * time.Millisecond)
		r.store.reschedule(id, time.Now().Add(100*time.Millisecond))
		for range 3 {
			pass(time.Second)
			_ = r.Offer(0, []duequeue.Entry{{JobID: id, Type: 1, Due: r.store.row(id).Action}}) // a peek
		}
		if began, _ := s.seen(); began != 1 {
			t.Errorf("%d deliveries before the first has returned", began)
		}
		pass(time.Second)
		if began, most := s.seen(); began != 2 || most != 1 {
			t.Errorf("%d deliveries, %d at the same time; want the second one once the first has returned", began, most)
		}
		pass(20 * time.Second)
	})
}
