package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

// Purges keep rows for as long as the policy of their biz type says, 30 days by default. They never remove a pending or
// claimed task, and dead ones only if asked. Tasks of a type that no policy names are left.
//
//	every table --peek finished--> batches by primary key --purge--> gone
//	                                  ^ fewer rows after a lock time-out, one at last;
//	                                  | more again after batches that went well
//
// A batch is one short transaction on one table, and a pause as long as the batch took follows it, so that scans and settling
// are never held up. The DELETE repeats the condition, so rows that have changed since they were found stay. A row that
// stays locked is left for the next purge, and counted.

// Defaults and bounds of a PurgeConfig.
const (
	purgeBatch   = 500
	bellAge      = time.Hour
	minBellAge   = 10 * time.Minute
	lockedAtMost = 3 // rows of one table that stay locked before the table is left
)

// PurgeConfig is the config of a Purger.
type PurgeConfig struct {
	Store      *store.Store                                    // required
	Policies   func(context.Context) ([]biztype.Policy, error) // required; asked at the start of each purge; what comes beside an error is used
	Dead       bool                                            // remove dead tasks too
	DryRun     bool                                            // count only, and change nothing
	BellAge    time.Duration                                   // of a bell that is removed; 0: 1h; at least 10m, well past the horizon
	Batch      int                                             // rows in one transaction at most; 0: 500, which is the most
	Progress   func(tables int)                                // called after some tables were looked through, concurrently; nil: not called
	Logger     *slog.Logger                                    // of the resident form; nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer                           // nil: metrics are not exported
}

// Purger removes old rows. Purge may be called again, not concurrently.
type Purger struct {
	cfg     PurgeConfig
	last    *LastRun
	totals  Totals
	purges  *prometheus.CounterVec
	seconds prometheus.Histogram
}

// NewPurger checks the config and makes a Purger.
func NewPurger(cfg PurgeConfig) (*Purger, error) {
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.BellAge == 0 {
		cfg.BellAge = bellAge
	}
	if cfg.BellAge < minBellAge {
		return nil, fmt.Errorf("purge: bells of %s may still be waited for: keep them for %s at least", cfg.BellAge, minBellAge)
	}
	if cfg.Batch <= 0 || cfg.Batch > purgeBatch {
		cfg.Batch = purgeBatch
	}
	f, none := promauto.With(cfg.Registerer), PurgeResult{}.Ended(false)
	return &Purger{
		cfg: cfg, last: NewLastRun(cfg.Registerer, none), totals: NewTotals(cfg.Registerer, none),
		purges: f.NewCounterVec(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "purger", Name: "purges_total",
			Help: "Purges ended, by result: ok, failed."}, []string{"result"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "purger", Name: "purge_seconds",
			Help: "Duration of a purge.", Buckets: []float64{1, 10, 60, 600, 3600}}),
	}, nil
}

// Run purges at each of the times until ctx ends, and returns nil then.
// A purge that outlasts the next time delays it; none run side by side.
func (p *Purger) Run(ctx context.Context, at Times) error {
	var limit loglimit.Limit // a schedule may fire every second
	Each(ctx, at, func(ctx context.Context) {
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
func (p *Purger) Purge(ctx context.Context) (PurgeResult, error) {
	start := time.Now()
	result := PurgeResult{DryRun: p.cfg.DryRun, Types: map[string]Removed{}, Lacking: []int{}, Failed: []string{}}
	policies, err := p.cfg.Policies(ctx)
	if len(policies) == 0 && err != nil {
		return result, fmt.Errorf("purge: read the retentions: %w", err)
	}
	servers := p.cfg.Store.Servers()
	walks := make([]*purgeWalk, len(servers))
	store.EachServer(len(walks), func(server int) {
		walks[server] = newPurgeWalk(p, server, policies)
		walks[server].run(ctx)
	})
	errs := []error{err}
	for server, w := range walks {
		result.add(w.result)
		result.Tables += w.tables
		if err := w.failure("purge"); err != nil {
			result.Failed = append(result.Failed, servers[server])
			errs = append(errs, err)
		}
	}
	result.Took = time.Since(start)
	p.observe(result)
	return result, store.Join(errs...)
}

// observe notes the end of a purge for the metrics.
func (p *Purger) observe(r PurgeResult) {
	word := "ok"
	if len(r.Failed) > 0 {
		word = "failed"
	}
	p.purges.WithLabelValues(word).Inc()
	p.seconds.Observe(r.Took.Seconds())
	if r.DryRun {
		return
	}
	ended := r.Ended(len(r.Failed) == 0)
	p.last.End(time.Now(), ended)
	p.totals.Add(ended)
}
