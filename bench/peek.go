package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// PeekResult says what peeks take beside entries that settled rows left in the
// index and that the server may not remove yet.
type PeekResult struct {
	Entries        int     `json:"entries"`         // settled in batches while purge was held back
	OverdueSeconds float64 `json:"overdue_seconds"` // how long before they were settled they fell due
	P50            float64 `json:"p50_ms"`          // of regular peeks meanwhile
	P99            float64 `json:"p99_ms"`
	Max            float64 `json:"max_ms"`
	CleanP50       float64 `json:"clean_p50_ms"` // of the same peeks without entries; mean of before and after
	CleanP99       float64 `json:"clean_p99_ms"`
	Ratio          float64 `json:"ratio"`               // p99 over the clean one
	UnboundedP50   float64 `json:"unbounded_p50_ms"`    // of peeks without a lower bound, as each table has once a minute
	HistoryLength  float64 `json:"history_list_length"` // transactions that waited to be purged
	Run
}

// Bounds of a Peek.
const (
	peekEvery     = 5 * time.Millisecond
	unboundedMost = 20 // peeks without a lower bound
	peekAhead     = int64(10 * time.Second / time.Millisecond)
	peekBehind    = int64(10 * time.Second / time.Millisecond) // the scanner's lower bound: how long an insert may take to commit
)

// Peek measures what a node's regular peek of all tables takes while rows
// that were just settled can't be purged, since an older write transaction and
// a read snapshot are open, beside the same peek of clean tables.
func Peek(ctx context.Context, opts Options) (r PeekResult, err error) {
	if opts.Tasks < 1 || opts.Duration <= 0 {
		return r, wrong("peek: wants at least 1 task and a duration")
	}
	s, err := openSite(ctx, opts, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	p := &peeks{site: s}
	if err := p.measure(ctx); err != nil {
		return r, fmt.Errorf("peek: %w", err)
	}
	settings, err := s.settings(ctx)
	return p.result(settings), err
}

// peeks is one under way; each list is sorted.
type peeks struct {
	site                           *site
	before, held, unbounded, after []time.Duration
	history                        float64
}

func (p *peeks) measure(ctx context.Context) (err error) {
	s := p.site
	if err := s.openTables(ctx); err != nil {
		return err
	}
	if p.before, err = p.regular(ctx); err != nil {
		return err
	}
	release, err := s.holdPurge(ctx)
	if err != nil {
		return err
	}
	if err = p.besideEntries(ctx); err != nil {
		return errors.Join(err, release())
	}
	if err = errors.Join(release(), s.calm(ctx)); err != nil {
		return err
	}
	p.after, err = p.regular(ctx)
	return err
}

// besideEntries leaves the entries behind and peeks.
func (p *peeks) besideEntries(ctx context.Context) (err error) {
	if err = p.site.settled(ctx, p.site.opts.Tasks, -p.site.opts.Overdue); err != nil {
		return err
	}
	if p.held, err = p.regular(ctx); err != nil {
		return err
	}
	if p.history, err = p.site.history(ctx); err != nil {
		return err
	}
	p.unbounded, err = p.times(ctx, unboundedMost, func(int64) int64 { return 0 })
	return err
}

// history sums up the servers' transactions that wait to be purged.
func (s *site) history(ctx context.Context) (sum float64, err error) {
	for _, pool := range s.pools {
		var n float64
		if err := pool.DB.GetContext(ctx, &n, historySQL); err != nil {
			return 0, fmt.Errorf("server %s: read its history list length: %w", pool.Name, err)
		}
		sum += n
	}
	return sum, nil
}

// regular peeks as the scanner does, from its lower bound on, for the duration.
func (p *peeks) regular(ctx context.Context) ([]time.Duration, error) {
	n := max(int(p.site.opts.Duration/peekEvery), 1)
	return p.times(ctx, n, func(clock int64) int64 { return clock - peekBehind })
}

// times peeks all tables n times, from the bound that from gives for the server's
// clock, and says how long each took.
func (p *peeks) times(ctx context.Context, n int, from func(clock int64) int64) ([]time.Duration, error) {
	var took []time.Duration
	begin := time.Now()
	for i := range n {
		if err := wait.Until(ctx, begin.Add(time.Duration(i)*peekEvery)); err != nil {
			return nil, err
		}
		for server := range p.site.pools {
			one, err := p.peek(ctx, server, from)
			if err != nil {
				return nil, err
			}
			took = append(took, one)
		}
		p.site.opts.Progress("peek", i+1, n)
	}
	slices.Sort(took)
	return took, nil
}

// peek times one, of up to so many tables as a scanner peeks at once.
func (p *peeks) peek(ctx context.Context, server int, from func(int64) int64) (time.Duration, error) {
	s := p.site
	if s.store.Now(server) == 0 {
		if _, err := s.store.Measure(ctx, server); err != nil {
			return 0, err
		}
	}
	clock, tables := s.store.Now(server), s.store.TablesOf(server)
	q := store.PeekQuery{
		Server: server, Tables: tables[:min(len(tables), maxUnion)], Types: []uint64{plainNumber, otherNumber},
		From: from(clock), Until: clock + peekAhead, Limit: packetRows, Sparse: true,
	}
	begin := time.Now()
	page, err := s.store.Peek(ctx, q)
	for table, failed := range page.Failed {
		err = errors.Join(err, fmt.Errorf("table %d: %w", table, failed))
	}
	return time.Since(begin), err
}

// settled stores n rows and sets them to done, in batches.
func (s *site) settled(ctx context.Context, n int, due time.Duration) error {
	packets := s.packets(s.rows.next(n))
	for _, do := range []func(context.Context, packet) error{
		func(ctx context.Context, p packet) error { return s.insert(ctx, p, at(due)) },
		s.finish,
	} {
		if err := each(ctx, packets, do); err != nil {
			return err
		}
	}
	return nil
}

// finish sets the rows of a packet to done.
func (s *site) finish(ctx context.Context, p packet) error {
	var b []byte
	for _, part := range p.parts {
		ids := make([]uint64, len(part.rows))
		for i, r := range part.rows {
			ids[i] = uint64(r.id)
		}
		b = append(appendIDs(append(b, s.text(doneSQL, part.table)...), ids), ';')
	}
	return s.exec(ctx, p.server, transaction(b, len(p.parts)))
}

// holdPurge keeps every server from removing what is settled from now on: an
// older transaction that has written, and a read snapshot, stay open until
// release is called.
func (s *site) holdPurge(ctx context.Context) (release func() error, err error) {
	var open []*sql.Conn
	release = func() error {
		var errs []error
		for _, conn := range open {
			_, err := conn.ExecContext(context.WithoutCancel(ctx), rollbackSQL)
			errs = append(errs, err, conn.Close())
		}
		return errors.Join(errs...)
	}
	for server, pool := range s.pools {
		table := s.store.TablesOf(server)[0]
		for _, texts := range [][]string{
			{levelSQL, beginSQL, s.text(touchSQL, table)},
			{levelSQL, snapshotSQL, s.text(glanceSQL, table)},
		} {
			conn, err := pool.DB.Conn(ctx)
			if err != nil {
				return nil, errors.Join(err, release())
			}
			open = append(open, conn)
			for _, text := range texts {
				if _, err := conn.ExecContext(ctx, text); err != nil {
					return nil, errors.Join(err, release())
				}
			}
		}
	}
	return release, nil
}

func (p *peeks) result(settings map[string]string) PeekResult {
	clean := func(q float64) float64 { return round((quantile(p.before, q)+quantile(p.after, q))/2, 3) }
	return PeekResult{
		Entries: p.site.opts.Tasks, OverdueSeconds: p.site.opts.Overdue.Seconds(),
		P50: quantile(p.held, 0.5), P99: quantile(p.held, 0.99), Max: quantile(p.held, 1),
		CleanP50: clean(0.5), CleanP99: clean(0.99), Ratio: ratio(quantile(p.held, 0.99), clean(0.99)),
		UnboundedP50: quantile(p.unbounded, 0.5), HistoryLength: p.history, Run: p.site.run(settings),
	}
}

// String is the result for people.
func (r PeekResult) String() string {
	var l lines
	l.line("peeked", "beside %d entries that were settled %.0f s after they fell due and can't be purged", r.Entries, r.OverdueSeconds)
	l.line("a peek", "p50 %.2f ms, p99 %.2f ms, max %.2f ms", r.P50, r.P99, r.Max)
	l.line("clean", "p50 %.2f ms, p99 %.2f ms: p99 is %.2f times that", r.CleanP50, r.CleanP99, r.Ratio)
	l.line("unbounded", "p50 %.2f ms", r.UnboundedP50)
	l.run(r.Run)
	return l.String()
}
