// Package ids makes job_ids. It is the authority for their bits, and for the dedup_keys of the runs of schedules. It is pure. Schedules have ids of the same form.
package ids

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The bits of an id, from high to low: 41 of milliseconds, 13 of table number, 9 of sequence. The highest bit of the 64
// stays zero, so that an id fits a signed BIGINT of other languages.
const (
	TableBits = 13
	seqBits   = 9

	seqMask   = 1<<seqBits - 1
	tableMask = 1<<TableBits - 1
)

// Epoch is the time that the milliseconds count from.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// JobID puts an id together.
func JobID(milli int64, table, seq int) uint64 {
	return uint64(milli)<<(seqBits+TableBits) | uint64(table&tableMask)<<seqBits | uint64(seq&seqMask)
}

// Table returns the table number.
func Table(id uint64) int { return int(id>>seqBits) & tableMask }

// Time returns when the id was made, by the clock of its maker.
func Time(id uint64) time.Time {
	return Epoch.Add(time.Duration(id>>(seqBits+TableBits)) * time.Millisecond)
}

// Maker makes ids that never repeat within one process: it counts ticks of 1/512 ms and never goes back, so a burst borrows
// from the coming milliseconds. Each millisecond starts at a random sequence, so that two processes seldom meet; if they
// do, the primary key refuses and the next id is taken. The zero value is ready. Safe for concurrent use.
type Maker struct{ last atomic.Int64 }

// Next returns an id for the table, made at now.
func (m *Maker) Next(now time.Time, table int) uint64 {
	start := now.Sub(Epoch).Milliseconds()<<seqBits | rand.Int64N(1<<seqBits)
	for {
		last := m.last.Load()
		tick := max(start, last+1)
		if m.last.CompareAndSwap(last, tick) {
			return JobID(tick>>seqBits, table, int(tick&seqMask))
		}
	}
}

// Start makes the next id one of a time at the earliest; for tests.
func (m *Maker) Start(t time.Time) { m.last.Store(t.Sub(Epoch).Milliseconds() << seqBits) }
