package upkeep

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// A sweep is the safety net under the nodes: it knows no owner, needs no etcd, and several may run at once, since a row goes to
// whoever claims it. It hands overdue tasks of any table to an intake that claims each before it delivers it, and gives back
// rows whose claim ran out.
//
//	every table --peek overdue--> intake (claims, delivers, settles)
//	           \--recover-------> pending again, or dead at the fifth crash
//
// A sweep that is cut off leaves claims that run out and are recovered by whoever comes next.
const (
	sweepWithin  = 50 * time.Second      // default of SweeperConfig.Timeout; shorter than a crontab's step of a minute
	sweepPage    = 500                   // entries of a table that is read on its own
	pageTogether = 64                    // entries of each table, when several are read together
	atMost       = 4096                  // entries of a biz type that the intake holds for one server
	countedAt    = 1000                  // pageTogether of entries that are only counted
	countedAlone = 10_000                // sweepPage of entries that are only counted
	roomPause    = 20 * time.Millisecond // between two looks for room
	windDown     = time.Second           // for deliveries in hand when the time is over
	tellEvery    = time.Minute           // between two lines of progress
	sickEvery    = time.Second           // between two looks for servers that are sick
	sickFor      = time.Minute           // a server that was sick so shortly before is to blame for a sweep that is cut off
)

// SweepTables reads overdue tasks and recovers claims that have run out, as *store.Store does.
type SweepTables interface {
	Servers() []string         // names, by index
	TablesOf(server int) []int // table numbers
	Now(server int) int64      // that server's clock, Unix ms; valid after Measure
	Measure(ctx context.Context, server int) (store.Offset, error)
	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Recover(ctx context.Context, server int, tables []int, limit int, nodes map[string]string) (store.Recovered, error)
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

// SweeperConfig is the config of a Sweeper. All functions are required.
type SweeperConfig struct {
	Tables     SweepTables
	Intake     Intake                             // nil: a dry run, which reports only and changes nothing
	Refresh    func(context.Context)              // called at the start of each sweep: what Can depends on is read again
	Policies   func() []biztype.Policy            // as known now: asked at the start and at the end of each sweep
	Can        func(p biztype.Policy) bool        // whether Intake can deliver the type
	Grace      time.Duration                      // how long overdue
	Timeout    time.Duration                      // of a sweep; 0: 50s, in Run 5/6 of the time to the next sweep; negative: none
	Outcomes   func() map[uint64]Counts           // all outcomes of Intake so far, by biz type
	Claimed    func() int                         // rows that Intake has claimed so far
	Upkeep     func() map[string]int              // what was done so far beside delivering, by the words of Upkept
	Make       func(context.Context) (int, error) // makes the runs of schedules whose fire times have passed, and returns how many; called once in each sweep, beside it, unless it is a dry run
	Sick       func(server int) error             // why a server does not answer, or takes no writes, just now
	Logger     *slog.Logger                       // of progress, and of Run; nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer              // nil: metrics are not exported
}

// Sweeper walks all tables. Sweep may be called again, not concurrently.
type Sweeper struct {
	cfg      SweeperConfig
	metrics  *sweepMetrics
	rows     int            // of a page of a table that is read on its own; tests have fewer
	counting time.Duration  // limit for counting what is left; tests have more time
	upkept   map[string]int // up to the end of the last sweep
}

// NewSweeper makes a Sweeper.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	cfg.Logger = loop.Logger(cfg.Logger)
	return &Sweeper{cfg: cfg, metrics: newSweepMetrics(cfg.Registerer, cfg.Upkeep), rows: sweepPage, counting: windDown}
}

// Sweep walks every table of every server once and returns when all tasks that it handed over are settled. Its error
// joins those of the servers that failed; the result is valid for the others.
//
// When ctx ends or the time-out is over, it hands over no more, makes the intake give back tasks that have not begun,
// waits a second for deliveries in hand, and reports in SweepResult.Left what it left. Reaching the time-out is no error.
func (s *Sweeper) Sweep(ctx context.Context) (SweepResult, error) {
	return s.sweep(ctx, cmp.Or(s.cfg.Timeout, sweepWithin))
}

// sweep is Sweep with a time-out; negative means none.
func (s *Sweeper) sweep(ctx context.Context, timeout time.Duration) (SweepResult, error) {
	timed := ctx
	if timeout >= 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	run := newSweep(timed, s)
	run.walk(timed)
	run.end(timed)
	result, err := run.result(), run.failure()
	result.Upkeep = s.sinceLast()
	s.metrics.observe(result, err)
	return result, err
}

// errTimeout is the cause of a sweep's end when its time is over.
var errTimeout = errors.New("the sweep's time-out is over")

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

// Run sweeps at each of the times until ctx ends. Sweeps never overlap. Without a SweeperConfig.Timeout each sweep has 5/6 of
// the time to the next. Deliveries still in progress then go on, and the next sweep counts their outcomes.
func (s *Sweeper) Run(ctx context.Context, at Times) {
	Each(ctx, at, func(ctx context.Context) {
		timeout := s.cfg.Timeout
		if timeout == 0 {
			timeout = untilNext(at, time.Now())
		}
		result, err := s.sweep(ctx, timeout)
		s.log(ctx, result, err)
	})
}

// untilNext returns 5/6 of the time to the next sweep; negative if there is none.
func untilNext(at Times, now time.Time) time.Duration {
	next := at.Next(now)
	if next.IsZero() {
		return -1
	}
	return next.Sub(now) / 6 * 5
}

// log writes what a sweep did, unless it found nothing.
func (s *Sweeper) log(ctx context.Context, result SweepResult, err error) {
	log := s.cfg.Logger
	switch left := result.Err(); {
	case result.Overdue+result.Recovered+result.Buried+result.Made == 0 && (ctx.Err() != nil || err == nil && left == nil):
	case ctx.Err() != nil:
		log.Info("sweep stopped before its end", "result", result.String())
	case err != nil:
		log.Error("sweep failed in part", "error", err, "result", result.String())
	case left != nil:
		log.Warn("swept; overdue tasks are left", "error", left, "result", result.String())
	default:
		log.Info("swept", "result", result.String())
	}
}
