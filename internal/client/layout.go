package client

import (
	"hash/crc32"
	"strconv"
	"strings"
)

// Layout says where a biz_id and a table are, and what they are called. It is the arithmetic behind tocsin.Layout, whose fields it has;
// its Prefix is never "".
type Layout struct {
	Databases int
	Tables    int
	Prefix    string
}

// Total returns the number of task tables over all databases.
func (l Layout) Total() int { return l.Databases * l.Tables }

// TableOf returns the table number of a biz_id, 0 to Total()-1. In SQL it is
// CRC32(biz_id) % Total.
func (l Layout) TableOf(bizID uint64) int {
	var buf [20]byte
	return int(crc32.ChecksumIEEE(strconv.AppendUint(buf[:0], bizID, 10)) % uint32(l.Total()))
}

// DatabaseOf returns the database number of a table number.
func (l Layout) DatabaseOf(table int) int { return table / l.Tables }

// Database returns the name of a database by its number, "toc_3".
func (l Layout) Database(database int) string { return l.Prefix + "_" + strconv.Itoa(database) }

// Table returns the full name of a task table by its number, "toc_3.task_0517".
func (l Layout) Table(table int) string {
	return l.Database(l.DatabaseOf(table)) + "." + l.TableName(table)
}

// TableName returns a task table's name inside its database, "task_0517".
func (l Layout) TableName(table int) string {
	digits := strconv.Itoa(table % l.Tables)
	return "task_0000"[:max(len("task_0000")-len(digits), len("task_"))] + digits
}

// Render fills in the names of a task table and of its database.
func (l Layout) Render(statement string, table int) string {
	statement = strings.ReplaceAll(statement, "{task}", l.Table(table))
	return strings.ReplaceAll(statement, "{database}", l.Database(l.DatabaseOf(table)))
}
