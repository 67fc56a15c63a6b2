package tocsin

import (
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
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
func (l Layout) TableOf(bizID uint64) int {
	var buf [20]byte
	return int(crc32.ChecksumIEEE(strconv.AppendUint(buf[:0], bizID, 10)) % uint32(l.Total()))
}

// DatabaseOf gives the database number of a table number.
func (l Layout) DatabaseOf(table int) int { return table / l.Tables }

// Database gives the name of a database by its number, "toc_3".
func (l Layout) Database(database int) string { return l.prefix() + "_" + strconv.Itoa(database) }

// Table gives the full name of a task table by its number, "toc_3.task_0517".
func (l Layout) Table(table int) string {
	return l.Database(l.DatabaseOf(table)) + "." + l.TableName(table)
}

// TableName gives a task table's name inside its database, "task_0517".
func (l Layout) TableName(table int) string {
	digits := strconv.Itoa(table % l.Tables)
	return "task_0000"[:max(len("task_0000")-len(digits), len("task_"))] + digits
}

func (l Layout) prefix() string {
	if l.Prefix == "" {
		return DefaultPrefix
	}
	return l.Prefix
}
