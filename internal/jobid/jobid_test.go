package jobid

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAnIDKeepsItsParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(0, 1<<41-1).Draw(t, "milli")
		table := rapid.IntRange(0, 1<<TableBits-1).Draw(t, "table")
		id := Of(milli, table, rapid.IntRange(0, seqMask).Draw(t, "seq"))
		if Table(id) != table || Time(id).Sub(Epoch).Milliseconds() != milli || id>>63 != 0 {
			t.Fatalf("%d: table %d, time %s", id, Table(id), Time(id))
		}
	})
}

func TestAMakerNeverGoesBack(t *testing.T) {
	t.Parallel()
	var m Maker
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	m.Start(at.Add(time.Hour))
	last := uint64(0)
	for range 2000 {
		id := m.Next(at, 7)
		if id <= last || Time(id).Before(at.Add(time.Hour)) || Table(id) != 7 {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
}

func TestIDsOfOneProcessNeverRepeatAndGrow(t *testing.T) {
	t.Parallel()
	var m Maker
	now := time.Now()
	const makers, each = 8, 5000
	made := make([][]uint64, makers)
	var group sync.WaitGroup
	for table := range makers {
		group.Go(func() {
			for range each {
				made[table] = append(made[table], m.Next(now, table))
			}
		})
	}
	group.Wait()
	seen := map[uint64]bool{}
	for table, ids := range made {
		for i, id := range ids {
			if seen[id] || Table(id) != table || i > 0 && id <= ids[i-1] {
				t.Fatalf("id %d of maker %d: table %d, seen %t", id, table, Table(id), seen[id])
			}
			seen[id] = true
		}
	}
}
