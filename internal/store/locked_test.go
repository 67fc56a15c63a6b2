package store

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
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

// A row that another transaction holds, and a database that must not be used, are named, and no other row waits for them.
func TestWhatIsLockedOrRefusedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status tocsin.Status
		write  func(*bench, []tocsin.JobID) (n int, err error)
	}{
		"prolong": {tocsin.Claimed, func(b *bench, ids []tocsin.JobID) (n int, err error) {
			return b.prolong(t.Context(), b.clock()+60_000, "me", ids...)
		}},
		"recover": {tocsin.Claimed, func(b *bench, _ []tocsin.JobID) (n int, err error) {
			got, err := b.Recover(t.Context(), 0, b.TablesOf(0), 2, nil) // as many as the first table has
			return got.Back, err
		}},
		"release": {tocsin.Claimed, func(b *bench, ids []tocsin.JobID) (n int, err error) {
			by := make(map[tocsin.JobID]string)
			for _, id := range ids {
				by[id] = "me"
			}
			return b.ReleaseDoubtful(t.Context(), 0, by)
		}},
		"redrive dead": {tocsin.Dead, func(b *bench, ids []tocsin.JobID) (n int, err error) {
			return b.RedriveDead(t.Context(), DeadQuery{Until: maxMilli}, ids, false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			b.Store.cluster = "test"
			ids := []tocsin.JobID{id(0, 1), id(0, 2), id(1, 1), id(2, 1)}
			for _, id := range ids {
				b.add(task{id: id, status: c.status, action: b.clock() - 6000, by: "me"})
			}
			b.inSecond(makeForeign)
			if _, err := b.Survey(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			defer b.locked(ids[0])()
			n, err := c.write(b, ids)
			if n != 2 || !errors.Is(err, mysql.ErrLocked) || !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), b.layout.Table(0)+" on db1") {
				t.Errorf("%d rows, %v; want the two that are neither locked nor refused", n, err)
			}
		})
	}
}

// Claims run out while a look waits for one locked table after the other.
func TestLockedWaitsForManyLockedTablesAtTheSameTime(t *testing.T) {
	t.Parallel()
	const locked = 8
	b := open(t, tocsin.Layout{Databases: 1, Tables: locked + 1})
	var ids []tocsin.JobID
	var tables []int
	for table := range locked + 1 {
		ids = append(ids, id(table, 1))
		b.add(task{id: ids[table]})
		tables = append(tables, table)
	}
	defer b.lockedTable(tables[:locked]...)()
	began := time.Now()
	locks, err := b.Locked(t.Context(), 0, ids)
	if took := time.Since(began); err != nil || len(locks.Rows) != 0 || len(locks.Tables) != locked || took > locked*time.Second {
		t.Errorf("%+v, %v, after %s", locks, err, took)
	}
}

// All claims that are found are held, and no table is left to look at.
func TestRecoverOfHeldClaimsAloneSaysSoOnce(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	ids := []tocsin.JobID{id(0, 1), id(0, 2)}
	for _, id := range ids {
		b.add(task{id: id, status: tocsin.Claimed, action: b.clock() - 6000, by: "me"})
	}
	defer b.locked(ids...)()
	got, err := b.Recover(t.Context(), 0, []int{0}, len(ids), nil)
	if !errors.Is(err, mysql.ErrLocked) || strings.Contains(err.Error(), "\n") || got != (Recovered{}) || b.roundTrips("expired") != 1 {
		t.Errorf("%+v, %v, after %d looks", got, err, b.roundTrips("expired"))
	}
}
