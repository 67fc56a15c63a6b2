package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// openQueue makes a queue on a Redis of its own.
func openQueue(t *testing.T, within time.Duration, tries int) *queue {
	t.Helper()
	s, err := startRedis(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.client.Close(), s.Stop()); err != nil {
			t.Error(err)
		}
	})
	return newQueue(s.client, within, tries)
}

// holds wants so many in each set.
func (q *queue) holds(t *testing.T, store, prepare, dead int) {
	t.Helper()
	s, p, d, err := q.left(t.Context())
	if err != nil || s != store || p != prepare || d != dead {
		t.Errorf("%d in store, %d in prepare, %d dead (%v); want %d, %d, %d", s, p, d, err, store, prepare, dead)
	}
}

// takes wants so many bodies, and gives their ids.
func (q *queue) takes(t *testing.T, most, want int) taken {
	t.Helper()
	got, err := q.take(t.Context(), most)
	if err != nil || len(got.ids) != want || len(got.bodies) != want {
		t.Fatalf("took %d, %v; want %d", len(got.ids), err, want)
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestQueueGivesWhatIsDueInOrder(t *testing.T) {
	t.Parallel()
	q := openQueue(t, time.Minute, 3)
	past := time.Now().Add(-time.Hour)
	var items []item
	for i := range 5 {
		items = append(items, item{fmt.Sprint(i), past.Add(-time.Duration(i) * time.Second)})
	}
	must(t, q.put(t.Context(), append(items, item{"far", time.Now().Add(time.Hour)})))
	got := q.takes(t, 3, 3)
	if !slices.Equal(got.bodies, []string{"4", "3", "2"}) {
		t.Errorf("took %v", got.bodies)
	}
	q.holds(t, 3, 3, 0)
	must(t, q.ack(t.Context(), got.ids))
	q.holds(t, 3, 0, 0)
	must(t, q.ack(t.Context(), q.takes(t, 9, 2).ids))
	if none := q.takes(t, 9, 0); none.next < 59*time.Minute || none.next > time.Hour+time.Second {
		t.Errorf("the next is due in %s", none.next)
	}
	if n, err := q.redis.HLen(t.Context(), bodiesKey).Result(); err != nil || n != 1 {
		t.Errorf("%d bodies are left, %v", n, err)
	}
}

func TestQueueIsNeverEarly(t *testing.T) {
	t.Parallel()
	q := openQueue(t, time.Minute, 3)
	for range 20 {
		due := time.Now().Add(15*time.Millisecond + 999*time.Microsecond)
		must(t, q.put(t.Context(), []item{{"x", due}}))
		for {
			got, err := q.take(t.Context(), 1)
			must(t, err)
			if len(got.ids) == 1 {
				if early := time.Until(due); early > 0 {
					t.Fatalf("early by %s", early)
				}
				must(t, q.ack(t.Context(), got.ids))
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
}

func TestQueueReturnsWhatIsNotAcknowledgedAndThenGivesUp(t *testing.T) {
	t.Parallel()
	q := openQueue(t, 0, 2)
	must(t, q.put(t.Context(), []item{{"x", time.Now()}}))
	for try := 1; try <= 2; try++ {
		time.Sleep(2 * time.Millisecond) // for the due time, rounded up
		q.takes(t, 1, 1)
		q.holds(t, 0, 1, 0)
		if n, err := q.back(t.Context(), 10); err != nil || n != 1 {
			t.Fatalf("returned %d, %v", n, err)
		}
	}
	q.holds(t, 0, 0, 1)
	q.takes(t, 1, 0)
}

func TestQueueKeepsWhatIsInTime(t *testing.T) {
	t.Parallel()
	q := openQueue(t, time.Minute, 2)
	must(t, q.put(t.Context(), []item{{"x", time.Now().Add(-time.Second)}}))
	got := q.takes(t, 1, 1)
	if n, err := q.back(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("returned %d, %v", n, err)
	}
	must(t, q.ack(t.Context(), got.ids))
	q.holds(t, 0, 0, 0)
}
