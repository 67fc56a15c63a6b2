package sweeper

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults of a Config.
const (
	DefaultGrace   = biztype.DefaultSweepGrace
	DefaultTimeout = 50 * time.Second // shorter than a crontab's step of a minute
	DefaultPage    = 500
)

const (
	pageTogether = 64                    // entries of each table, when several are read together
	atMost       = 4096                  // entries of a biz type that the intake holds for one server
	countedAt    = 1000                  // pageTogether of entries that are only counted
	countedAlone = 10_000                // Page of entries that are only counted
	roomPause    = 20 * time.Millisecond // between two looks for room
	windDown     = time.Second           // for deliveries in hand when the time is over
	tellEvery    = time.Minute           // between two lines of progress
	sickEvery    = time.Second           // between two looks for servers that are sick
	sickFor      = time.Minute           // a server that was sick so shortly before is to blame for a sweep that is cut off
)

// Tables reads overdue tasks and recovers claims that have run out, as *store.Store does.
type Tables interface {
	Servers() []string         // names, by index
	TablesOf(server int) []int // table numbers
	Now(server int) int64      // that server's clock, Unix ms; valid after Measure
	Measure(ctx context.Context, server int) (store.Offset, error)
	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Recover(ctx context.Context, server int, tables []int, limit int) (store.Recovered, error)
}

// Intake takes entries that it will load, claim, deliver and settle.
type Intake interface {
	// Set accepts entries of the tables; with nil it forgets those that are not in delivery, and gives their claims back.
	Set(tables []int, as *duequeue.Access)
	// Offer takes the entries that it has room for and returns the others.
	Offer(server int, entries []duequeue.Entry) (refused []duequeue.Entry)
	// Lane returns how many entries of a biz type are held until they are settled, and how many more fit. open is false
	// if the type is paused, has no handler, or its target is away. Entries that are held are not started then.
	Lane(server int, bizType uint64) (held, room int, open bool)
}

// Config of a Sweeper.
type Config struct {
	Tables   Tables
	Intake   Intake                      // nil: a dry run, which reports only and changes nothing
	Policies func() []biztype.Policy     // asked at the start of each sweep
	Can      func(p biztype.Policy) bool // whether Intake can deliver the type
	Grace    time.Duration               // how long overdue; 0: 60s; below zero: no grace at all, for tests
	Timeout  time.Duration               // of a sweep; 0: 50s, in Run 5/6 of the time to the next sweep; negative: none
	Page     int                         // entries of a table that is read on its own; 0: 500
	Outcomes func() map[uint64]Counts    // all outcomes of Intake so far, by biz type; nil: none are known
	Claimed  func() int                  // rows that Intake has claimed so far; nil: none are known
	Upkeep   func() map[string]int       // what was done so far beside delivering, by the words of Upkept; nil: nothing is known
	// Make makes the runs of schedules whose fire times have passed and were not made, and returns how many; called once in
	// each sweep, beside it. nil: there are none.
	Make       func(ctx context.Context) (int, error)
	Sick       func(server int) error // why a server does not answer, or takes no writes, just now; nil: nobody knows
	Logger     *slog.Logger           // of progress, and of Run; nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer  // nil: metrics are not exported
}

// Sweeper walks all tables. Sweep may be called again, not concurrently.
type Sweeper struct {
	cfg      Config
	metrics  *metrics
	counting time.Duration  // limit for counting what is left; tests have more time
	upkept   map[string]int // up to the end of the last sweep
}

// New checks the config and makes a Sweeper.
func New(cfg Config) (*Sweeper, error) {
	if cfg.Tables == nil || cfg.Policies == nil || cfg.Can == nil {
		return nil, errors.New("sweeper: Tables, Policies and Can are needed")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Page <= 0 {
		cfg.Page = DefaultPage
	}
	if cfg.Outcomes == nil {
		cfg.Outcomes = func() map[uint64]Counts { return nil }
	}
	if cfg.Claimed == nil {
		cfg.Claimed = func() int { return 0 }
	}
	if cfg.Upkeep == nil {
		cfg.Upkeep = func() map[string]int { return nil }
	}
	if cfg.Make == nil || cfg.Intake == nil {
		cfg.Make = func(context.Context) (int, error) { return 0, nil }
	}
	if cfg.Sick == nil {
		cfg.Sick = func(int) error { return nil }
	}
	return &Sweeper{cfg: cfg, metrics: newMetrics(cfg.Registerer, cfg.Upkeep), counting: windDown}, nil
}

// Sweep walks every table of every server once and returns when all tasks that it handed over are settled. Its error
// joins those of the servers that failed; the result is valid for the others.
//
// When ctx ends or the time-out is over, it hands over no more, makes the intake give back tasks that have not begun,
// waits a second for deliveries in hand, and reports in Result.Left what it left. Reaching the time-out is no error.
func (s *Sweeper) Sweep(ctx context.Context) (Result, error) {
	if s.cfg.Timeout == 0 {
		return s.sweep(ctx, DefaultTimeout)
	}
	return s.sweep(ctx, s.cfg.Timeout)
}

// sweep is Sweep with a time-out; negative means none.
func (s *Sweeper) sweep(ctx context.Context, timeout time.Duration) (Result, error) {
	timed, cancel := context.WithCancel(ctx)
	if timeout >= 0 {
		timed, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
	}
	defer cancel()
	run := newRun(s)
	run.walk(timed)
	run.end(timed)
	result, err := run.result(), run.failure()
	result.Upkeep = s.sinceLast()
	s.metrics.observe(result)
	return result, err
}

// sinceLast returns what was done beside delivering since the end of the last sweep.
func (s *Sweeper) sinceLast() map[string]int {
	before := s.upkept
	s.upkept = s.cfg.Upkeep()
	since := map[string]int{}
	for _, what := range Upkept {
		since[what] = s.upkept[what] - before[what]
	}
	return since
}

// errTimeout is the cause of a sweep's end when its time is over.
var errTimeout = errors.New("the sweep's time-out is over")
