package sink_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin/sink"
)

func TestASinkThatGetsNoAnswersLeavesRoomToOthers(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(t.Context())
	end()
	room := sink.NewRoom(128)
	for _, want := range []int{64, 32, 16, 8, 4, 2, 1, 1, 0} {
		stuck, held := room.Share(), 0
		for n := stuck.Take(over, 10); n > 0; n = stuck.Take(over, 10) {
			held += n
		}
		if held != want {
			t.Errorf("the next one holds %d, want %d", held, want)
		}
	}
}

func TestWhoWaitsForRoomGetsItInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := sink.NewRoom(4)
		stuck, busy := room.Share(), room.Share()
		if n := stuck.Take(t.Context(), 9) + busy.Take(t.Context(), 9); n != 3 {
			t.Fatalf("two took %d of 4", n)
		}
		var order []string
		var all sync.WaitGroup
		wait := func(name string, s *sink.Share, ctx context.Context) {
			all.Go(func() {
				if s.Take(ctx, 1) > 0 {
					order = append(order, name)
				}
			})
			synctest.Wait()
		}
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		wait("stuck", stuck, short)
		third := room.Share()
		if third.Take(t.Context(), 1) != 1 {
			t.Fatal("nothing is left to a third")
		}
		wait("first", busy, t.Context())
		wait("second", busy, t.Context())
		third.Give(1)
		synctest.Wait()
		busy.Give(1)
		synctest.Wait()
		busy.Give(1)
		time.Sleep(2 * time.Second)
		all.Wait()
		if len(order) != 2 || order[0] != "first" || order[1] != "second" {
			t.Errorf("got it: %v", order)
		}
	})
}

func TestRoomIsNeverExceededNorLost(t *testing.T) {
	t.Parallel()
	const all = 20
	room := sink.NewRoom(all)
	var held atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		share := room.Share()
		for worker := range 8 {
			group.Go(func() {
				for i := range 500 {
					ctx, end := context.WithTimeout(t.Context(), time.Duration((worker+i)%3)*time.Millisecond)
					if n := share.Take(ctx, 1+i%7); n > 0 {
						if held.Add(int64(n)) > all {
							t.Error("more is held than there is")
						}
						held.Add(-int64(n))
						share.Give(n)
					}
					end()
				}
			})
		}
	}
	group.Wait()
	if n := room.Share().Take(t.Context(), 2*all); n != all/2 {
		t.Errorf("%d are free of %d", 2*n, all)
	}
}
