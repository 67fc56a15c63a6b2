package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// Runs decides about the tasks that are runs of schedules. See schedule.Runs.
type Runs interface {
	Look(ctx context.Context, server int, rows []store.Row) map[tocsin.JobID]*schedule.Turn
	Begin(ctx context.Context, t *schedule.Turn, row *store.Row, by string, hold time.Duration) (schedule.Began, error)
	Settle(ctx context.Context, t *schedule.Turn, o store.Outcome) (schedule.SettledRun, error)
	Count(t *schedule.Turn, row *store.Row, reason string)
}

// isRun reports whether a row is a run of a schedule, which Runs decides about.
func (s *server) isRun(row *store.Row) bool {
	if s.d.cfg.Runs == nil {
		return false
	}
	_, is := ids.ParseRunKey(row.DedupKey)
	return is
}

// look asks Runs about loaded runs, and returns those that are due. Others are held until they are, or return to the queue if only a due one may be
// claimed, or ended. A run whose schedule can't be read returns for a second, and no attempt is counted; if it was pulled and the queue is full, it is refused.
func (s *server) look(ctx context.Context, runs []*task, now int64, pulled bool) (due []*task, refused []duequeue.Entry) {
	rows := make([]store.Row, len(runs))
	for i, t := range runs {
		rows[i] = *t.row
	}
	turns := s.d.cfg.Runs.Look(ctx, s.index, rows)
	var left []*task
	var back []duequeue.Entry
	now = max(now, s.now()) // that may have taken long
	s.mu.Lock()
	for _, t := range runs {
		if t.turn = turns[t.row.JobID]; t.turn != nil {
			t.row.Schedule, t.row.FireTime = t.turn.Name, t.turn.Time
		}
		switch {
		case t.turn == nil && pulled && t.lane.queue.Room() == 0:
			t.lane.held--
			t.lane.queue.Done(t.row.JobID)
			left, refused = append(left, t), append(refused, t.entry(t.row.Action))
		case t.turn == nil:
			left, back = append(left, t), append(back, t.entry(now+ceilMilli(avoidFor)))
		case t.row.Action > now && (s.d.claims() || t.turn.Alone || t.turn.Refused(t.row, now) != ""):
			left, back = append(left, t), append(back, t.entry(t.row.Action+s.d.within().Milliseconds())) // its load begins when it is due
		case t.row.Action > now:
			s.keep(t)
		default:
			due = append(due, t)
		}
	}
	s.putBack(back)
	s.mu.Unlock()
	for _, t := range left {
		s.d.dropPayloads(t)
	}
	return due, refused
}

// guarded reports whether the task is a run that only Runs.Begin may claim. Until its handler has returned it stays claimed.
func (t *task) guarded() bool { return t.turn != nil && t.turn.Alone }

// exclusive reports whether the task stays claimed until its handler has returned, as another may not begin before.
func (t *task) exclusive() bool { return t.guarded() || t.keyed }

// begin has runs claimed, if it is their turn. Each is a transaction that may wait for the lock of its schedule, so no loader waits for it; of one
// schedule one is under way. The goroutines are joined through Dispatcher.takes, and are as many as the rows that the lanes may hold.
func (s *server) begin(tasks []*task) {
	var back []duequeue.Entry
	for _, t := range s.isolate(tasks) {
		if !s.enter(scheduleOf(t)) {
			s.letGo(t)
			back = append(back, t.entry(s.now()+ceilMilli(suspectWait)))
			continue
		}
		s.d.takes.add(1)
		go func() {
			defer s.d.takes.add(-1)
			s.leave(scheduleOf(t), s.beginOne(t))
		}()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putBack(back)
}

// enter reports whether a run of a schedule may begin: no other one is about to in this process, and the schedule was not found locked a moment ago.
func (s *server) enter(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, busy := s.turns[id]; busy && (until.IsZero() || time.Now().Before(until)) {
		return false
	}
	s.turns[id] = time.Time{}
	return true
}

// leave ends what enter began.
func (s *server) leave(id uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.turns, id); mysql.ClassOf(err) == mysql.Contended {
		s.turns[id] = time.Now().Add(avoidFor)
	}
}

// inSlot does a transaction about a run when one of the slots is free.
func inSlot[T any](ctx context.Context, slots chan struct{}, do func() (T, error)) (done T, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return do()
	case <-ctx.Done():
		return done, ctx.Err()
	}
}

// beginOne has one run claimed. An answer that was lost is asked for again, whatever the next tries meet: Begin recognises its claim.
func (s *server) beginOne(t *task) error {
	var before time.Time // the first try
	by, hold, err := s.beginsAs(t)
	if err != nil {
		s.letGo(t)
		s.hold([]duequeue.Entry{t.entry(t.row.Action)}, err)
		return err
	}
	ctx, end := s.d.whileDraining()
	defer end()
	lost := false // the answer of a try: it may be claimed
	again := func(of mysql.Class) bool {
		lost = lost || of == mysql.Lost || of == mysql.Canceled && !before.IsZero()
		return lost && (of.OfServer() || (of.Transient() || of == mysql.Canceled) && (s.d.claims() || time.Now().Before(before.Add(hold))))
	}
	done, err := persist(ctx, s, "claim", again, func() (schedule.Began, error) {
		return inSlot(ctx, s.begins, func() (schedule.Began, error) {
			switch {
			case !before.IsZero():
			case s.d.phase.Load() != running: // it would be claimed to be given back
				return schedule.Began{}, context.Canceled
			default:
				before = time.Now()
			}
			return s.d.cfg.Runs.Begin(ctx, t.turn, t.row, by, hold)
		})
	})
	if err == nil && done.Deadline != 0 {
		s.begun(t, done, by, before.Add(hold))
		return nil
	}
	s.letGo(t)
	if err != nil {
		s.hold([]duequeue.Entry{t.entry(t.row.Action)}, err)
		return err
	}
	now := s.estimate()
	s.mu.Lock()
	t.lane.held--
	var refused []duequeue.Entry
	if done.Next != 0 {
		refused = t.lane.comeAgain(t.entry(done.Next), now, nil)
	} else {
		t.lane.queue.Done(t.row.JobID)
	}
	s.mu.Unlock()
	signal(s.wake)
	if len(refused) > 0 {
		s.d.cfg.Refused(s.index, refused)
	}
	switch {
	case done.Ended != "":
		s.ended(t, done.Ended)
	case done.Next == 0:
		s.d.metrics.droppedClaim.Inc()
	}
	return nil
}

// beginsAs returns who claims a run, and for how long; 0: as long as the session lasts.
func (s *server) beginsAs(t *task) (by string, hold time.Duration, err error) {
	r := t.lane.kind.rule.Load()
	if !s.d.claims() || r.pulled() {
		return s.claimer(r), r.hold(), nil
	}
	session, ok := s.d.cfg.Sessions.Session(s.d.cfg.DatabaseOf(t.table()))
	if !ok {
		return "", 0, errNoSession
	}
	return store.Token(session, s.d.claimNo.Add(1)), 0, nil
}

// begun makes a claimed run ready, and ends the deliveries of those that it replaces at once, as far as they are in this process.
func (s *server) begun(t *task, done schedule.Began, by string, until time.Time) {
	row := *t.row
	row.Status, row.ClaimedBy, row.Action = tocsin.Claimed, by, done.Deadline
	t.row, t.claimed, t.by, t.until, t.loaded = &row, true, by, until, time.Now()
	if t.session = s.d.claims() && store.IsToken(by); t.session {
		t.until = time.Time{} // it ends with the session
	}
	s.d.metrics.claimed.Inc()
	s.d.claimed.Add(1)
	if len(done.Replaced) > 0 {
		s.replaced(done.Replaced)
	}
	t.lane.kind.put(t.lane, []*task{t})
}

// replaced ends deliveries of runs that a later one has replaced, and those that are ready do not begin. Their biz types may be former
// ones of the schedule.
func (s *server) replaced(ids []tocsin.JobID) {
	gone := make(map[tocsin.JobID]error, len(ids))
	for _, id := range ids {
		gone[id] = tocsin.ErrCancelled
	}
	for _, k := range s.d.allKinds() {
		giveBack(k.takeReady(func(t *task) bool { return gone[t.row.JobID] != nil && t.lane.server == s }))
	}
	for _, c := range s.inHand(func(*attempt) bool { return true }) {
		c.callOff(gone)
	}
}

// ended tells of a run that its schedule did not want, and that is cancelled already.
func (s *server) ended(t *task, reason string) {
	k := t.lane.kind
	k.metrics.end(tocsin.Skipped)
	s.d.cfg.Settled(Settlement{JobID: t.row.JobID, Type: t.row.Type, Fate: store.Stored, Verb: tocsin.Skipped})
	if run := s.unwanted(t, reason); run != nil {
		run.Outcome = firstWord(reason)
		s.d.cfg.Record(s.index, []*store.Run{run})
	}
}

// unwanted is what the history says of a run that is not delivered.
func (s *server) unwanted(t *task, reason string) *store.Run {
	if s.d.cfg.Record == nil {
		return nil
	}
	reason = schedule.Unwanted(reason, t.turn.Time)
	now := s.now()
	return &store.Run{
		JobID: t.row.JobID, Schedule: scheduleOf(t), Type: t.row.Type, Version: t.row.Version, Attempt: t.row.Attempts + 1, Node: s.d.cfg.Node,
		Started: now, Lateness: max(now-t.row.ActionTime.UnixMilli(), 0), Output: client.AttemptOutput(reason, ""),
	}
}

// refuse ends a loaded run that its schedule does not want.
func (s *server) refuse(t *task, reason string) {
	s.mu.Lock()
	if !s.mayStart(t, t.lane.kind.rule.Load(), time.Now()) {
		s.mu.Unlock()
		giveBack([]*task{t})
		return
	}
	t.lane.leave(t.loaded, time.Now())
	s.open.add(t)
	s.mu.Unlock()
	s.d.dropPayloads(t)
	t.lane.kind.metrics.end(tocsin.Skipped)
	s.report([]result{{task: t, ending: ending{verb: tocsin.Skipped, reason: reason, run: s.unwanted(t, reason)}}})
	signal(s.wake)
}

// byRuns reports whether Runs settles the outcome: a run ends that others wait for, or that its schedule counts.
func (r result) byRuns() bool {
	return r.turn != nil && (r.turn.Alone || r.turn.Counts) && r.verb != tocsin.Retried && r.verb != tocsin.Snoozed
}

// settleRuns stores outcomes by Runs, several at a time: each is a transaction.
func (st *settler) settleRuns(ctx context.Context, batch []result) {
	var g errgroup.Group
	g.SetLimit(runsAtOnce)
	for i := range batch {
		g.Go(func() error { st.settle(ctx, batch[i:i+1]); return nil })
	}
	_ = g.Wait()
}

// settleRun stores one outcome by Runs. The run that may begin now is queued for now.
func (s *server) settleRun(ctx context.Context, r result, o store.Outcome) ([]store.Fate, error) {
	done, err := inSlot(ctx, s.ends, func() (schedule.SettledRun, error) { return s.d.cfg.Runs.Settle(ctx, r.turn, o) })
	if err != nil {
		return nil, err
	}
	if done.Forward != 0 {
		s.mu.Lock()
		if l := s.lanes[done.Type]; l != nil && s.admitted(r.table()) && !s.d.cfg.ClaimAll {
			l.bringForward(duequeue.Entry{JobID: done.Forward, Type: done.Type, Due: s.now()})
		}
		s.mu.Unlock()
		signal(s.wake)
	}
	return []store.Fate{done.Fate}, nil
}

// splitAlone separates the tasks of an attempt that stay claimed at its time-out.
func splitAlone(tasks []*task) (alone, others []*task) {
	if !slices.ContainsFunc(tasks, (*task).exclusive) {
		return nil, tasks
	}
	for _, t := range tasks {
		if t.exclusive() {
			alone = append(alone, t)
		} else {
			others = append(others, t)
		}
	}
	return alone, others
}

// runKeeper prolongs the claims of runs whose handlers are over their time-out, until ctx ends. A claim that can't be
// prolonged runs out, as that of a process that is gone.
func (s *server) runKeeper(ctx context.Context) {
	tick := time.NewTicker(keepEvery) // a slow round does not put off the next
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		claims := s.overtime()
		if len(claims) == 0 {
			continue
		}
		within, cancel := context.WithTimeout(ctx, keepHold)
		if err := s.d.cfg.Store.Prolong(within, s.index, claims); err != nil && ctx.Err() == nil {
			s.d.metrics.failed("prolong", err)
			s.warn("prolong", "claims of runs whose handlers have not returned could not be prolonged; trying again in a second", err, "rows", len(claims))
		}
		cancel()
	}
}

// overtime returns the claims of runs over their time-out.
func (s *server) overtime() (claims []store.Prolonged) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.open {
		if t.overtime && !t.reported && now != 0 {
			claims = append(claims, store.Prolonged{JobID: t.row.JobID, Version: t.row.Version, By: cmp.Or(t.by, s.d.cfg.Node), Until: now + keepHold.Milliseconds()})
		}
	}
	return claims
}
