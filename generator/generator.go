package generator

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/schedule"
)

const (
	every      = schedule.Step / 4      // from the end of a pass to the beginning of the next, or up to a quarter less
	spread     = time.Minute            // a pass of many schedules takes so long, unless runs are near
	longest    = 250 * time.Millisecond // between the beginnings of two Makes of such a pass
	batch      = 1000                   // schedules asked for at once
	width      = 4                      // Makes of one server at a time
	most       = 20                     // Makes of one schedule in a pass
	look       = time.Second            // between two looks whether tables were added, or a clock was set back
	slow       = time.Second / 4        // a Make that takes longer makes way for those of other databases
	againAfter = 5 * time.Second        // from a pass that failed to the next; doubles
	dueWithin  = 30 * time.Second       // time-out of Due
	makeWithin = 10 * time.Second       // time-out of one Make
)

// Maker finds schedules whose runs are to be made, and makes them.
type Maker interface {
	Due(ctx context.Context, server int, ahead time.Duration, limit int, wanted func(schedule.Due) bool) ([]schedule.Due, error)
	Make(ctx context.Context, id tocsin.JobID) (schedule.Made, error)
	Ahead(ctx context.Context, server int, after tocsin.JobID) ([]schedule.Due, error)
}

// Config of a Generator.
type Config struct {
	Maker      Maker                  // required
	Servers    []string               // names, by index
	Now        func(server int) int64 // a server's clock, Unix ms; 0: unknown. Required
	Mine       func(table int) bool   // whose schedules this process makes runs of; asked at each pass; nil: all
	Tables     func() int             // how many tables Mine has; a pass begins soon after it grew; nil: it does not
	Missed     func(Missed)           // called after the commit for each schedule whose fire times were passed over, concurrently; nil: not called
	Logger     *slog.Logger           // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer  // nil: unregistered
}

// Missed reports fire times of a schedule that were passed over because nobody made their runs in time.
type Missed struct {
	BizType  uint64    // number
	Schedule string    // its name
	Time     time.Time // the first of these fire times
	Times    int       // how many
}

// Generator makes runs ahead of their times. Make one with New.
type Generator struct {
	cfg     Config
	metrics *metrics
	limit   loglimit.Limit
	overdue []atomic.Int64 // by server: the earliest fire time that is past and not made, Unix ms; 0: none
}

// New makes a Generator.
func New(cfg Config) (*Generator, error) {
	if cfg.Maker == nil || cfg.Now == nil {
		return nil, errors.New("generator: Maker and Now are required")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Tables == nil {
		cfg.Tables = func() int { return 0 }
	}
	if cfg.Missed == nil {
		cfg.Missed = func(Missed) {}
	}
	g := &Generator{cfg: cfg, overdue: make([]atomic.Int64, len(cfg.Servers))}
	g.metrics = newMetrics(cfg.Registerer, g.Behind)
	return g, nil
}

// Run makes runs until ctx ends, and returns nil then.
func (g *Generator) Run(ctx context.Context) error {
	var servers sync.WaitGroup
	for server := range g.cfg.Servers {
		servers.Go(func() { g.serve(ctx, server) })
	}
	servers.Wait()
	return nil
}

// serve makes pass after pass on one server. After a failed pass or look the next one follows soon.
func (g *Generator) serve(ctx context.Context, server int) {
	failures := 0
	var c clock
	for tables := 0; ctx.Err() == nil; {
		tables = g.cfg.Tables()
		looked := true
		if c.suspect(g.cfg.Now(server), time.Now()) {
			if looked = g.takeBack(ctx, server); looked {
				c.looked = time.Now()
			}
		}
		result, err := g.pass(ctx, server, schedule.Step)
		pause := every - rand.N(every/4)
		if failures++; looked && err == nil && result.Failed == 0 {
			failures = 0
		} else {
			pause = min(againAfter<<min(failures-1, 10), pause)
		}
		if g.cfg.Now(server) == 0 { // it has not answered yet, so its schedules are not known
			pause = min(againAfter, pause)
		}
		g.rest(ctx, pause, func() bool {
			return g.cfg.Tables() > tables || c.note(g.cfg.Now(server), time.Now())
		})
	}
}

// rest waits for the time of the next pass, or until there is a reason for it.
func (g *Generator) rest(ctx context.Context, pause time.Duration, reason func() bool) {
	for end := time.Now().Add(pause); time.Now().Before(end) && !reason(); {
		if wait.For(ctx, min(look, time.Until(end))) != nil {
			return
		}
	}
}

// Overdue makes the next runs of all schedules whose next fire time has passed: their owners, if there are any, did not.
func (g *Generator) Overdue(ctx context.Context) (all Result, err error) {
	results, errs := make([]Result, len(g.cfg.Servers)), make([]error, len(g.cfg.Servers))
	var servers sync.WaitGroup
	for server := range g.cfg.Servers {
		servers.Go(func() { results[server], errs[server] = g.pass(ctx, server, 0) })
	}
	servers.Wait()
	for _, r := range results {
		all = all.plus(r)
	}
	return all, errors.Join(errs...)
}

// behind returns how long ago the earliest fire time of a server was for which no run is made.
func (g *Generator) behind(server int) time.Duration {
	at, now := g.overdue[server].Load(), g.cfg.Now(server)
	if at == 0 || now == 0 {
		return 0
	}
	return max(time.Duration(now-at)*time.Millisecond, 0)
}

// Behind returns how long ago the earliest fire time was for which no run could be made yet; 0 if there is none.
func (g *Generator) Behind() (longest time.Duration) {
	for server := range g.cfg.Servers {
		longest = max(longest, g.behind(server))
	}
	return longest
}
