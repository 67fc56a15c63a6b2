package devcluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/upkeep"
)

// startUpkeep sweeps, purges and audits until ctx ends; ended waits for that and returns what ended before.
func (c *Cluster) startUpkeep(ctx context.Context, opts DemoOptions) (ended func() error, err error) {
	files, err := c.page.textfiles()
	if err != nil {
		return nil, err
	}
	tables, err := store.Connect(ctx, c.Config)
	if err != nil {
		return nil, err
	}
	registry := prometheus.WrapRegistererWith(prometheus.Labels{"cluster": ClusterID}, c.page.registry(pageUpkeep))
	cfg := c.nodeConfig("sweeper")
	cfg.Registerer = registry
	sweeper, err := node.NewSweeper(cfg, c.handlers("sweeper"))
	if err != nil {
		return nil, errors.Join(err, tables.Close())
	}
	purge := upkeep.NewPurger(upkeep.PurgeConfig{
		Store:      tables,
		Policies:   func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, c.Config) },
		Logger:     c.opts.Logger,
		Registerer: registry,
	})
	purgeAndAudit := func(ctx context.Context) {
		_, _ = purge.Purge(ctx) // its metrics tell
		c.audit(ctx, tables, files)
	}
	purgeAndAudit(ctx) // nothing is overdue yet: both have succeeded once, whatever comes
	var group sync.WaitGroup
	var swept error
	group.Go(func() { swept = sweeper.Run(ctx, "@every "+opts.Sweep.String()) })
	group.Go(func() { upkeep.Each(ctx, every(opts.Upkeep), purgeAndAudit) })
	return func() error {
		group.Wait()
		return errors.Join(swept, tables.Close())
	}, nil
}

// every is the times that are so far apart.
type every time.Duration

// Next implements upkeep.Times.
func (e every) Next(after time.Time) time.Time { return after.Add(time.Duration(e)) }

// audit writes what an audit finds, as tocsin audit --textfile does.
func (c *Cluster) audit(ctx context.Context, tables *store.Store, files string) {
	policies, err := biztype.Load(ctx, c.Config)
	if err != nil {
		return
	}
	report, err := upkeep.Audit(ctx, upkeep.AuditConfig{Store: tables, Policies: policies, Grace: demoGrace})
	_ = upkeep.WriteTextfile(files, "tocsin_audit", report.Ended(err == nil).Metrics(prometheus.Labels{"cluster": ClusterID})) // shown as an old time
}
