package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// Bounds of a turn.
const (
	pageRows      = 1000                  // that one poll takes, and one delete
	probeRows     = 10                    // that are read again for a database that is away, and a lane's share if memory is short
	mostDone      = 10 * pageRows         // rows to delete, before reading waits for the deletes
	mostRanges    = 500                   // in one statement
	laterFirst    = 25 * time.Millisecond // before a row that met a delivery, or a lock, is tried again; it doubles
	laterPause    = time.Second           // the longest such pause
	asideShare    = 10                    // reading what is set aside takes a tenth of the time at most
	defaultGapAge = time.Minute
	figuresRate   = 500 * time.Millisecond // between two updates of the metrics
)

// errReused says that the outbox has given ids again, so nothing known about ids is valid any more.
var errReused = errors.New("the outbox has given ids again")

// turn is the time for which this process holds the lock of an outbox. One goroutine owns all of it; others only move
// rows, and send what became of them.
type turn struct {
	*line
	session *outbox.Session
	known   ids                // that were read: polls leave them out
	gone    ids                // among them, of rows that were deleted, and of gaps that were closed
	aside   ids                // among them, of rows that were set aside and of what waits behind them
	blocked map[uint64]uint64  // biz_id -> the first of such rows: later ones wait behind it
	lanes   map[int]*lane      // by database
	hand    map[uint64]bool    // ids of rows in memory, up to their deletion
	met     map[uint64]meeting // ids of rows that met a delivery or a lock, and have been tried
	stuck   int                // rows that were set aside, as counted last
	locked  time.Time          // when the oldest row was made that met a lock and is aside; zero: none is
	refused []refusal          // to be noted in the outbox
	done    []outbox.Key       // to be deleted from it
	landed  chan landing
	flying  int
	eraser  eraser
	page    int // rows of one read, by the size of those of the last one
	held    int // bytes of rows in memory, of all lanes

	lastPoll, nextPoll, nextAside, nextWhole, nextFigures time.Time
	asideFrom                                             time.Time // what is aside is not read again before
	confirmed                                             time.Time // rows that were read before are of the outbox with the turn's identity
	marks                                                 []mark
}

// refusal is a row to set aside.
type refusal struct {
	key outbox.Key
	err error
}

// meeting is what a row has met so far: a delivery, a lock, or no biz type.
type meeting struct {
	times int
	first time.Time
	next  time.Time // it is not tried before
	again bool      // see outbox.Row
	lock  bool      // what it met last is a lock
}

// landing is what became of the rows that a lane had in flight.
type landing struct {
	lane    *lane
	results []outbox.Result
}

func newTurn(l *line, session *outbox.Session) *turn {
	now := time.Now()
	return &turn{
		line: l, session: session, blocked: map[uint64]uint64{}, met: map[uint64]meeting{}, lanes: map[int]*lane{}, hand: map[uint64]bool{},
		landed: make(chan landing), eraser: eraser{ended: make(chan erased)}, page: pageRows, nextWhole: now.Add(l.cfg.Whole), nextAside: now.Add(l.cfg.Whole),
	}
}

// run works until ctx ends or the outbox fails. It returns when nothing is in flight any more.
func (t *turn) run(ctx context.Context) error {
	moves, end := context.WithCancel(ctx)
	defer t.release()
	defer t.drain()
	defer end()
	if err := t.begin(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := t.round(ctx, moves); err != nil {
			if errors.Is(err, errReused) {
				t.void(ctx)
			}
			return err
		}
		pause := time.NewTimer(time.Until(t.nextPoll))
		select {
		case <-ctx.Done():
		case <-pause.C:
		case got := <-t.landed:
			t.settle(got)
		case got := <-t.eraser.ended:
			if err := t.cleared(got); err != nil {
				return err
			}
		}
		t.weigh()
		pause.Stop()
	}
	return nil
}

// drain waits for the rows in flight, and for a delete under way.
func (t *turn) drain() {
	for ; t.flying > 0; t.flying-- {
		<-t.landed
	}
	t.eraser.end()
}

// round writes the decisions, reads what is due to be read, and starts moves.
func (t *turn) round(ctx, moves context.Context) error {
	t.clear(ctx)
	now := time.Now()
	if now.Before(t.nextPoll) {
		return t.launchAll(ctx, moves)
	}
	if err := t.write(ctx); err != nil {
		return err
	}
	if !now.Before(t.nextWhole) {
		if err := t.whole(ctx); err != nil {
			return err
		}
	}
	if len(t.aside) > 0 && !now.Before(t.nextAside) {
		if err := t.again(ctx); err != nil {
			return err
		}
	}
	if err := t.pollIfRoom(ctx, now); err != nil {
		return err
	}
	if !now.Before(t.nextFigures) {
		t.figures(now)
	}
	return t.launchAll(ctx, moves)
}

func (t *turn) launchAll(ctx, moves context.Context) error {
	for _, l := range t.lanes {
		if err := t.launch(ctx, moves, l); err != nil {
			return err
		}
	}
	return nil
}

// write notes the refusals.
func (t *turn) write(ctx context.Context) error {
	for len(t.refused) > 0 {
		one := t.refused[0]
		if err := t.session.SetAside(ctx, one.key, one.err.Error()); err != nil {
			return err
		}
		if t.refused = t.refused[1:]; t.session.Patience > 0 {
			delete(t.met, one.key.ID)
			t.soon(time.Now()) // rows behind it go on
		}
	}
	return nil
}

// waiting returns the ids that are parked or aside.
func (t *turn) waiting() (all ids) {
	for _, r := range t.aside {
		all.addRange(r)
	}
	for _, l := range t.lanes {
		for _, r := range l.parked {
			all.addRange(r)
		}
	}
	return all
}

// laneOf returns the lane of a row.
func (t *turn) laneOf(row outbox.Row) *lane {
	layout := t.cfg.Tables.Layout
	database := layout.DatabaseOf(layout.TableOf(row.BizID))
	if t.lanes[database] == nil {
		t.lanes[database] = &lane{database: database}
	}
	return t.lanes[database]
}

// take puts a row that was read into its place. own is the lane that reads its parked rows; nil if none does.
func (t *turn) take(row outbox.Row, own *lane) {
	t.known.add(row.ID)
	l := t.laneOf(row)
	switch {
	case t.hand[row.ID]:
	case row.LastError != "": // even if it is aside already: its id may only lie between others that are
		if !t.aside.has(row.ID) {
			t.stuck++
		}
		t.block(row)
	case t.waits(row):
		t.aside.addNear(row.ID, t.known)
	case time.Now().Before(t.met[row.ID].next):
		t.block(row)
		t.retry(row)
	case l != own && (len(l.parked) > 0 || t.full(l)):
		l.park(row, t.known)
	default:
		row.Again, row.Locked = t.met[row.ID].again, t.met[row.ID].lock
		l.queue = append(l.queue, row)
		t.hand[row.ID] = true
		l.bytes += row.Size()
	}
}

// waits reports whether a row has to wait for an earlier one of its biz_id, or is blocked itself. Rows before those that
// were set aside do not wait: nothing else would move them.
func (t *turn) waits(row outbox.Row) bool {
	first, some := t.blocked[row.BizID]
	return some && row.ID >= first
}

// block leaves a row in the outbox, and so the rows of its biz_id behind it.
func (t *turn) block(row outbox.Row) {
	if len(t.aside) == 0 {
		t.nextAside = later(time.Now().Add(t.cfg.Whole), t.asideFrom)
	}
	if !t.waits(row) {
		t.blocked[row.BizID] = row.ID
	}
	t.aside.addNear(row.ID, t.known)
	delete(t.hand, row.ID)
	l := t.laneOf(row)
	l.queue = slices.DeleteFunc(l.queue, func(behind outbox.Row) bool {
		if behind.BizID != row.BizID || behind.ID < row.ID {
			return false
		}
		t.aside.addNear(behind.ID, t.known)
		delete(t.hand, behind.ID)
		return true
	})
	l.weigh()
}

// launch refills a lane, while rows are in flight too, and moves its next rows in a goroutine of their own.
func (t *turn) launch(ctx, moves context.Context, l *lane) error {
	if time.Now().Before(l.until) || len(l.flight) > 0 && l.away > 0 {
		return nil
	}
	if len(l.flight) == 0 {
		t.unreadStale(l)
	}
	if len(l.queue) < flightRows && len(l.parked) > 0 && !t.full(l) && len(t.done) < mostDone {
		if err := t.refill(ctx, l); err != nil {
			return err
		}
	}
	if len(l.flight) > 0 || len(l.queue) == 0 {
		return nil
	}
	if err := t.confirm(ctx, l); err != nil {
		return err
	}
	l.flight = l.next()
	t.flying++
	identity, flight := t.session.Identity, l.flight
	go func() { t.landed <- landing{l, t.tasks.Move(moves, identity, flight)} }()
	return nil
}

// confirm reports an error if the outbox's table was replaced by another one before the next rows of a lane were read: they would
// stand in the ledger under the identity of the former, and be moved again under their own.
func (t *turn) confirm(ctx context.Context, l *lane) error {
	if !slices.ContainsFunc(l.queue, func(row outbox.Row) bool { return row.Read.After(t.confirmed) }) {
		return nil
	}
	begin := time.Now()
	identity, err := t.session.IdentityNow(ctx)
	if err != nil {
		return err
	}
	t.confirmed = begin
	return t.same(identity)
}

// same returns an error unless an identity is that of the turn.
func (t *turn) same(identity string) error {
	if identity == t.session.Identity {
		return nil
	}
	return fmt.Errorf("%s has become another outbox", t.outbox)
}

// unreadStale parks rows that were read too long ago, and all rows behind them.
func (t *turn) unreadStale(l *lane) {
	var fresh time.Time // rows of one page have been read at the same time
	for i := range l.queue {
		row := &l.queue[i]
		switch {
		case row.Read == fresh:
		case row.SinceRead() > freshFor:
			t.unreadAll(l)
			return
		default:
			fresh = row.Read
		}
	}
}

// unreadAll parks all rows that a lane has in memory, except those in flight.
func (t *turn) unreadAll(l *lane) {
	for _, row := range l.queue {
		t.unhand(l, row)
	}
	l.queue = nil
	l.weigh()
}

// unhand parks a row that was in memory.
func (t *turn) unhand(l *lane, row outbox.Row) {
	delete(t.hand, row.ID)
	if at := made(row); len(l.parked) == 0 || at.Before(l.oldest) {
		l.oldest = at
	}
	l.parked.addNear(row.ID, t.known)
}
