package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/store"
)

// Reserve makes room for whole rows of a biz type that are about to be read, for
// at most so many; for none where the lane has enough to do, and what is due is
// better queued. A lane that is quick has room again soon: that is waited for a
// little. Room for any has to be given back by one Take, whatever comes of it.
func (d *Dispatcher) Reserve(ctx context.Context, server int, bizType uint64, most int) duequeue.Room {
	s := d.servers[server]
	var patience, look <-chan time.Time
	for {
		room, vacant := s.reserve(bizType, most)
		if !room.Later {
			return room
		}
		if patience == nil {
			timer := time.NewTimer(streamPatience)
			defer timer.Stop()
			patience = timer.C
			tick := time.NewTicker(yieldLook)
			defer tick.Stop()
			look = tick.C
		}
		select {
		case <-ctx.Done():
			return room
		case <-patience:
			return room
		case <-look:
		case <-vacant:
		}
	}
}

// reserve gives what there is now; if that is to come Later, vacant tells when to
// ask again.
func (s *server) reserve(bizType uint64, most int) (room duequeue.Room, vacant <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	if l == nil || l.rests() || l.full() || s.d.phase.Load() != running {
		return room, nil
	}
	if s.settler.full() {
		room.Later = true
		return room, l.vacant
	}
	slots := l.slots()
	if slots < most {
		l.grow()
		slots = l.slots()
	}
	n := l.kind.payload.rows(min(slots, most))
	if n == 0 {
		room.Later = l.ahead > 0 || s.d.yields.gives(l.class(), time.Now())
		return room, l.vacant
	}
	l.held += n
	s.d.yields.load(l.class(), n)
	l.claimRoom(n)
	if l.budget() > 0 {
		signal(l.vacant) // for the next who waits
	}
	return duequeue.Room{Rows: n, Reading: l.queue.Begin()}, nil
}

// Take starts rows that were read whole, of one biz type and due, for which
// Reserve made room; asked is when their reading began. It returns the due time of
// the oldest that it did not take, 0 for none: those beyond the room and those of
// tables that are not admitted; of a node that stops, all. Rows that are known
// already stay where they are, but for queued ones, which start now. One that
// ended since Reserve is queued, and loaded again.
func (d *Dispatcher) Take(ctx context.Context, server int, bizType uint64, room duequeue.Room, rows []store.Row, asked time.Time) (oldestRefused int64) {
	d.takes.add(1)
	defer d.takes.add(-1)
	s := d.servers[server]
	tasks, refused := s.book(bizType, room, rows, s.look(ctx, rows), asked)
	s.d.metrics.loaded.Add(float64(len(tasks)))
	s.makeReady(tasks, s.now())
	return refused
}

// book makes tasks of the rows and exchanges the reservation for them.
func (s *server) book(bizType uint64, room duequeue.Room, rows []store.Row, turns map[tocsin.JobID]*schedule.Turn, asked time.Time) (tasks []*task, refused int64) {
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
		if stopped || len(block) == cap(block) || !s.admitted(row.JobID.Table()) || s.strange(row.JobID.Table(), row.Type) || s.unknown(row, turns) {
			if refused == 0 || row.Action < refused {
				refused = row.Action
			}
			continue
		}
		if l.kind.leavesNewer(row) {
			continue
		}
		e := duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.Action}
		if l.queue.Take(e) && !s.putOff(l, e, row.Action, s.now()) {
			block = append(block, task{lane: l, row: row, turn: turns[row.JobID], asked: asked, loaded: at})
		}
	}
	l.held += len(block)
	tasks = slices.Grow(tasks, len(block))
	for i := range block {
		block[i].take()
		tasks = append(tasks, &block[i])
	}
	slices.SortStableFunc(tasks, func(a, b *task) int { return cmp.Compare(a.row.Action, b.row.Action) })
	return tasks, refused
}
