package runkey

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestKeysAreAsTheyAreStored(t *testing.T) {
	t.Parallel()
	nominal := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	for want, key := range map[string]Key{
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
		k := Key{
			Schedule: rapid.Uint64Range(1, math.MaxInt64).Draw(t, "schedule"),
			Kind:     rapid.SampledFrom([]Kind{FireTime, Backfill, Manual}).Draw(t, "kind"),
			Number:   rapid.Uint64().Draw(t, "number"),
		}
		if k.Kind == FireTime {
			k.Revision = rapid.Uint32Range(1, MaxRevision).Draw(t, "revision")
		}
		text := k.String()
		if got, ok := Parse(text); !ok || got != k {
			t.Fatalf("%+v was read as %+v, %t", k, got, ok)
		}
		if from, until := Range(k.Schedule); text < from || text >= until || !Reserved(text) {
			t.Fatalf("%x is not between %x and %x", text, from, until)
		}
		if k.Kind == FireTime && (text < First(k.Schedule, k.Revision) || text >= First(k.Schedule, k.Revision+1)) {
			t.Fatalf("%x is not of its revision", text)
		}
		if k.Kind != FireTime && text < First(k.Schedule, MaxRevision+1) {
			t.Fatalf("%x is among the revisions", text)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "k", "\x00", OfTime(1, 2, time.UnixMilli(3)).String(), OfBackfill(1, time.UnixMilli(3)).String(), OfManual(1, 2).String()} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		k, ok := Parse(string(text))
		if ok && !bytes.Equal([]byte(k.String()), text) {
			t.Errorf("%x was read as %+v", text, k)
		}
		if ok && !Reserved(string(text)) {
			t.Errorf("a user may give %x", text)
		}
	})
}
