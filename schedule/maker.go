package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// maker makes the runs of schedules when their time has come near, for nodes and sweepers. Safe for concurrent use; any
// number of makers may work on the same schedules.
type maker struct {
	tables *store.Store
	ids    ids.Maker
}

// Due is a schedule whose next fire time is near.
type Due struct {
	Next  time.Time // next_fire when it was read
	Table int       // table number of its runs; their owner makes them
	ID    tocsin.JobID

	Database int // number of its database
}

// compare is the order of Due.
func (d Due) compare(other Due) int {
	return cmp.Or(d.Next.Compare(other.Next), cmp.Compare(d.Table, other.Table), cmp.Compare(d.ID, other.ID))
}

// firstDue is before every Due.
var firstDue = Due{Next: time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)}

// pageOfDue is how many entries of the index one statement reads for each database.
const pageOfDue = 1000

// Due returns the schedules of one server whose next fire time is less than a time ahead, by the server's clock, the
// earliest first, at most limit: those that which takes, nil for all. A node takes those of its tables, but for a while none
// whose Make has failed. Usually ahead is Step, or 0 for those that are overdue. It reads the index alone, and
// schedules that are left out hold up no other: it reads on, a thousand entries in a statement. Databases that are older than schedules are left out too. What was found stands
// beside an error.
func (m *maker) Due(ctx context.Context, server int, ahead time.Duration, limit int, which func(Due) bool) (due []Due, err error) {
	databases := m.tables.Databases(server, schema)
	for after := firstDue; len(databases) > 0 && len(due) < limit; {
		next := at(after.Next)
		page, err := store.Gather(ctx, m.tables, server, databases, "schedules due", peekDue, m.scanDue,
			ahead.Microseconds(), next, next, after.Table, next, after.Table, uint64(after.ID), pageOfDue)
		slices.SortFunc(page, Due.compare)
		page = page[:min(len(page), pageOfDue)]
		for _, d := range page {
			if len(due) < limit && (which == nil || which(d)) {
				due = append(due, d)
			}
		}
		if err != nil || len(page) < pageOfDue {
			return due, err
		}
		after = page[len(page)-1]
	}
	return due, nil
}

// scanDue reads a row of peekDue, or of peekAhead.
func (m *maker) scanDue(rows *sql.Rows) (d Due, err error) {
	err = rows.Scan(&d.Next, &d.Table, &d.ID)
	d.Database = m.tables.Layout().DatabaseOf(d.Table)
	return d, err
}

// Made is what a Make has done.
type Made struct {
	Runs       int       // made
	PassedOver int       // fire times that were missed, and no run was made for
	Name       string    // of the schedule, if a window was made
	BizType    uint64    // number of its biz type, likewise
	Back       time.Time // made_until before it was taken back: it was too far ahead; zero: it was not
}

// Make makes the next runs of a schedule, at most MaxRuns and two Steps ahead. If another maker was faster, or the schedule
// was changed, there is nothing to do, or other runs are made. If a Make is not complete, the next fire time is still near,
// and the schedule is Due again. It may be repeated after any error.
//
// A schedule whose runs count as made until more than 25 minutes ahead, by the database's clock and by this machine's, is taken
// back to now: the database's clock was ahead when they were made. See Ahead.
//
// With noWait, a row that is locked is an error of the class mysql.Contended at once.
func (m *maker) Make(ctx context.Context, id tocsin.JobID, noWait bool) (made Made, err error) {
	err = m.lockedAt(ctx, id, noWait, func(h *here) error {
		made = Made{}
		if h.row != nil && h.row.wrongly(h.now) {
			made, err = h.takeBack(ctx)
			return err
		}
		if h.row == nil || h.row.State != Active || h.row.NextFire.After(h.now.Add(Step)) {
			return nil
		}
		before := h.row.MadeUntil
		w, err := h.window(ctx, h.row, nil)
		if err != nil {
			return err
		}
		made = Made{Runs: len(w.fires), PassedOver: w.passedOver, Name: h.row.Name, BizType: h.row.number}
		return h.moveCursor(ctx, before, w)
	})
	if err != nil {
		return Made{}, err
	}
	return made, nil
}

// moveCursor stores what a window changes in the row.
func (h *here) moveCursor(ctx context.Context, before time.Time, w window) error {
	r := h.row
	n, err := h.exec(ctx, moveCursor, string(r.State), at(w.until), at(w.next), r.Reason, len(w.fires), w.passedOver, uint64(r.ID), r.Revision, at(before))
	if err == nil && n != 1 {
		err = client.Refuse(ErrRevision, "schedule %s was changed while it was locked", r.Name)
	}
	return err
}

// mostAhead bounds made_until: windows end at most two Steps ahead, by the clock that they were made by. One that is farther
// ahead was moved by a clock that was ahead itself, and until that time comes no runs would be made.
const mostAhead = 2*Step + Step/2

// FarAhead reports whether the schedule's runs count as made until a time that is too far ahead: its database's clock was
// ahead for a while. Until somebody takes that back, it makes no runs: see maker.Make.
func (s Schedule) FarAhead() bool {
	return (s.State == Active || s.State == Ended) && s.MadeUntil.After(s.ReadAt.Add(mostAhead))
}

// wrongly reports whether made_until is too far ahead of the server's clock and of this machine's. With one of them alone,
// the server's clock may be behind by now: fire times that were delivered would be made again.
func (r *row) wrongly(now time.Time) bool {
	return r.FarAhead() && r.MadeUntil.After(later(now, time.Now()).Add(mostAhead))
}

// Ahead returns schedules of one server for which Make takes made_until back, in the order of their ids, from behind one
// on, with made_until as Next. It reads the whole table, so it is for the rare moments after a server's clock was set back. Zero: there are none left.
func (m *maker) Ahead(ctx context.Context, server int, after tocsin.JobID) ([]Due, error) {
	page, err := store.Gather(ctx, m.tables, server, m.tables.Databases(server, schema), "schedules ahead", peekAhead, m.scanDue,
		uint64(after), mostAhead.Microseconds(), at(time.Now().Add(mostAhead)), pageOfDue)
	slices.SortFunc(page, func(a, b Due) int { return cmp.Compare(a.ID, b.ID) })
	return page[:min(len(page), pageOfDue)], err
}

// takeBack makes the next window from now on. Runs that are there keep their keys, so no fire time gets two. Judges that
// have a mark above the new runs find that out by their keys.
func (h *here) takeBack(ctx context.Context) (made Made, err error) {
	r, before := h.row, h.row.MadeUntil
	times, err := r.Times()
	if err != nil {
		return made, err
	}
	r.MadeUntil, r.State, r.Reason = h.now.Add(-times.Offset()), Active, ""
	w, err := h.window(ctx, r, nil)
	if err != nil {
		return made, err
	}
	if _, err := h.exec(ctx, forgetOpen, uint64(r.ID)); err != nil {
		return made, err
	}
	made = Made{Runs: len(w.fires), Name: r.Name, BizType: r.number, Back: before}
	return made, h.moveCursor(ctx, before, w)
}
