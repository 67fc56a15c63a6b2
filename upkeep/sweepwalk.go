package upkeep

import (
	"context"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// sweepWalk is one sweep of one server, by one goroutine.
type sweepWalk struct {
	*sweep
	server int
	tables []int
	lines  []*line
	failed map[int]error // tables that could not be read

	reached bool // the server answered
}

// line is the progress of some biz types through the tables. They stay together while
// the intake takes all of them. A type that it has no room for goes on alone, at its
// own pace.
type line struct {
	sweepRound
	pages *store.Cursor
	hand  []duequeue.Entry // found, and waiting for room; all of the only type
	begun map[int]bool     // tables whose first page was read; nil: another line counts them
	given bool             // given up: its only type is no longer started, and is only counted
	rest  int              // entries counted since
}

func newSweepWalk(r *sweep, server int, tables []int) *sweepWalk {
	w := &sweepWalk{sweep: r, server: server, tables: tables, failed: map[int]error{}}
	for _, round := range r.rounds {
		w.lines = append(w.lines, &line{sweepRound: round, pages: store.Over(tables), begun: map[int]bool{}})
	}
	return w
}

// through walks the server's tables and waits until the intake has settled them.
func (w *sweepWalk) through(ctx context.Context) {
	err := w.recover(ctx)
	if err == nil {
		err = w.follow(ctx)
	}
	errs := []error{err}
	for _, table := range slices.Sorted(maps.Keys(w.failed)) {
		errs = append(errs, w.failed[table])
	}
	if err := store.Join(errs...); err != nil && ctx.Err() == nil {
		w.fail(w.server, err)
	}
	w.add(func(r *SweepResult) { r.Tables += w.read() })
	_ = w.settled(ctx) // the run reports the end of ctx
}

// recover measures the server's clock and recovers claims that have run out, until
// none is left or none could be recovered. Tables that fail are named; the others are
// done.
func (w *sweepWalk) recover(ctx context.Context) error {
	if _, err := w.cfg.Tables.Measure(ctx, w.server); err != nil {
		return err
	}
	return store.Walk(ctx, w.tables, func(tables []int) error {
		w.reached = true
		for w.cfg.Intake != nil {
			got, err := w.cfg.Tables.Recover(ctx, w.server, tables, w.rows, nil)
			w.add(func(r *SweepResult) { r.Recovered += got.Back + got.Leases; r.Buried += got.Buried })
			if got.All() > 0 && ctx.Err() == nil {
				continue
			}
			if err != nil && ctx.Err() == nil {
				w.fail(w.server, err)
			}
			return nil
		}
		return nil
	})
}

// follow reads all lines to their ends, a page of each in turn.
func (w *sweepWalk) follow(ctx context.Context) error {
	for {
		moved, err := w.turn(ctx)
		switch {
		case err != nil:
			return err
		case moved:
			continue
		case !slices.ContainsFunc(w.lines, (*line).goesOn):
			return nil
		}
		_ = w.clock(ctx)
		if err := loop.Wait(ctx, roomPause); err != nil {
			return err
		}
	}
}

func (l *line) goesOn() bool { return l.pages.Left() > 0 || len(l.hand) > 0 && !l.given }

// turn lets each line take a step, and reports whether any could.
func (w *sweepWalk) turn(ctx context.Context) (moved bool, err error) {
	for i := 0; i < len(w.lines); i++ { // step adds lines
		if !w.lines[i].goesOn() {
			continue
		}
		ok, err := w.step(ctx, w.lines[i])
		if err != nil {
			return moved, err
		}
		moved = moved || ok
	}
	return moved, nil
}

// step hands over entries that wait for room, or reads the next page. It reports
// whether either was possible. A line whose only type is no longer started is given
// up: its rest is counted.
func (w *sweepWalk) step(ctx context.Context, l *line) (bool, error) {
	if w.cfg.Intake != nil && l.left == "" && len(l.types) == 1 && !l.given {
		room, open := w.room(l.types[0])
		switch {
		case !open:
			l.given = true
			return true, nil
		case room == 0:
			return false, nil
		case len(l.hand) > 0:
			l.hand = w.give(l.hand)
			return true, nil
		}
	}
	together, alone := min(pageTogether, w.rows), w.rows
	if l.given {
		together, alone = countedAt, countedAlone
	}
	page, more, err := w.page(ctx, l, together, alone)
	if err != nil || !more {
		return more, err
	}
	if l.given {
		l.rest += len(page.Entries)
	} else if w.cfg.Intake != nil && l.left == "" {
		w.share(l, page.Entries)
	}
	return true, nil
}

// page reads the next page of a line and counts the entries: at most together from
// each of several tables, or alone from a single table. It reports whether there was
// a page. A statement that fails is sent once more: its connection may have ended.
func (w *sweepWalk) page(ctx context.Context, l *line, together, alone int) (page store.Page, more bool, err error) {
	step, more := l.pages.Next()
	if !more {
		return page, false, nil
	}
	if err := w.clock(ctx); err != nil {
		l.pages.Back(step)
		return page, false, err
	}
	q := store.PeekQuery{
		Server: w.server, Tables: step.Tables, After: step.After, Types: l.types, Limit: together,
		Until: w.cfg.Tables.Now(w.server) - l.grace.Milliseconds(),
	}
	if step.Alone() {
		q.Limit = alone
	}
	page, err = w.cfg.Tables.Peek(ctx, q)
	if err != nil && ctx.Err() == nil {
		page, err = w.cfg.Tables.Peek(ctx, q)
	}
	if err != nil {
		l.pages.Back(step)
		return page, false, err
	}
	w.found(page.Entries)
	maps.Copy(w.failed, page.Failed)
	for _, full := range page.Full {
		l.pages.More(full.Table, full.Last)
	}
	for _, table := range step.Tables {
		if l.begun != nil {
			l.begun[table] = true
		}
	}
	return page, true, nil
}

// clock has the server's clock read if it is not known: the server has moved to another address, and nothing is due until then.
func (w *sweepWalk) clock(ctx context.Context) error {
	if w.cfg.Tables.Now(w.server) > 0 {
		return nil
	}
	_, err := w.cfg.Tables.Measure(ctx, w.server)
	return err
}

// share hands over entries. A type that finds no room goes on in a line of its own.
func (w *sweepWalk) share(l *line, entries []duequeue.Entry) {
	byType := map[uint64][]duequeue.Entry{}
	for _, e := range entries {
		byType[e.Type] = append(byType[e.Type], e)
	}
	for _, t := range slices.Sorted(maps.Keys(byType)) {
		rest := w.give(byType[t])
		switch {
		case len(rest) == 0:
		case len(l.types) == 1:
			l.hand = rest
		default:
			alone := l.sweepRound
			alone.types = []uint64{t}
			w.lines = append(w.lines, &line{sweepRound: alone, pages: l.pages.Fork(), hand: rest})
			l.types = slices.DeleteFunc(slices.Clone(l.types), func(other uint64) bool { return other == t })
		}
	}
}

// give hands over entries of one type, as many as fit, and returns the rest.
func (w *sweepWalk) give(entries []duequeue.Entry) (rest []duequeue.Entry) {
	room, open := w.room(entries[0].Type)
	n := min(room, len(entries))
	if !open || n == 0 || len(w.cfg.Intake.Offer(w.server, entries[:n])) > 0 {
		return entries // the intake recognizes those that it took after all
	}
	return entries[n:]
}

// room returns how many entries of a type may be handed over now.
func (w *sweepWalk) room(bizType uint64) (room int, open bool) {
	inside, room, open := w.cfg.Intake.Lane(w.server, bizType)
	return max(min(room, atMost-inside), 0), open
}

// settled waits until the intake holds no entry that it will start.
func (w *sweepWalk) settled(ctx context.Context) error {
	for w.cfg.Intake != nil && w.busy() {
		_ = w.clock(ctx)
		if err := loop.Wait(ctx, roomPause); err != nil {
			return err
		}
	}
	return nil
}

func (w *sweepWalk) busy() bool {
	for t := range w.accounts {
		if inside, _, open := w.cfg.Intake.Lane(w.server, t); open && inside > 0 {
			return true
		}
	}
	return false
}

// count reads all lines to their ends, while ctx lasts, to report how much is left.
func (w *sweepWalk) count(ctx context.Context) {
	for _, l := range w.lines {
		for more := w.reached; more; { // otherwise its clock is unknown
			var err error
			if _, more, err = w.page(ctx, l, countedAt, countedAlone); err != nil {
				return
			}
		}
	}
}

// left returns how many tables were not read to their end for all types.
func (w *sweepWalk) left() (tables int) {
	for _, l := range w.lines {
		tables = max(tables, l.pages.Left())
	}
	return tables
}

// read returns how many tables were read for all types without an error.
func (w *sweepWalk) read() (tables int) {
	for _, table := range w.tables {
		unread := func(l *line) bool { return l.begun != nil && !l.begun[table] }
		if w.reached && w.failed[table] == nil && !slices.ContainsFunc(w.lines, unread) {
			tables++
		}
	}
	return tables
}
