package duequeue

import (
	"slices"

	"github.com/tocsinhq/tocsin"
)

// Entry is one task as the index knows it: enough to order it and to load it.
type Entry struct {
	JobID tocsin.JobID
	Type  uint64 // number of the biz type
	Due   int64  // action_time in Unix milliseconds, by the clock of the row's server
}

// Access says how rows of a table may start in a process. The zero value lets all of them start, where nobody owns tables or
// all rows are claimed.
type Access struct {
	Owner   string   // as the owner row says: it fences claims, and without its lease each row is claimed; "": nobody owns the table
	Unclean bool     // the last owner may have left rows in delivery, so overdue rows are claimed for a minute
	Guest   bool     // another process looks at the table first, and rows start a little later here
	Types   []uint64 // the biz types that the owner, another node, lacks: these only, each by a claim; nil: all
}

// Reads reports whether rows of a biz type may start.
func (a *Access) Reads(bizType uint64) bool {
	return a.Types == nil || slices.Contains(a.Types, bizType)
}
