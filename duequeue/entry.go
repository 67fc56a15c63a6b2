package duequeue

import "github.com/tocsinhq/tocsin"

// Entry is one task as the index knows it: enough to order it and to load it.
type Entry struct {
	JobID tocsin.JobID
	Type  uint64 // number of the biz type
	Due   int64  // action_time in Unix milliseconds, by the clock of the row's server
}

// Refused holds the biz types with entries that found no room, each with the due time
// of its oldest such entry; nil means that all found room.
type Refused map[uint64]int64

// Note adds an entry of a biz type that found no room.
func (r *Refused) Note(bizType uint64, due int64) {
	if *r == nil {
		*r = make(Refused)
	}
	if old, ok := (*r)[bizType]; !ok || due < old {
		(*r)[bizType] = due
	}
}
