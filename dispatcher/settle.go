package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// report queues results to be settled. It never blocks: the lanes stop loading
// when too many wait.
func (s *server) report(results []result) {
	if len(results) == 0 {
		return
	}
	s.mu.Lock()
	for _, r := range results {
		if r.claiming && !r.after {
			end := r.ending
			r.parked = &end
			continue
		}
		s.enqueue(r)
	}
	s.mu.Unlock()
	signal(s.settler.flush)
}

// enqueue is called under s.mu.
func (s *server) enqueue(r result) {
	if !r.after {
		r.reported, r.reportedAt = true, time.Now()
	}
	s.settler.add(r)
}

// settler stores the outcomes of one server, in batches, by several goroutines. Those that the database refuses are set aside.
type settler struct {
	server    *server
	flush     chan struct{} // one slot: outcomes wait
	lingering atomic.Bool   // a goroutine waits for its batch to grow
	unsettled atomic.Int64  // pending, aside and being stored

	mu      sync.Mutex // nothing else is locked under it; it is locked under server.mu
	pending []result
	aside   []*part       // outcomes that could not be stored
	trying  int           // parts in aside that are being tried
	shut    map[int]*part // by table: the part of a table in which no row could be stored
	closing bool          // ends when nothing is pending
}

func (st *settler) add(r result) {
	st.unsettled.Add(1)
	st.mu.Lock()
	defer st.mu.Unlock()
	if p := st.shut[r.table()]; p != nil {
		p.later = append(p.later, r)
		return
	}
	st.pending = append(st.pending, r)
}

// full reports whether too many outcomes wait: then no more rows are loaded.
func (st *settler) full() bool { return st.unsettled.Load() >= settleBound }

// close lets the goroutines end when everything is stored. What was set
// aside is tried at once, and then as schedule says.
func (st *settler) close() {
	st.mu.Lock()
	st.closing = true
	for _, p := range st.aside {
		p.at = time.Time{}
	}
	st.mu.Unlock()
	signal(st.flush)
}

// run stores results in batches until close was called and
// nothing is left, or ctx ends.
func (st *settler) run(ctx context.Context) {
	for {
		if p := st.nextAside(); p != nil {
			st.tryAside(ctx, p)
			continue
		}
		batch, more := st.collect(ctx)
		if !more {
			return
		}
		st.settle(ctx, batch)
	}
}

// collect waits for the first result, then briefly for others. One settler does that
// at a time; results that arrive meanwhile join its batch. An empty batch means that
// there may be other work.
func (st *settler) collect(ctx context.Context) (batch []result, more bool) {
	n, closing := st.backlog()
	switch {
	case n >= chunk || n > 0 && closing:
		return st.cut(), true
	case n > 0 && st.lingering.CompareAndSwap(false, true):
		err := loop.Wait(ctx, linger)
		st.lingering.Store(false)
		if err != nil {
			return nil, false
		}
		return st.cut(), true
	case n == 0 && closing:
		signal(st.flush) // for the other settlers
		return nil, false
	}
	select {
	case <-ctx.Done():
		return nil, false
	case <-st.flush:
	}
	return nil, true
}

func (st *settler) backlog() (n int, closing bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.pending), st.closing
}

// cut takes the next batch.
func (st *settler) cut() []result {
	st.mu.Lock()
	n := min(chunk, len(st.pending))
	batch := slices.Clone(st.pending[:n])
	rest := copy(st.pending, st.pending[n:])
	clear(st.pending[rest:])
	st.pending = st.pending[:rest]
	st.mu.Unlock()
	if rest > 0 {
		signal(st.flush)
	}
	return batch
}

// settle stores a batch. Rows that other transactions hold are set aside. Another fault of a table or a row splits the batch until
// only the culprit is left, which is set aside.
func (st *settler) settle(ctx context.Context, batch []result) {
	if len(batch) == 0 {
		return
	}
	if len(batch) > 1 && slices.ContainsFunc(batch, result.byRuns) {
		others := slices.DeleteFunc(slices.Clone(batch), result.byRuns)
		runs := slices.DeleteFunc(slices.Clone(batch), func(r result) bool { return !r.byRuns() })
		st.settle(ctx, others)
		st.settleRuns(ctx, runs)
		return
	}
	err := st.settleAll(ctx, batch)
	if err == nil || ctx.Err() != nil { // abandoned: unsettled tells
		return
	}
	slices.SortFunc(batch, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.table(), b.table()), cmp.Compare(a.row.JobID, b.row.JobID))
	})
	if len(batch) > 1 && mysql.ClassOf(err) == mysql.Contended {
		if held, free, failed := st.held(ctx, batch); len(held) > 0 {
			for _, part := range byTable(held) {
				st.setAside(part, cmp.Or(failed[part[0].table()], err))
			}
			st.settle(ctx, free)
			return
		}
	}
	switch {
	case batch[0].table() != batch[len(batch)-1].table():
		for _, part := range byTable(batch) {
			st.settle(ctx, part)
		}
	case len(batch) > 1 && ofOneRow(err) && mysql.ClassOf(err) != mysql.Contended:
		for i := range batch {
			st.settle(ctx, batch[i:i+1])
		}
	default:
		st.setAside(batch, err)
	}
}

// byTable cuts a sorted batch into those of one table each.
func byTable(batch []result) [][]result {
	var parts [][]result
	from := 0
	for i := range batch {
		if batch[i].table() != batch[from].table() {
			parts = append(parts, batch[from:i])
			from = i
		}
	}
	return append(parts, batch[from:])
}

// settleAll writes the batch in one call, again and again while the server does
// not answer. An error is one of the batch's own.
func (st *settler) settleAll(ctx context.Context, batch []result) error {
	s := st.server
	outcomes := make([]store.Outcome, len(batch))
	s.mu.Lock()
	for i, r := range batch {
		outcomes[i] = r.outcome()
	}
	s.mu.Unlock()
	lost := false // the answer of a try: it may have stored the outcomes
	again := func(of mysql.Class) bool { lost = lost || of == mysql.Lost; return of.OfServer() }
	fates, err := persist(ctx, s, "settle", again, func() ([]store.Fate, error) {
		if batch[0].byRuns() { // these come one by one
			return s.settleRun(ctx, batch[0], outcomes[0])
		}
		return s.d.cfg.Store.Settle(ctx, s.index, outcomes)
	})
	if err != nil {
		return err
	}
	for i := 0; lost && i < len(batch); i++ {
		if batch[i].verb == tocsin.Completed && fates[i] == store.Settled { // a completed row does not tell by whom
			fates[i] = store.Stored
		}
	}
	s.stored(batch, fates)
	return nil
}

// stored closes the books on results that the database has taken. It overwrites both slices.
func (s *server) stored(batch []result, fates []store.Fate) {
	taken := int64(len(batch))
	batch, fates = s.again(batch, fates)
	s.tell(batch, fates) // before the tasks are let go: whoever sees that they are gone also sees their outcomes
	tellDead(batch, fates)
	now := s.estimate()
	s.mu.Lock()
	left := s.settler.unsettled.Add(-taken)
	var refused []duequeue.Entry
	for i, r := range batch {
		refused = s.close(r, fates[i], now, refused)
	}
	room := left < settleBound && left+taken >= settleBound
	woken := s.roomAgain()
	s.tellWaiters()
	s.mu.Unlock()
	if room {
		signal(s.wake)
	}
	if woken {
		s.d.cfg.Woken(s.index)
	}
	if len(refused) > 0 {
		s.d.cfg.Refused(s.index, refused)
	}
	s.record(batch, fates)
	s.d.metrics.settled(batch, fates)
}

// close forgets the task, or queues it again if it is due again soon; then it may be refused. Called under s.mu.
func (s *server) close(r result, fate store.Fate, now int64, refused []duequeue.Entry) []duequeue.Entry {
	if r.after {
		s.endOverrun(r.task)
		return refused
	}
	s.open.remove(r.task)
	if r.keyed && r.notBefore > 0 && s.d.cfg.ClaimAll {
		s.keys[keyOf(r.task)].more = false // a sweep tries no task twice
		delete(s.lookups, keyOf(r.task))
	}
	r.acquit()
	r.lane.kind.noteFate(r.verb, fate)
	due, again := r.dueAgain(fate, now)
	if again && (!s.d.cfg.ClaimAll || r.undone && r.notBefore == 0) { // a sweep tries a task once
		return r.lane.comeAgain(r.entry(max(due, r.notBefore)), now, refused)
	}
	r.lane.queue.Done(r.row.JobID)
	return refused
}

// dueAgain is when to look at the row again, false for never. One that somebody
// changed in flight may be due by now: the bell that said so, and peeks, met it
// in flight and had no effect.
func (r result) dueAgain(fate store.Fate, now int64) (due int64, again bool) {
	switch fate {
	case store.Stored:
		return r.next, r.verb == tocsin.Retried || r.verb == tocsin.Snoozed
	case store.Rescheduled, store.ClaimLost, store.Settled:
		return now, true
	}
	return 0, false
}

// tell says what became of the outcomes.
func (s *server) tell(batch []result, fates []store.Fate) {
	for i, r := range batch {
		if r.verb == tocsin.Skipped && fates[i] == store.Stored {
			s.d.cfg.Runs.Count(r.turn, r.row, r.reason)
		}
		if !r.after {
			s.d.cfg.Settled(Settlement{JobID: r.row.JobID, Type: r.row.Type, Fate: fates[i], Verb: r.verb, Undone: r.undone, Missed: r.notBefore > 0})
		}
	}
}
