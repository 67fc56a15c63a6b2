package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/upkeep"
)

const (
	cutOffAfter = 100 * time.Millisecond // how long deliveries of a single sweep go on after the second that the sweeper gives them
	windDown    = time.Second            // how long those of a resident sweeper go on when it is told to end
	writesEvery = time.Second            // between two looks whether a server takes writes
	nodesFirst  = 10 * time.Second       // nodes send outcomes again at most 1.5 s apart; the rest is for those that have many
)

// sweepParts are the engines of a sweep, wired to one another.
type sweepParts struct {
	cfg        Config
	handlers   *Handlers
	mode       sweepMode
	metrics    *prometheus.Registry // of the engines beside the dispatcher; a node in the same process may export the same names
	store      *store.Store
	targets    *targets
	dispatcher *dispatcher.Dispatcher
	keeper     *session.Keeper // nil: rows are claimed until a deadline, or none are
	setting    sync.Mutex      // held while policies are handed on: the latest ones last
	policies   atomic.Pointer[[]biztype.Policy]
	writes     *writes
	alarms     *upkeep.Alarms
	seen       int // changes of targets up to the last sweep
	limit      loop.LogLimit

	mu     sync.Mutex
	counts map[uint64]upkeep.Counts // outcomes by biz type
}

func newSweepParts(cfg Config, h *Handlers, mode sweepMode) *sweepParts {
	return &sweepParts{cfg: cfg, handlers: h, mode: mode, metrics: prometheus.NewRegistry(), counts: map[uint64]upkeep.Counts{}}
}

// sweep opens the tables and runs use with the engine and its dispatcher.
func (w *sweepParts) sweep(ctx context.Context, use func(context.Context, *upkeep.Sweeper) error) (err error) {
	grace := w.cfg.SweepGrace
	if w.mode.dry {
		grace = 0 // it only reads, so any will do
	}
	if w.store, err = store.Connect(ctx, w.cfg.Tables, store.Ownership(w.mode.ownership), store.SweepGrace(grace), store.Frozen(w.cfg.only != nil)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.store.Close()) }()
	policies, unread := biztype.Load(ctx, w.cfg.Tables)
	if policies == nil {
		return unread
	}
	w.policies.Store(&policies)
	w.writes = newWrites(w.store)
	err = w.run(ctx, use)
	if w.mode.stays { // the watcher logs which it can't read
		return err
	}
	return errors.Join(err, unread)
}

func (w *sweepParts) run(ctx context.Context, use func(context.Context, *upkeep.Sweeper) error) (err error) {
	w.targets = newTargets(w.cfg, w.handlers, w.mine)
	w.targets.atOnce = !w.mode.stays
	defer w.targets.close()
	w.alarms = upkeep.NewAlarms(upkeep.AlarmsConfig{ // about all tasks
		Store: w.store, Cluster: w.cfg.Tables, Policies: w.known,
		Leads: func() bool { return true }, Hurry: w.cfg.only != nil, Logger: w.cfg.Logger, Registerer: w.metrics,
	})
	recorder := upkeep.NewRecorder(upkeep.RecorderConfig{Runs: w.store, Servers: w.store.Servers(), Logger: w.cfg.Logger, Registerer: w.metrics})
	if err := w.openDispatcher(ctx, recorder); err != nil {
		return err
	}
	if w.mode.stays { // the second that the sweeper gives is part of it
		defer context.AfterFunc(ctx, func() { w.dispatcher.DrainBy(time.Now().Add(w.mode.drain)) })()
	}
	w.follow(ctx, *w.policies.Load())
	metrics := newScope(w.cfg.Registerer)
	defer metrics.end()
	s := upkeep.NewSweeper(w.config(metrics.registerer()))
	if err := metrics.check(); err != nil {
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
	kept := w.keepSessions(ctx)
	defer kept()
	w.raiseMarks(ctx, work, &g)
	raised := w.startAlarms(ctx)
	err = use(ctx, s)
	end()
	err = errors.Join(err, g.Wait())
	kept() // all that was claimed is settled
	raised()
	return err
}

func (w *sweepParts) config(r prometheus.Registerer) upkeep.SweeperConfig {
	g := schedule.NewGenerator(schedule.GeneratorConfig{Store: w.store, Missed: w.alarms.Missed, Logger: w.cfg.Logger, Registerer: w.metrics})
	cfg := upkeep.SweeperConfig{
		Tables: w.store, Intake: w.dispatcher, Refresh: w.refresh, Policies: w.known,
		Can:   func(p biztype.Policy) bool { _, ok := w.targets.of(p); return ok },
		Grace: w.cfg.SweepGrace, Timeout: w.cfg.SweepTimeout, Outcomes: w.outcomes, Claimed: w.dispatcher.Claimed, Upkeep: w.upkept,
		Make: func(ctx context.Context) (int, error) { made, err := g.Overdue(ctx); return made.Runs, err },
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

// startAlarms raises alarms while a resident sweep runs. The function that it returns is to be called after the last outcome: it
// raises those that are left, and in a single sweep all.
func (w *sweepParts) startAlarms(ctx context.Context) (end func()) {
	switch {
	case w.mode.dry:
		return func() {}
	case !w.mode.stays:
		return func() { w.alarms.Once(ctx) }
	}
	raising, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); w.alarms.Run(raising) }()
	return func() { stop(); <-ended }
}

// sick says why a server does not answer, or takes no writes.
func (w *sweepParts) sick(server int) error {
	if waiting := w.store.Waiting(server); waiting >= store.HangsAfter {
		return fmt.Errorf("no answer for %s", waiting.Round(100*time.Millisecond))
	}
	return w.writes.refusal(server)
}

// mine reports whether the sweep delivers a biz type: without handlers all with a callback or a sink, else those of its group. Tasks of pull types
// are left to workers.
func (w *sweepParts) mine(p biztype.Policy) bool {
	return p.Pull == nil && (len(w.handlers.targets) == 0 || p.Handled() || w.cfg.only != nil || p.WithDefaults().Group == w.cfg.Group)
}

// watch follows changes of the policies while the sweep runs. A single sweep does not
// log that it has read them: cron mails whatever a command prints.
func (w *sweepParts) watch(ctx context.Context) error {
	log := w.cfg.Logger
	if !w.mode.stays {
		log = loop.AtLeast(log, slog.LevelWarn)
	}
	follow := func(now []biztype.Policy) { w.follow(ctx, now) }
	watcher, err := biztype.NewWatcher(biztype.WatchConfig{Cluster: w.cfg.Tables, Changed: follow, Logger: log})
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
func (w *sweepParts) refresh(ctx context.Context) {
	w.targets.read(ctx, w.known())
	w.setting.Lock()
	policies := w.known() // they may have changed meanwhile
	if w.targets.reload(policies, &w.seen) {
		w.dispatcher.SetPolicies(policies)
	}
	w.setting.Unlock()
	without := slices.DeleteFunc(slices.Clone(policies), biztype.Policy.Handled)
	for name, why := range w.targets.lacks(without) {
		w.limit.Of(w.cfg.Logger, name).Error("a biz type can't be delivered here", "biz_type", name, "why", why)
	}
}

// known returns the policies.
func (w *sweepParts) known() []biztype.Policy { return *w.policies.Load() }

func (w *sweepParts) follow(ctx context.Context, policies []biztype.Policy) {
	w.targets.read(ctx, policies)
	w.setting.Lock()
	defer w.setting.Unlock()
	w.policies.Store(&policies)
	w.dispatcher.SetPolicies(policies)
}

// settled counts an outcome, and has people told of a dead task. The sweeper itself counts tasks that were settled elsewhere
// or given back.
func (w *sweepParts) settled(s dispatcher.Settlement) {
	died(w.alarms, s)
	if s.Undone && !s.Missed || s.Fate != store.Stored && s.Fate != store.InTx {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.counts[s.Type]
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
	w.counts[s.Type] = n
}

// outcomes returns the outcomes so far, and the tasks that were left alone for programs that read their payload.
func (w *sweepParts) outcomes() map[uint64]upkeep.Counts {
	w.mu.Lock()
	all := maps.Clone(w.counts)
	w.mu.Unlock()
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

// upkeptBy are the counters of the engines in a sweep, by what the sweeper calls what they count.
var upkeptBy = map[string]string{
	"tocsin_generator_runs_total": upkeep.RunsMade, "tocsin_generator_passed_over_total": upkeep.TimesPassedOver, "tocsin_generator_failures_total": upkeep.SchedulesFailed,
	"tocsin_alarms_raised_total": upkeep.AlarmsRaised, "tocsin_alarms_failures_total": upkeep.AlarmsFailed,
	"tocsin_history_recorded_total": upkeep.RunsRecorded, "tocsin_history_dropped_total": upkeep.RunsNotRecorded, "tocsin_history_failed_total": upkeep.RunsNotRecorded,
}

// upkept returns how often each thing was done so far beside delivering.
func (w *sweepParts) upkept() map[string]int {
	all := map[string]int{}
	families, _ := w.metrics.Gather() // what was gathered beside an error counts
	for _, family := range families {
		what, counts := upkeptBy[family.GetName()]
		if !counts {
			continue
		}
		for _, m := range family.GetMetric() {
			all[what] += int(m.GetCounter().GetValue())
		}
	}
	return all
}

func init() {
	client.Step = func(config any, only map[uint64]bool) { config.(*Config).only = only }
	client.Batch = func(handlers any, bizType string) int {
		if h := handlers.(*Handlers); h != nil {
			return h.targets[bizType].Batch
		}
		return 0
	}
}

// some are the tables of a sweep that shows only some tasks.
type some struct {
	upkeep.SweepTables
	only map[uint64]bool
}

// Peek leaves the others out.
func (s some) Peek(ctx context.Context, q store.PeekQuery) (store.Page, error) {
	page, err := s.SweepTables.Peek(ctx, q)
	page.Entries = slices.DeleteFunc(page.Entries, func(e duequeue.Entry) bool { return !s.only[uint64(e.JobID)] })
	return page, err
}

var errNodesFirst = errors.New("the server takes writes again: nodes first settle what they have delivered")

// writes watches for a sweep which servers take writes. While one takes none, nodes still deliver what is due there, and
// the outcomes wait: these tasks look overdue. When the server takes writes again, a sweep must not claim them before the
// nodes have settled them, or they are delivered twice.
type writes struct {
	store *store.Store

	mu      sync.Mutex
	refused []refused // by server
}

// refused is what the last look at a server found.
type refused struct {
	why  error     // nil: it takes writes
	last time.Time // it was refused; zero: never
}

func newWrites(s *store.Store) *writes {
	return &writes{store: s, refused: make([]refused, len(s.Servers()))}
}

// run looks at every server at intervals, until ctx ends.
func (w *writes) run(ctx context.Context) {
	var servers sync.WaitGroup
	for server := range w.refused {
		servers.Go(func() {
			for more := true; more; more = loop.Wait(ctx, writesEvery) == nil {
				w.look(ctx, server)
			}
		})
	}
	servers.Wait()
}

func (w *writes) look(ctx context.Context, server int) {
	timed, cancel := context.WithTimeout(ctx, store.HangsAfter)
	defer cancel()
	why := w.store.TakesWrites(timed, server)
	if mysql.ClassOf(why) == mysql.Canceled { // it hangs, and so do claims; or the sweep uses all connections
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.refused[server]
	if r.why = why; why != nil {
		r.last = time.Now()
	}
}

// refusal returns why a server takes no writes.
func (w *writes) refusal(server int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[server].why
}

// mayClaim returns why a sweep must not claim on a server now.
func (w *writes) mayClaim(server int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := w.refused[server]; {
	case r.why != nil:
		return r.why
	case !r.last.IsZero() && time.Since(r.last) < nodesFirst:
		return errNodesFirst
	}
	return nil
}
