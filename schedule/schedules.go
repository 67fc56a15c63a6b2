package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Schedules has the operations on the schedules of a cluster. Make one with Open. Its methods are safe for concurrent
// use. They need MySQL alone, and the rights of the role schedule (see ddl.Grants).
type Schedules struct {
	tables  *store.Store
	maker   *maker
	changes func(context.Context, tocsin.Changing, func(context.Context) error) error // Config.UseChanges
}

// Open connects to all servers at once. One that answers is enough; it refuses a cluster that is not the config's.
func Open(ctx context.Context, cfg tocsin.Config) (*Schedules, error) {
	tables, err := store.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Schedules{tables, &maker{tables: tables}, cfg.Changes()}, nil
}

// through makes a change through the functions of Config.UseChanges.
func through[T any](ctx context.Context, s *Schedules, op, name, bizType string, change func(context.Context) (T, error)) (done T, err error) {
	err = s.changes(ctx, tocsin.Changing{Op: "schedule_" + op, Schedule: name, BizType: bizType}, func(ctx context.Context) (err error) {
		done, err = change(ctx)
		return err
	})
	return done, err
}

// Close closes the pools. Calls under way fail.
func (s *Schedules) Close() error { return s.tables.Close() }

// Partial is the error beside an incomplete result. Its text has what went wrong on each server.
type Partial = store.Partial

// Get returns the schedule of a name. It asks all servers at once: ErrNotFound is certain. One that is found is returned
// even if other servers don't answer. If the schedule has ended, its Reason says whether a run of it still waits, if that can be read.
func (s *Schedules) Get(ctx context.Context, name string) (Schedule, error) {
	r, _, err := s.find(ctx, name)
	if err != nil {
		return Schedule{}, err
	}
	if r.State == Ended {
		if open, err := s.openRuns(ctx, r, 1); err == nil && len(open) > 0 {
			r.open = &open[0]
		}
		r.Reason = r.ending()
	}
	return r.Schedule, nil
}

// Next returns the next fire times of a schedule, at most n, by its database's clock: those that it has if it is active.
func (s *Schedules) Next(ctx context.Context, name string, n int) ([]Fire, error) {
	found, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return found.Following(found.ReadAt, n)
}

// find is Get of the whole row, with all biz types.
func (s *Schedules) find(ctx context.Context, name string) (*row, bizTypes, error) {
	types, err := s.types(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, failed := s.withNames(ctx, types, []string{name})
	found, err := s.pick(rows, name, failed)
	return found, types, err
}

// pick returns the schedule of a name among the rows of an answer, whose error is failed.
func (s *Schedules) pick(rows []*row, name string, failed error) (found *row, err error) {
	for _, r := range rows {
		switch {
		case r.Name != name:
		case found != nil:
			return nil, s.ambiguous(found, r)
		default:
			found = r
		}
	}
	if found == nil {
		return nil, cmp.Or(failed, missing(name))
	}
	return found, nil
}

// namesAtOnce bounds the names of one question.
const namesAtOnce = 500

// named finds schedules by their names. A name that is not found is certain: an error of a server counts only then.
func (s *Schedules) named(ctx context.Context, types bizTypes, names ...string) (map[string]*row, error) {
	found := map[string]*row{}
	for part := range slices.Chunk(names, namesAtOnce) {
		rows, failed := s.withNames(ctx, types, part)
		for _, r := range rows {
			if other := found[r.Name]; other != nil {
				return nil, s.ambiguous(other, r)
			}
			found[r.Name] = r
		}
		for _, name := range part {
			if found[name] == nil && failed != nil {
				return nil, failed
			}
		}
	}
	return found, nil
}

// withNames asks all databases for schedules of some names.
func (s *Schedules) withNames(ctx context.Context, types bizTypes, names []string) ([]*row, error) {
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	return s.everywhere(ctx, types, "schedules named", strings.Replace(readNamed, "{names}", list("?", len(names)), 1), args...)
}

// ambiguous names two schedules of one name.
func (s *Schedules) ambiguous(a, b *row) error {
	where := func(r *row) string { return s.tables.Layout().Database(s.tables.Layout().DatabaseOf(r.Table)) }
	return client.Refuse(ErrAmbiguous, "two schedules are named %q: schedule_id %s in %s and %s in %s: delete one by DeleteID", a.Name, a.ID, where(a), b.ID, where(b))
}

// everywhere asks all databases for rows, and returns them in the order of their names.
func (s *Schedules) everywhere(ctx context.Context, types bizTypes, name, question string, args ...any) ([]*row, error) {
	all, err := askAll(ctx, s, name, question, scanRow, args...)
	for _, r := range all {
		r.BizType = types.name(r.number)
	}
	slices.SortFunc(all, func(a, b *row) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all, err
}

// askAll asks all databases a question. What they answered stands beside an error, a *Partial.
func askAll[T any](ctx context.Context, s *Schedules, name, question string, scan func(*sql.Rows) (T, error), args ...any) ([]T, error) {
	found := make([][]T, len(s.tables.Servers()))
	errs := s.tables.Everywhere(ctx, func(server int) (err error) {
		found[server], err = store.Gather(ctx, s.tables, server, s.tables.Databases(server, 0), name, question, scan, args...)
		return explain(err)
	})
	return slices.Concat(found...), store.Lacking(s.tables.Servers(), errs)
}

// bizTypes are the numbers of the biz types by name.
type bizTypes map[string]uint64

// types reads the biz types, which are the same in all databases: one answer is enough.
func (s *Schedules) types(ctx context.Context) (bizTypes, error) {
	all := bizTypes{}
	var mu sync.Mutex // guards all
	errs := s.tables.Everywhere(ctx, func(server int) error {
		_, err := store.Gather(ctx, s.tables, server, s.tables.Databases(server, 0), "schedule types", readTypes, func(rows *sql.Rows) (struct{}, error) {
			var number uint64
			var name string
			err := rows.Scan(&number, &name)
			mu.Lock()
			defer mu.Unlock()
			all[name] = number
			return struct{}{}, err
		})
		return err
	})
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// number returns the number of a biz type.
func (t bizTypes) number(name string) (uint64, error) {
	if number, ok := t[name]; ok {
		return number, nil
	}
	return 0, client.Refuse(tocsin.ErrUnknownBizType, "unknown biz type %q: apply it with `tocsin biz apply`", name)
}

// name returns the name of a number; "#7" if none has it.
func (t bizTypes) name(number uint64) string {
	for name, n := range t {
		if n == number {
			return name
		}
	}
	return "#" + strconv.FormatUint(number, 10)
}

// place is a schedule that is to be changed.
type place struct {
	id    tocsin.JobID
	types bizTypes
	tx    tocsin.Tx // the caller's transaction; nil: one of its own
	fresh bool      // the id is new
}

// How long a change that lost its connection is tried again: it may have been made.
const (
	triesFor   = 15 * time.Second
	triesPause = 10 * time.Millisecond // before the first repeat; it doubles
	triesLimit = time.Second           // the longest pause
)

// within runs fn in a transaction with the row locked. If the connection breaks, it asks again: fn must recognise what it
// has done before.
func (s *Schedules) within(ctx context.Context, p place, fn func(*here) error) error {
	named := func(h *here) error {
		if h.row != nil {
			h.row.BizType = p.types.name(h.row.number)
		}
		return fn(h)
	}
	if p.tx != nil {
		h := &here{maker: s.maker, in: p.tx, table: p.id.Table(), fresh: p.fresh}
		return explain(h.do(ctx, p.id, named))
	}
	var failed time.Time // when the first try failed
	maybe := false       // a try may have been carried out
	for pause := triesPause; ; pause = min(2*pause, triesLimit) {
		err := s.maker.at(ctx, p.id, named)
		if err == nil {
			return nil
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		class := mysql.ClassOf(err)
		maybe = maybe || mysql.InDoubt(err)
		again := mysql.Away(err)
		switch {
		case again && time.Since(failed) <= triesFor && loop.Wait(ctx, pause) == nil:
		case maybe && (class.OfServer() || class == mysql.Canceled):
			return fmt.Errorf("%w: %w", tocsin.ErrUnknownOutcome, err)
		case class.OfServer():
			return fmt.Errorf("%w: %w", tocsin.ErrUnreachable, err)
		default:
			return err
		}
	}
}
