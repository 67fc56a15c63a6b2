package tocsin

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/jobid"
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
	if id, _, isKey := strings.Cut(s, "."); err != nil && isKey {
		return 0, fmt.Errorf("job_id %q: want a decimal number from 1 to 2^63-1; if it is a webhook-id, its job_id is %q", s, id)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("job_id %q: want a decimal number from 1 to 2^63-1", s)
	}
	return JobID(n), nil
}

// Table is the number of the table that holds the task.
func (id JobID) Table() int { return jobid.Table(uint64(id)) }

// Time is when the id was made, by the clock of its maker, in milliseconds.
func (id JobID) Time() time.Time { return jobid.Time(uint64(id)) }

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

// jobIDs makes ids; see jobid.Maker.
type jobIDs struct{ maker jobid.Maker }

// next gives an id for the table, made at now.
func (g *jobIDs) next(now time.Time, table int) JobID { return JobID(g.maker.Next(now, table)) }
