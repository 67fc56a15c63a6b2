package node

import (
	"context"

	"github.com/tocsinhq/tocsin/generator"
	"github.com/tocsinhq/tocsin/schedule"
)

// newGenerator makes what makes the runs of schedules: of the tables that this node owns. If nobody owns tables, every node
// makes those of all, and whoever is first makes them.
func (p *parts) newGenerator() (*generator.Generator, error) {
	cfg := generator.Config{
		Maker: schedule.NewMaker(p.store), Servers: p.store.Servers(), Now: p.store.Now, Tables: p.group.Owned,
		Missed: func(m generator.Missed) { passedOver(p.alarms, m) }, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	}
	if p.holder != nil {
		cfg.Mine = p.holder.has
	}
	return generator.New(cfg)
}

// overdueRuns returns what makes the runs of schedules whose fire times have passed.
func (w *sweepParts) overdueRuns() (func(context.Context) (int, error), error) {
	g, err := generator.New(generator.Config{
		Maker: schedule.NewMaker(w.store), Servers: w.store.Servers(), Now: w.store.Now,
		Missed: func(m generator.Missed) { passedOver(w.alarms, m) }, Logger: w.cfg.Logger, Registerer: w.upkept,
	})
	return func(ctx context.Context) (int, error) {
		result, err := g.Overdue(ctx)
		return result.Runs, err
	}, err
}
