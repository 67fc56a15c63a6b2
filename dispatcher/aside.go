package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// part is a set of outcomes of one table that could not be stored. They are retried
// together, never in a batch with other outcomes, which they would make fail.
type part struct {
	results []result // taken over by the settler that tries it, while one does
	locked  bool     // another transaction held a row, or the table
	apart   bool     // the last try of all failed: the next one goes row by row
	tries   int

	// Guarded by server.mu.
	at     time.Time // of the next try
	trying bool
	later  []result // results that arrived while the table was shut
}

// asideFor returns the pause after that many tries: 1 s, doubling up to a minute.
func asideFor(tries int) time.Duration {
	return min(time.Second<<min(tries-1, 6), time.Minute)
}

// wait returns how long the part is left alone. A lock may go at any moment.
func (p *part) wait() time.Duration {
	switch {
	case p.apart:
		return 0
	case p.locked:
		return avoidFor
	}
	return asideFor(p.tries)
}

// setAside keeps results of one table that the database refused.
func (s *server) setAside(results []result, err error) {
	locked := mysql.ClassOf(err) == mysql.Contended
	p := &part{results: slices.Clone(results), locked: locked, apart: locked && len(results) > 1, tries: 1}
	if locked {
		s.avoid(results[0].table())
		rand.Shuffle(len(p.results), func(i, j int) { p.results[i], p.results[j] = p.results[j], p.results[i] })
	}
	s.mu.Lock()
	s.schedule(p)
	s.aside = append(s.aside, p)
	s.mu.Unlock()
	s.tellAside(results, err)
}

func (s *server) tellAside(results []result, err error) {
	signal(s.flush)
	s.d.metrics.aside.Add(float64(len(results)))
	s.warn("aside", "outcome could not be settled; it is set aside and tried again", err,
		"job_id", results[0].row.JobID.String(), "rows", len(results))
}

// schedule sets the time of the next try. Once Run is ending, locked parts are
// retried until Run must end, since the lock may go, and other parts are tried once
// more. Called under s.mu.
func (s *server) schedule(p *part) {
	p.at = time.Now().Add(p.wait())
	if s.closing && p.locked {
		p.at = time.Now()
	}
}

// wakeAside wakes a settler if a part is due for a try.
func (s *server) wakeAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due(time.Now()) != nil {
		signal(s.flush)
	}
}

// due returns the part that has waited longest for its next try. It returns nil if
// none is due, or if half of the settlers are busy with such parts: the others are
// kept for healthy outcomes. Called under s.mu.
func (s *server) due(now time.Time) (first *part) {
	if s.trying >= settlers/2 && !s.closing {
		return nil
	}
	for _, p := range s.aside {
		if !p.trying && !p.at.After(now) && (first == nil || p.at.Before(first.at)) {
			first = p
		}
	}
	return first
}

// nextAside hands the calling settler a part to try now, or nil.
func (s *server) nextAside() *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.aside) == 0 {
		return nil
	}
	p := s.due(time.Now())
	if p == nil {
		return nil
	}
	p.trying = true
	p.results, p.later = append(p.results, p.later...), nil
	s.trying++
	signal(s.flush) // another settler may find work that is left
	return p
}

// tryAside tries a part: all together, then row by row if a single row may be the
// culprit.
func (s *server) tryAside(ctx context.Context, p *part) {
	before := len(p.results)
	left, err := p.results, error(nil)
	if !p.apart && (before == 1 || !slices.ContainsFunc(left, result.byRuns)) {
		if err = s.settleAll(ctx, left); err == nil {
			left = nil
		}
	}
	if before > 1 && (p.apart || err == nil && left != nil || ofOneRow(err)) {
		left, err = s.oneByOne(ctx, left)
	}
	s.keepAside(p, left, err, before)
}

// ofOneRow reports whether a fault may be that of one row alone. A database that must
// not be used is a fault of all its rows.
func ofOneRow(err error) bool {
	if unusable := (*store.Unusable)(nil); errors.As(err, &unusable) {
		return false
	}
	switch mysql.ClassOf(err) {
	case mysql.Contended, mysql.Other, mysql.Duplicate:
		return true
	}
	return false
}

// oneByOne stores results of one table each on its own. It returns those that are
// locked, with the last error; a row that is refused is set aside on its own. Each
// locked row costs a lock wait. So after lockedAtFirst of them with no success (the
// whole table may be locked), or after lockedAtAll, oneByOne stops, and the untried
// rest comes first in the next try. The results are in no particular order, so a
// range of locked rows does not hide the others.
func (s *server) oneByOne(ctx context.Context, results []result) (left []result, err error) {
	most := lockedAtFirst
	for i := range results {
		e := s.settleAll(ctx, results[i:i+1])
		switch {
		case e == nil:
			most = lockedAtAll
			continue
		case ctx.Err() == nil && mysql.ClassOf(e) != mysql.Contended:
			s.setAside(results[i:i+1], e)
			continue
		}
		left, err = append(left, results[i]), e
		if len(left) == most || ctx.Err() != nil {
			return append(slices.Clone(results[i+1:]), left...), err
		}
	}
	return left, err
}

// keepAside records what is left of a part after a try.
func (s *server) keepAside(p *part, left []result, err error, before int) {
	s.mu.Lock()
	s.trying--
	p.trying, p.apart = false, false
	p.locked = mysql.ClassOf(err) == mysql.Contended
	s.shutTable(p, p.locked && len(left) == before && before > 1)
	if p.results = left; len(left) == 0 {
		s.aside = slices.DeleteFunc(s.aside, func(other *part) bool { return other == p })
	} else {
		p.tries++
		s.schedule(p)
	}
	s.mu.Unlock()
	signal(s.flush)
	if len(left) > 0 && mysql.ClassOf(err) != mysql.Canceled {
		s.tellAside(left, err)
	}
}

// shutTable notes whether the table of a part is locked, that is, no row could be
// stored. While it is, new outcomes of the table join the part. Called under s.mu.
func (s *server) shutTable(p *part, shut bool) {
	table := p.results[0].table()
	switch other := s.shut[table]; {
	case shut && other == nil:
		s.shut[table] = p
	case !shut && other == p:
		delete(s.shut, table)
		s.pending, p.later = append(s.pending, p.later...), nil
	}
}
