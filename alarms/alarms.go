package alarms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

// DefaultEvery is the time between two looks at all tables.
const DefaultEvery = time.Minute

const (
	collect   = 5 * time.Second  // from the first death until the alarm is raised: it counts those that follow
	lag       = 2 * time.Second  // deaths so short a time ago are left to the next alarm: their transactions may not have ended
	lookBack  = 24 * time.Hour   // older deaths raise no alarm
	retry     = 10 * time.Second // after a failure
	idleLook  = 2 * time.Second  // between two looks whether this process is to look at the tables
	atMost    = 1000             // dead tasks of one table that an alarm counts
	anyOf     = 100              // and that a look reads: it only wants to know whether there are any
	examples  = 5                // job_ids, or runs, that an alarm names
	bound     = 10 * time.Second // of the work for one alarm
	lookBound = 30 * time.Second // of a look at all tables
	hangs     = 2 * time.Second  // a server that has not answered for so long is left alone
	lastWords = 2 * time.Second  // for what waits when Run ends
)

// Tables is what is read of the databases.
type Tables interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Deaths(ctx context.Context, q store.DeathsQuery) ([]store.Deaths, map[int]error, error)
	LatestKey(ctx context.Context, bizID, typeCode uint64, prefix string) (*store.Row, error)
	Look(ctx context.Context, server int, ids []tocsin.JobID) ([]store.Row, error)
	Now(server int) int64             // that server's clock, Unix ms; valid after Measure; 0: not known just now
	Waiting(server int) time.Duration // for how long the oldest statement there has had no answer
	Servers() []string
	ServerOf(table int) int
	TablesOf(server int) []int
	Layout() tocsin.Layout
}

// Config of an Alarms.
type Config struct {
	Tables   Tables
	Cluster  tocsin.Config             // where alarms are added
	Policies func() []biztype.Policy   // all that are stored
	Mine     func(biztype.Policy) bool // whose tables this process looks at; nil: those of all
	Leads    func() bool               // whether this process is to look at the tables just now; asked often

	Every      time.Duration         // between two looks; 0: 1m
	Hurry      bool                  // Once does not wait for further deaths
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Alarms raises alarms. Make one with New. Died and Missed may be called concurrently, whether Run is under way or not.
type Alarms struct {
	cfg     Config
	metrics *metrics
	limit   loglimit.Limit
	wake    chan struct{} // 1 slot

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
	at    time.Time      // when it is to be raised
	count int            // deaths, or runs, that this process has been told of; 0: a look has found some
	last  time.Time      // when it was told of the last one
	first time.Time      // and of the first
	jobs  []tocsin.JobID // some of them
	runs  []Missed       // some of them
}

// New makes an Alarms that has nothing to report yet. It connects to nothing.
func New(cfg Config) (*Alarms, error) {
	if cfg.Tables == nil || cfg.Policies == nil || cfg.Leads == nil {
		return nil, errors.New("alarms: Tables, Policies and Leads are needed")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Mine == nil {
		cfg.Mine = func(biztype.Policy) bool { return true }
	}
	cfg.Cluster = own(cfg.Cluster)
	a := &Alarms{cfg: cfg, wake: make(chan struct{}, 1), waiting: map[about]*noted{}}
	a.metrics = newMetrics(cfg.Registerer, a.count)
	return a, nil
}

// Died notes that a task became dead, and that this is committed.
func (a *Alarms) Died(bizType uint64, id tocsin.JobID) {
	a.note(about{bizType, biztype.OnDead}, func(n *noted) {
		if len(n.jobs) < examples {
			n.jobs = append(n.jobs, id)
		}
	})
}

// Missed is a run of a schedule that was not delivered or will not be made.
type Missed struct {
	BizType  uint64    // number
	Schedule string    // its name
	Time     time.Time // nominal; zero: the schedule was paused
	Why      string    // "later than start_within", "paused after 3 failures in a row"
}

// Missed notes a run that a schedule missed, or that it was paused after failures. Call it after the commit. An alarm
// about missed runs is lost if the process ends before the alarm is added.
func (a *Alarms) Missed(m Missed) {
	a.note(about{m.BizType, biztype.OnMissed}, func(n *noted) {
		if len(n.runs) < examples {
			n.runs = append(n.runs, m)
		}
	})
}

func (m Missed) text() string {
	if m.Time.IsZero() {
		return fmt.Sprintf("%s: %s", m.Schedule, m.Why)
	}
	return fmt.Sprintf("%s %s: %s", m.Schedule, m.Time.UTC().Format(time.RFC3339), m.Why)
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
		n = &noted{at: now.Add(collect)}
		a.waiting[of] = n
	}
	if n.count++; n.count == 1 {
		n.first = now
	}
	n.last = now
	add(n)
	a.mu.Unlock()
	if fresh {
		signal(a.wake)
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
		a.waiting[of] = &noted{at: time.Now().Add(collect)}
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
		n.jobs, n.runs = n.jobs[:min(len(n.jobs), examples)], n.runs[:min(len(n.runs), examples)]
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

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
