package scanner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// lanes is an intake of one real queue for each biz type, for all servers together. Tests without a goroutine of the scanner read its
// fields as they are.
type lanes struct {
	mu      sync.Mutex
	came    *sync.Cond            // something was offered or taken
	seen    map[tocsin.JobID]bool // ever offered or taken
	queues  map[uint64]*duequeue.Queue
	paused  map[uint64]bool
	rows    int              // whole rows that all lanes take between deliveries
	started []duequeue.Entry // whole rows taken
	settled map[tocsin.JobID]bool
	twice   int // whole rows taken that were settled before
}

func (l *lanes) Reserve(_ int, bizType uint64, most int) duequeue.Room {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[bizType]
	if n := min(most, l.rows-len(l.started)); n > 0 && !l.paused[bizType] {
		return duequeue.Room{Rows: n, Reading: q.Begin()}
	}
	return duequeue.Room{}
}

func (l *lanes) Take(_ context.Context, _ int, bizType uint64, room duequeue.Room, rows []store.Row, _ time.Time) (refused []duequeue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.came.Broadcast()
	q := l.queues[bizType]
	defer q.End(room.Reading)
	for i, row := range rows {
		l.seen[row.JobID] = true
		e := duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action}
		if i >= room.Rows {
			refused = append(refused, e)
			continue
		}
		if !q.Take(e) {
			continue
		}
		l.started = append(l.started, e)
		if l.settled[e.JobID] {
			l.twice++
		}
	}
	return refused
}

func (l *lanes) OwnLook(context.Context, int, []int) error { return nil }

// Room keeps nothing: the queues are bounded.
func (l *lanes) Room(_ int, bizType uint64, most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused[bizType] {
		return 0
	}
	return min(most, l.queues[bizType].Room())
}

func (l *lanes) Fetched(server int, _ uint64, _ int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	return l.Offer(server, entries)
}

func newLanes(capacity int, types ...uint64) *lanes {
	l := &lanes{
		rows: capacity, queues: make(map[uint64]*duequeue.Queue), paused: make(map[uint64]bool),
		seen: make(map[tocsin.JobID]bool), settled: make(map[tocsin.JobID]bool),
	}
	l.came = sync.NewCond(&l.mu)
	for _, t := range types {
		l.queues[t] = duequeue.New(capacity)
	}
	return l
}

func (l *lanes) Offer(_ int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.came.Broadcast()
	for _, e := range entries {
		l.seen[e.JobID] = true
		if out, some := l.queues[e.Type].Offer(e); some {
			refused = append(refused, out)
		}
	}
	return refused
}

// owner is the access of these tests to tables that nobody else looks at.
var owner = &duequeue.Access{}

func (l *lanes) Set([]int, *duequeue.Access) {}

func (l *lanes) Heard(int) []uint64 {
	return l.types(func(t uint64) bool { return !l.paused[t] })
}

func (l *lanes) Wanted(int) []uint64 {
	return l.types(func(t uint64) bool { return l.queues[t].Room() > 0 && !l.paused[t] })
}

func (l *lanes) types(are func(uint64) bool) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return filter(slices.Collect(maps.Keys(l.queues)), are)
}

// deliver settles what is due at once. What was put off meanwhile is queued again.
func (l *lanes) deliver(r *rows, limit int) {
	due := l.started
	l.started = nil
	for _, t := range slices.Sorted(maps.Keys(l.queues)) {
		due = l.queues[t].Pop(r.Now(0), limit, due)
	}
	for _, e := range due {
		if row, pending := r.pending[e.JobID]; pending && row.Due > r.Now(0) {
			l.queues[e.Type].Requeue(row.Entry)
			continue
		}
		delete(r.pending, e.JobID)
		l.settled[e.JobID] = true
		l.queues[e.Type].Done(e.JobID)
	}
}

// drop forgets what is queued of a table that is given away.
func (l *lanes) drop(table int) {
	for _, q := range l.queues {
		q.Drop(func(t int) bool { return t == table })
	}
}
