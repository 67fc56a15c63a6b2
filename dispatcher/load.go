package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// runLoader loads what is due until ctx ends. Of a server's loaders one waits
// for work, holding the token; it passes the token on before it loads.
func (s *server) runLoader(ctx context.Context) {
	buf := make([]duequeue.Entry, 0, chunk)
	for {
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		batch, probe := s.await(ctx, buf)
		<-s.turn
		if len(batch) == 0 {
			return
		}
		probed := batch[0].JobID.Table()
		if ok := s.load(ctx, batch); probe {
			s.endProbe(probed, ok)
		}
	}
}

// await returns entries that are due and whose lanes have room, or none when
// ctx ends; probe says that it is the one of a table that was locked.
func (s *server) await(ctx context.Context, buf []duequeue.Entry) (batch []duequeue.Entry, probe bool) {
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, probe, wait := s.take(buf[:0])
		if len(batch) > 0 {
			return batch, probe
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
	return nil, false
}

// take pops due entries from the lanes in turn. If there are none it says how
// long to wait at most.
func (s *server) take(into []duequeue.Entry) (batch []duequeue.Entry, probe bool, wait time.Duration) {
	now := s.now()
	if now == 0 {
		return into, false, clockRecheck
	}
	s.mu.Lock()
	s.lastClock, s.lastAt = now, time.Now()
	if s.settler.full() {
		s.mu.Unlock()
		return into, false, recheck
	}
	into, wait = s.popAll(now, into)
	popped := len(into)
	batch, probe = s.sift(into, now)
	if popped > 0 {
		wait = 0 // what was put back hid what is behind it
	}
	woken := s.roomAgain()
	s.mu.Unlock()
	if woken {
		s.d.cfg.Woken(s.index)
	}
	return batch, probe, wait
}

// popAll pops due entries from all lanes, and entries that are due so soon that their
// load begins now. It adds entries that are due shortly after, so that loads are
// fuller and fewer. Called under s.mu.
func (s *server) popAll(now int64, into []duequeue.Entry) (batch []duequeue.Entry, wait time.Duration) {
	wait = recheck
	for _, l := range s.inTurn() {
		if l.rests() {
			continue
		}
		lead := s.lead(l)
		into = l.pop(now, chunk-len(into), into)
		if lead > 0 && (len(into) > 0 || l.untilDue(now) <= lead) { // loads at most as many rows as can start beside those that the lane has in hand
			into = l.load(now+s.d.within().Milliseconds(), min(l.budget()-l.early, chunk-len(into)), into)
		}
		until := l.untilDue(now)
		if until > lead {
			until -= lead
		}
		if until == recheck && l.queue.Len() > 0 && s.d.yields.gives(l.class(), time.Now()) {
			until = yieldLook
		}
		wait = min(wait, until)
	}
	return into, wait
}

// lead returns how long before a row of the lane is due its load, or its claim under a session, begins. It is 0 if
// only a due row can be claimed. Called under s.mu.
func (s *server) lead(l *lane) time.Duration {
	rule := l.kind.rule.Load()
	switch {
	case s.d.cfg.ClaimAll || s.unsure(time.Now()):
		return 0
	case s.d.claims() && rule.ahead():
		return claimLead
	case s.d.claims() || s.owner != "" && !s.d.cfg.LeaseOK(s.owner) || rule.claims():
		return 0
	}
	return holdLead
}

// compareClocks compares the estimate of the server's clock with the time that a load
// has read. If the estimate is ahead, held rows would start early, so none is held
// for a while. Called under s.mu.
func (s *server) compareClocks(read int64, trip time.Duration, at time.Time) {
	if read > 0 && s.now() > read+ceilMilli(trip)+1 { // 0: no table could be read, nor the clock; else it is cut to the millisecond
		s.unsureUntil = at.Add(unsureFor)
	}
}

// unsure reports whether the estimate of the server's clock was recently ahead of the
// clock. Called under s.mu.
func (s *server) unsure(at time.Time) bool { return at.Before(s.unsureUntil) }

// untilDue is how long nothing of the lane becomes due. What is due already
// waits for room, and is woken by it.
func (l *lane) untilDue(now int64) time.Duration {
	due, ok := l.queue.Next()
	if !ok || due <= now {
		return recheck
	}
	return min(time.Duration(due-now)*time.Millisecond, recheck)
}

// load reads the rows of a batch, claims those that need it, and makes them
// ready. As long as the server can't be reached it tries again. It reports
// whether all tables could be read. No loader waits for the schedules of runs: the
// goroutines are joined through Dispatcher.takes.
func (s *server) load(ctx context.Context, batch []duequeue.Entry) bool {
	if s.d.claims() {
		return s.claimDue(ctx, batch)
	}
	slices.SortFunc(batch, func(a, b duequeue.Entry) int { return cmp.Compare(a.JobID, b.JobID) })
	ids := make([]tocsin.JobID, len(batch))
	for i, e := range batch {
		ids[i] = e.JobID
	}
	var asked time.Time
	loaded, err := persist(ctx, s, "load", mysql.Class.Transient, func() (store.Loaded, error) {
		asked = time.Now()
		return s.d.cfg.Store.Load(ctx, s.index, ids)
	})
	if err != nil {
		s.mu.Lock()
		s.leaveRoom(batch)
		s.mu.Unlock()
		s.hold(batch, err)
		return false
	}
	s.d.metrics.loaded.Add(float64(len(loaded.Rows)))
	tasks, runs := s.sortOut(batch, loaded, asked)
	s.makeReady(tasks, loaded.Now)
	if len(runs) > 0 { // their schedules may be slow to read
		s.d.takes.add(1)
		go func() {
			defer s.d.takes.add(-1)
			s.reads <- struct{}{}
			defer func() { <-s.reads }()
			runs, _ := s.look(ctx, runs, loaded.Now, false)
			s.makeReady(runs, loaded.Now)
		}()
	}
	return len(loaded.Failed) == 0
}

// leaveRoom releases the payload room of entries that were loaded, or will not be. Called under s.mu.
func (s *server) leaveRoom(entries []duequeue.Entry) {
	for _, e := range entries {
		s.lanes[e.Type].leaveRoom(1)
	}
}

// hold puts entries back that could not be loaded or claimed, for a second.
func (s *server) hold(batch []duequeue.Entry, err error) {
	if mysql.ClassOf(err) != mysql.Canceled {
		s.warn("hold", "rows could not be loaded; trying again in a second", err, "rows", len(batch))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.now() + ceilMilli(avoidFor)
	for i := range batch {
		batch[i].Due = until
	}
	s.putBack(batch)
}

// sortOut drops rows that are no longer wanted, holds those that are due in a moment,
// puts back those that are due later by the server's clock, and returns the rest: tasks, and
// runs of schedules, due or not. batch is in order of job_id.
func (s *server) sortOut(batch []duequeue.Entry, loaded store.Loaded, asked time.Time) (tasks, runs []*task) {
	at := time.Now()
	rows := make(map[tocsin.JobID]*store.Row, len(loaded.Rows))
	for i := range loaded.Rows {
		rows[loaded.Rows[i].JobID] = &loaded.Rows[i]
	}
	tasks = make([]*task, 0, len(rows))
	defer signal(s.wake) // the loader that waits does not know of what is put back
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, err := range loaded.Failed {
		s.d.metrics.failed("load", err)
		s.known(number).avoidUntil = at.Add(avoidFor) // then one row of it is tried: see sift
	}
	s.compareClocks(loaded.Now, at.Sub(asked), at)
	for _, e := range batch {
		l := s.lanes[e.Type]
		l.leaveRoom(1)
		row := rows[e.JobID]
		if !s.startable(l, e, row, loaded) {
			l.held--
			continue
		}
		t := &task{lane: l, row: row, asked: asked, loaded: at}
		switch t.take(); {
		case s.isRun(row):
			runs = append(runs, t)
		case row.Action > loaded.Now:
			s.keep(t)
		default:
			tasks = append(tasks, t)
		}
	}
	return tasks, runs
}

// startable decides on one entry and its row (nil: not pending, or not read)
// and tells the queue where the row won't start now. Called under s.mu.
func (s *server) startable(l *lane, e duequeue.Entry, row *store.Row, loaded store.Loaded) bool {
	switch {
	case loaded.Failed[e.JobID.Table()] != nil:
		e.Due = loaded.Now + ceilMilli(avoidFor)
		l.queue.Requeue(e)
	case row == nil || row.Type != e.Type: // a bell that was rung by hand may name a wrong biz type
		s.d.metrics.droppedGone.Inc()
		l.queue.Done(e.JobID)
	case !s.admitted(e.JobID.Table()) || s.strange(e.JobID.Table(), e.Type):
		s.d.metrics.droppedTable.Inc()
		l.queue.Done(e.JobID)
	case l.kind.leavesNewer(row):
		l.queue.Done(e.JobID)
	case row.Action > loaded.Now+s.d.cfg.LookAhead.Milliseconds():
		s.d.metrics.droppedLater.Inc()
		l.queue.Done(e.JobID)
	case row.Action > loaded.Now && !s.mayHold(e, row, loaded.Now):
		s.d.metrics.early.Inc()
		e.Due = row.Action + max(s.now()-loaded.Now, 0) // by the estimate that was ahead, or it spins
		l.queue.Requeue(e)
	case s.d.cfg.ClaimAll && l.retried(row, loaded.Now):
		s.d.metrics.droppedLater.Inc()
		l.queue.Done(e.JobID)
	default:
		return !s.putOff(l, e, row.Action, loaded.Now)
	}
	return false
}

// mayHold reports whether a row that was loaded ahead of its time is held until it. One
// that was put off is not: it may have been read long before the clock was. Called
// under s.mu.
func (s *server) mayHold(e duequeue.Entry, row *store.Row, now int64) bool {
	return row.Action <= e.Due && row.Action <= now+holdWithin.Milliseconds() && !s.unsure(time.Now())
}

// retried reports whether a row that a sweep has found is not overdue enough any
// more: since then its owner, or another sweep, has settled it and may have
// started it again, without a claim.
func (l *lane) retried(row *store.Row, now int64) bool {
	overdue := time.Duration(now-row.Action) * time.Millisecond
	return overdue < l.kind.rule.Load().sweptAfter.Truncate(time.Millisecond)
}

// makeReady hands the tasks to their kinds, those that need a claim after it. No loader waits for a claim, as a row that a user's
// transaction holds would then delay the other lanes. The goroutines are joined through Dispatcher.takes, and are as many
// as the rows that the lane may hold.
func (s *server) makeReady(tasks []*task, now int64) {
	type claimed struct {
		lane  *lane
		owner string // whose owner row fences the claim; "": none
	}
	plain, claim := make(map[*lane][]*task), make(map[claimed][]*task)
	var alone []*task // Runs claims them
	s.mu.Lock()
	for _, t := range tasks {
		switch owner := s.fence(t.table()); {
		case t.guarded():
			alone = append(alone, t)
		case owner != "" || s.needsClaim(t, now):
			c := claimed{t.lane, owner}
			claim[c] = append(claim[c], t)
		default:
			plain[t.lane] = append(plain[t.lane], t)
		}
	}
	s.mu.Unlock()
	for l, ready := range plain {
		l.kind.put(l, s.wanted(ready))
	}
	for c, loaded := range claim {
		s.d.takes.add(1)
		go func() {
			defer s.d.takes.add(-1)
			c.lane.claims <- struct{}{}
			defer func() { <-c.lane.claims }()
			c.lane.kind.put(c.lane, s.wanted(s.claim(c.lane, c.owner, loaded)))
		}()
	}
	s.begin(alone)
}

// wanted ends those runs that their schedules do not want, and returns the other tasks. All may begin now: a run that needs a claim for that may
// be in delivery elsewhere before.
func (s *server) wanted(tasks []*task) []*task {
	return slices.DeleteFunc(tasks, func(t *task) bool {
		if t.turn == nil {
			return false
		}
		why := t.turn.Refused(t.row, s.now())
		if why != "" {
			s.refuse(t, why)
		}
		return why != ""
	})
}
