package ids

import (
	"bytes"
	"encoding/hex"
	"math"
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
		id := JobID(milli, table, rapid.IntRange(0, seqMask).Draw(t, "seq"))
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

func TestKeysAreAsTheyAreStored(t *testing.T) {
	t.Parallel()
	nominal := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	for want, key := range map[string]RunKey{
		"000102030405060708000000070000019aa9d6ac00": OfTime(0x0102030405060708, 7, time.UnixMilli(0x019aa9d6ac00)),
		"000102030405060708fffffffe0000019aa9d6ac00": OfBackfill(0x0102030405060708, time.UnixMilli(0x019aa9d6ac00)),
		"000102030405060708ffffffff00000000000000ff": OfManual(0x0102030405060708, 255),
	} {
		if got := hex.EncodeToString([]byte(key.String())); got != want {
			t.Errorf("%+v: %s, want %s", key, got, want)
		}
	}
	if got := OfTime(1, 1, nominal).Nominal(); !got.Equal(nominal) {
		t.Errorf("nominal %s", got)
	}
	if got := OfManual(1, 1).Nominal(); !got.IsZero() {
		t.Errorf("nominal of a manual run %s", got)
	}
}

// Every key is read as it was written, and lies in its schedule's range, behind those of earlier revisions.
func TestKeysAreReadAndOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := RunKey{
			Schedule: rapid.Uint64Range(1, math.MaxInt64).Draw(t, "schedule"),
			Kind:     rapid.SampledFrom([]RunKind{FireTime, Backfill, Manual}).Draw(t, "kind"),
			Number:   rapid.Uint64().Draw(t, "number"),
		}
		if k.Kind == FireTime {
			k.Revision = rapid.Uint32Range(1, MaxRevision).Draw(t, "revision")
		}
		text := k.String()
		if got, ok := ParseRunKey(text); !ok || got != k {
			t.Fatalf("%+v was read as %+v, %t", k, got, ok)
		}
		if from, until := RunKeys(k.Schedule); text < from || text >= until || !Reserved(text) {
			t.Fatalf("%x is not between %x and %x", text, from, until)
		}
		if k.Kind == FireTime && (text < FirstRunKey(k.Schedule, k.Revision) || text >= FirstRunKey(k.Schedule, k.Revision+1)) {
			t.Fatalf("%x is not of its revision", text)
		}
		if k.Kind != FireTime && text < FirstRunKey(k.Schedule, MaxRevision+1) {
			t.Fatalf("%x is among the revisions", text)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "k", "\x00", OfTime(1, 2, time.UnixMilli(3)).String(), OfBackfill(1, time.UnixMilli(3)).String(), OfManual(1, 2).String()} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		k, ok := ParseRunKey(string(text))
		if ok && !bytes.Equal([]byte(k.String()), text) {
			t.Errorf("%x was read as %+v", text, k)
		}
		if ok && !Reserved(string(text)) {
			t.Errorf("a user may give %x", text)
		}
	})
}
