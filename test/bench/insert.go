package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

const (
	manyRows   = 1000 // tasks of one AddMany
	singlePart = 50   // one in so many of the tasks is added alone: each waits for the disk
)

// InsertResult says how fast tasks are stored. The figures of its own are those
// of AddMany.
type InsertResult struct {
	Figures
	Single Figures `json:"single"`      // Add of a task far ahead, beside a raw insert
	Bell   Figures `json:"single_bell"` // Add of a task that rings the doorbell, beside two raw inserts in a transaction
	Run
}

// Insert measures AddMany of 1,000 tasks, and Add, beside plain inserts of the
// same rows, all over 8 connections.
func Insert(ctx context.Context, opts Options) (r InsertResult, err error) {
	if opts.Tasks < 1 {
		return r, wrong("insert: wants at least 1 task")
	}
	s, err := openSite(ctx, opts, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := errors.Join(s.fillPending(ctx), s.openTables(ctx)); err != nil {
		return r, err
	}
	single := max(opts.Tasks/singlePart, workers)
	err = profiled(opts.Profile, func() error {
		return errors.Join(
			s.insertBoth(ctx, &r.Figures, opts.Tasks, manyRows, s.addMany, s.insertMany),
			s.insertBoth(ctx, &r.Single, single, 1, s.addFar, s.insertOne),
			s.insertBoth(ctx, &r.Bell, single, 1, s.addNear, s.insertRinging),
		)
	})
	if err != nil {
		return r, fmt.Errorf("insert: %w", err)
	}
	settings, err := s.settings(ctx)
	r.Run = s.run(settings)
	return r, err
}

// rowsToOpen is how many rows for each table leave 2 tables in 100 without one.
const rowsToOpen = 4

// openTables stores some rows in about every table: the first insert into a
// table costs the server its opening, which is nobody's work here.
func (s *site) openTables(ctx context.Context) error {
	_, err := s.fill(ctx, rowsToOpen*s.config.Layout.Total(), at(far))
	return err
}

// far is when tasks are due that ring no bell.
const far = 48 * time.Hour

// insertBoth stores n tasks by plain SQL, by the client, and by plain SQL again,
// so many at once.
func (s *site) insertBoth(ctx context.Context, f *Figures, n, atOnce int, ours, raw func(context.Context, []row) error) error {
	var used [3]Usage
	for i, store := range []func(context.Context, []row) error{raw, ours, raw} {
		batches := s.batches(n, atOnce)
		if err := s.calm(ctx); err != nil {
			return err
		}
		var err error
		if used[i], err = s.measured(ctx, func() error { return each(ctx, batches, store) }); err != nil {
			return err
		}
		s.opts.Progress("insert", (i+1)*n, len(used)*n)
	}
	*f = compare(n, used[0], used[1], used[2])
	return nil
}

// batches numbers n rows and cuts them as they come, whatever table they are
// for: as a caller has them.
func (s *site) batches(n, atOnce int) [][]row {
	all := slices.Concat(s.rows.next(n)...)
	slices.SortFunc(all, func(a, b row) int { return int(int64(a.bizID) - int64(b.bizID)) })
	return slices.Collect(slices.Chunk(all, atOnce))
}

func (s *site) addMany(ctx context.Context, batch []row) error {
	tasks := make([]tocsin.NewTask, len(batch))
	for i, r := range batch {
		tasks[i] = plain.New(r.bizID, payload, tocsin.In(far))
	}
	_, err := s.client.AddMany(ctx, tasks)
	return err
}

func (s *site) addFar(ctx context.Context, batch []row) error {
	_, err := s.client.Add(ctx, plain.New(batch[0].bizID, payload, tocsin.In(far)))
	return err
}

func (s *site) addNear(ctx context.Context, batch []row) error {
	_, err := s.client.Add(ctx, plain.New(batch[0].bizID, payload, tocsin.In(time.Second)))
	return err
}

// insertMany stores a batch as AddMany does: a statement for each table, all in
// one transaction a server.
func (s *site) insertMany(ctx context.Context, batch []row) error {
	slices.SortFunc(batch, func(a, b row) int { return a.id.Table() - b.id.Table() })
	var tables [][]row
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].id.Table() == batch[0].id.Table() {
			n++
		}
		tables, batch = append(tables, batch[:n]), batch[n:]
	}
	for _, p := range s.packets(tables, manyRows) {
		if err := s.insert(ctx, p, at(far)); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) insertOne(ctx context.Context, batch []row) error {
	table := batch[0].id.Table()
	return s.exec(ctx, s.store.ServerOf(table), string(s.appendFill(nil, part{table, batch}, at(far))))
}

// insertRinging stores a row and its ring in one packet and transaction.
func (s *site) insertRinging(ctx context.Context, batch []row) error {
	table := batch[0].id.Table()
	b := s.appendFill(nil, part{table, batch}, at(time.Second))
	b = append(append(b, ';'), s.text(ringSQL, table)...)
	b = fmt.Appendf(b, "(%d,%d,%d,UTC_TIMESTAMP(3)+INTERVAL 1 SECOND);", table, batch[0].id, plainNumber)
	return s.exec(ctx, s.store.ServerOf(table), transaction(b, 2))
}

// String is the result for people.
func (r InsertResult) String() string {
	var l lines
	for _, way := range []struct {
		name string
		Figures
	}{{"AddMany", r.Figures}, {"Add", r.Single}, {"Add, near", r.Bell}} {
		l.line(way.name, "%d tasks, %s", way.Tasks, way.speed())
		l.sides(way.Figures)
	}
	l.run(r.Run)
	return l.String()
}
