package tocsin

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// MaxTables is the largest number of tables a layout may have: a job_id keeps
// 13 bits for the table number.
const MaxTables = 8192

// DefaultPrefix is the prefix of database names where none is set.
const DefaultPrefix = "toc"

// Layout says how many databases and tables a cluster has. It is fixed for the
// life of the cluster and stored in every database.
type Layout struct {
	Databases int    // databases, at least 1
	Tables    int    // task tables in each database, at least 1
	Prefix    string // of database names, [a-z0-9_], at most 32 bytes; "" means DefaultPrefix
}

var prefixForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// Validate reports what is wrong with the layout.
func (l Layout) Validate() error {
	switch {
	case l.Databases < 1 || l.Tables < 1:
		return fmt.Errorf("layout %s: needs at least 1 database and 1 table", l)
	case l.Tables > 10000 || l.Databases > MaxTables || l.Total() > MaxTables:
		return fmt.Errorf("layout %s: has %d tables, more than %d", l, l.Total(), MaxTables)
	case !prefixForm.MatchString(l.prefix()):
		return fmt.Errorf("layout prefix %q: use lower-case letters, digits and _, at most 32, a letter first", l.Prefix)
	}
	return nil
}

// String gives the short form, "8x1024".
func (l Layout) String() string { return fmt.Sprintf("%dx%d", l.Databases, l.Tables) }

// Total is the number of task tables over all databases.
func (l Layout) Total() int { return l.Databases * l.Tables }

// TableOf gives the table number of a biz_id, 0 to Total()-1. In SQL it is
// CRC32(biz_id) % Total.
func (l Layout) TableOf(bizID uint64) int { return client.Layout(l).TableOf(bizID) }

// DatabaseOf gives the database number of a table number.
func (l Layout) DatabaseOf(table int) int { return client.Layout(l).DatabaseOf(table) }

// Database gives the name of a database by its number, "toc_3".
func (l Layout) Database(database int) string { return l.names().Database(database) }

// Table gives the full name of a task table by its number, "toc_3.task_0517".
func (l Layout) Table(table int) string { return l.names().Table(table) }

// TableName gives a task table's name inside its database, "task_0517".
func (l Layout) TableName(table int) string { return client.Layout(l).TableName(table) }

// names is the layout with its prefix.
func (l Layout) names() client.Layout {
	l.Prefix = l.prefix()
	return client.Layout(l)
}

func (l Layout) prefix() string {
	if l.Prefix == "" {
		return DefaultPrefix
	}
	return l.Prefix
}

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
func (id JobID) Table() int { return ids.Table(uint64(id)) }

// Time is when the id was made, by the clock of its maker, in milliseconds.
func (id JobID) Time() time.Time { return ids.Time(uint64(id)) }

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
