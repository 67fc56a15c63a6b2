package schedule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

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
	w, err := h.window(ctx, r)
	if err != nil {
		return made, err
	}
	if _, err := h.exec(ctx, forgetOpen, uint64(r.ID)); err != nil {
		return made, err
	}
	made = Made{Runs: len(w.fires), Name: r.Name, BizType: r.number, Back: before}
	return made, h.moveCursor(ctx, before, w)
}
