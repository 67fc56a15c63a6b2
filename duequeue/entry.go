package duequeue

import "github.com/tocsinhq/tocsin"

// Entry is one task as the index knows it: enough to order it and to load it.
type Entry struct {
	JobID tocsin.JobID
	Type  uint64 // number of the biz type
	Due   int64  // action_time in Unix milliseconds, by the clock of the row's server
}
