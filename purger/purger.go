package purger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/schedule"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// Defaults and bounds of a Config.
const (
	DefaultBatch   = 500
	DefaultBellAge = time.Hour
	MinBellAge     = 10 * time.Minute
	lockedAtMost   = 3 // rows of one table that stay locked before the table is left
)

// Tables is where finished rows are found and removed.
type Tables interface {
	Measure(ctx context.Context, server int) (store.Offset, error)
	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Purge(ctx context.Context, server int, status tocsin.Status, before int64, rows []duequeue.Entry) (map[uint64]int, error)
}

// Bells is where rings of the doorbell are removed.
type Bells interface {
	DatabasesOf(server int) []int
	PurgeBells(ctx context.Context, server, database int, after uint64, before int64, limit int) (removed int, next uint64, err error)
}

// Runs is where runs of the history are removed.
type Runs interface {
	DatabasesOf(server int) []int
	RunsBefore(ctx context.Context, server, database int, milli int64) (uint64, error)
	PurgeRuns(ctx context.Context, page store.RunsPage, kept []store.Kept, dry bool) (store.PurgedRuns, error)
}

// Config of a Purger.
type Config struct {
	Tables     Tables
	Bells      Bells                                           // nil: bells are left
	Runs       Runs                                            // nil: runs are left
	Now        func(server int) int64                          // that server's clock, Unix ms; valid after Measure
	Servers    []string                                        // names, by index
	TablesOf   func(server int) []int                          // table numbers on a server
	Policies   func(context.Context) ([]biztype.Policy, error) // asked at the start of each purge; what comes beside an error is used
	Dead       bool                                            // remove dead tasks too
	DryRun     bool                                            // count only, and change nothing
	BellAge    time.Duration                                   // of a bell that is removed; 0: 1h; at least 10m, well past the horizon
	Batch      int                                             // rows in one transaction at most; 0: 500, which is the most
	Progress   func(server int, tables int)                    // told of tables that are looked through, by each server's goroutine; nil: nobody
	Logger     *slog.Logger                                    // of the resident form; nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer                           // nil: metrics are not exported
}

// Purger removes old rows. Purge may be called again, not concurrently.
type Purger struct {
	cfg     Config
	metrics *metrics
}

// New checks the config and makes a Purger.
func New(cfg Config) (*Purger, error) {
	if cfg.Tables == nil || cfg.Now == nil || cfg.TablesOf == nil || cfg.Policies == nil {
		return nil, errors.New("purger: Tables, Now, TablesOf and Policies are needed")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.BellAge == 0 {
		cfg.BellAge = DefaultBellAge
	}
	if cfg.BellAge < MinBellAge {
		return nil, fmt.Errorf("purger: bells of %s may still be waited for: keep them for %s at least", cfg.BellAge, MinBellAge)
	}
	if cfg.Batch <= 0 || cfg.Batch > DefaultBatch {
		cfg.Batch = DefaultBatch
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int, int) {}
	}
	return &Purger{cfg: cfg, metrics: newMetrics(cfg.Registerer)}, nil
}

// Run purges at each time of the schedule until ctx ends, and returns nil then.
// A purge that outlasts the next time delays it; none run side by side.
func (p *Purger) Run(ctx context.Context, at schedule.Schedule) error {
	var limit loglimit.Limit // a schedule may fire every second
	schedule.Each(ctx, at, func(ctx context.Context) {
		result, err := p.Purge(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			limit.Of(p.cfg.Logger, "failed").Error("purge failed in part", "error", err, "result", result.String())
		case len(result.Lacking) > 0:
			limit.Of(p.cfg.Logger, "lacking").Warn("purge may not remove runs: its user lacks rights on the table run, as `tocsin ddl grants --role purge` prints them", "databases", len(result.Lacking), "result", result.String())
		case result.Batches > 0:
			p.cfg.Logger.Info("purged", "result", result.String())
		}
	})
	return nil
}

// Purge looks once through every table of every server, all servers at the same
// time. Its error joins those of the servers and tables that failed; the result
// is good for the others all the same. When ctx ends, it returns what it has.
func (p *Purger) Purge(ctx context.Context) (Result, error) {
	start := time.Now()
	result := Result{DryRun: p.cfg.DryRun, Types: map[string]Removed{}, Lacking: []int{}, Failed: []string{}}
	policies, err := p.cfg.Policies(ctx)
	if len(policies) == 0 && err != nil {
		return result, fmt.Errorf("purge: read the retentions: %w", err)
	}
	walks := make([]*walk, len(p.cfg.Servers))
	tablewalk.Servers(len(walks), func(server int) {
		walks[server] = newWalk(p, server, policies)
		walks[server].run(ctx)
	})
	errs := []error{err}
	for _, w := range walks {
		result.merge(w.result)
		errs = append(errs, w.errs...)
	}
	result.Took = time.Since(start)
	p.metrics.observe(result)
	return result, tablewalk.Join(errs...)
}
