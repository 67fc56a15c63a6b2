package schedule

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// A pass asks a server for the schedules whose next fire time is less than Step ahead, the earliest first, and makes the next
// runs of each in a transaction of its own:
//
//	pass: Due --a thousand schedules--> Make, some at once --> Due ... until none is left --> wait for Step/4
//
// Any number of generators may work on one schedule: a Make locks its row, and finds nothing to do if another one was
// faster. So a generator needs no lease, and losing a table in the middle of a pass costs one useless query.
//
// Each server has passes of its own, so one that does not answer hides no other. Passes of many schedules are spread over a
// minute, unless runs are near.
//
// On failure a schedule is left out of the rest of the pass, and the next pass follows soon. Runs are made at least ten
// minutes ahead, so a shorter failure delays no run; a longer one is reported as behind.
const (
	passEvery  = Step / 4               // from the end of a pass to the beginning of the next, or up to a quarter less
	passSpread = time.Minute            // a pass of many schedules takes so long, unless runs are near
	passPause  = 250 * time.Millisecond // between the beginnings of two Makes of such a pass, at most
	passBatch  = 1000                   // schedules asked for at once
	passWidth  = 4                      // Makes of one database at a time
	passMakes  = 20                     // Makes of one schedule in a pass
	passLook   = time.Second            // between two looks whether tables were added, or a clock was set back
	passAgain  = 5 * time.Second        // from a pass that failed to the next; doubles
	makeSlow   = time.Second / 4        // a slower Make gives its place to another, and the next ones wait for no lock
	makeWithin = 10 * time.Second       // time-out of one Make
	dueWithin  = 30 * time.Second       // time-out of Due
)

// GeneratorConfig is the config of a Generator.
type GeneratorConfig struct {
	Store      *store.Store
	Mine       func(table int) bool  // whose schedules this process makes runs of; asked at each pass; nil: all
	Tables     func() int            // how many tables Mine has; a pass begins soon after it grew; nil: it does not
	Missed     func(MissedRun)       // called after the commit for each schedule whose fire times were passed over, concurrently; nil: not called
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: unregistered
}

// Generator makes runs ahead of their times. Make one with NewGenerator.
type Generator struct {
	cfg     GeneratorConfig
	maker   *maker
	makeOne func(context.Context, tocsin.JobID, bool) (Made, error) // maker.Make; tests count the calls, and refuse some
	servers []string                                                // names, by index
	limit   loop.LogLimit
	overdue []atomic.Int64 // by server: the earliest fire time that is past and not made, Unix ms; 0: none

	passes, runs, passedOver, lost, failures prometheus.Counter
}

// NewGenerator makes a Generator.
func NewGenerator(cfg GeneratorConfig) *Generator {
	cfg.Logger = loop.Logger(cfg.Logger)
	if cfg.Tables == nil {
		cfg.Tables = func() int { return 0 }
	}
	if cfg.Missed == nil {
		cfg.Missed = func(MissedRun) {}
	}
	f := promauto.With(cfg.Registerer)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "tocsin_generator_" + name + "_total", Help: help})
	}
	g := &Generator{
		cfg: cfg, maker: &maker{tables: cfg.Store}, servers: cfg.Store.Servers(),
		passes:     count("passes", "Passes over the schedules of a server that ended."),
		runs:       count("runs", "Runs of schedules made."),
		passedOver: count("passed_over", "Fire times that were missed, and no run was made for, by the policies of their schedules."),
		lost:       count("lost", "Schedules that were due, but whose runs another process made first."),
		failures:   count("failures", "Schedules whose runs could not be made, and passes in which not all schedules could be read."),
	}
	g.makeOne, g.overdue = g.maker.Make, make([]atomic.Int64, len(g.servers))
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tocsin_generator_behind_seconds",
		Help: "How long the earliest fire time has passed for which this process should have made a run, and has not; 0 if there is none.",
	}, func() float64 { return g.Behind().Seconds() })
	return g
}

// Run makes runs until ctx ends, and returns nil then.
func (g *Generator) Run(ctx context.Context) error {
	store.EachServer(len(g.servers), func(server int) { g.serve(ctx, server) })
	return nil
}

// serve makes pass after pass on one server. After a failed pass or look the next one follows soon.
func (g *Generator) serve(ctx context.Context, server int) {
	failures := 0
	var c clock
	for tables := 0; ctx.Err() == nil; {
		tables = g.cfg.Tables()
		looked := true
		if c.suspect(g.cfg.Store.Now(server), time.Now()) {
			if looked = g.takeBack(ctx, server); looked {
				c.looked = time.Now()
			}
		}
		result, err := g.pass(ctx, server, Step)
		pause := passEvery - rand.N(passEvery/4)
		if failures++; looked && err == nil && result.Failed == 0 {
			failures = 0
		} else {
			pause = min(passAgain<<min(failures-1, 10), pause)
		}
		if g.cfg.Store.Now(server) == 0 { // it has not answered yet, so its schedules are not known
			pause = min(passAgain, pause)
		}
		g.rest(ctx, pause, func() bool {
			return g.cfg.Tables() > tables || c.note(g.cfg.Store.Now(server), time.Now())
		})
	}
}

// rest waits for the time of the next pass, or until there is a reason for it.
func (g *Generator) rest(ctx context.Context, pause time.Duration, reason func() bool) {
	for end := time.Now().Add(pause); time.Now().Before(end) && !reason(); {
		if loop.Wait(ctx, min(passLook, time.Until(end))) != nil {
			return
		}
	}
}

// Overdue makes the next runs of all schedules whose next fire time has passed: their owners, if there are any, did not.
func (g *Generator) Overdue(ctx context.Context) (all PassResult, err error) {
	results, errs := make([]PassResult, len(g.servers)), make([]error, len(g.servers))
	store.EachServer(len(g.servers), func(server int) { results[server], errs[server] = g.pass(ctx, server, 0) })
	for _, r := range results {
		all = all.plus(r)
	}
	return all, errors.Join(errs...)
}

// Behind returns how long ago the earliest fire time was for which no run could be made yet; 0 if there is none.
func (g *Generator) Behind() (longest time.Duration) {
	for server := range g.servers {
		if at, now := g.overdue[server].Load(), g.cfg.Store.Now(server); at != 0 && now != 0 {
			longest = max(longest, time.Duration(now-at)*time.Millisecond)
		}
	}
	return longest
}

const (
	lookEvery = time.Hour   // from one look for schedules that are made too far ahead to the next
	backBy    = time.Minute // a clock that was set back by less has done no harm: runs are made ten minutes ahead and more
)

// clock watches the clock of one server, beside this process's monotonic one. If it was far ahead, the runs of schedules
// count as made until that time.
type clock struct {
	server int64     // what it said last, Unix ms; 0: nothing yet
	at     time.Time // when
	looked time.Time // when schedules were looked for that are made too far ahead; zero: look
	news   bool      // a look became due since suspect was last asked
}

// note notes what a server's clock says, 0 for nothing, and reports whether a look became due since suspect was last asked. A
// look that failed is due with the next pass, and no news.
func (c *clock) note(server int64, now time.Time) bool {
	if server == 0 {
		return false
	}
	if c.server == 0 || server < c.server+now.Sub(c.at).Milliseconds()-backBy.Milliseconds() {
		c.looked, c.news = time.Time{}, true
	}
	c.server, c.at = server, now
	return c.news
}

// suspect reports whether to look: at first, when the clock was set back, and each hour.
func (c *clock) suspect(server int64, now time.Time) bool {
	c.note(server, now)
	c.news = false
	return c.server != 0 && (c.looked.IsZero() || now.Sub(c.looked) >= lookEvery)
}

// takeBack looks for schedules that are made too far ahead, and makes their next runs. False: it could not.
func (g *Generator) takeBack(ctx context.Context, server int) bool {
	for after := tocsin.JobID(0); ; {
		bounded, cancel := context.WithTimeout(ctx, dueWithin)
		found, err := g.maker.Ahead(bounded, server, after)
		cancel()
		if err != nil {
			g.limit.Of(g.cfg.Logger, "ahead "+g.servers[server]).Warn("it can't be known whether schedules are made too far ahead", "error", err, "server", g.servers[server])
			return false
		}
		if len(found) == 0 {
			return true
		}
		for _, d := range found {
			g.takeBackOne(ctx, d.ID)
			after = d.ID
		}
	}
}

// takeBackOne makes the next runs of one schedule. If it fails, the next look finds it again.
func (g *Generator) takeBackOne(ctx context.Context, id tocsin.JobID) {
	ctx, cancel := context.WithTimeout(ctx, makeWithin)
	defer cancel()
	made, err := g.makeOne(ctx, id, false)
	switch {
	case err != nil:
		g.failures.Inc()
		g.limit.Of(g.cfg.Logger, "make").Error("runs of a schedule can't be made", "error", err, "schedule_id", id.String())
	case !made.Back.IsZero():
		g.runs.Add(float64(made.Runs))
		g.limit.Of(g.cfg.Logger, "back").Warn("the server's clock was ahead: the runs of a schedule are made from now on again", "schedule", made.Name, "made_until", made.Back)
	}
}
