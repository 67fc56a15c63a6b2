package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
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

const (
	purgeBatch   = 500       // rows in one transaction at most
	bellAge      = time.Hour // of a bell that is removed: well past the horizon
	lockedAtMost = 3         // rows of one table that stay locked before the table is left
	actsKept     = 90 * 24 * time.Hour
)

// PurgeConfig is the config of a Purger.
type PurgeConfig struct {
	Store      *store.Store                                    // required
	Policies   func(context.Context) ([]biztype.Policy, error) // required; asked at the start of each purge; what comes beside an error is used
	Dead       bool                                            // remove dead tasks too
	DryRun     bool                                            // count only, and change nothing
	Progress   func(tables int)                                // called after some tables were looked through, concurrently; nil: not called
	Logger     *slog.Logger                                    // of the resident form; nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer                           // nil: metrics are not exported
}

// Purger removes old rows. Purge may be called again, not concurrently.
type Purger struct {
	cfg     PurgeConfig
	rows    int // in one transaction at most; tests have fewer
	metrics *recurring
}

// NewPurger makes a Purger.
func NewPurger(cfg PurgeConfig) *Purger {
	cfg.Logger = loop.Logger(cfg.Logger)
	return &Purger{cfg: cfg, rows: purgeBatch, metrics: newRecurring(cfg.Registerer, PurgeResult{}.Ended(false), "Purge", "ok, failed", 1, 10, 60, 600, 3600)}
}

// Run purges at each of the times until ctx ends.
// A purge that outlasts the next time delays it; none run side by side.
func (p *Purger) Run(ctx context.Context, at Times) {
	var limit loop.LogLimit // a schedule may fire every second
	Each(ctx, at, func(ctx context.Context) {
		result, err := p.Purge(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			limit.Of(p.cfg.Logger, "failed").Error("purge failed in part", "error", err, "result", result.String())
		case len(result.Lacking) > 0:
			limit.Of(p.cfg.Logger, "lacking").Warn("purge may not remove runs or acts: its user lacks rights on the tables run and act, as `tocsin ddl grants --role purge` prints them", "databases", len(result.Lacking), "result", result.String())
		case result.Batches > 0:
			p.cfg.Logger.Info("purged", "result", result.String())
		}
	})
}

// Purge looks once through every table of every server, all servers at the same
// time. Its error joins those of the servers and tables that failed; the result
// is good for the others all the same. When ctx ends, it returns what it has.
func (p *Purger) Purge(ctx context.Context) (PurgeResult, error) {
	start := time.Now()
	result, err := p.purge(ctx)
	result.Took = time.Since(start)
	word := "ok"
	if err != nil {
		word = "failed"
	}
	if p.metrics.ended(word, result.Took); !p.cfg.DryRun {
		p.metrics.add(result.Ended(err == nil))
	}
	return result, err
}

// purge is Purge without its metrics.
func (p *Purger) purge(ctx context.Context) (PurgeResult, error) {
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
	return result, store.Join(errs...)
}

// Removed counts tasks by the status in which they were removed.
type Removed struct {
	Done      int `json:"done"`
	Cancelled int `json:"cancelled"`
	Dead      int `json:"dead"`
}

func (r Removed) plus(o Removed) Removed {
	return Removed{r.Done + o.Done, r.Cancelled + o.Cancelled, r.Dead + o.Dead}
}

// removedIn counts n tasks of one status.
func removedIn(status tocsin.Status, n int) Removed {
	switch status {
	case tocsin.Done:
		return Removed{Done: n}
	case tocsin.Cancelled:
		return Removed{Cancelled: n}
	}
	return Removed{Dead: n}
}

// PurgeResult is the result of one purge; of a dry run: what a purge would remove.
type PurgeResult struct {
	DryRun   bool               `json:"dry_run"`
	Tables   int                `json:"tables"`   // looked through without an error
	Types    map[string]Removed `json:"types"`    // by biz type; only types that lost rows
	Bells    int                `json:"bells"`    // rings of the doorbell removed; not counted in a dry run
	Runs     int                `json:"runs"`     // of the history, removed
	Acts     int                `json:"acts"`     // removed; not counted in a dry run
	Batches  int                `json:"batches"`  // transactions
	Timeouts int                `json:"timeouts"` // of those: held up by another's lock, and tried again with fewer rows
	Locked   int                `json:"locked"`   // rows left because they stayed locked
	Lacking  []int              `json:"lacking"`  // databases whose runs or acts were left since the user has no right to them; no failure
	Failed   []string           `json:"failed"`   // servers that could not be purged in full
	Took     time.Duration      `json:"took_ns"`
}

// Total is the number of tasks removed, over all biz types.
func (r PurgeResult) Total() (total Removed) {
	for _, n := range r.Types {
		total = total.plus(n)
	}
	return total
}

// add adds what was done on one server.
func (r *PurgeResult) add(o PurgeResult) {
	r.Bells += o.Bells
	r.Runs += o.Runs
	r.Acts += o.Acts
	r.Batches += o.Batches
	r.Timeouts += o.Timeouts
	r.Locked += o.Locked
	r.Lacking = append(r.Lacking, o.Lacking...)
	for name, n := range o.Types {
		r.Types[name] = r.Types[name].plus(n)
	}
}

// String is the summary line.
func (r PurgeResult) String() string {
	total := r.Total()
	var b strings.Builder
	fmt.Fprintf(&b, "%d tables, %d done, %d cancelled, %d dead, %d bells, %d batches, %d time-outs, %d left locked, took %s",
		r.Tables, total.Done, total.Cancelled, total.Dead, r.Bells, r.Batches, r.Timeouts, r.Locked, r.Took.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(r.Types)) {
		n := r.Types[name]
		fmt.Fprintf(&b, "; %s: %d", name, n.Done+n.Cancelled+n.Dead)
	}
	if r.Runs > 0 {
		fmt.Fprintf(&b, "; %d runs", r.Runs)
	}
	if r.Acts > 0 {
		fmt.Fprintf(&b, "; %d acts", r.Acts)
	}
	if len(r.Lacking) > 0 {
		fmt.Fprintf(&b, "; no right to the runs or acts of %d databases", len(r.Lacking))
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "; not purged in full: %s", strings.Join(r.Failed, ", "))
	}
	return b.String()
}

// Ended returns the metrics of the purge. ok says that it did all its work.
func (r PurgeResult) Ended(ok bool) Ended {
	byStatus := func(set func(n int, labels ...string)) {
		total := r.Total()
		set(total.Done, "done")
		set(total.Cancelled, "cancelled")
		set(total.Dead, "dead")
	}
	return Ended{Subsystem: "purger", Took: r.Took, OK: ok, Figures: []Figure{
		{Name: "removed", Last: "Finished tasks that the last purge removed, by status.", Total: "Finished tasks removed, by status.", Labels: []string{"status"}, Values: byStatus},
		{Name: "bells", Last: "Rings of the doorbell that the last purge removed.", Total: "Rings of the doorbell removed.", Value: r.Bells},
		{Name: "runs", Last: "Runs of the history that the last purge removed.", Total: "Runs of the history removed.", Value: r.Runs},
		{Name: "timeouts", Total: "Batches that another's lock held up, and that were tried again with fewer rows.", Value: r.Timeouts},
		{Name: "locked", Last: "Finished tasks that the last purge left because their row stayed locked.", Total: "Finished tasks left because their row stayed locked.", Value: r.Locked},
		{Name: "lacking_databases", Last: "Databases whose runs the last purge left since its user has no right to them.", Value: len(r.Lacking)},
		{Name: "failed_servers", Last: "Servers that the last purge could not purge in full.", Value: len(r.Failed)},
	}}
}
