package scanner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// result is what became of a job.
type result struct {
	found  int           // entries
	again  bool          // claims were recovered: peek soon again
	looked bool          // for claims
	runOut time.Time     // when the next claim can be recovered; zero: there is none
	failed map[int]error // tables that could not be read
	err    error         // the server failed, or took too long; nothing else is set
	slow   bool          // of err: a full look had no answer in time; it may have had too much to read
	took   time.Duration // with the wait for its statements
}

// errTooLong is why a statement was given up.
var errTooLong = errors.New("no answer within " + peekTimeout.String())

// scan works until ctx ends, on a few peeks and pulls at once, and waits for all of them.
func (sv *server) scan(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		work, at := sv.next()
		if work != nil {
			wg.Go(func() { work(ctx) })
			continue
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-sv.wake:
		}
		timer.Stop()
	}
}

// next returns what to do next. If there is nothing, it returns nil and when to look again.
func (sv *server) next() (work func(context.Context), at time.Time) {
	v := sv.view()
	if p := sv.nextPull(v); p != nil {
		return func(ctx context.Context) { sv.pullOnce(ctx, p) }, time.Time{}
	}
	j, at := sv.pick(v)
	if j == nil {
		return nil, at
	}
	return func(ctx context.Context) { sv.once(ctx, j) }, time.Time{}
}

// view asks the store and the intake, without the lock.
func (sv *server) view() view {
	wanted := slices.Clone(sv.cfg.Intake.Wanted(sv.index))
	slices.Sort(wanted)
	return view{
		now:    time.Now(),
		clock:  sv.cfg.Store.Now(sv.index),
		wanted: wanted,
		peers:  sv.cfg.Peers(),
	}
}

// once does one job.
func (sv *server) once(ctx context.Context, j *job) {
	began := time.Now()
	r := sv.read(ctx, j)
	if r.err == nil && j.claims {
		sv.recover(ctx, j, &r)
	}
	r.took = time.Since(began)
	if r.slow = j.full && errors.Is(r.err, errTooLong); r.slow {
		sv.metrics.failures.WithLabelValues(sv.name, "full").Inc()
		sv.limit.Of(sv.log, "full").Warn("full look has no answer in time: the next one reads fewer tables at once", "error", r.err)
	} else {
		sv.judge(ctx, r.err)
	}
	sv.finish(j, r)
}

// read peeks a job's tables and offers the entries. It reads on in tables whose page came back full of what is due later.
// A table whose page is full of what is due already has a backlog: see backlogs. A type that finds no room is read no further,
// and the rest of it is unread.
func (sv *server) read(ctx context.Context, j *job) result {
	r := result{failed: make(map[int]error)}
	todo := []store.PeekQuery{{
		Server: sv.index, Tables: j.tables, Types: j.types,
		From: j.from, Until: j.until, Limit: sv.cfg.PageLimit, Sparse: j.sparse, Full: j.full,
	}}
	stopped := make(map[uint64]bool) // types that found no room
	for len(todo) > 0 {
		q := todo[0]
		todo = todo[1:]
		if q = sv.without(stopped, q); len(q.Types) == 0 {
			continue
		}
		page, err := sv.peek(ctx, q)
		if err != nil {
			r.err = err
			return r
		}
		maps.Copy(r.failed, page.Failed)
		r.found += len(page.Entries)
		switch {
		case !j.guest:
			todo = append(todo, sv.backlogs(&page, q, j)...)
		case j.full:
			page.Full = nil // the oldest page of each table is enough
		}
		for _, e := range sv.offer(page.Entries) {
			stopped[e.Type] = true
		}
		sv.offering.RLock()
		for _, full := range page.Full {
			if sv.owned[full.Table] != nil {
				q.Tables, q.After, q.Limit, q.Sparse = []int{full.Table}, full.Last, sv.cfg.PageLimit*readOnFactor, false
				todo = append(todo, q)
			}
		}
		sv.offering.RUnlock()
	}
	return r
}

// without leaves types out of a query: what it would have read of them is unread.
func (sv *server) without(types map[uint64]bool, q store.PeekQuery) store.PeekQuery {
	if len(types) == 0 {
		return q
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	q.Types = filter(q.Types, func(t uint64) bool {
		if types[t] {
			sv.unread(t, q.Tables, max(q.From, q.After.Due), q.Until)
		}
		return !types[t]
	})
	return q
}

// backlogs takes out of a page what is better pulled: of types with more due entries than a pull reads, all due ones; of tables whose
// pages are full of what is due, everything. That and the rest of what is due in these tables is unread. It returns the queries for
// what the full pages hid: the other types, and what is due later.
func (sv *server) backlogs(page *store.Page, q store.PeekQuery, j *job) (hidden []store.PeekQuery) {
	due, some := make(map[uint64]int), make(map[int]bool) // entries by type; tables that have some
	for _, e := range page.Entries {
		if e.Due <= j.start {
			due[e.Type]++
			some[e.JobID.Table()] = true
		}
	}
	deep := make(map[int]bool)
	page.Full = slices.DeleteFunc(page.Full, func(full store.FullTable) bool {
		if full.Last.Due > j.start || !some[full.Table] { // without an entry, all rows of the page belong to other tables
			return false
		}
		deep[full.Table] = true
		return true
	})
	pulled := func(e duequeue.Entry) bool {
		return e.Due <= j.start && (deep[e.JobID.Table()] || due[e.Type] > pullPage)
	}
	first, types := make(map[int]int64), make(map[uint64]bool) // when the tables' backlogs begin; types of full pages
	sv.mu.Lock()
	defer sv.mu.Unlock()
	page.Entries = slices.DeleteFunc(page.Entries, func(e duequeue.Entry) bool {
		if !pulled(e) {
			return false
		}
		table := e.JobID.Table()
		if begin, is := first[table]; !is || e.Due < begin {
			first[table] = e.Due
		}
		if !deep[table] {
			sv.unread(e.Type, []int{table}, e.Due, j.start)
		} else {
			types[e.Type] = true
		}
		return true
	})
	if len(types) == 0 {
		return nil
	}
	tables := filter(q.Tables, func(t int) bool { return deep[t] })
	for _, table := range tables {
		for t := range types {
			sv.unread(t, []int{table}, first[table], j.start)
		}
	}
	sv.look()
	q.Tables, q.After, q.Sparse = tables, duequeue.Entry{}, false
	others, later := q, q
	others.Types = filter(q.Types, func(t uint64) bool { return !types[t] })
	later.Types = filter(q.Types, func(t uint64) bool { return types[t] })
	later.From = j.start + 1
	return []store.PeekQuery{others, later}
}

func (sv *server) peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, peekTimeout, errTooLong)
	defer cancel()
	start := time.Now()
	page, err := sv.cfg.Store.Peek(bounded, q)
	sv.metrics.peeks.WithLabelValues(sv.name).Observe(time.Since(start).Seconds())
	if err != nil {
		return store.Page{}, fmt.Errorf("peek %d tables from table %d on: %w", len(q.Tables), q.Tables[0], withCause(bounded, err))
	}
	return page, nil
}

// withCause adds to the error of a statement that it took too long.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause == errTooLong {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// recover gives back run-out claims, and notes when the next one runs out. If it can't give back one that ran out, as after a failure, it looks
// again in a second; a server that is away shows in the peeks.
func (sv *server) recover(ctx context.Context, j *job, r *result) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	r.looked = true
	in, some, err := sv.cfg.Store.NextRunOut(ctx, sv.index, j.tables)
	var done store.Recovered
	if some && in == 0 || sv.cfg.Claims {
		var failed error
		done, failed = sv.cfg.Store.Recover(ctx, sv.index, j.tables, recoverLimit, sv.cfg.Nodes())
		if sv.cfg.Claims {
			failed = errors.Join(failed, sv.cfg.Intake.OwnLook(ctx, sv.index, j.tables))
		}
		err = errors.Join(err, failed)
	}
	switch {
	case err != nil, done.Held, some && in == 0 && done.All() == 0:
		r.runOut = time.Now().Add(max(in, retryRecover))
	case done.All() >= recoverLimit:
		r.runOut = time.Now()
	case some:
		r.runOut = time.Now().Add(in)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		sv.metrics.failures.WithLabelValues(sv.name, "recover").Inc()
		sv.limit.Of(sv.log, "recover").Warn("run-out claims could not be recovered", "error", err, "first_table", j.tables[0])
	}
	if done.All() == 0 {
		return
	}
	r.again = true
	sv.metrics.recovered.WithLabelValues(sv.name).Add(float64(done.Back + done.Buried))
	sv.metrics.leases.WithLabelValues(sv.name).Add(float64(done.Leases))
	sv.limit.Of(sv.log, "recovered").Info("run-out claims recovered", "back", done.Back, "leases", done.Leases, "buried", done.Buried)
}
