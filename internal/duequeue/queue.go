package duequeue

import "github.com/tocsinhq/tocsin"

// slot is a queued entry and its position in the heap. It is 32 bytes, so that a
// million of them cost little.
type slot struct {
	Entry
	pos int32
}

// inFlight stands in the index for an entry in flight, which needs no slot.
const inFlight = -1

// keepSlots is how much of its memory a queue keeps when it runs empty.
const keepSlots = 1 << 12

// Queue is one lane's: bounded, ordered by (Due, JobID). Its methods take
// O(log n) where they don't say otherwise. Not safe for concurrent use: the
// caller locks.
type Queue struct {
	capacity int
	slots    []slot
	free     []int32
	index    map[tocsin.JobID]int32 // of all that is known: its slot, or inFlight
	queued   minMax
	ended    ended
}

// New makes a queue that knows at most capacity entries, queued and in flight
// together; under 1 is taken as 1. Memory is taken as entries come, about 80
// bytes each.
func New(capacity int) *Queue {
	return &Queue{capacity: max(capacity, 1), index: make(map[tocsin.JobID]int32)}
}

// Offer adds an entry if there is room. An entry that is queued already moves forward if e is earlier; one in flight stays as it is.
// some reports whether an entry found no room. refused is that entry: e itself if it is not earlier than any queued one, else
// the latest queued one, which gave way to it. It stays in MySQL and has to be offered again.
func (q *Queue) Offer(e Entry) (refused Entry, some bool) {
	if i, ok := q.index[e.JobID]; ok {
		q.again(i, e)
		return Entry{}, false
	}
	if len(q.index) < q.capacity {
		q.insert(e)
		return Entry{}, false
	}
	if len(q.queued) == 0 {
		return e, true
	}
	far := q.last(q.queued)
	latest := q.slots[q.queued[far]].Entry
	if e.Due >= latest.Due {
		return e, true
	}
	q.forget(q.remove(&q.queued, far))
	q.insert(e)
	return latest, true
}

// again moves a queued entry forward. A later time is not taken over: who loads
// the row finds that it is not due yet and requeues it.
func (q *Queue) again(i int32, e Entry) {
	if i == inFlight || e.Due >= q.slots[i].Due {
		return
	}
	s := &q.slots[i]
	s.Entry = e
	q.fix(q.queued, int(s.pos))
}

// Pop appends to into up to limit entries that are due at now, earliest first.
// They are in flight, and so stay known, until Done or Requeue.
func (q *Queue) Pop(now int64, limit int, into []Entry) []Entry {
	for ; limit > 0 && len(q.queued) > 0; limit-- {
		if q.slots[q.queued[0]].Due > now {
			break
		}
		into = append(into, q.launch(q.remove(&q.queued, 0)))
	}
	return into
}

// launch puts an entry that has left the heap in flight.
func (q *Queue) launch(i int32) Entry {
	e := q.slots[i].Entry
	q.free = append(q.free, i)
	q.index[e.JobID] = inFlight
	return e
}

// Done forgets a job_id: its outcome is stored, or its row dropped out. An id
// that is queued or unknown is left as it is. After it the id may come again.
func (q *Queue) Done(id tocsin.JobID) {
	if i, ok := q.index[id]; ok && i == inFlight {
		delete(q.index, id)
		q.ended.note(id)
		q.release()
	}
}

// Requeue takes an entry in flight back with a new due time: its row is not due
// yet by the server's clock, or is retried soon. It is always accepted, also
// where the queue is full or the id is unknown; a queued one is only moved
// forward.
func (q *Queue) Requeue(e Entry) {
	if i, ok := q.index[e.JobID]; ok && i != inFlight {
		q.again(i, e)
	} else {
		q.insert(e)
	}
}

// Drop forgets the queued entries of the tables that gone reports. Entries in
// flight stay until Done. It takes O(n).
func (q *Queue) Drop(gone func(table int) bool) {
	kept := q.queued[:0]
	for _, i := range q.queued {
		if gone(q.slots[i].JobID.Table()) {
			q.forget(i)
			continue
		}
		q.slots[i].pos = int32(len(kept))
		kept = append(kept, i)
	}
	q.queued = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		q.down(kept, i)
	}
	q.release()
}

// Next is the due time of the earliest queued entry; false where none is queued.
func (q *Queue) Next() (due int64, ok bool) {
	if len(q.queued) == 0 {
		return 0, false
	}
	return q.slots[q.queued[0]].Due, true
}

// Len is the number of queued entries.
func (q *Queue) Len() int { return len(q.queued) }

// Has reports whether a job_id is known, and if so, whether it is in flight or queued.
func (q *Queue) Has(id tocsin.JobID) (flying, known bool) {
	i, known := q.index[id]
	return known && i == inFlight, known
}

// Known is the number of entries queued, and popped and not yet done.
func (q *Queue) Known() int { return len(q.index) }

// Cap is the number of entries that may be known.
func (q *Queue) Cap() int { return q.capacity }

// SetCap changes how many entries the queue holds; a capacity under 1 counts as 1.
// Entries beyond it stay. Until there are fewer, an entry is admitted only in place
// of a later one.
func (q *Queue) SetCap(capacity int) { q.capacity = max(capacity, 1) }

// Room is how many more entries are accepted without refusing any.
func (q *Queue) Room() int { return max(q.capacity-len(q.index), 0) }

func (q *Queue) insert(e Entry) {
	i := int32(len(q.slots))
	if n := len(q.free); n > 0 {
		i, q.free = q.free[n-1], q.free[:n-1]
	} else {
		q.slots = append(q.slots, slot{})
	}
	q.slots[i] = slot{Entry: e}
	q.index[e.JobID] = i
	q.slots[i].pos = int32(len(q.queued))
	q.queued = append(q.queued, i)
	q.up(q.queued, len(q.queued)-1)
}

func (q *Queue) forget(i int32) {
	delete(q.index, q.slots[i].JobID)
	q.free = append(q.free, i)
}

// release gives back what a burst took.
func (q *Queue) release() {
	if len(q.index) == 0 && len(q.slots) > keepSlots {
		ended := q.ended
		*q = *New(q.capacity)
		q.ended = ended
	}
}
