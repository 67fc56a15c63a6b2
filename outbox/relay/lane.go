package relay

import (
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// Bounds of a lane.
const (
	flightRows = 1000                   // moved at once
	freshFor   = 45 * time.Second       // an older row is read again, before the ledger refuses it
	awayFirst  = 100 * time.Millisecond // before a database that is away is tried again; it doubles
	awayLast   = 5 * time.Second
)

// lane is what waits for one database. A turn's goroutine owns it.
type lane struct {
	database int
	queue    []outbox.Row  // in the order of their ids
	parked   ids           // to be read again, all below what comes; their rows are this lane's, but may be others' too
	oldest   time.Time     // when the first parked row was made, by this process's clock
	flight   []outbox.Row  // being moved; empty: none
	bytes    int           // of queue and flight
	until    time.Time     // the database is not tried before
	away     time.Duration // the last pause of a database that is away; 0: it is not
}

// park leaves a row in the outbox, to be read again.
func (l *lane) park(row outbox.Row, known ids) {
	if len(l.parked) == 0 {
		l.oldest = made(row)
	}
	l.parked.addNear(row.ID, known)
}

// made is when a row was made, by this process's clock.
func made(row outbox.Row) time.Time { return row.Read.Add(-row.Age) }

// next takes the rows to move together off the queue. For each biz_id these are any number of adds, or a single other row: so
// they may be stored in any order.
func (l *lane) next() []outbox.Row {
	n := min(len(l.queue), flightRows)
	ops := make(map[uint64]string, n) // of each biz_id, what is taken first
	taken, left := make([]outbox.Row, 0, n), l.queue[:0]
	for i, row := range l.queue {
		if len(taken) == flightRows {
			left = append(left, l.queue[i:]...)
			break
		}
		first, some := ops[row.BizID]
		if !some {
			ops[row.BizID] = row.Op
		}
		if some && (first != outbox.Add || row.Op != outbox.Add) {
			ops[row.BizID] = "" // nothing behind it may pass it
			left = append(left, row)
			continue
		}
		taken = append(taken, row)
	}
	clear(l.queue[len(left):]) // their texts are not kept in memory
	l.queue = left
	return taken
}

// isAway notes that the database takes no rows.
func (l *lane) isAway() {
	l.away = min(max(2*l.away, awayFirst), awayLast)
	l.until = time.Now().Add(l.away)
}

// ofDatabase reports whether an error concerns the whole database.
func ofDatabase(err error) bool {
	class := mysql.ClassOf(err)
	return class.OfServer() || class == mysql.Canceled || class == mysql.Full || class == mysql.Missing || class == mysql.Denied ||
		errors.Is(err, tocsin.ErrLayout) || errors.Is(err, tocsin.ErrUnreachable)
}

// Bounds of the rows in memory.
const (
	laneRows  = 3000     // of a lane; more are parked
	laneBytes = 4 << 20  // of a lane; a page more at most
	allBytes  = 64 << 20 // of all lanes of a Relay; beyond it a lane has probeRows at most
)

// full reports whether a lane has as many rows in memory as it may have.
func (t *turn) full(l *lane) bool {
	rows := len(l.queue) + len(l.flight)
	return len(l.queue) >= laneRows || l.bytes >= laneBytes || rows >= probeRows && t.short()
}

// short reports whether all lanes together have as much in memory as they may have.
func (t *turn) short() bool { return t.memory.Load() >= allBytes }

// weigh counts the bytes of a lane's rows in memory, after some have left.
func (l *lane) weigh() {
	l.bytes = outbox.Size(l.queue) + outbox.Size(l.flight)
}

// weigh adds up the bytes of all lanes.
func (t *turn) weigh() {
	held := 0
	for _, l := range t.lanes {
		held += l.bytes
	}
	t.memory.Add(int64(held - t.held))
	t.held = held
}

// release gives up what the turn holds.
func (t *turn) release() {
	t.memory.Add(int64(-t.held))
	t.held = 0
}
