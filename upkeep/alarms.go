package upkeep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// An alarm alerts people to what only they can solve: dead tasks of a biz type, or schedules that missed runs. It is an
// ordinary task, so its delivery is retried.
//
//	settled as dead --> Died ----+                         +--> latest alarm --> dead tasks since --> add
//	                             +--> waiting --> raise ---+
//	look at all tables, 1m ------+  (5 s)                  +--> too early: again when its time has come
//
// Alarms of one biz type and kind are a chain: the dedup_key of each holds the time up to which the one before it has
// counted. So processes that notice the same deaths add one alarm, whichever is first, and they need not know of each
// other. An alarm is added no sooner than AtMostEvery after the one before, and counts all deaths since, whichever
// process noticed them. The deaths are in the tables, so if a process ends before it adds an alarm, the next process that
// looks adds it.
//
// Nothing waits for alarms. Died and Missed only note the event under a lock; one goroutine, Run, does the rest. Memory is
// bounded: one entry for each biz type and kind.
//
// On failure: a database that can't be read in full is left out of the count, named in the alarm, and counted by the next. If
// the alarm can't be added, it is tried again every ten seconds. A process that ends forgets the missed runs that it has
// noted.
const (
	lookEvery     = time.Minute      // between two looks at all tables
	collectFor    = 5 * time.Second  // from the first death until the alarm is raised: it counts those that follow
	lag           = 2 * time.Second  // deaths so short a time ago are left to the next alarm: their transactions may not have ended
	lookBack      = 24 * time.Hour   // older deaths raise no alarm; one that had to wait for another counts back further, see link.oldest
	raiseAgain    = 10 * time.Second // after a failure
	idleLook      = 2 * time.Second  // between two looks whether this process is to look at the tables
	deathsMost    = 1000             // dead tasks of one table that an alarm counts
	deathsAny     = 100              // and that a look reads: it only wants to know whether there are any
	alarmExamples = 5                // job_ids, or runs, that an alarm names
	alarmLimit    = 10 * time.Second // of the work for one alarm
	lookLimit     = 30 * time.Second // of a look at all tables
	hangs         = 2 * time.Second  // a server that has not answered for so long is left alone
	lastWords     = 2 * time.Second  // for what waits when Run ends
)

// AlarmsConfig is the config of an Alarms.
type AlarmsConfig struct {
	Store    *store.Store
	Cluster  tocsin.Config             // where alarms are added
	Policies func() []biztype.Policy   // all that are stored
	Mine     func(biztype.Policy) bool // whose tables this process looks at; nil: those of all
	Leads    func() bool               // whether this process is to look at the tables just now; asked often

	Hurry      bool                  // Once does not wait for further deaths
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Alarms raises alarms. Make one with NewAlarms. Died and Missed may be called concurrently, whether Run is under way or not.
type Alarms struct {
	cfg      AlarmsConfig
	raised   *prometheus.CounterVec
	failures prometheus.Counter
	limit    loop.LogLimit
	wake     chan struct{} // 1 slot

	mu      sync.Mutex
	waiting map[about]*noted

	// Of the goroutine that raises.
	client  *tocsin.Client // nil: not opened yet
	looked  map[int]int64  // by database: deaths up to then, by its server's clock, are noted
	kinds   []uint64       // biz types that looked is about
	nextRun time.Time      // of the look at all tables
}

// about is what an alarm is about.
type about struct {
	bizType uint64 // number
	kind    string // biztype.OnDead or OnMissed
}

// noted is what the next alarm about one biz type will report.
type noted struct {
	at    time.Time            // when it is to be raised
	count int                  // deaths, or runs, that this process has been told of; 0: a look has found some
	last  time.Time            // when it was told of the last one
	first time.Time            // and of the first
	jobs  []tocsin.JobID       // some of them
	runs  []schedule.MissedRun // some of them
}

// NewAlarms makes an Alarms that has nothing to report yet. It connects to nothing.
func NewAlarms(cfg AlarmsConfig) *Alarms {
	cfg.Logger = loop.Logger(cfg.Logger)
	if cfg.Mine == nil {
		cfg.Mine = func(biztype.Policy) bool { return true }
	}
	cfg.Cluster = own(cfg.Cluster)
	a := &Alarms{cfg: cfg, wake: make(chan struct{}, 1), waiting: map[about]*noted{}}
	f := promauto.With(cfg.Registerer)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tocsin", Subsystem: "alarms", Name: name, Help: help}
	}
	f.NewGaugeFunc(prometheus.GaugeOpts(opts("waiting", "Alarms that this process has to raise and has not: they collect, or may not come yet, or can't be added.")),
		func() float64 { return float64(a.count()) })
	a.raised = f.NewCounterVec(prometheus.CounterOpts(opts("raised_total", "Alarms that this process has added as tasks, by the biz type that they are about.")),
		[]string{"biz_type", "kind"})
	a.failures = f.NewCounter(prometheus.CounterOpts(opts("failures_total", "Failed tries to raise an alarm; each is tried again.")))
	return a
}

// Died notes that a task became dead, and that this is committed.
func (a *Alarms) Died(bizType uint64, id tocsin.JobID) {
	a.note(about{bizType, biztype.OnDead}, func(n *noted) {
		if len(n.jobs) < alarmExamples {
			n.jobs = append(n.jobs, id)
		}
	})
}

// Missed notes a run that a schedule missed, or that it was paused after failures. Call it after the commit. An alarm
// about missed runs is lost if the process ends before the alarm is added.
func (a *Alarms) Missed(m schedule.MissedRun) {
	a.note(about{m.BizType, biztype.OnMissed}, func(n *noted) {
		if len(n.runs) < alarmExamples {
			n.runs = append(n.runs, m)
		}
	})
}

// note adds one event to what waits, if its biz type has an alarm. It blocks for no longer than a lock.
func (a *Alarms) note(of about, add func(*noted)) {
	_, wanted := a.policy(of)
	now := time.Now()
	a.mu.Lock()
	n := a.waiting[of]
	fresh := n == nil
	if fresh {
		if !wanted {
			a.mu.Unlock()
			return
		}
		n = &noted{at: now.Add(collectFor)}
		a.waiting[of] = n
	}
	if n.count++; n.count == 1 {
		n.first = now
	}
	n.last = now
	add(n)
	a.mu.Unlock()
	if fresh {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// policy returns the policy that asks for the alarm.
func (a *Alarms) policy(of about) (p biztype.Policy, there bool) {
	for _, p := range a.cfg.Policies() {
		if p.Number == of.bizType {
			return p, p.AlarmOn(of.kind)
		}
	}
	return p, false
}

// found notes that a look has found deaths.
func (a *Alarms) found(of about) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[of] == nil {
		a.waiting[of] = &noted{at: time.Now().Add(collectFor)}
	}
}

// count returns how many alarms wait.
func (a *Alarms) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)
}

// due takes one that is due to be raised. If none is, next is the time of the next one.
func (a *Alarms) due(now time.Time, all bool) (of about, n *noted, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next = now.Add(idleLook)
	for of, n := range a.waiting {
		if all || !n.at.After(now) {
			delete(a.waiting, of)
			return of, n, now
		}
		if n.at.Before(next) {
			next = n.at
		}
	}
	return about{}, nil, next
}

// back merges events that could not be reported yet with those noted meanwhile.
func (a *Alarms) back(of about, n *noted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if later := a.waiting[of]; later != nil && later.count > 0 {
		if n.count == 0 {
			n.first = later.first
		}
		n.count, n.last = n.count+later.count, later.last
		n.jobs = append(n.jobs, later.jobs...)
		n.runs = append(n.runs, later.runs...)
		n.jobs, n.runs = n.jobs[:min(len(n.jobs), alarmExamples)], n.runs[:min(len(n.runs), alarmExamples)]
	}
	a.waiting[of] = n
}

// own returns a config for a few connections besides those of the node.
func own(cfg tocsin.Config) tocsin.Config {
	cfg.Outbox, cfg.Observe, cfg.Use = tocsin.Outbox{}, nil, nil
	servers := make([]tocsin.Server, len(cfg.Servers))
	for i, s := range cfg.Servers {
		s.MaxConns = 1
		servers[i] = s
	}
	cfg.Servers = servers
	return cfg
}

// Run raises alarms until ctx ends, and then those that wait, for a few seconds.
func (a *Alarms) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !a.cfg.Leads() {
			a.looked, a.nextRun = nil, time.Time{}
		} else if now := time.Now(); !now.Before(a.nextRun) {
			a.look(ctx, lag)
			a.nextRun = now.Add(lookEvery)
		}
		a.rest(ctx, a.raiseAll(ctx, false))
	}
	a.end(ctx)
}

// rest waits until the next alarm is due, or something new was noted.
func (a *Alarms) rest(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.wake:
	}
}

// Once looks at all tables once and raises the alarms that are due. A process that ends afterwards calls it instead of
// Run. It waits a few seconds for further deaths, unless ctx has ended, or with Hurry.
func (a *Alarms) Once(ctx context.Context) {
	if ctx.Err() == nil {
		a.look(ctx, 0)
	}
	if !a.cfg.Hurry && a.count() > 0 && loop.Wait(ctx, collectFor) == nil {
		a.raiseAll(ctx, false)
	}
	a.end(ctx)
}

// end raises what waits for the last time, and closes what was opened.
func (a *Alarms) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	a.raiseAll(ctx, true)
	if a.client != nil {
		_ = a.client.Close() // the process goes on without it
		a.client = nil
	}
}

// raiseAll raises all alarms that are due, each once; or, at last, all that wait. It returns when the next one is due.
func (a *Alarms) raiseAll(ctx context.Context, last bool) (next time.Time) {
	type later struct {
		of about
		n  *noted
	}
	var left []later
	for {
		of, n, at := a.due(time.Now(), last)
		if n == nil {
			next = at
			break
		}
		bounded, cancel := context.WithTimeout(ctx, alarmLimit)
		again := a.raise(bounded, of, n)
		cancel()
		if again {
			left = append(left, later{of, n})
		}
	}
	for _, l := range left {
		a.back(l.of, l.n)
		if l.n.at.Before(next) {
			next = l.n.at
		}
	}
	if last {
		a.forget()
	}
	return next
}

// forget logs what is lost with this process. Other processes find the dead tasks.
func (a *Alarms) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, n := range a.waiting {
		if len(n.runs) > 0 {
			a.cfg.Logger.Warn("the process ends before an alarm was raised", "biz_type", biztype.NameOf(a.cfg.Policies(), of.bizType), "kind", of.kind, "count", n.count)
		}
		delete(a.waiting, of)
	}
}
