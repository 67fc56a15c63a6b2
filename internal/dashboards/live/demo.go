package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// Options of a Demo. All are needed.
type Options struct {
	Rules         string        // folder of the files *.rules.yaml
	Every         time.Duration // between two looks of Prometheus
	Sweep, Upkeep time.Duration // between two sweeps; between two purges and audits
	Rate          int           // tasks added each second
}

// Demo is a running one.
type Demo struct {
	*Prometheus
	Began time.Time

	cluster *devcluster.Cluster
	rules   string // folder of the rules that Prometheus reads
	end     context.CancelFunc
	load    chan error
}

// Start starts a Tocsin with two database servers and three nodes, its load, and a Prometheus.
func Start(ctx context.Context, opts Options) (*Demo, error) {
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	d := &Demo{Began: time.Now(), end: end}
	if err := d.start(ctx, run, opts); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func (d *Demo) start(ctx, run context.Context, opts Options) (err error) {
	if d.rules, err = os.MkdirTemp("", "demo-tocsin-rules-"); err != nil {
		return err
	}
	if err := dashboards.CopyRules(opts.Rules, d.rules, func(text string) string { return ownInterval.ReplaceAllString(text, "") }); err != nil {
		return err
	}
	d.cluster, err = devcluster.Start(ctx, devcluster.Options{
		Layout: tocsin.Layout{Databases: 4, Tables: 4}, Servers: 2, Nodes: 3, Demo: true, Version: "demo", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	url, err := d.cluster.Watch(ctx, devcluster.WatchOptions{Every: opts.Every, Rules: []string{filepath.Join(d.rules, "*.yaml")}})
	if err != nil {
		return err
	}
	if d.Prometheus, err = Dial(url); err != nil {
		return err
	}
	d.load = make(chan error, 1)
	go func() {
		d.load <- d.cluster.Demo(run, devcluster.DemoOptions{Rate: opts.Rate, Sweep: opts.Sweep, Upkeep: opts.Upkeep})
	}()
	return nil
}

// ownInterval is the line by which a group of rules is evaluated less often than others. A demo is too short for that: it
// evaluates all rules at each look.
var ownInterval = regexp.MustCompile(`(?m)^ +interval: .*\n`)

// Queries that are 1 when the metrics tell what they name.
const (
	allReached = `min(tocsin_node_server_up)`
	sweptOnce  = `min(tocsin_sweeper_last_success_timestamp_seconds > bool 0)`
	seenDown   = `(1 - min(tocsin_node_server_up)) * (sum(tocsin_client_calls_total{result=~"unreachable|unknown_outcome"}) > bool 0)`
)

// BreakServer kills the second database server until the metrics of nodes and client tell of it, and brings it back. Before
// that it waits for a sweep that leaves nothing: later ones will.
func (d *Demo) BreakServer(ctx context.Context) error {
	for _, query := range []string{allReached, sweptOnce} {
		if err := d.await(ctx, query); err != nil {
			return err
		}
	}
	if err := d.cluster.StopServer(1); err != nil {
		return err
	}
	if err := d.await(ctx, seenDown); err != nil {
		return err
	}
	if err := d.cluster.StartServer(ctx, 1); err != nil {
		return err
	}
	return d.await(ctx, allReached)
}

// await returns when Prometheus answers the query with 1.
func (d *Demo) await(ctx context.Context, query string) error {
	for {
		now := time.Now()
		found, err := d.Ask(ctx, query, now, now, time.Second)
		if err == nil && len(found) > 0 && found[0].Values[0].Value == 1 {
			return nil
		}
		if stopped := wait.For(ctx, 200*time.Millisecond); stopped != nil {
			return errors.Join(fmt.Errorf("%s: %w", query, stopped), err)
		}
	}
}

// Stop ends everything and waits for it.
func (d *Demo) Stop() error {
	d.end()
	var errs []error
	if d.load != nil {
		errs = append(errs, <-d.load)
	}
	if d.cluster != nil {
		errs = append(errs, d.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(d.rules))...)
}
