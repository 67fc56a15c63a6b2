package node

import (
	"context"

	"github.com/tocsinhq/tocsin/schedule"
)

// newGenerator makes what makes the runs of schedules: of the tables that this node owns. If nobody owns tables, every node
// makes those of all, and whoever is first makes them.
func (p *parts) newGenerator() *schedule.Generator {
	cfg := schedule.GeneratorConfig{
		Store: p.store, Tables: p.group.Owned, Missed: p.alarms.Missed, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	}
	if p.holder != nil {
		cfg.Mine = p.holder.has
	}
	return schedule.NewGenerator(cfg)
}

// overdueRuns returns what makes the runs of schedules whose fire times have passed.
func (w *sweepParts) overdueRuns() func(context.Context) (int, error) {
	g := schedule.NewGenerator(schedule.GeneratorConfig{Store: w.store, Missed: w.alarms.Missed, Logger: w.cfg.Logger, Registerer: w.upkept})
	return func(ctx context.Context) (int, error) {
		result, err := g.Overdue(ctx)
		return result.Runs, err
	}
}
