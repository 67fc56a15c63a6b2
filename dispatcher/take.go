package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Reserve makes room for at most that many whole rows of a biz type, which the caller is about to read. It returns no room while the
// lane has no demand: then Config.Woken is called when it has, or Room.Wait says when to ask again. Each room with rows needs one
// Take, whatever was read.
func (d *Dispatcher) Reserve(server int, bizType uint64, most int) duequeue.Room {
	s := d.servers[server]
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	if l == nil {
		return duequeue.Room{}
	}
	l.asked = true
	if l.rests() || s.settler.full() || d.phase.Load() != running {
		return duequeue.Room{}
	}
	slots := l.slots()
	if slots > 0 && slots < most { // a lane without a free slot may be a slow one
		l.grow()
		slots = l.slots()
	}
	n := l.kind.payload.rows(min(slots, most))
	if n == 0 {
		if d.yields.gives(l.class(), time.Now()) {
			return duequeue.Room{Wait: yieldLook}
		}
		return duequeue.Room{}
	}
	l.asked = false
	l.held += n
	d.yields.load(l.class(), n)
	l.claimRoom(n)
	return duequeue.Room{Rows: n, Reading: l.queue.Begin()}
}

// Take starts rows that were read whole, of one biz type and due, for which
// Reserve made room; asked is when their reading began. It returns those that it did not take: those beyond the room and those of
// tables that are not admitted; of a node that stops, all. Rows that are known
// already stay where they are, but for queued ones, which start now. One that
// ended since Reserve is queued, and loaded again.
func (d *Dispatcher) Take(ctx context.Context, server int, bizType uint64, room duequeue.Room, rows []store.Row, asked time.Time) (refused []duequeue.Entry) {
	d.takes.add(1)
	defer d.takes.add(-1)
	s := d.servers[server]
	now := s.now()
	tasks, runs, refused := s.book(bizType, room, rows, asked, now)
	s.d.metrics.loaded.Add(float64(len(tasks) + len(runs)))
	s.makeReady(tasks, now)
	if len(runs) > 0 { // their schedules may be slow to read
		runs, unread := s.look(ctx, runs, now, true)
		s.makeReady(runs, now)
		refused = append(refused, unread...)
	}
	return refused
}

// book makes tasks of the rows, apart from these the runs of schedules, and exchanges the reservation for them.
func (s *server) book(bizType uint64, room duequeue.Room, rows []store.Row, asked time.Time, now int64) (tasks, runs []*task, refused []duequeue.Entry) {
	at := time.Now()
	block := make([]task, 0, min(len(rows), room.Rows)) // its tasks live and end at about the same time
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	l.held -= room.Rows
	l.leaveRoom(room.Rows)
	defer l.queue.End(room.Reading)
	defer signal(s.wake) // for what is queued again
	stopped := l.rests() || s.d.phase.Load() != running
	for i := range rows {
		row := &rows[i]
		e := duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action}
		if stopped || len(block) == cap(block) || !s.admitted(row.JobID.Table()) || s.strange(row.JobID.Table(), row.Type) {
			refused = append(refused, e)
			continue
		}
		if l.kind.leavesNewer(row) || !l.queue.Take(e) {
			continue
		}
		if !s.putOff(l, e, row.Action, now) {
			block = append(block, task{lane: l, row: row, asked: asked, loaded: at})
		}
	}
	l.held += len(block)
	s.d.yields.load(l.class(), len(block)-room.Rows)
	tasks = slices.Grow(tasks, len(block))
	for i := range block {
		t := &block[i]
		if t.take(); s.isRun(t.row) {
			runs = append(runs, t)
		} else {
			tasks = append(tasks, t)
		}
	}
	byTime := func(a, b *task) int { return cmp.Compare(a.row.Action, b.row.Action) }
	slices.SortStableFunc(tasks, byTime)
	slices.SortStableFunc(runs, byTime)
	return tasks, runs, refused
}
