package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// The backlog is measured for metrics, and slowly on purpose. Two walks go over the tables of each server, one statement at a
// time for 64 tables together:
//
//	overdue   once a minute: the oldest overdue task of each biz type and database, and how many there are. Tables are
//	          first asked by a prepared probe whether they have any. Of those that have, at most 10,000 index entries each
//	          are read, so the number is a lower bound where there are more: overdue_capped_tables says in how many tables.
//	count     every ten minutes: pending, claimed and dead tasks, counted exactly, from one index.
//
// After each statement comes a pause of 19 times what it took, so a server spends at most a twentieth of one connection on
// it; large backlogs make the walks slower, not heavier. The figures are those of the last whole walk, and their age is a
// metric too. Tables that can't be read are left out and counted.
//
// One node of a group measures the group's biz types: the one that has table 0 or, where nobody owns tables, looks first at the
// first one that it can. While etcd is away the tables stay where they are, and so does this. When the table moves, the new
// owner begins at once.
const (
	overdueEvery = time.Minute      // between the beginnings of two walks for overdue tasks
	countEvery   = 10 * time.Minute // between those of two walks that count
	overdueAfter = time.Second      // a pending task is overdue this long after its time
	overdueMost  = 10_000           // overdue rows that are counted in one table
	backlogRests = 19               // times what a statement took comes before the next
	leadsEvery   = 5 * time.Second  // between two looks whether this node is to measure
	backlogLimit = 30 * time.Second // of a statement
)

// BacklogConfig is the config of a Backlog.
type BacklogConfig struct {
	Store    *store.Store
	Policies func() []biztype.Policy // of the biz types to be measured
	Leads    func() bool             // whether this node is to measure just now; asked often

	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported, and Run measures nothing

	OverdueAlone bool // measure what is overdue, for Overdue, and nothing else; also without a Registerer
}

// Backlog measures what waits in all tables. Make one with NewBacklog.
type Backlog struct {
	cfg   BacklogConfig
	limit loop.LogLimit

	overdueEvery, countEvery time.Duration // between the beginnings of two walks; tests have less

	mu      sync.Mutex
	overdue []overdue // by server
	counts  []counts  // by server
}

// NewBacklog makes a Backlog that knows nothing before Run.
func NewBacklog(cfg BacklogConfig) *Backlog {
	cfg.Logger = loop.Logger(cfg.Logger)
	servers := len(cfg.Store.Servers())
	b := &Backlog{cfg: cfg, overdueEvery: overdueEvery, countEvery: countEvery, overdue: make([]overdue, servers), counts: make([]counts, servers)}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(newBacklogMetrics(b))
	}
	return b
}

// Run measures until ctx ends, while Leads.
func (b *Backlog) Run(ctx context.Context) {
	if b.cfg.Registerer == nil && !b.cfg.OverdueAlone {
		return
	}
	var all sync.WaitGroup
	for server := range b.overdue {
		all.Go(func() { b.repeat(ctx, server, b.overdueEvery, b.lookOverdue) })
		if !b.cfg.OverdueAlone {
			all.Go(func() { b.repeat(ctx, server, b.countEvery, b.count) })
		}
	}
	all.Wait()
}

// repeat walks again and again while this node leads. The first walk is not spread over the time to the next, so that
// figures are soon there. over is the time of a whole walk; 0: as fast as the rests between statements allow.
func (b *Backlog) repeat(ctx context.Context, server int, every time.Duration, walk func(ctx context.Context, server int, over time.Duration) error) {
	var over time.Duration
	for ctx.Err() == nil {
		if !b.cfg.Leads() {
			over = 0
			b.forget(server)
			_ = loop.Wait(ctx, leadsEvery) // the loop ends with ctx
			continue
		}
		began := time.Now()
		if err := walk(ctx, server, over); err != nil && ctx.Err() == nil && !errors.Is(err, errNotLeading) {
			name := b.cfg.Store.Servers()[server]
			b.limit.Of(b.cfg.Logger, name).Warn("backlog can't be measured: its metrics keep their last values", "error", err, "server", name)
		}
		over = every / 2 // the rest is for walks that take longer
		for ctx.Err() == nil && b.cfg.Leads() && time.Since(began) < every {
			_ = loop.Wait(ctx, min(leadsEvery, time.Until(began.Add(every))))
		}
	}
}

// errNotLeading ends a walk.
var errNotLeading = errors.New("another node measures now")

// spread calls look for all tables of a server, with pauses.
func (b *Backlog) spread(ctx context.Context, server int, over time.Duration, look func(ctx context.Context, tables []int) error) error {
	w := newWalk(b.cfg.Store, server, nil)
	share := over * store.Together / time.Duration(max(len(b.cfg.Store.TablesOf(server)), store.Together))
	return w.overTables(ctx, func(tables []int) error {
		if !b.cfg.Leads() {
			return errNotLeading
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, backlogLimit)
		defer cancel()
		if err := look(bounded, tables); err != nil {
			return err
		}
		return loop.Wait(ctx, max(share, backlogRests*time.Since(began)))
	})
}

// errNoClock ends a walk of a server that has just moved to another address: nothing would look overdue.
var errNoClock = errors.New("the server's clock is not known yet")

// lookOverdue is one walk for overdue tasks.
func (b *Backlog) lookOverdue(ctx context.Context, server int, over time.Duration) error {
	found := newOverdue(b.cfg.Store.Layout())
	err := b.spread(ctx, server, over, func(ctx context.Context, tables []int) error {
		now := b.cfg.Store.Now(server)
		if now == 0 {
			return errNoClock
		}
		rows, failed, err := b.cfg.Store.Overdue(ctx, server, tables, now-overdueAfter.Milliseconds(), overdueMost)
		found.add(rows, failed, now)
		return err
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.overdue[server].lost = err
		return err
	}
	found.at = time.Now()
	found.compare(b.overdue[server])
	b.overdue[server] = found
	return nil
}

// OverdueTasks is what is overdue of one biz type, in all tables that could be read.
type OverdueTasks struct {
	Tasks   int
	AtLeast bool          // some tables have more than were counted
	Oldest  time.Duration // for how long the oldest had been due when its table was read
	Due     time.Time     // when the oldest fell due, by the clock of this host; up to the length of a walk too late
	Drain   float64       // seconds until none is overdue, at the pace between the last two walks; +Inf: they do not become fewer; NaN: not known
}

// Walked says how current the overdue figures of a server are.
type Walked struct {
	Server string
	At     time.Time // the end of the last whole walk; zero: none has ended yet
	Unread int       // tables that could not be read in it
	Err    error     // why the walk after it failed; nil: it did not, or has not ended
}

// Overdue returns what the last walks found, by the number of the biz type, and how current that is, by server. Safe for
// concurrent use.
func (b *Backlog) Overdue() (map[uint64]OverdueTasks, []Walked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	types, servers := map[uint64]OverdueTasks{}, make([]Walked, len(b.overdue))
	for server, name := range b.cfg.Store.Servers() {
		o := b.overdue[server]
		servers[server] = Walked{Server: name, At: o.at, Err: o.lost}
		for _, tables := range o.failed {
			servers[server].Unread += tables
		}
		for at, oldest := range o.oldest {
			t := types[at.typeCode]
			if due := o.at.Add(-oldest); t.Due.IsZero() || due.Before(t.Due) {
				t.Due = due
			}
			t.Oldest, t.AtLeast = max(t.Oldest, oldest), t.AtLeast || o.unsure[at.typeCode]
			types[at.typeCode] = t
		}
	}
	for typeCode, t := range types {
		t.Tasks, t.Drain = b.total(typeCode)
		types[typeCode] = t
	}
	return types, servers
}

// count is one walk that counts.
func (b *Backlog) count(ctx context.Context, server int, over time.Duration) error {
	found := newCounts(b.cfg.Store.Layout())
	err := b.spread(ctx, server, over, func(ctx context.Context, tables []int) error {
		all, _, err := b.cfg.Store.LiveCounts(ctx, server, tables) // the walk for overdue tasks counts the tables that can't be read
		found.add(all)
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found.at = time.Now()
	b.counts[server] = found
	return nil
}

// forget drops the figures of a server, which another node measures.
func (b *Backlog) forget(server int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.overdue[server], b.counts[server] = overdue{}, counts{}
}

// spot is where tasks of one biz type are counted.
type spot struct {
	typeCode uint64
	database int
}

// overdue is what one walk over a server's tables found. The zero overdue is of no walk.
type overdue struct {
	layout tocsin.Layout
	at     time.Time                // the end of the walk
	lost   error                    // why the walk after it failed; nil: it did not, or has not ended
	oldest map[spot]time.Duration   // for how long the oldest task has been due
	rows   map[uint64]int           // by biz type
	capped map[int]int              // by database: tables with more than were counted
	failed map[int]int              // by database: tables that could not be read
	unsure map[uint64]bool          // types with rows in capped tables
	shrink map[uint64]time.Duration // by biz type: until nothing is overdue, at the pace since the walk before; -1: never; missing: not known
}

func newOverdue(layout tocsin.Layout) overdue {
	return overdue{
		layout: layout, oldest: make(map[spot]time.Duration), rows: make(map[uint64]int),
		capped: make(map[int]int), failed: make(map[int]int), unsure: make(map[uint64]bool), shrink: make(map[uint64]time.Duration),
	}
}

// add notes what one statement found, at now by the server's clock.
func (o *overdue) add(found []store.Late, failed map[int]error, now int64) {
	total := make(map[int]int)
	for _, f := range found {
		at := spot{f.Type, o.layout.DatabaseOf(f.Table)}
		o.oldest[at] = max(o.oldest[at], time.Duration(now-f.Oldest)*time.Millisecond)
		o.rows[f.Type] += f.Rows
		total[f.Table] += f.Rows
	}
	for _, f := range found {
		o.unsure[f.Type] = o.unsure[f.Type] || total[f.Table] >= overdueMost
	}
	for table, rows := range total {
		if rows >= overdueMost {
			o.capped[o.layout.DatabaseOf(table)]++
		}
	}
	for table := range failed {
		o.failed[o.layout.DatabaseOf(table)]++
	}
}

// compare estimates by the walk before when nothing will be overdue.
func (o *overdue) compare(before overdue) {
	if before.at.IsZero() {
		return
	}
	for t, rows := range o.rows {
		if o.unsure[t] || before.unsure[t] {
			continue
		}
		o.shrink[t] = drainTime(before.rows[t], rows, o.at.Sub(before.at))
	}
}

// drainTime returns how long it takes until nothing is left at the pace at which before became now; -1 if it grows or stays.
func drainTime(before, now int, in time.Duration) time.Duration {
	switch {
	case now == 0:
		return 0
	case now >= before || in <= 0:
		return -1
	}
	left := float64(now) / float64(before-now) * float64(in)
	return time.Duration(min(left, math.MaxInt64/2))
}

// counts is what one walk over a server's tables counted.
type counts struct {
	layout        tocsin.Layout
	at            time.Time
	pending       map[spot]int
	claimed, dead map[uint64]int
}

func newCounts(layout tocsin.Layout) counts {
	return counts{layout: layout, pending: make(map[spot]int), claimed: make(map[uint64]int), dead: make(map[uint64]int)}
}

func (c *counts) add(found []store.Count) {
	for _, f := range found {
		c.pending[spot{f.Type, c.layout.DatabaseOf(f.Table)}] += f.Pending
		c.claimed[f.Type] += f.Claimed
		c.dead[f.Type] += f.Dead
	}
}
