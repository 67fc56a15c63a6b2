package scanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// result is what became of a job.
type result struct {
	found  int           // entries
	floor  int64         // every row before it was offered and accepted; math.MaxInt64: all were
	behind bool          // rows from the floor on were found and not accepted
	again  bool          // claims were recovered: peek soon again
	looked bool          // for claims
	runOut time.Time     // when the next claim can be recovered; zero: there is none
	failed map[int]error // tables that could not be read
	err    error         // the server failed, or took too long; nothing else is set
	slow   bool          // of err: a full look had no answer in time; it may have had too much to read
	took   time.Duration // with the wait for its statements

	left    []uint64         // types that were not read, as they are better streamed
	stopped duequeue.Refused // types that were read only up to there, as they found no room

	// Of a stream only.
	rest    []store.Place // it goes on from there
	width   width         // tables to read at once then
	plain   bool          // the rest, if any, is better peeked
	refused int64         // the oldest that the intake did not take; 0: it took all
}

// errTooLong is why a statement was given up.
var errTooLong = errors.New("no answer within " + peekTimeout.String())

// scan works until ctx ends, on a few groups at once, and waits for all of them.
func (sv *server) scan(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		j := sv.await(ctx)
		if j == nil {
			return
		}
		wg.Go(func() { sv.once(ctx, j) })
	}
}

// await waits for the next job; nil when ctx has ended.
func (sv *server) await(ctx context.Context) *job {
	for ctx.Err() == nil {
		j, at := sv.pick(sv.view())
		if j != nil {
			return j
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-sv.wake:
		}
		timer.Stop()
	}
	return nil
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
	var r result
	began := time.Now()
	if j.stream {
		r = sv.stream(ctx, j)
	} else {
		r = sv.read(ctx, j)
	}
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

// read peeks a job's tables and offers the entries. It reads on in tables whose page
// came back full, the one with the oldest rest first. A type that is refused is read
// no further. A rest that is already due ends the read, since it is better streamed,
// unless streaming has already given up.
func (sv *server) read(ctx context.Context, j *job) result {
	q := store.PeekQuery{
		Server: sv.index, Tables: j.tables, Types: j.types,
		From: j.from, Until: j.until, Limit: sv.cfg.PageLimit, Sparse: j.sparse,
	}
	r := result{failed: make(map[int]error)}
	if j.first {
		if r.left, r.err = sv.backlogged(ctx, j); r.err != nil {
			return r
		}
		q.Types = filter(j.types, func(t uint64) bool { return !slices.Contains(r.left, t) })
	}
	var rest []duequeue.Entry // the last entries of those whose page was full
	for {
		page, err := sv.peek(ctx, q)
		if err != nil {
			r.err = err
			return r
		}
		maps.Copy(r.failed, page.Failed)
		r.found += len(page.Entries)
		if !j.guest || !j.full {
			rest = append(rest, page.Full...)
		}
		if refused := sv.offer(page.Entries); len(refused) > 0 {
			sv.pause(refused)
			q.Types = r.stop(q.Types, refused, rest)
		}
		rest = slices.DeleteFunc(rest, func(e duequeue.Entry) bool { return !sv.owns(e.JobID.Table()) })
		if len(rest) == 0 || len(q.Types) == 0 {
			r.floor = math.MaxInt64
			return r
		}
		slices.SortFunc(rest, func(a, b duequeue.Entry) int { return cmp.Compare(a.Due, b.Due) })
		if !j.plain && !j.guest && rest[0].Due <= j.start {
			r.floor, r.behind = rest[0].Due, true
			return r
		}
		q.Sparse = false
		q.Tables, q.After, q.Limit = []int{rest[0].JobID.Table()}, rest[0], sv.cfg.PageLimit*readOnFactor
		rest = rest[1:]
	}
}

// stop records how far the refused types are read: up to the oldest entry that was
// refused or not read on. It returns the other types.
func (r *result) stop(types []uint64, refused duequeue.Refused, rest []duequeue.Entry) []uint64 {
	for t, due := range refused {
		r.stopped.Note(t, due)
		for _, e := range rest {
			r.stopped.Note(t, e.Due)
		}
	}
	return filter(types, func(t uint64) bool { _, is := refused[t]; return !is })
}

func (sv *server) owns(table int) bool {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return sv.owned[table] != nil
}

func (sv *server) peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, peekTimeout, errTooLong)
	defer cancel()
	start := time.Now()
	page, err := sv.cfg.Store.Peek(bounded, q)
	sv.metrics.peeks.WithLabelValues(sv.name).Observe(time.Since(start).Seconds())
	if err != nil {
		if cause := context.Cause(bounded); cause == errTooLong {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return store.Page{}, fmt.Errorf("peek %d tables from table %d on: %w", len(q.Tables), q.Tables[0], err)
	}
	return page, nil
}

// recover gives back run-out claims, and notes when the next one runs out. After a failure the next peek looks again; a server
// that is away shows in the peeks.
func (sv *server) recover(ctx context.Context, j *job, r *result) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	r.looked = true
	in, some, err := sv.cfg.Store.NextRunOut(ctx, sv.index, j.tables)
	var done store.Recovered
	if some && in == 0 {
		var failed error
		done, failed = sv.cfg.Store.Recover(ctx, sv.index, j.tables, recoverLimit)
		err = errors.Join(err, failed)
	}
	if some || err != nil {
		r.runOut = time.Now().Add(in)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		sv.metrics.failures.WithLabelValues(sv.name, "recover").Inc()
		sv.limit.Of(sv.log, "recover").Warn("run-out claims could not be recovered", "error", err, "first_table", j.tables[0])
	}
	if done.Back+done.Buried == 0 {
		return
	}
	r.again = true
	sv.metrics.recovered.WithLabelValues(sv.name).Add(float64(done.Back + done.Buried))
	sv.limit.Of(sv.log, "recovered").Info("run-out claims recovered", "back", done.Back, "buried", done.Buried)
}
