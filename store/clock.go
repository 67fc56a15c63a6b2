package store

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// trustFor bounds how long one measurement stands against later ones: by then
// two clocks that drift by 100 ppm differ by 6 ms.
const trustFor = time.Minute

// clock estimates a server's clock from below. The zero clock knows nothing.
type clock struct {
	mu   sync.Mutex
	last sample // the best lower bound so far
}

// sample is one reading: between asked and answered the server's clock stood at
// milli.
type sample struct {
	asked, answered time.Time // with the monotonic reading
	milli           int64     // cut to the millisecond
}

// at is the earliest that the server's clock can stand at t, which is not
// before the answer, in Unix ms: the server may have read its clock at the very
// end of the round trip.
func (s sample) at(t time.Time) int64 { return s.milli + t.Sub(s.answered).Milliseconds() }

// latest is the latest that the server's clock can have stood when the answer
// came: it may have been read at the very start.
func (s sample) latest() int64 { return s.milli + 1 + roundUp(s.answered.Sub(s.asked)) }

// offset is how far the server's clock is ahead of this process's.
func (s sample) offset() Offset {
	trip := s.answered.Sub(s.asked)
	middle := s.asked.Add(trip / 2)
	read := time.UnixMilli(s.milli).Add(time.Millisecond / 2) // cut off: half a millisecond on average
	return Offset{Ahead: read.Sub(middle.Round(0)), RoundTrip: trip}
}

// better chooses between the bound so far and a new one. A slow round trip must
// not throw the estimate back, so the higher bound stays, unless it is old or
// the new reading contradicts it: then the server's clock was set.
func better(old, new sample) sample {
	kept := old.at(new.answered)
	switch {
	case old.answered.IsZero(),
		new.answered.Sub(old.answered) > trustFor,
		kept > new.latest(),
		kept <= new.milli:
		return new
	}
	return old
}

func (c *clock) take(s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = better(c.last, s)
}

func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.answered.IsZero() {
		return 0
	}
	return c.last.at(time.Now())
}

// Measure asks a server for its clock and so betters what Now estimates.
func (s *Store) Measure(ctx context.Context, server int) (Offset, error) {
	sv := s.servers[server]
	taken, err := s.measure(ctx, sv)
	if err != nil {
		return Offset{}, s.wrap(err, "read the clock", sv)
	}
	return taken.offset(), nil
}

func (s *Store) measure(ctx context.Context, sv *server) (sample, error) {
	conn, err := sv.DB.Conn(ctx) // ahead of the question: waiting for one is no part of the round trip
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = conn.Close() }()
	taken := sample{asked: time.Now()}
	err = s.read(ctx, conn, now.name, now.render(nil, nil), func(_ int, rows *sql.Rows) error {
		taken.milli, err = scanClock(rows)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	taken.answered = time.Now()
	sv.clock.take(taken)
	return taken, nil
}

// scanClock reads a row of now.
func scanClock(rows *sql.Rows) (int64, error) {
	var t time.Time
	err := rows.Scan(&t)
	return t.UnixMilli(), err
}

// Now estimates a server's clock from below, in Unix ms, so that nothing starts
// early. It counts on this process's monotonic clock from the last Measure or
// Load; before the first it is 0, and nothing is due.
func (s *Store) Now(server int) int64 { return s.servers[server].clock.now() }
