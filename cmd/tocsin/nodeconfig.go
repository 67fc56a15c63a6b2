package main

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
)

// nodeConfig maps the config file to a node's.
func nodeConfig(file config.File, a *app, r prometheus.Registerer) node.Config {
	return node.Config{
		Tables:       file.Tocsin(),
		Ownership:    file.Layout.Ownership,
		Name:         file.Node.Name,
		Weight:       file.Node.Weight,
		PayloadBytes: int64(file.Node.PayloadMiB) << 20,
		ScanInterval: file.Scan.Interval.D(),
		LookAhead:    file.Scan.LookAhead.D(),
		SweepGrace:   file.Sweep.Grace.D(),
		SweepTimeout: file.Sweep.Timeout.D(),
		DrainTimeout: file.Node.DrainTimeout.D(),
		SecretsDir:   file.Node.SecretsDir,
		Version:      version,
		Logger:       a.logger(file.Log.Level, file.Log.Format),
		Registerer:   r,
	}
}

// serveConfig is that of a node that runs, with the flags over the file, and what guards its status page.
func (a *app) serveConfig(f serveFlags, r prometheus.Registerer) (node.Config, guard, error) {
	file, err := a.load()
	if err != nil {
		return node.Config{}, guard{}, err
	}
	cfg := nodeConfig(file, a, r)
	cfg.Group, cfg.Listen, cfg.Outboxes = f.group, file.Node.Listen, file.Relayed()
	if f.name != "" {
		cfg.Name = f.name
	}
	if f.listen != "" {
		cfg.Listen = f.listen
	}
	guarded, err := newGuard(file.Node.Status)
	if err != nil || cfg.Ownership == node.ByRows {
		return cfg, guarded, err
	}
	if len(file.Etcd.Endpoints) == 0 {
		return cfg, guarded, errors.New("no etcd endpoints in the config: a node registers there, unless layout.ownership is rows")
	}
	cfg.Etcd, err = file.EtcdConfig()
	return cfg, guarded, err
}

// sweepConfig is that of a sweeper, with the flags over the file.
func (a *app) sweepConfig(file config.File, f sweepFlags) (cfg node.Config, cron string) {
	cfg, cron = nodeConfig(file, a, nil), file.Sweep.Cron
	if f.cron != "" {
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
	return cfg, cron
}
