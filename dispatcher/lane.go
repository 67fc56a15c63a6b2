package dispatcher

import (
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// lane is one biz type on one server. Its fields are guarded by server.mu, but
// for ready, which kind.mu guards.
type lane struct {
	kind   *kind
	server *server

	queue    *duequeue.Queue // its capacity is a share of the node's, which shrinks as biz types appear
	refused  bool            // an entry found no room, or none was wanted, since the lane was last Woken
	asked    bool            // Reserve found no demand, or the lane was paused, since then
	held     int             // rows reserved, loading or ready
	early    int             // rows that are held until they are due
	loading  int             // rows reserved or loading
	fetched  int             // ids of a backlog that are queued
	fetching int             // and that are being read; together at most fetchAhead
	booked   int64           // bytes of payload, for these

	ahead   int       // rows that may be loaded beyond the free slots
	changed time.Time // when ahead last did
	quick   int       // rows that were loaded since, and have not waited long for a slot
	turn    int       // kind.turn when a row of the lane last became ready; guarded by kind.mu

	ready  ready
	claims chan struct{} // a slot for each claim under way
	wary   atomic.Int64  // Unix ns: until then claims don't wait for locks, as one met a lock a moment ago; not guarded
}

func (l *lane) paused() bool { return l.kind.rule.Load().paused }

// rests reports whether the lane has no demand: it is paused, or its target is away.
func (l *lane) rests() bool { return l.paused() || l.kind.breaker.rests.Load() }

// roomy reports whether the queue has so much room that it pays to look for more.
func (l *lane) roomy() bool { return l.queue.Known()*4 <= l.queue.Cap()*3 }

// comeAgain queues an entry in flight that is due again. Those that are due later than in a moment must not fill the queue, as the scanner would
// look for no others: they are added to refused. What is due beyond the scanner's look-ahead is left to it. Called under server.mu.
func (l *lane) comeAgain(e duequeue.Entry, now int64, refused []duequeue.Entry) []duequeue.Entry {
	soon, known := now+requeueWithin.Milliseconds(), now+l.server.d.cfg.LookAhead.Milliseconds()
	switch {
	case !l.server.admitted(e.JobID.Table()):
	case e.Due <= soon || e.Due <= known && l.roomy():
		l.queue.Requeue(e)
		signal(l.server.wake)
		return refused
	case e.Due <= known:
		refused = append(refused, e)
	}
	l.queue.Done(e.JobID)
	return refused
}

// offer queues one entry. It adds to refused an entry that found no room: this one, or a later
// one that gave way to it. One that another node looks at first is left to that node.
func (l *lane) offer(e duequeue.Entry, refused []duequeue.Entry) []duequeue.Entry {
	if out, some := l.queue.Offer(e); some && !l.server.guest(out.JobID.Table()) {
		l.refused = true
		refused = append(refused, out)
	}
	return refused
}

// bringForward queues an entry for an earlier time, unless it is in flight. No entry
// gives way to it: no peek would know to find the displaced one again.
func (l *lane) bringForward(e duequeue.Entry) {
	if out, some := l.queue.Offer(e); some {
		l.queue.Requeue(out)
	}
}

// budget returns how many rows may be loaded now: those with both a slot and memory.
func (l *lane) budget() int { return l.kind.payload.rows(l.slots()) }

// slots returns how many more rows will get a slot soon. It returns 0 until half of
// the room is free, so that loads are not of one row each.
func (l *lane) slots() int {
	limit := l.kind.free(l)
	if room := limit - l.held; room*2 >= limit {
		return l.kind.d.yields.most(l.class(), max(room, 0), time.Now())
	}
	return 0
}

func (l *lane) class() class { return l.kind.rule.Load().class }

// pop takes due entries, as many as the budget and limit allow. A lane that was
// dry and has more due than it may load learns to load further ahead.
func (l *lane) pop(now int64, limit int, into []duequeue.Entry) []duequeue.Entry {
	before, held, slots := len(into), l.held, l.slots()
	into = l.load(now, min(l.kind.payload.rows(slots), limit), into)
	if n := len(into) - before; n > 0 && n == slots && held == 0 {
		l.grow()
	}
	return into
}

// load takes at most limit entries that are due at now.
func (l *lane) load(now int64, limit int, into []duequeue.Entry) []duequeue.Entry {
	before := len(into)
	into = l.queue.Pop(now, limit, into)
	n := len(into) - before
	l.held += n
	l.fetched = max(l.fetched-n, 0)
	l.kind.d.yields.load(l.class(), n)
	l.claimRoom(n)
	return into
}

// grow loads further ahead from now on, once as many rows as are loaded ahead
// have not waited long.
func (l *lane) grow() {
	if l.quick < l.ahead {
		return
	}
	by := 2
	if l.ahead >= 4 { // it has been quick for some time
		by = 4
	}
	l.lookAhead(min(max(1, l.ahead*by), maxAhead))
}

func (l *lane) lookAhead(rows int) { l.ahead, l.changed, l.quick = rows, time.Now(), 0 }

// leave books that a row is held no more. If it had to wait for a slot, less is
// loaded ahead: by half, however many of its like wait with it.
func (l *lane) leave(loaded, now time.Time) {
	l.held--
	switch {
	case loaded.Before(l.changed):
	case now.Sub(loaded) > slowWait:
		l.lookAhead(l.ahead / 2)
	default:
		l.quick++
	}
}

// signal fills a one-slot channel; signals coalesce.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
