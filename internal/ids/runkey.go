package ids

import (
	"encoding/binary"
	"math"
	"time"
)

// Revisions that no schedule has.
const (
	backfill = math.MaxUint32 - 1
	manual   = math.MaxUint32

	// MaxRevision is the highest that a schedule may have.
	MaxRevision = backfill - 1
)

// RunKeySize is the length of a RunKey.
const RunKeySize = 1 + 8 + 4 + 8

// RunKind says what a run was made for.
type RunKind uint8

// The kinds.
const (
	FireTime RunKind = iota // a fire time
	Backfill                // a fire time of the past, by hand
	Manual                  // none: now, by hand
)

// String names a kind as users see it.
func (k RunKind) String() string { return [...]string{"fire_time", "backfill", "run_now"}[k] }

// RunKey is what the dedup_key of a run says.
//
//	byte  0      1..8                      9..12                    13..20
//	      zero   schedule_id, big-endian   revision, big-endian     number, big-endian
//
//	kind        revision            number
//	FireTime    of the schedule     Unix ms of the nominal fire time, without jitter
//	Backfill    0xFFFFFFFE          the same
//	Manual      0xFFFFFFFF          job_id of the run, or a hash of its idempotency key
//
// No key that begins with a zero byte is taken from a user, so a run's key can't be forged. Keys of one schedule stand
// together in the index uk_biz: those of its revisions in order, then backfills, then manual ones.
type RunKey struct {
	Schedule uint64 // schedule_id
	Kind     RunKind
	Revision uint32 // of FireTime
	Number   uint64 // Unix ms of the nominal time; of Manual, a number of its own
}

// OfTime returns the key of the run for a fire time.
func OfTime(schedule uint64, revision uint32, nominal time.Time) RunKey {
	return RunKey{Schedule: schedule, Revision: revision, Number: uint64(nominal.UnixMilli())}
}

// OfBackfill returns the key of a run that makes up for a fire time.
func OfBackfill(schedule uint64, nominal time.Time) RunKey {
	return RunKey{Schedule: schedule, Kind: Backfill, Number: uint64(nominal.UnixMilli())}
}

// OfManual returns the key of a run by hand.
func OfManual(schedule, number uint64) RunKey {
	return RunKey{Schedule: schedule, Kind: Manual, Number: number}
}

// Nominal returns the fire time; the zero time of a Manual key.
func (k RunKey) Nominal() time.Time {
	if k.Kind == Manual {
		return time.Time{}
	}
	return time.UnixMilli(int64(k.Number)).UTC()
}

// String returns the bytes of the dedup_key.
func (k RunKey) String() string {
	revision := k.Revision
	switch k.Kind {
	case Backfill:
		revision = backfill
	case Manual:
		revision = manual
	}
	return FirstRunKey(k.Schedule, revision)[:RunKeySize-8] + string(binary.BigEndian.AppendUint64(nil, k.Number))
}

// ParseRunKey reads a dedup_key. False: it is not that of a run.
func ParseRunKey(key string) (RunKey, bool) {
	if len(key) != RunKeySize || key[0] != 0 {
		return RunKey{}, false
	}
	b := []byte(key)
	k := RunKey{Schedule: binary.BigEndian.Uint64(b[1:]), Revision: binary.BigEndian.Uint32(b[9:]), Number: binary.BigEndian.Uint64(b[13:])}
	switch k.Revision {
	case backfill:
		k.Kind, k.Revision = Backfill, 0
	case manual:
		k.Kind, k.Revision = Manual, 0
	}
	return k, true
}

// FirstRunKey returns the lowest key that a run of a revision may have. Those of earlier revisions are lower.
func FirstRunKey(schedule uint64, revision uint32) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 1, RunKeySize), schedule)
	b = binary.BigEndian.AppendUint32(b, revision)
	return string(binary.BigEndian.AppendUint64(b, 0))
}

// RunKeyAfter returns the lowest key above another.
func RunKeyAfter(key string) string {
	b := []byte(key)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			break
		}
	}
	return string(b)
}

// RunKeys returns the lowest key of a schedule and the lowest above all of its keys.
func RunKeys(schedule uint64) (from, until string) {
	return FirstRunKey(schedule, 0), FirstRunKey(schedule+1, 0)
}

// Reserved reports whether a dedup_key is not a user's to give.
func Reserved(key string) bool { return key != "" && key[0] == 0 }
