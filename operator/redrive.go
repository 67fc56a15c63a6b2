package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Redrive makes a dead task pending and due at once, and returns it. Its attempts begin anew, and so does its idempotency
// key. It returns ErrStatus, and the task as it is, if the task is not dead, and tocsin.ErrNotFound if there is none.
func (o *Operator) Redrive(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	return o.rewrite(ctx, id, func() (bool, error) { return o.tables.Redrive(ctx, id, false) }, onlyDead)
}

// RedriveSameKey is Redrive with the idempotency key that the task has: a receiver that remembers keys takes the task once.
func (o *Operator) RedriveSameKey(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	return o.rewrite(ctx, id, func() (bool, error) { return o.tables.Redrive(ctx, id, true) }, onlyDead)
}

const (
	onlyDead = "only a dead task can be redriven"
	notFinal = "only a task that is not final can be buried"

	ByHand = "buried by hand" // the reason of a burial without one
)

// Bury makes a task dead that is not final, with the reason as its last error, cut at tocsin.MaxError characters, and returns
// it. A delivery that is under way goes on, and its success still completes the task; of a strict biz type nothing is changed
// then, and the error is tocsin.ErrInDelivery. It returns ErrStatus, and the task as it is, if the task is final, and
// tocsin.ErrNotFound if there is none.
func (o *Operator) Bury(ctx context.Context, id tocsin.JobID, reason string) (tocsin.Info, error) {
	reason = name.Reason(reason, ByHand)
	info, err := o.rewrite(ctx, id, func() (bool, error) { return o.tables.Bury(ctx, id, reason) }, notFinal)
	if errors.Is(err, ErrStatus) && info.Status == tocsin.Claimed {
		err = client.Refuse(tocsin.ErrInDelivery, "task %s is in delivery, and biz type %s is strict: nothing is changed, try again later", id, info.BizType)
	}
	return info, err
}

// rewrite changes one task and reads it again. If it was changed and can't be read, the error is tocsin.ErrUnknownOutcome.
func (o *Operator) rewrite(ctx context.Context, id tocsin.JobID, write func() (bool, error), unfit string) (tocsin.Info, error) {
	server := o.tables.ServerOf(id.Table())
	if server < 0 || id == 0 {
		return tocsin.Info{}, client.Refuse(tocsin.ErrNotFound, "no task %s", id)
	}
	policies, _, err := o.policies(ctx) // before the write, as afterwards an error must not stand for one
	if err != nil {
		return tocsin.Info{}, err
	}
	written, err := write()
	if err != nil {
		return tocsin.Info{}, err
	}
	rows, err := o.tables.Look(ctx, server, []tocsin.JobID{id})
	if err != nil && written {
		return tocsin.Info{}, client.Refuse(tocsin.ErrUnknownOutcome, "task %s is changed, and can't be read again: %s", id, err)
	}
	if err != nil {
		return tocsin.Info{}, err
	}
	if len(rows) == 0 {
		return tocsin.Info{}, client.Refuse(tocsin.ErrNotFound, "no task %s in %s on %s", id,
			o.tables.Layout().Table(id.Table()), o.tables.Servers()[server])
	}
	info := o.info(policies, rows[0])
	if !written {
		err = client.Refuse(ErrStatus, "task %s is %s: %s", id, info.Status, unfit)
	}
	return info, err
}

// DeadQuery names dead tasks of all tables. The zero value names all except those that a restore made dead.
type DeadQuery struct {
	BizType string            // "": all
	Sees    func(string) bool // the biz types that may be redriven, by name; nil: all, also those without a name
	Since   time.Time         // when they died, at the earliest, by their server's clock; zero: ever
	Until   time.Time         // when they died, at the latest; zero: now
	Error   string            // a part of their last error, in upper and lower case as it is there, at most tocsin.MaxError characters; "": any

	// Restored names the tasks that may have been delivered since the copy was made that their database was restored from, and
	// no others: `tocsin ddl restore-check --accept` made them dead, or found them dead.
	Restored bool

	SameKey   bool             // they keep their idempotency keys: a receiver that remembers keys takes each task once
	Limit     int              // tasks at most; 0: all
	PerSecond int              // tasks a second at most, of all servers together; 0: as fast as the servers write
	DryRun    bool             // only count, up to MaxFound
	Progress  func(tables int) // called with the number of tables done since its last call, concurrently; nil: not called
}

// Redriven is what became of the tasks of a DeadQuery; the JSON of `tocsin task redrive`.
type Redriven struct {
	Tasks  int  `json:"redriven"` // with DryRun: that would be
	DryRun bool `json:"dry_run"`
	More   bool `json:"more"`          // Limit, or the bound of DryRun, was reached: there may be more
	Left   int  `json:"restored_left"` // that were seen and left because a restore made them dead
}

// check refuses what names no task, or can't be meant.
func (q *DeadQuery) check() error {
	if err := client.CheckSpan("since", q.Since, "until", q.Until); err != nil {
		return err
	}
	switch now := time.Now(); {
	case q.Since.After(now):
		return client.Refuse(tocsin.ErrInvalid, "since %s is in the future: no task has died since", q.Since.UTC().Format(time.RFC3339))
	case q.Limit < 0:
		return client.Refuse(tocsin.ErrInvalid, "limit %d: use 1 or more", q.Limit)
	case q.PerSecond < 0:
		return client.Refuse(tocsin.ErrInvalid, "per second %d: use 1 or more", q.PerSecond)
	case !utf8.ValidString(q.Error) || utf8.RuneCountInString(q.Error) > tocsin.MaxError:
		return client.Refuse(tocsin.ErrInvalid, "error: use a part of the last error, at most %d characters of UTF-8", tocsin.MaxError)
	}
	return nil
}

// RedriveAll is RedriveDead of a biz type, or of all for "". It returns the number of tasks.
func (o *Operator) RedriveAll(ctx context.Context, bizType string, progress func(tables int)) (int, error) {
	done, err := o.RedriveDead(ctx, DeadQuery{BizType: bizType, Progress: progress})
	return done.Tasks, err
}

// RedriveDead makes dead tasks pending and due at once. Their attempts begin anew, and so do their idempotency keys unless
// SameKey is set. Tasks that die while it runs stay dead. It goes through all servers at once, at most 500 tasks to a
// transaction, the longest dead of a table first. If it could not do everything, it returns what it did beside a Partial, which
// names what failed; a further call does the rest. What can't be meant is tocsin.ErrInvalid.
func (o *Operator) RedriveDead(ctx context.Context, q DeadQuery) (Redriven, error) {
	none := Redriven{DryRun: q.DryRun}
	if err := q.check(); err != nil {
		return none, err
	}
	var only []uint64
	if q.BizType != "" || q.Sees != nil { // otherwise no policy is needed
		var err error
		if _, only, err = o.types(ctx, q.BizType, q.Sees); err != nil {
			return none, err
		}
	}
	r := &redrive{DeadQuery: q, tables: o.tables, types: only, left: q.Limit, bounded: q.Limit > 0, done: none}
	if q.DryRun && (!r.bounded || r.left > MaxFound) {
		r.left, r.bounded = MaxFound, true
	}
	errs := o.tables.Everywhere(ctx, func(server int) error { return r.server(ctx, server) })
	return r.done, store.Lacking(o.tables.Servers(), errs)
}

// redriveAtOnce is the number of tasks in one transaction, and of a page of a table.
const redriveAtOnce = 500

// errEnd ends the walk of a server whose failure is noted, or that has nothing left to do.
var errEnd = errors.New("the walk ends")

// redrive is one RedriveDead. One goroutine works for each server.
type redrive struct {
	DeadQuery
	tables *store.Store
	types  []uint64

	mu      sync.Mutex // guards what follows; not held over a statement, as a server may hang
	left    int        // bounded: tasks that may still be redriven, without those that a server is about to write
	bounded bool
	next    time.Time // with a rate: when the next write may come
	done    Redriven
}

// server redrives tasks of one server.
func (r *redrive) server(ctx context.Context, server int) error {
	q := r.on(server, r.tables.Now(server))
	var errs []error
	err := store.Walk(ctx, r.tables.TablesOf(server), func(tables []int) error {
		failed, err := r.walk(ctx, q, tables)
		errs = append(errs, failed...)
		if err == nil && r.Progress != nil {
			r.Progress(len(tables))
		}
		return err
	})
	if !errors.Is(err, errEnd) {
		errs = append(errs, err)
	}
	return store.Join(errs...)
}

// on is the query of one server, whose tasks died until began at the latest.
func (r *redrive) on(server int, began int64) store.DeadQuery {
	q := store.DeadQuery{Server: server, Until: began, Error: r.Error, Restored: r.Restored}
	if !r.Since.IsZero() {
		q.Since = r.Since.UnixMilli()
	}
	if !r.Until.IsZero() {
		q.Until = min(q.Until, r.Until.UnixMilli())
	}
	return q
}

// walk redrives tasks of some tables, page by page. failed is what went wrong in some of them; err ends the walk of the server.
func (r *redrive) walk(ctx context.Context, q store.DeadQuery, tables []int) (failed []error, err error) {
	pages := store.Over(tables)
	for step := range pages.Steps() {
		page, err := r.tables.Peek(ctx, store.PeekQuery{
			Server: q.Server, Status: tocsin.Dead, Tables: step.Tables, Types: r.types, Any: r.types == nil,
			From: q.Since, Until: q.Until, After: step.After, Limit: redriveAtOnce,
		})
		if err != nil {
			return failed, err
		}
		for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
			if err := page.Failed[table]; !errors.Is(err, store.ErrMisplaced) { // an audit reports it
				failed = append(failed, err)
			}
		}
		for chunk := range slices.Chunk(page.Entries, redriveAtOnce) {
			err := r.chunk(ctx, q, chunk)
			failed = append(failed, err)
			if mysql.Unanswered(err) || r.spent() {
				return failed, errEnd
			}
		}
		for _, full := range page.Full {
			pages.More(full.Table, full.Last)
		}
	}
	return failed, nil
}

// chunk redrives those of some dead tasks that are asked for.
func (r *redrive) chunk(ctx context.Context, q store.DeadQuery, entries []duequeue.Entry) error {
	ids := make([]tocsin.JobID, len(entries))
	for i, e := range entries {
		ids[i] = e.JobID
	}
	found, left, failed := r.tables.Dead(ctx, q, ids)
	r.mu.Lock()
	r.done.Left += left
	r.mu.Unlock()
	for len(found) > 0 && !mysql.Unanswered(failed) {
		n, at := r.take(len(found))
		if n == 0 {
			break
		}
		failed = store.Join(failed, r.write(ctx, q, found[:n], at))
		found = found[n:]
	}
	return failed
}

// spent reports whether the limit is reached.
func (r *redrive) spent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bounded && r.left == 0
}

// take returns how many of n tasks the next transaction has, at a rate about a tenth of a second's, and when it may begin. 0: the
// limit is reached.
func (r *redrive) take(n int) (most int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	paced := r.PerSecond > 0 && !r.DryRun
	if paced {
		n = min(n, max(r.PerSecond/10, 1))
	}
	if r.bounded {
		n = min(n, r.left)
		r.left -= n
		r.done.More = r.done.More || r.left == 0
	}
	if paced && n > 0 {
		if at = r.next; at.Before(time.Now()) {
			at = time.Now()
		}
		r.next = at.Add(time.Duration(n) * time.Second / time.Duration(r.PerSecond))
	}
	return n, at
}

// write is one transaction, when its time has come. It returns what failed.
func (r *redrive) write(ctx context.Context, q store.DeadQuery, ids []tocsin.JobID, at time.Time) (err error) {
	n := len(ids)
	if !r.DryRun {
		n = 0
		if err = loop.WaitUntil(ctx, at); err == nil {
			n, err = r.tables.RedriveDead(ctx, q, ids, r.SameKey)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done.Tasks += n
	r.left += len(ids) - n // others may have them
	return err
}
