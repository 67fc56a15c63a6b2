package relay

import (
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// aliveEvery is the longest time between two polls: the server ends a session that sends nothing.
const aliveEvery = time.Second

// fewRows is the number of rows below which a slow poll must have walked over rows that were deleted but can't be purged,
// as in a new turn until its first gap is closed. Such polls take at most half of the time.
const fewRows = 100

// bridgeIDs is how many ids without rows a poll reads over between two gaps, since another range would cost more. While a
// transaction stays open, all later gaps, which rolled-back transactions have left, stay in the polls.
const bridgeIDs = 16

// pollIfRoom polls, unless what it would read could only be parked, to be read again.
func (t *turn) pollIfRoom(ctx context.Context, now time.Time) error {
	if now.Sub(t.lastPoll) < aliveEvery && !t.hungry() {
		t.nextPoll = now.Add(flowPoll)
		return nil
	}
	t.lastPoll = now
	return t.poll(ctx)
}

// hungry reports whether a database may be without work soon unless rows are read. One that is away, or has parked rows,
// is not: it has enough.
func (t *turn) hungry() bool {
	if len(t.done) >= mostDone {
		return false
	}
	for database := range t.cfg.Tables.Layout.Databases {
		l := t.lanes[database]
		if l == nil || l.away == 0 && len(l.parked) == 0 && len(l.queue) < flightRows && !t.full(l) {
			return true
		}
	}
	return false
}

// poll reads all gaps and what is above them, as one snapshot.
func (t *turn) poll(ctx context.Context) error {
	begin, limit := time.Now(), t.page
	rows, err := t.session.Read(ctx, t.known.gaps().joined(t.gone, bridgeIDs), limit, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(row outbox.Row) bool { return t.known.has(row.ID) }) {
		return errReused
	}
	for _, row := range rows {
		t.take(row, nil)
	}
	t.sized(rows)
	switch {
	case len(rows) == 0:
		t.nextPoll = time.Now().Add(t.cfg.Poll)
	case !outbox.Full(rows, limit) || t.crowded():
		t.nextPoll = time.Now().Add(flowPoll)
	default:
		t.nextPoll = time.Now()
	}
	if len(rows) < fewRows {
		t.nextPoll = later(t.nextPoll, time.Now().Add(time.Since(begin)))
	}
	return nil
}

// crowded reports whether every lane that is not away has more than it can hold: what is read now would only be parked.
func (t *turn) crowded() bool {
	for _, l := range t.lanes {
		if l.away == 0 && len(l.parked) == 0 {
			return false
		}
	}
	return true
}

// sized bounds the next page by the size of the rows in this one, since rows that are sent but not read are wasted.
func (t *turn) sized(rows []outbox.Row) {
	if len(rows) == 0 {
		return
	}
	t.page = max(min(outbox.PageBytes*len(rows)/outbox.Size(rows), pageRows), probeRows)
}

// readIn reads rows of ranges, and returns the last id up to which it has read all.
func (t *turn) readIn(ctx context.Context, in []outbox.Range, limit int) (rows []outbox.Row, last uint64, err error) {
	rows, err = t.session.Read(ctx, in, limit, nil)
	last = in[len(in)-1].Last
	if err == nil && outbox.Full(rows, limit) {
		last = rows[len(rows)-1].ID
	}
	return rows, last, err
}

// refill reads the next parked rows of a lane, and with them those of other lanes that are parked beside them.
func (t *turn) refill(ctx context.Context, l *lane) error {
	in, limit := slices.Clone(l.parked[:min(len(l.parked), mostRanges)]), t.page
	if l.away > 0 || t.short() {
		limit = probeRows
	}
	rows, last, err := t.readIn(ctx, in, limit)
	if err != nil {
		return err
	}
	takers := t.takers(l, in, last)
	for _, o := range takers {
		o.parked.remove(outbox.Range{First: 0, Last: last})
	}
	for _, row := range rows {
		own := t.laneOf(row)
		switch {
		case slices.Contains(takers, own):
			t.take(row, own)
		case row.LastError == "" && own.parked.has(row.ID): // it waits there
		default:
			t.take(row, l)
		}
	}
	for _, o := range takers {
		if len(o.queue) > 0 {
			o.oldest = made(o.queue[0])
		}
	}
	return nil
}

// takers returns the lanes that may take rows that were read for one of them: l, and lanes whose parked ids up to the
// last one were all read. So no parked row is passed over.
func (t *turn) takers(l *lane, in ids, last uint64) []*lane {
	takers := []*lane{l}
	for _, o := range t.lanes {
		if o != l && o.away == 0 && len(o.parked) > 0 && !t.full(o) && !t.short() && o.parked.within(in, last) {
			takers = append(takers, o)
		}
	}
	return takers
}
