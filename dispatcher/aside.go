package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// part is a set of outcomes of one table that could not be stored. They are retried
// together, never in a batch with other outcomes, which they would make fail.
type part struct {
	results []result // taken over by the settler that tries it, while one does
	err     error    // of the last try
	tries   int

	// Guarded by settler.mu.
	at     time.Time // of the next try
	trying bool
	later  []result // results that arrived while the table was shut
}

// locked reports whether another transaction held a row, or the table.
func (p *part) locked() bool { return mysql.ClassOf(p.err) == mysql.Contended }

// wakeAside wakes a settler if a part is due for a try.
func (st *settler) wakeAside() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.due(time.Now()) != nil {
		signal(st.flush)
	}
}

// setAside keeps results of one table that the database refused.
func (st *settler) setAside(results []result, err error) {
	p := &part{results: slices.Clone(results), err: err, tries: 1}
	st.mu.Lock()
	st.schedule(p)
	st.aside = append(st.aside, p)
	st.mu.Unlock()
	st.tellAside(results, err)
}

func (st *settler) tellAside(results []result, err error) {
	signal(st.flush)
	st.server.d.metrics.aside.Add(float64(len(results)))
	st.server.warn("aside", "outcome could not be settled; it is set aside and tried again", err,
		"job_id", results[0].row.JobID.String(), "rows", len(results))
}

// schedule sets the time of the next try: soon for a locked part, as a lock may go at any moment. Once Run is ending, locked
// parts are retried until Run must end, and other parts are tried once more. Called under st.mu.
func (st *settler) schedule(p *part) {
	switch {
	case !p.locked():
		p.at = time.Now().Add(min(time.Second<<min(p.tries-1, 6), time.Minute))
	case st.closing:
		p.at = time.Now()
	default:
		p.at = time.Now().Add(avoidFor)
	}
}

// retry has parts of the tables tried at once.
func (st *settler) retry(tables set) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.aside {
		if !p.trying && len(p.results) > 0 && tables[p.results[0].table()] {
			p.at = time.Now()
			signal(st.flush)
		}
	}
}

// count returns how many outcomes are set aside.
func (st *settler) count() (n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.aside {
		n += len(p.results) + len(p.later)
	}
	return n
}

// due returns the part that has waited longest for its next try. It returns nil if
// none is due, or if half of the settlers are busy with such parts: the others are
// kept for healthy outcomes. Called under st.mu.
func (st *settler) due(now time.Time) (first *part) {
	if st.trying >= settlers/2 && (!st.closing || len(st.pending) > 0) {
		return nil
	}
	for _, p := range st.aside {
		if !p.trying && !p.at.After(now) && (first == nil || p.at.Before(first.at)) {
			first = p
		}
	}
	return first
}

// nextAside hands the calling settler a part to try now, or nil.
func (st *settler) nextAside() *part {
	st.mu.Lock()
	defer st.mu.Unlock()
	p := st.due(time.Now())
	if p == nil {
		return nil
	}
	p.trying = true
	p.results, p.later = append(p.results, p.later...), nil
	st.trying++
	signal(st.flush) // another settler may find work that is left
	return p
}

// held divides results that met a lock into those that other transactions hold and the others. Only a table that is locked as a whole
// costs a lock wait. failed has the errors of tables that could not be read; all of their results count as held.
func (st *settler) held(ctx context.Context, results []result) (held, free []result, failed map[int]error) {
	ids := make([]tocsin.JobID, len(results))
	for i, r := range results {
		ids[i] = r.row.JobID
	}
	locks, err := st.server.d.cfg.Store.Locked(ctx, st.server.index, ids)
	if err != nil {
		st.server.d.metrics.failed("locked", err)
		return nil, results, nil // the next write tells what is wrong
	}
	for _, r := range results {
		if locks.Rows[r.row.JobID] || locks.Tables[r.table()] != nil {
			held = append(held, r)
		} else {
			free = append(free, r)
		}
	}
	return held, free, locks.Tables
}

// tryAside tries a part: all that nobody else holds together, then row by row if a single row may be the culprit.
func (st *settler) tryAside(ctx context.Context, p *part) {
	before, table, err := len(p.results), p.results[0].table(), p.err
	held, left, failed := []result(nil), p.results, map[int]error(nil)
	if p.locked() {
		if held, left, failed = st.held(ctx, p.results); failed[table] != nil {
			err = failed[table]
		}
	}
	if len(left) > 0 {
		var e error
		switch left, e = st.tryTogether(ctx, left); {
		case len(held) > 0 && len(left) > 0 && ctx.Err() == nil && mysql.ClassOf(e) != mysql.Contended:
			st.setAside(left, e) // what is held waits for something else
			left = nil
		case e != nil:
			err = e
		}
	}
	unseen := len(held) == 0 && len(left) == before && before > 1 // a lock that shows in no row, such as one on a gap of an index
	left = append(left, held...)
	if _, closing := st.backlog(); closing && len(left) == before {
		_ = loop.Wait(ctx, probeLook) // the next try follows at once
	}
	st.keepAside(p, left, err, mysql.ClassOf(err) == mysql.Contended && (unseen || failed[table] != nil))
}

// tryTogether stores results of one table, and returns those that are left, with the last error.
func (st *settler) tryTogether(ctx context.Context, results []result) (left []result, err error) {
	if len(results) == 1 || !slices.ContainsFunc(results, result.byRuns) {
		if err = st.settleAll(ctx, results); err == nil {
			return nil, nil
		}
		if len(results) == 1 || !ofOneRow(err) {
			return results, err
		}
	}
	return st.oneByOne(ctx, results)
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

// oneByOne stores results of one table each on its own. It returns those that met a
// lock, with the last error; a row that is refused is set aside on its own. Each lock
// costs a wait. So after lockedAtOnce of them oneByOne stops, and the untried rest
// comes first in the next try.
func (st *settler) oneByOne(ctx context.Context, results []result) (left []result, err error) {
	for i := range results {
		e := st.settleAll(ctx, results[i:i+1])
		switch {
		case e == nil:
			continue
		case ctx.Err() == nil && mysql.ClassOf(e) != mysql.Contended:
			st.setAside(results[i:i+1], e)
			continue
		}
		left, err = append(left, results[i]), e
		if len(left) == lockedAtOnce || ctx.Err() != nil {
			return append(slices.Clone(results[i+1:]), left...), err
		}
	}
	return left, err
}

// keepAside records what is left of a part after a try. shut says that no row of its table can be stored.
func (st *settler) keepAside(p *part, left []result, err error, shut bool) {
	st.mu.Lock()
	st.trying--
	p.trying, p.err = false, err
	st.shutTable(p, shut)
	if p.results = left; len(left) == 0 {
		st.aside = slices.DeleteFunc(st.aside, func(other *part) bool { return other == p })
	} else {
		p.tries++
		st.schedule(p)
	}
	st.mu.Unlock()
	signal(st.flush)
	if len(left) > 0 && mysql.ClassOf(err) != mysql.Canceled {
		st.tellAside(left, err)
	}
}

// shutTable notes whether the table of a part is locked so that no row can be stored.
// While it is, new outcomes of the table join the part. Called under st.mu.
func (st *settler) shutTable(p *part, shut bool) {
	table := p.results[0].table()
	switch other := st.shut[table]; {
	case shut && other == nil:
		st.shut[table] = p
	case !shut && other == p:
		delete(st.shut, table)
		st.pending, p.later = append(st.pending, p.later...), nil
	}
}
