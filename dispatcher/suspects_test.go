package dispatcher

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// However suspects come and go: those in hand that count are no more than the one with most crashes allows, and one with more crashes than
// the others gets its turn before later ones.
func TestSuspectsInHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := suspects{inHand: make(map[*task]suspect), waiting: make(map[tocsin.JobID]waitingSuspect)}
		now := time.Now()
		var waiting, inHand []*task
		for i := range rapid.IntRange(1, 60).Draw(t, "rounds") {
			for j := range rapid.IntRange(0, 8).Draw(t, "new") {
				row := &store.Row{Info: tocsin.Info{JobID: tocsin.JobID(i*100 + j + 1), Crashes: rapid.IntRange(1, 5).Draw(t, "crashes")}, Action: int64(rapid.IntRange(0, 100).Draw(t, "due"))}
				waiting = append(waiting, &task{row: row})
			}
			for len(inHand) > 0 && rapid.Bool().Draw(t, "ends") {
				s.remove(inHand[0])
				inHand = inHand[1:]
			}
			admitted, left := s.admit(waiting, now)
			if len(admitted)+len(left) != len(waiting) || len(admitted) > 0 && len(left) > 0 && admitted[len(admitted)-1].row.Action > left[0].row.Action {
				t.Fatalf("%d and %d of %d, not in the order of their times", len(admitted), len(left), len(waiting))
			}
			waiting, inHand = append([]*task(nil), left...), append(inHand, admitted...)
			highest := 0
			for _, one := range inHand {
				highest = max(highest, one.row.Crashes)
			}
			if len(inHand) > besideCrashes(highest) {
				t.Fatalf("%d suspects in hand, one of them has %d crashes", len(inHand), highest)
			}
			if len(inHand) == 0 && len(waiting) > 0 {
				t.Fatal("none is taken though none is in hand")
			}
			now = now.Add(suspectWait)
		}
	})
}

func TestASuspectThatWasLongInDeliveryCountsNoMore(t *testing.T) {
	s := suspects{inHand: make(map[*task]suspect), waiting: make(map[tocsin.JobID]waitingSuspect)}
	now := time.Now()
	one := func(id, due int64) *task {
		return &task{row: &store.Row{Info: tocsin.Info{JobID: tocsin.JobID(id), Crashes: 4}, Action: due}}
	}
	first, second, third := one(1, 1), one(2, 2), one(3, 3)
	if got, _ := s.admit([]*task{first}, now); len(got) != 1 {
		t.Fatal("not taken")
	}
	s.begin(first, now)
	for wait, want := range map[time.Duration]int{acquittedAfter - time.Second: 0, acquittedAfter: 1} {
		if got, _ := s.admit([]*task{second}, now.Add(wait)); len(got) != want {
			t.Errorf("%d are taken beside one that has run for %s", len(got), wait)
		} else if want == 1 {
			s.remove(second)
		}
	}
	now = now.Add(time.Hour)
	_, _ = s.admit([]*task{one(4, 0)}, now) // in hand
	_, _ = s.admit([]*task{second}, now)    // waits
	s.inHand = make(map[*task]suspect)
	if got, _ := s.admit([]*task{third}, now.Add(suspectWait)); len(got) != 0 {
		t.Error("taken before an earlier one that waits")
	}
	if got, _ := s.admit([]*task{third}, now.Add(2*suspectGone)); len(got) != 1 {
		t.Error("it waits for one that nobody tries any more")
	}
}

func TestSuspectsAreFewAtOnce(t *testing.T) {
	for crashes, want := range map[int]int{1: 64, 2: 16, 3: 4, 4: 1, 5: 1} {
		p := policy("order.close", 1)
		p.Concurrency, p.Timeout = 200, biztype.Duration(time.Minute)
		var mu sync.Mutex
		now, most := 0, 0
		t.Run(claimed[1:], func(t *testing.T) {
			inBubble(t, p, func(_ context.Context, task tocsin.Info) error {
				if task.Crashes == 0 {
					return nil
				}
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				now--
				return nil
			}, func(r *rig) {
				var all []tocsin.JobID
				for i := range 100 {
					id := r.insert(i%rigTables, 1, 0)
					r.store.change(id, func(row *store.Row) { row.Crashes = crashes })
					all = append(all, id, r.insert(i%rigTables, 1, 0))
				}
				for _, id := range all {
					r.offer(id)
				}
				pass(100 * time.Millisecond)
				if _, n := r.store.counts(store.Stored); n != 100 {
					t.Errorf("%d of the 100 others are done at once", n)
				}
				pass(150 * time.Second)
				if _, n := r.store.counts(store.Stored); n != 200 || most != want {
					t.Errorf("%d are done; %d suspects with %d crashes were in hand at once, want %d", n, most, crashes, want)
				}
				if n := len(r.suspects.inHand); n != 0 {
					t.Errorf("%d are still in hand", n)
				}
			})
		})
	}
}
