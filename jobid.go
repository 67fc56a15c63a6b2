package tocsin

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// The bits of a JobID, from high to low: 41 of milliseconds, 13 of table
// number, 9 of sequence. The highest bit of the 64 stays zero, so that a job_id
// fits a signed BIGINT of other languages.
const (
	milliBits = 41
	tableBits = 13
	seqBits   = 9
	seqMask   = 1<<seqBits - 1
	tableMask = 1<<tableBits - 1
)

// Epoch is the time that a JobID's milliseconds count from.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// JobID is a task's primary key. It holds the task's table number, so the task
// can be found from it alone, and grows with time within a table. In JSON it is
// a decimal string. The zero JobID is no task.
type JobID uint64

// ParseJobID reads the decimal form.
func ParseJobID(s string) (JobID, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("job_id %q: want a decimal number from 1 to 2^63-1", s)
	}
	return JobID(n), nil
}

// Table is the number of the table that holds the task.
func (id JobID) Table() int { return int(id>>seqBits) & tableMask }

// Time is when the id was made, by the clock of its maker, in milliseconds.
func (id JobID) Time() time.Time {
	return Epoch.Add(time.Duration(id>>(seqBits+tableBits)) * time.Millisecond)
}

// String gives the decimal form.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalJSON writes a decimal string: 64-bit numbers do not survive every JSON reader.
func (id JobID) MarshalJSON() ([]byte, error) { return []byte(`"` + id.String() + `"`), nil }

// UnmarshalJSON reads a decimal string or a number.
func (id *JobID) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("job_id: %w", err)
	}
	parsed, err := ParseJobID(n.String())
	*id = parsed
	return err
}

func newJobID(milli int64, table, seq int) JobID {
	return JobID(milli)<<(seqBits+tableBits) | JobID(table&tableMask)<<seqBits | JobID(seq&seqMask)
}

// jobIDs makes ids that never repeat within one process: it counts ticks of
// 1/512 ms and never goes back, so a burst borrows from the coming
// milliseconds. Each millisecond starts at a random sequence, so that two
// processes seldom meet; where they do, the primary key refuses and the next id
// is taken. The zero value is ready. Safe for concurrent use.
type jobIDs struct{ last atomic.Int64 }

// next gives an id for the table, made at now.
func (g *jobIDs) next(now time.Time, table int) JobID {
	start := now.Sub(Epoch).Milliseconds()<<seqBits | rand.Int64N(1<<seqBits)
	for {
		last := g.last.Load()
		tick := max(start, last+1)
		if g.last.CompareAndSwap(last, tick) {
			return newJobID(tick>>seqBits, table, int(tick&seqMask))
		}
	}
}
