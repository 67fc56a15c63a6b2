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

// part is outcomes of one table that could not be stored. They are tried again
// together, and never in a batch with others, which they would spoil.
type part struct {
	results []result // of the settler that tries it, while one does
	locked  bool     // another transaction held a row, or the table
	apart   bool     // it has just failed together: the next try is row by row
	tries   int

	// Guarded by server.mu.
	at     time.Time // of the next try
	trying bool
	later  []result // of a table that is shut: came since
}

// asideFor is 1 s after the first try, doubling up to a minute.
func asideFor(tries int) time.Duration {
	return min(time.Second<<min(tries-1, 6), time.Minute)
}

// wait is how long the part is left alone. A lock may go at any moment.
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
	s.warn("aside", err).Str("job_id", results[0].row.JobID.String()).Int("rows", len(results)).
		Msg("outcome could not be settled; it is set aside and tried again")
}

// schedule sets the time of the next try. When Run ends, what is locked is tried
// until Run must end, as the lock may go, and the rest once. Called under s.mu.
func (s *server) schedule(p *part) {
	p.at = time.Now().Add(p.wait())
	if s.closing && p.locked {
		p.at = time.Now()
	}
}

// wakeAside has a settler look if some part is to be tried.
func (s *server) wakeAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due(time.Now()) != nil {
		signal(s.flush)
	}
}

// due is the part that has waited longest for its next try, nil for none or if as
// many are tried as may be: the other settlers are for healthy outcomes. Called
// under s.mu.
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

// nextAside gives a part to be tried now to its settler, nil for none.
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
	signal(s.flush) // for who sees to the rest
	return p
}

// tryAside tries a part: together, and row by row where one row may be the culprit.
func (s *server) tryAside(ctx context.Context, p *part) {
	before := len(p.results)
	left, err := p.results, error(nil)
	if !p.apart {
		if err = s.settleAll(ctx, left); err == nil {
			left = nil
		}
	}
	if before > 1 && (p.apart || ofOneRow(err)) {
		left, err = s.oneByOne(ctx, left)
	}
	s.keepAside(p, left, err, before)
}

// ofOneRow reports whether a fault may be that of one row alone. That a database
// must not be used is a fault of all its rows.
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

// oneByOne stores results of one table each on its own, and gives those that are
// locked, with the last error. Each of these took a lock wait: if the first few are
// locked the table may be, and then, or after some more, the rest is left for the
// next time, when it comes first. They are in no order, so that a range of locked
// rows does not hide the others. One that is refused is set aside on its own.
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

// keepAside books what a try has left of a part.
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

// shutTable notes whether the table of a part is locked, as not one row could be
// stored: then outcomes that come wait for the part, too. Called under s.mu.
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
