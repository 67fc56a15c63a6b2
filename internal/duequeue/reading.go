package duequeue

import (
	"time"

	"github.com/tocsinhq/tocsin"
)

// Reading is a read of whole rows under way. The rows it brings may be older than
// what became known meanwhile: see Begin.
type Reading struct{ generation uint64 }

// Room is what a lane has reserved for whole rows that are about to be read: for
// so many rows, of one read.
type Room struct {
	Rows int
	Wait time.Duration // of no rows: until it pays to ask again; 0: whoever made the room tells
	Reading
}

// ended remembers which entries ended while reads were under way, in two
// generations, so that it can forget although there is always a read under way.
type ended struct {
	generation uint64 // of reads that begin now
	open       [2]int // reads under way, of this generation and the one before
	ids        [2]map[tocsin.JobID]struct{}
}

// agedAt is how many ids a generation gathers before the next one begins.
const agedAt = 4096

// Begin is called before whole rows are read that Take will be asked about. An
// entry that ends between the two, its outcome stored, may still stand as
// pending in what was read: Take must know. Every Begin needs its End.
func (q *Queue) Begin() Reading {
	e := &q.ended
	if now, before := e.slots(); e.open[before] == 0 && len(e.ids[now]) >= agedAt {
		e.generation++
		clear(e.ids[before])
	}
	now, _ := e.slots()
	e.open[now]++
	return Reading{e.generation}
}

// End says that nothing more is taken from what was read.
func (q *Queue) End(r Reading) {
	e := &q.ended
	e.open[r.generation%2]--
	if e.open == [2]int{} {
		clear(e.ids[0])
		clear(e.ids[1])
	}
}

// slots gives where the present generation and the one before keep their own.
func (e *ended) slots() (now, before int) {
	return int(e.generation % 2), int((e.generation + 1) % 2)
}

// note remembers an id that ended, if it has to.
func (e *ended) note(id tocsin.JobID) {
	if e.open == [2]int{} {
		return
	}
	now, _ := e.slots()
	if e.ids[now] == nil {
		e.ids[now] = make(map[tocsin.JobID]struct{})
	}
	e.ids[now][id] = struct{}{}
}

// since reports whether the id ended while the read was under way, or not long
// before: it may be due again by now.
func (e *ended) since(id tocsin.JobID) bool {
	for _, ids := range e.ids {
		if _, is := ids[id]; is {
			return true
		}
	}
	return false
}

// Take makes an entry known that is in flight at once, as its whole row has been
// read already. It reports false, and changes nothing, where it is in flight or
// queued for later than the row says, as after a failed attempt. Where it has
// ended since a read under way began, the row may not be what it was when it was
// read, or it ended before and is due again: it is queued, or stays so where a bell
// or an older read has brought it back, to be read once more. Another queued one
// leaves the queue. It is accepted where the queue is full.
func (q *Queue) Take(e Entry) bool {
	i, known := q.index[e.JobID]
	switch ended := q.ended.since(e.JobID); {
	case ended && !known:
		q.insert(e)
		return false
	case ended:
		return false
	case !known:
		q.index[e.JobID] = inFlight
	case i == inFlight || q.slots[i].Due > e.Due:
		return false
	default:
		q.launch(q.remove(&q.queued, int(q.slots[i].pos)))
	}
	return true
}
