package store

import (
	"maps"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestLockedNamesTheRowsThatOthersHold(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	held, free, gone := id(0, 1), id(1, 1), id(0, 99)
	b.add(task{id: held}, task{id: free})
	ids := []tocsin.JobID{held, free, gone, held}
	unlock := b.locked(held)
	locks, err := b.Locked(t.Context(), 0, ids)
	if want := (map[tocsin.JobID]bool{held: true}); err != nil || !maps.Equal(locks.Rows, want) || len(locks.Tables) != 0 {
		t.Errorf("%v, %v, want %v", locks, err, want)
	}
	unlock()
	if locks, err = b.Locked(t.Context(), 0, ids); err != nil || len(locks.Rows)+len(locks.Tables) != 0 {
		t.Errorf("after the transaction: %v, %v", locks, err)
	}
	if n := b.roundTrips("free"); n != 2 {
		t.Errorf("it took %d packets", n)
	}
}
