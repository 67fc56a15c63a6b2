package store

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// drift bounds how far two clocks part while one sample stands: one part in a
// thousand. That is twice the fastest slew of NTP (500 ppm) and ten times the error
// of a crystal. A lower bound loosens by it.
const drift = 1000

// stoodStill is by how much a server's clock has to be ahead of all that it can show, as the former reading and this
// process's monotonic clock say, to tell that this process stood still.
const stoodStill = time.Second

// clock estimates a server's clock from below. The zero clock knows nothing. Each server
// process has a clock of its own, so nothing that was read before a move to another address
// counts after it.
type clock struct {
	mu    sync.Mutex
	known bounds
	term  int64 // of the readings: see mysql.Server.Term
}

// sample is one reading: the server's clock stood at micro at some moment between
// asked and answered.
type sample struct {
	asked, answered time.Time // with the monotonic reading
	micro           int64     // cut to the microsecond
	term            int64     // when it was asked
}

// asking begins a reading. It comes after the connection was taken: waiting for one is no part
// of the round trip, and a connection to a former address is cut before the term grows.
func (sv *server) asking() sample { return sample{asked: time.Now(), term: sv.Term()} }

// at returns the earliest time, in Unix µs, that the server's clock can show at t,
// which is not before the answer: the server may have read its clock at the very end
// of the round trip, and its clock may be the slower one.
func (s sample) at(t time.Time) int64 {
	passed := t.Sub(s.answered).Microseconds()
	return s.micro + passed - passed/drift
}

// latest is the latest that the server's clock can have stood when the answer
// came: it may have been read at the very start.
func (s sample) latest() int64 { return s.micro + 1 + s.answered.Sub(s.asked).Microseconds() + 1 }

// latestAt is the latest that the server's clock can stand at t, which is not
// before the answer: it may be the faster one.
func (s sample) latestAt(t time.Time) int64 {
	passed := t.Sub(s.answered).Microseconds()
	return s.latest() + passed + passed/drift + 1
}

// offset is how far the server's clock is ahead of this process's.
func (s sample) offset() Offset {
	trip := s.answered.Sub(s.asked)
	middle := s.asked.Add(trip / 2)
	return Offset{Ahead: time.UnixMicro(s.micro).Sub(middle.Round(0)), RoundTrip: trip}
}

// recent is for how long a reading is preferred to later ones that were slower. A
// server's clock may be set back by less than a slow round trip shows: from this long
// after that on, nothing that was read before it counts any more.
const recent = 50 * time.Millisecond

// bounds are the readings that the estimate uses. The zero bounds are none.
type bounds struct {
	last sample // the one that was asked last
	best sample // gives the highest bound; it counts while it is recent
}

// at returns the higher bound of both at t.
func (b bounds) at(t time.Time) int64 {
	if t.Sub(b.best.asked) > recent {
		return b.last.at(t)
	}
	return max(b.last.at(t), b.best.at(t))
}

// take adds a reading. One that contradicts the bounds is believed: the server's clock
// was set. One that was under way at the last answer is believed only if it is lower:
// it may have been read before the clock was set back.
func (b bounds) take(s sample) bounds {
	switch {
	case b.last.answered.IsZero():
		return bounds{s, s}
	case s.answered.Before(b.last.answered), s.asked.Before(b.last.answered) && s.micro > b.last.latestAt(s.answered):
		return b
	case b.at(s.answered) > s.latest():
		return bounds{s, s}
	}
	if !s.asked.Before(b.last.asked) {
		b.last = s
	}
	if s.answered.Sub(b.best.asked) > recent || s.micro >= b.best.at(s.answered) {
		b.best = s
	}
	return b
}

// ahead reports whether a reading that was asked after the last one shows that the server's clock has gone on by more than
// this process's: the process stood still, its monotonic clock with it, as a virtual machine does that is paused; or the
// server's clock was set forward.
func (b bounds) ahead(s sample) bool {
	return !b.last.answered.IsZero() && !s.asked.Before(b.last.answered) && s.micro > b.last.latestAt(s.answered)+stoodStill.Microseconds()
}

// take adds a reading, and reports whether it is ahead.
func (c *clock) take(s sample) (ahead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.term < c.term:
		return false
	case s.term > c.term:
		c.known, c.term = bounds{}, s.term
	}
	ahead = c.known.ahead(s)
	c.known = c.known.take(s)
	return ahead
}

// note takes a reading of a server's clock.
func (s *Store) note(sv *server, taken sample) {
	if sv.clock.take(taken) {
		s.jumped.Store(&taken.answered)
	}
}

// Jumped returns when a server's clock last showed that it had gone on by a second more than this process's monotonic
// clock: the process stood still unnoticed, or that server's clock was set forward. What the process relied on before, such as
// leases, claims and rows that it had read, may be outdated. Zero: never. Safe for concurrent use.
func (s *Store) Jumped() time.Time {
	if at := s.jumped.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// read returns what the readings of a term tell, 0 if nothing was read in it.
func (c *clock) read(term int64, tell func(bounds) int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known.last.answered.IsZero() || c.term != term {
		return 0
	}
	return tell(c.known)
}

// now is the estimate, in Unix µs.
func (b bounds) now() int64 { return b.at(time.Now()) }

// standing is what was read last, in Unix µs.
func (b bounds) standing() int64 { return b.last.micro }

// latest is the latest that the server's clock can show now, in Unix ms.
func (b bounds) latest() int64 { return b.last.latestAt(time.Now())/1000 + 1 }

// Measure reads a server's clock, which improves the estimate of Now. It also reads
// the layout rows of the server's databases: see Survey.
func (s *Store) Measure(ctx context.Context, server int) (Offset, error) {
	sv := s.servers[server]
	taken, err := s.measure(ctx, sv)
	if err != nil {
		return Offset{}, s.wrap(err, "read the clock", sv)
	}
	return taken.offset(), nil
}

// answerWithin is how long Everywhere waits for a server.
const answerWithin = 5 * time.Second

// Everywhere measures all servers at once, at most 5 s each, and calls work for those that answer. It returns an error for each
// server, nil if all went well there.
func (s *Store) Everywhere(ctx context.Context, work func(server int) error) []error {
	errs := make([]error, len(s.servers))
	EachServer(len(errs), func(server int) {
		bounded, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		if _, errs[server] = s.Measure(bounded, server); errs[server] == nil {
			errs[server] = work(server)
		}
	})
	return errs
}

func (s *Store) measure(ctx context.Context, sv *server) (sample, error) {
	conn, err := sv.DB.Conn(ctx) // ahead of the question: waiting for one is no part of the round trip
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = conn.Close() }()
	taken := sv.asking()
	err = s.read(ctx, conn, now.name, now.render(nil, nil), func(_ int, rows *sql.Rows) error {
		taken.micro, err = scanMicro(rows)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	taken.answered = time.Now()
	_, refused, err := s.refusalsOver(ctx, sv, conn)
	if err != nil {
		return sample{}, err
	}
	s.note(sv, taken)
	sv.refresh(refused)
	return taken, nil
}

// scanMicro scans a row of now, in Unix µs.
func scanMicro(rows *sql.Rows) (int64, error) {
	var t time.Time
	err := rows.Scan(&t)
	return t.UnixMicro(), err
}

// Now estimates a server's clock from below, in Unix ms, so that nothing starts
// early. It counts on this process's monotonic clock from the last readings, which
// Measure, Survey, Load and claims of rows that are not known take. Before the first, and before
// the first after a move to another address, it is 0, and nothing is due; also while Hold says so.
func (s *Store) Now(server int) int64 { return s.NowMicro(server) / 1000 }

// NowMicro is Now in Unix µs.
func (s *Store) NowMicro(server int) int64 {
	sv := s.servers[server]
	term := sv.Term()
	if s.held.Load() && sv.resumed.Load() != term {
		return 0
	}
	if s.frozen {
		return sv.clock.read(term, bounds.standing)
	}
	return sv.clock.read(term, bounds.now)
}

// Waiting returns how long the oldest statement sent to a server, or attempt to
// connect to it, has been without an answer; 0 if there is none.
func (s *Store) Waiting(server int) time.Duration { return s.servers[server].Waiting() }
