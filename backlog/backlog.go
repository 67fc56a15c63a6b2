package backlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults of a Config.
const (
	DefaultOverdueEvery = time.Minute
	DefaultCountEvery   = 10 * time.Minute
)

const (
	late      = time.Second      // a pending task is overdue this long after its time
	atMost    = 10_000           // overdue rows that are counted in one table
	restFor   = 19               // times what a statement took comes before the next
	idleLook  = 5 * time.Second  // between two looks whether this node is to measure
	statement = 30 * time.Second // time-out
)

// Tables is what is measured, by server.
type Tables interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Overdue(ctx context.Context, server int, tables []int, until int64, limit int) ([]store.Late, map[int]error, error)
	LiveCounts(ctx context.Context, server int, tables []int) ([]store.Count, error)
}

// Config of a Backlog.
type Config struct {
	Tables   Tables
	Now      func(server int) int64 // that server's clock, Unix ms; valid after Measure
	Servers  []string               // names, by index
	TablesOf func(server int) []int // table numbers on a server
	Layout   tocsin.Layout
	Policies func() []biztype.Policy // of the biz types to be measured
	Leads    func() bool             // whether this node is to measure just now; asked often

	OverdueEvery time.Duration // between the beginnings of two walks for overdue tasks; 0: 1m
	CountEvery   time.Duration // between those of two walks that count; 0: 10m

	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported, and Run measures nothing
}

// Backlog measures. Make one with New.
type Backlog struct {
	cfg   Config
	limit loglimit.Limit

	mu      sync.Mutex
	overdue []overdue // by server
	counts  []counts  // by server
}

// New makes a Backlog that knows nothing before Run.
func New(cfg Config) *Backlog {
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.OverdueEvery <= 0 {
		cfg.OverdueEvery = DefaultOverdueEvery
	}
	if cfg.CountEvery <= 0 {
		cfg.CountEvery = DefaultCountEvery
	}
	b := &Backlog{cfg: cfg, overdue: make([]overdue, len(cfg.Servers)), counts: make([]counts, len(cfg.Servers))}
	b.export(cfg.Registerer)
	return b
}

// Run measures until ctx ends, while Leads.
func (b *Backlog) Run(ctx context.Context) {
	if b.cfg.Registerer == nil {
		return
	}
	var all sync.WaitGroup
	for server := range b.cfg.Servers {
		all.Go(func() { b.repeat(ctx, server, b.cfg.OverdueEvery, b.lookOverdue) })
		all.Go(func() { b.repeat(ctx, server, b.cfg.CountEvery, b.count) })
	}
	all.Wait()
}

// pace is how a walk spreads its statements.
type pace struct {
	over time.Duration // the whole walk; 0: as fast as the rests between statements allow
}

// repeat walks again and again while this node leads. The first walk is not spread over the time to the next, so that
// figures are soon there.
func (b *Backlog) repeat(ctx context.Context, server int, every time.Duration, walk func(context.Context, int, pace) error) {
	var spread pace
	for ctx.Err() == nil {
		if !b.cfg.Leads() {
			spread = pace{}
			b.forget(server)
			_ = wait.For(ctx, idleLook) // the loop ends with ctx
			continue
		}
		began := time.Now()
		if err := walk(ctx, server, spread); err != nil && ctx.Err() == nil && !errors.Is(err, errNotLeading) {
			b.limit.Of(b.cfg.Logger, b.cfg.Servers[server]).Warn("backlog can't be measured: its metrics keep their last values",
				"error", err, "server", b.cfg.Servers[server])
		}
		spread = pace{over: every / 2} // the rest is for walks that take longer
		b.restUntil(ctx, began.Add(every))
	}
}

// restUntil waits, but not for longer than this node leads.
func (b *Backlog) restUntil(ctx context.Context, at time.Time) {
	for ctx.Err() == nil && b.cfg.Leads() && time.Now().Before(at) {
		_ = wait.For(ctx, min(idleLook, time.Until(at)))
	}
}

// errNotLeading ends a walk.
var errNotLeading = errors.New("another node measures now")

// walk calls look for all tables of a server, with pauses.
func (b *Backlog) walk(ctx context.Context, server int, p pace, look func(ctx context.Context, tables []int) error) error {
	tables := b.cfg.TablesOf(server)
	share := p.over * tablewalk.Together / time.Duration(max(len(tables), tablewalk.Together))
	w := tablewalk.Walk{Server: server, Tables: tables, Measure: b.cfg.Tables.Measure}
	return w.Run(ctx, func(tables []int) error {
		if !b.cfg.Leads() {
			return errNotLeading
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, statement)
		defer cancel()
		if err := look(bounded, tables); err != nil {
			return err
		}
		return wait.For(ctx, max(share, restFor*time.Since(began)))
	})
}

// errNoClock ends a walk of a server that has just moved to another address: nothing would look overdue.
var errNoClock = errors.New("the server's clock is not known yet")

// lookOverdue is one walk for overdue tasks.
func (b *Backlog) lookOverdue(ctx context.Context, server int, p pace) error {
	found := newOverdue(b.cfg.Layout)
	err := b.walk(ctx, server, p, func(ctx context.Context, tables []int) error {
		now := b.cfg.Now(server)
		if now == 0 {
			return errNoClock
		}
		rows, failed, err := b.cfg.Tables.Overdue(ctx, server, tables, now-late.Milliseconds(), atMost)
		found.add(rows, failed, now)
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found.at = time.Now()
	found.compare(b.overdue[server])
	b.overdue[server] = found
	return nil
}

// count is one walk that counts.
func (b *Backlog) count(ctx context.Context, server int, p pace) error {
	found := newCounts(b.cfg.Layout)
	err := b.walk(ctx, server, p, func(ctx context.Context, tables []int) error {
		all, err := b.cfg.Tables.LiveCounts(ctx, server, tables)
		found.add(all)
		if len(all) > 0 {
			return nil // a table that can't be read hides no other; the walk for overdue tasks counts such tables
		}
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
