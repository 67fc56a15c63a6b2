package main

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsinpg"
)

// serveConfig is that of a node that runs, with the flags over the file, the file, and what guards its status page.
func (a *app) serveConfig(f serveFlags, r prometheus.Registerer) (node.Config, config.File, guard, error) {
	file, err := a.load()
	if err != nil {
		return node.Config{}, file, guard{}, err
	}
	cfg, err := file.NodeConfig()
	if err != nil {
		return cfg, file, guard{}, err
	}
	cfg.Version, cfg.Logger, cfg.Registerer, cfg.Group = version, a.logger(file.Log.Level, file.Log.Format), r, f.group
	cfg.Outboxes = tocsinpg.Drive(cfg.Outboxes)
	if f.name != "" {
		cfg.Name = f.name
	}
	cfg.Listen = cmp.Or(f.listen, file.Node.Listen)
	if cfg.Ownership != node.ByRows && len(file.Etcd.Endpoints) == 0 {
		return cfg, file, guard{}, errors.New("no etcd endpoints in the config: a node registers there, unless layout.ownership is rows")
	}
	guarded, err := newGuard(file.Node.Status)
	return cfg, file, guarded, err
}

// sweepConfig is that of a sweeper, with the flags over the file. It needs no etcd and moves no rows of outboxes.
func (a *app) sweepConfig(file config.File, f sweepFlags) (cfg node.Config, cron string, err error) {
	file.Etcd, file.Outboxes = config.Etcd{}, nil
	if cfg, err = file.NodeConfig(); err != nil {
		return cfg, "", err
	}
	cfg.Version, cfg.Logger = version, a.logger(file.Log.Level, file.Log.Format)
	if cron = file.Sweep.Cron; f.cron != "" {
		cron = f.cron
	}
	if f.graceSet {
		cfg.SweepGrace = max(f.grace, node.NoGrace)
	}
	switch {
	case f.timeoutSet && f.timeout == 0:
		cfg.SweepTimeout = node.NoTimeout
	case f.timeoutSet:
		cfg.SweepTimeout = f.timeout
	}
	return cfg, cron, nil
}
