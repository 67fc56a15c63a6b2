package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/health"
	"github.com/tocsinhq/tocsin/history"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/sweeper"
	"github.com/tocsinhq/tocsin/upkeep"
)

// SweepResult counts what a sweep found and did.
type SweepResult = sweeper.Result

// Sweeper delivers overdue tasks of any table. It needs only MySQL: no etcd, and no node
// need be running.
type Sweeper struct {
	cfg      Config
	handlers *Handlers
	swept    atomic.Bool // a sweep is under way
}

// NewSweeper checks the config, as New does; Etcd need not be set. It connects to
// nothing. h may be nil: the sweeper then delivers every HTTP callback. It stores no
// policies that Define was given: see biztype.Bring.
func NewSweeper(cfg Config, h *Handlers) (*Sweeper, error) {
	n, err := newNode(cfg, h)
	if err != nil {
		return nil, err
	}
	return n.sweeper(), nil
}

// sweeper returns a sweeper like the node.
func (n *Node) sweeper() *Sweeper { return &Sweeper{cfg: n.cfg, handlers: n.handlers} }

// Sweep walks every table of every database once. It recovers claims that have run
// out, and claims and delivers tasks that are overdue by more than Config.SweepGrace
// and have a handler here; a sweeper without handlers delivers every HTTP callback.
//
// When ctx ends or Config.SweepTimeout is over, Sweep starts no more, gives back the
// tasks that it has claimed and not begun, and returns within about two seconds. A
// delivery in progress is cut off after a second, without counting an attempt; the
// owner of the table or another sweep makes it again. Left says what was left.
//
// The error joins those of servers that could not be swept; the result is valid for
// the others. SweepResult.Err says whether anything was left that should not be.
func (s *Sweeper) Sweep(ctx context.Context) (SweepResult, error) {
	var result SweepResult
	done, err := s.alone(ctx, sweepMode{}, func(ctx context.Context, e *sweeper.Sweeper) (err error) {
		result, err = e.Sweep(ctx)
		return err
	})
	result = result.Settled(done.outcomes)
	result.Upkeep = done.upkeep
	return result, err
}

// DryRun reports what Sweep would find and changes nothing.
func (s *Sweeper) DryRun(ctx context.Context) (SweepResult, error) {
	var result SweepResult
	_, err := s.alone(ctx, sweepMode{dry: true}, func(ctx context.Context, e *sweeper.Sweeper) (err error) {
		result, err = e.Sweep(ctx)
		return err
	})
	return result, err
}

// Run sweeps at the times of a cron expression ("*/5 * * * *", "@every 1m") until
// ctx ends, and then returns nil. Each sweep that found something is logged, with
// what it left. Without a Config.SweepTimeout a sweep gets 5/6 of the time to the
// next one; deliveries in progress at its end go on.
func (s *Sweeper) Run(ctx context.Context, expression string) error {
	times, err := upkeep.ParseTimes(expression)
	if err != nil {
		return err
	}
	_, err = s.alone(ctx, sweepMode{stays: true}, func(ctx context.Context, e *sweeper.Sweeper) error {
		return e.Run(ctx, times)
	})
	return err
}

// cutOffAfter is how long deliveries go on after the last second that the sweeper
// gives them.
const cutOffAfter = 100 * time.Millisecond

// sweepMode distinguishes the kinds of sweep.
type sweepMode struct {
	dry   bool // changes nothing
	stays bool // sweeps again and again

	ownership string // that the databases must have; "": any
}

var errSweeping = errors.New("node: a sweep is under way already")

// sweepDone is what was done when all engines of a sweep have ended.
type sweepDone struct {
	outcomes map[uint64]sweeper.Counts // by biz type
	upkeep   map[string]int            // by the words of sweeper.Upkept
}

// alone runs use with the engine and its dispatcher, unless another sweep of this
// Sweeper is under way. All tasks that use has handed over are settled or cut off
// before alone returns their outcomes.
func (s *Sweeper) alone(ctx context.Context, mode sweepMode, use func(context.Context, *sweeper.Sweeper) error) (all sweepDone, err error) {
	if ctx == nil {
		return all, errNoContext
	}
	if !s.swept.CompareAndSwap(false, true) {
		return all, errSweeping
	}
	defer s.swept.Store(false)
	return s.sweep(ctx, mode, use)
}

// sweep is alone beside other sweeps.
func (s *Sweeper) sweep(ctx context.Context, mode sweepMode, use func(context.Context, *sweeper.Sweeper) error) (all sweepDone, err error) {
	grace := s.cfg.SweepGrace
	if mode.dry {
		grace = 0 // it only reads, so any will do
	}
	db, err := store.Connect(ctx, s.cfg.Tables, store.Ownership(mode.ownership), store.SweepGrace(grace), store.Frozen(s.cfg.only != nil))
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	policies, err := biztype.Load(ctx, s.cfg.Tables)
	if err != nil {
		return all, err
	}
	w := &sweepParts{cfg: s.cfg, handlers: s.handlers, store: db, mode: mode, writes: newWrites(db), upkept: newUpkept()}
	w.policies.Store(&policies)
	err = w.run(ctx, use)
	return sweepDone{w.outcomes(), w.upkept.read()}, err
}

// sweepParts are the engines of a sweep, wired to one another.
type sweepParts struct {
	cfg        Config
	handlers   *Handlers
	mode       sweepMode
	store      *store.Store
	dispatcher *dispatcher.Dispatcher
	policies   atomic.Pointer[[]biztype.Policy]
	counts     counts
	writes     *writes
	upkept     upkept
	alarms     *upkeep.Alarms
	seen       int // changes of targets up to the last sweep
	limit      loglimit.Limit
}

func (w *sweepParts) run(ctx context.Context, use func(context.Context, *sweeper.Sweeper) error) error {
	var err error
	targets := newTargets(w.cfg, w.handlers, w.mine)
	defer targets.close()
	w.alarms = w.newAlarms()
	recorder, err := history.New(history.Config{Runs: w.store, Servers: w.store.Servers(), Logger: w.cfg.Logger, Registerer: w.upkept})
	if err != nil {
		return err
	}
	w.dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: w.store, Servers: len(w.store.Servers()), ServerOf: w.store.ServerOf, Node: w.cfg.Name + "-sweep-" + strings.ToLower(rand.Text()[:8]),
		QueueCap: w.cfg.QueueCap, PayloadBytes: w.cfg.PayloadBytes, SweepGrace: w.cfg.SweepGrace, DrainTimeout: cutOffAfter,
		Runs: schedule.NewRuns(w.store, schedule.RunsConfig{ // its metrics would be those of Run; the sweeper counts what it skips
			Missed: w.alarms.Missed, Logger: w.cfg.Logger,
		}),
		Target: targets.of, ClaimAll: true, MayClaim: w.writes.mayClaim, Settled: w.settled, Record: recorder.Record, Observe: w.cfg.observer(ctx),
		Logger: w.cfg.Logger, // its metrics would be those of Run's dispatcher
	})
	if err != nil {
		return err
	}
	w.follow(*w.policies.Load())
	metrics := newScope(w.cfg.Registerer)
	defer metrics.end()
	swept := w.config(targets, metrics.registerer())
	swept.Make = w.overdueRuns()
	s, err := sweeper.New(swept)
	if err = cmp.Or(err, metrics.check()); err != nil {
		return err
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	settling, settled := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { recorder.Run(settling); return nil })
	g.Go(func() error {
		defer settled()
		return w.dispatcher.Run(work)
	})
	g.Go(func() error { return w.watch(work) })
	g.Go(func() error { w.writes.run(work); return nil })
	w.raiseMarks(ctx, work, &g)
	raised := w.startAlarms(ctx)
	err = use(ctx, s)
	end()
	err = errors.Join(err, g.Wait())
	raised()
	return err
}

func (w *sweepParts) config(t *targets, r prometheus.Registerer) sweeper.Config {
	cfg := sweeper.Config{
		Tables: w.store, Intake: w.dispatcher,
		Policies: func() []biztype.Policy { w.refresh(t); return *w.policies.Load() },
		Can:      func(p biztype.Policy) bool { _, ok := t.of(p); return ok },
		Grace:    w.cfg.SweepGrace, Timeout: w.cfg.SweepTimeout, Outcomes: w.outcomes, Claimed: w.dispatcher.Claimed, Upkeep: w.upkept.read,
		Sick: w.sick, Logger: w.cfg.Logger, Registerer: r,
	}
	if w.mode.dry {
		cfg.Intake = nil
	}
	if w.cfg.only != nil {
		cfg.Tables = some{w.store, w.cfg.only}
	}
	return cfg
}

// sick says why a server does not answer, or takes no writes.
func (w *sweepParts) sick(server int) error {
	if waiting := w.store.Waiting(server); waiting >= health.HangsAfter {
		return fmt.Errorf("no answer for %s", waiting.Round(100*time.Millisecond))
	}
	return w.writes.refusal(server)
}

// mine is every callback for a node without handlers, else those of its group.
func (w *sweepParts) mine(p biztype.Policy) bool {
	return len(w.handlers.targets) == 0 || p.Webhook == nil || w.cfg.only != nil || p.WithDefaults().Group == w.cfg.Group
}

// watch follows changes of the policies while the sweep runs. A single sweep does not
// log that it has read them: cron mails whatever a command prints.
func (w *sweepParts) watch(ctx context.Context) error {
	log := w.cfg.Logger
	if !w.mode.stays {
		log = loglimit.AtLeast(log, slog.LevelWarn)
	}
	watcher, err := biztype.NewWatcher(biztype.WatchConfig{Cluster: w.cfg.Tables, Changed: w.follow, Logger: log})
	if err != nil {
		return err
	}
	return watcher.Run(ctx)
}

// raiseMarks raises the marks of the databases once, and in a resident sweep until work
// ends: nodes need not be running.
func (w *sweepParts) raiseMarks(ctx, work context.Context, g *errgroup.Group) {
	m := &marks{store: w.store, log: w.cfg.Logger}
	switch {
	case w.mode.stays:
		g.Go(func() error { m.run(work); return nil })
	case !w.mode.dry:
		m.beat(ctx)
	}
}

// refresh reads the callbacks' secrets again, and logs which are missing.
func (w *sweepParts) refresh(t *targets) {
	policies := *w.policies.Load()
	if t.reload(policies, &w.seen) {
		w.dispatcher.SetPolicies(policies)
	}
	for name, why := range t.lacks(callbacks(policies)) {
		w.limit.Of(w.cfg.Logger, name).Error("callback can't be delivered here", "biz_type", name, "why", why)
	}
}

// callbacks returns the policies that have a webhook.
func callbacks(policies []biztype.Policy) (some []biztype.Policy) {
	for _, p := range policies {
		if p.Webhook != nil {
			some = append(some, p)
		}
	}
	return some
}

func (w *sweepParts) follow(policies []biztype.Policy) {
	w.policies.Store(&policies)
	w.dispatcher.SetPolicies(policies)
}

// counts adds up outcomes by biz type. Safe for concurrent use.
type counts struct {
	mu     sync.Mutex
	byType map[uint64]sweeper.Counts
}

// settled counts an outcome. The sweeper itself counts tasks that were settled
// elsewhere or given back.
func (c *counts) settled(s dispatcher.Settlement) {
	if s.Undone && !s.Missed || s.Fate != store.Stored && s.Fate != store.InTx {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byType[s.Type]
	switch {
	case s.Missed:
		n.Away++
	case s.Verb == tocsin.Completed:
		n.Delivered++
	case s.Verb == tocsin.Buried:
		n.Dead++
	case s.Verb == tocsin.Skipped:
		n.Skipped++
	default:
		n.Retried++
	}
	if c.byType == nil {
		c.byType = map[uint64]sweeper.Counts{}
	}
	c.byType[s.Type] = n
}

// outcomes returns the outcomes so far, and the tasks that were left alone for programs that read their payload.
func (w *sweepParts) outcomes() map[uint64]sweeper.Counts {
	all := w.counts.read()
	if w.dispatcher == nil {
		return all
	}
	for t, newer := range w.dispatcher.Newer() {
		n := all[t]
		n.Newer = newer.Times
		all[t] = n
	}
	return all
}

// read returns a copy.
func (c *counts) read() map[uint64]sweeper.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[uint64]sweeper.Counts, len(c.byType))
	maps.Copy(all, c.byType)
	return all
}
