package scanner

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/store"
)

// lane is what the intake may not know of one biz type on one server: backlogs, and rows for which there was no room.
type lane struct {
	bizType uint64
	spans   map[int]*span // by table
	oldest  spanHeap      // the same spans
	pulled  []*span       // the oldest one of each pull under way
	width   width
	rest    time.Time // no pull before this
}

// span is a part of one table. What is due later than its place, or at the same time with a higher job_id, may be unread.
type span struct {
	store.Place
	until int64 // what is due later than this is known, or will be peeked
	at    int   // in the heap
}

// spanHeap has the span with the oldest place on top.
type spanHeap []*span

func (h spanHeap) Len() int           { return len(h) }
func (h spanHeap) Less(i, j int) bool { return comparePlaces(h[i].Place, h[j].Place) < 0 }
func (h spanHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

// Push implements heap.Interface.
func (h *spanHeap) Push(s any) {
	s.(*span).at = len(*h)
	*h = append(*h, s.(*span))
}

// Pop implements heap.Interface.
func (h *spanHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}

// comparePlaces orders places by time, and those of one time by table.
func comparePlaces(a, b store.Place) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Table, b.Table), cmp.Compare(a.JobID, b.JobID))
}

// lane finds or makes the lane of a biz type. Called under mu.
func (sv *server) lane(bizType uint64) *lane {
	l := sv.lanes[bizType]
	if l == nil {
		l = &lane{bizType: bizType, spans: make(map[int]*span), width: width{tables: maxPulled}}
		sv.lanes[bizType] = l
	}
	return l
}

// unread notes that rows of a biz type in tables, due from then until then, may be unread. Called under mu.
func (sv *server) unread(bizType uint64, tables []int, from, until int64) {
	for _, t := range tables {
		sv.lane(bizType).add(span{Place: store.Place{Table: t, Due: from}, until: until})
	}
}

// add takes in a span. One that its table has already grows.
func (l *lane) add(s span) {
	old := l.spans[s.Table]
	if old == nil {
		l.spans[s.Table] = &s
		heap.Push(&l.oldest, &s)
		return
	}
	if comparePlaces(s.Place, old.Place) < 0 {
		old.Place = s.Place
	}
	old.until = max(old.until, s.until)
	heap.Fix(&l.oldest, old.at)
}

// next is when the oldest span begins, false if there is none.
func (l *lane) next() (due int64, some bool) {
	if len(l.oldest) == 0 {
		return 0, false
	}
	return l.oldest[0].Due, true
}

// middle returns the middle of the time that is unread. What begins later waits for what is older, so that rows come about in the
// order of their times.
func (l *lane) middle(now int64) int64 {
	first, some := l.next()
	for _, s := range l.pulled {
		if !some || s.Due < first {
			first, some = s.Due, true
		}
	}
	return first + (now-first)/2
}

// ready reports whether a span can be pulled.
func (l *lane) ready(now int64) bool {
	due, some := l.next()
	return some && due <= now && due <= l.middle(now)
}

// take removes the oldest spans, at most n and in order, for a pull. done ends it.
func (l *lane) take(n int, now int64) (taken []*span) {
	middle := l.middle(now)
	for len(taken) < n && len(l.oldest) > 0 && l.oldest[0].Due <= min(middle, now) {
		s := heap.Pop(&l.oldest).(*span)
		delete(l.spans, s.Table)
		taken = append(taken, s)
	}
	if len(l.oldest) == 0 { // what many tables took is given back
		l.spans, l.oldest = make(map[int]*span), nil
	}
	if len(taken) > 0 {
		l.pulled = append(l.pulled, taken[0])
	}
	return taken
}

// done ends the pull of what take returned.
func (l *lane) done(taken []*span) {
	l.pulled = slices.DeleteFunc(l.pulled, func(s *span) bool { return s == taken[0] })
}

// width finds how many tables to read in one statement, so that it brings about
// pullPage rows: many where they hold few due rows, one by one where many. The
// more tables a page is of, the nearer to the order of their action times are its
// rows; the fewer, the cheaper it is to settle. So it narrows as a backlog turns
// out to be deep.
type width struct {
	tables int
	rows   int  // read at this width
	short  bool // the last statement found its tables at their end
}

// next returns the tables of the next statement and the rows of each, at most.
func (w *width) next(left int) (tables, limit int) {
	tables = min(w.tables, left)
	return tables, max(pullPage/tables, 1)
}

// note learns from one statement. more is how many of its tables came back full. If most did, page after page, the next statement reads
// fewer tables; if most came back short twice in a row, it reads more. One short page is only the end of a deep table.
func (w *width) note(tables, more, rows int) {
	w.rows += rows
	short := more*4 <= tables
	switch {
	case short && w.short:
		*w = width{tables: min(tables*2, maxPulled)}
	case more*4 >= tables*3 && w.rows >= deepAfter*pullPage:
		*w = width{tables: max(tables/2, 1)}
	default:
		w.short = short
	}
}
