package sweeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults of a Config.
const (
	DefaultGrace = 60 * time.Second
	DefaultPage  = 500
	roomPause    = 20 * time.Millisecond
)

// Tables is what a sweep reads and gives back, by server.
type Tables interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Recover(ctx context.Context, server int, tables []int, limit int) (store.Recovered, error)
}

// Intake takes entries that it will load, claim, deliver and settle.
type Intake interface {
	// Offer takes what it has room for and returns what it refused.
	Offer(server int, entries []duequeue.Entry) duequeue.Refused
	// Oldest is the due time of the oldest entry not yet settled, math.MaxInt64 if there is none.
	Oldest(server int) int64
}

// Config of a Sweeper.
type Config struct {
	Tables     Tables
	Now        func(server int) int64      // that server's clock, Unix ms; valid after Measure
	Servers    []string                    // names, by index
	TablesOf   func(server int) []int      // table numbers on a server
	Intake     Intake                      // nil: a dry run, which reports only and changes nothing
	Policies   func() []biztype.Policy     // asked at the start of each sweep
	Can        func(p biztype.Policy) bool // whether Intake can deliver the type
	Grace      time.Duration               // how long overdue; 0: 60s; below zero: no grace at all, for tests
	Page       int                         // entries per table and peek; 0: 500
	Counts     func() Counts               // outcomes that Intake has seen so far, ever; nil: none are known
	Logger     zerolog.Logger              // of the resident form
	Registerer prometheus.Registerer       // nil: metrics are not exported
}

// Sweeper walks all tables. Sweep may be called again, not concurrently.
type Sweeper struct {
	cfg     Config
	metrics *metrics
}

// New checks the config and makes a Sweeper.
func New(cfg Config) (*Sweeper, error) {
	if cfg.Tables == nil || cfg.Now == nil || cfg.TablesOf == nil || cfg.Policies == nil || cfg.Can == nil {
		return nil, errors.New("sweeper: Tables, Now, TablesOf, Policies and Can are needed")
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Page <= 0 {
		cfg.Page = DefaultPage
	}
	if cfg.Counts == nil {
		cfg.Counts = func() Counts { return Counts{} }
	}
	return &Sweeper{cfg: cfg, metrics: newMetrics(cfg.Registerer)}, nil
}

// Sweep walks every table of every server once and returns when all it handed
// over is settled. Its error joins those of the servers that failed; the result
// is good for the others all the same. When ctx ends, it hands over no more and
// returns what it has.
func (s *Sweeper) Sweep(ctx context.Context) (Result, error) {
	start, before := time.Now(), s.cfg.Counts()
	walk := &walk{Sweeper: s, rounds: rounds(s.cfg.Policies(), s.cfg.Can, s.cfg.Grace)}
	walk.result = Result{Left: map[string]int{}, Failed: []string{}}
	tablewalk.Servers(len(s.cfg.Servers), func(server int) { walk.server(ctx, server) })
	if walk.result.ended = ctx.Err() != nil; walk.result.ended {
		walk.errs = append(walk.errs, fmt.Errorf("sweep cut off: %w", ctx.Err()))
	}
	if s.cfg.Intake != nil {
		walk.result = walk.result.Settled(s.cfg.Counts().minus(before))
	}
	walk.result.Took = time.Since(start)
	s.metrics.observe(walk.result)
	return walk.result, tablewalk.Join(walk.errs...)
}

// walk is one sweep under way.
type walk struct {
	*Sweeper
	rounds []round

	mu     sync.Mutex
	result Result
	errs   []error
}

// server sweeps one server's tables and waits until the intake has settled them.
func (w *walk) server(ctx context.Context, server int) {
	err := w.tables(ctx, server)
	if w.cfg.Intake != nil {
		err = errors.Join(err, w.settled(ctx, server))
	}
	if err != nil && ctx.Err() == nil {
		w.fail(server, err)
	}
}

func (w *walk) tables(ctx context.Context, server int) error {
	way := tablewalk.Walk{Server: server, Tables: w.cfg.TablesOf(server), Measure: w.cfg.Tables.Measure}
	var errs []error
	err := way.Run(ctx, func(tables []int) error {
		failed, err := w.chunk(ctx, server, tables)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		w.count(func(r *Result) { r.Tables += len(tables) - len(failed) })
		for _, table := range slices.Sorted(maps.Keys(failed)) {
			errs = append(errs, failed[table])
		}
		return nil
	})
	return tablewalk.Join(append(errs, err)...)
}

// chunk recovers and peeks some tables of one server. Tables that could not be
// read hide no other; an error concerns them all.
func (w *walk) chunk(ctx context.Context, server int, tables []int) (failed map[int]error, err error) {
	failed = make(map[int]error)
	if err := w.recover(ctx, server, tables); err != nil && ctx.Err() == nil {
		w.fail(server, err)
	}
	for _, r := range w.rounds {
		q := store.PeekQuery{
			Server: server, Tables: tables, Types: r.types, Limit: w.cfg.Page,
			Until: w.cfg.Now(server) - r.grace.Milliseconds(),
		}
		if err := w.peek(ctx, q, r, failed); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// recover gives back run-out claims until none is left, or none could be. Its
// error names tables that failed; the others are done.
func (w *walk) recover(ctx context.Context, server int, tables []int) error {
	for w.cfg.Intake != nil {
		got, err := w.cfg.Tables.Recover(ctx, server, tables, w.cfg.Page)
		w.count(func(r *Result) { r.Recovered += got.Back; r.Buried += got.Buried })
		if err != nil || got.Back+got.Buried == 0 {
			return err
		}
	}
	return nil
}

// peek reads all that is overdue, page by page.
func (w *walk) peek(ctx context.Context, q store.PeekQuery, r round, failed map[int]error) error {
	pages := tablewalk.Over(q.Tables)
	for step := range pages.Steps() {
		q.Tables, q.After = step.Tables, step.After
		page, err := w.cfg.Tables.Peek(ctx, q)
		if err != nil {
			return err
		}
		maps.Copy(failed, page.Failed)
		if err := w.take(ctx, q.Server, page.Entries, r); err != nil {
			return err
		}
		for _, last := range page.Full {
			pages.More(last.JobID.Table(), last)
		}
	}
	return nil
}

// take counts entries and hands them over, waiting while the intake is full.
func (w *walk) take(ctx context.Context, server int, entries []duequeue.Entry, r round) error {
	w.count(func(res *Result) { res.add(entries, r) })
	if w.cfg.Intake == nil || r.left != "" {
		return nil
	}
	for len(entries) > 0 && len(w.cfg.Intake.Offer(server, entries)) > 0 {
		if err := wait.For(ctx, roomPause); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until the intake holds nothing of the server any more.
func (w *walk) settled(ctx context.Context, server int) error {
	for w.cfg.Intake.Oldest(server) != math.MaxInt64 {
		if err := wait.For(ctx, roomPause); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) count(add func(*Result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add(&w.result)
}

func (w *walk) fail(server int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := w.cfg.Servers[server]; !slices.Contains(w.result.Failed, name) {
		w.result.Failed = append(w.result.Failed, name)
	}
	w.errs = append(w.errs, fmt.Errorf("sweep server %s: %w", w.cfg.Servers[server], err))
}
