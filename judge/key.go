package judge

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/runkey"
)

// Bounds of the keys of one schedule's runs: of all, and of those that people asked for.
func firstKey(schedule uint64) string    { return runkey.First(schedule, 0) }
func firstByHand(schedule uint64) string { return runkey.First(schedule, runkey.MaxRevision+1) }
func afterLast(schedule uint64) string   { return runkey.First(schedule+1, 0) }

// next returns the first key after another.
func next(key string) string { return key + "\x00" }

// run is what a run's key says.
type run struct{ runkey.Key }

// isRun reports whether a dedup_key is that of a run.
func isRun(key string) bool {
	_, is := runkey.Parse(key)
	return is
}

// parse reads the key of a run.
func parse(key string) run {
	k, _ := runkey.Parse(key)
	return run{k}
}

// byHand reports whether the run was made by hand.
func (r run) byHand() bool { return r.Kind != runkey.FireTime }

// nominal is the fire time in Unix ms.
func (r run) nominal() int64 { return int64(r.Number) }

// String names the run for a reason.
func (r run) String() string { return "of " + r.Nominal().Format(time.RFC3339Nano) }
