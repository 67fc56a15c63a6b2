// Package live tests the queries of the dashboards and the rules of deploy/prometheus in a demo: a whole Tocsin on this machine
// under a load that fails in part, in which one of two database servers goes down and comes back, and a real Prometheus that
// collects its metrics.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// demo is a running one.
type demo struct {
	began   time.Time
	cluster *devcluster.Cluster
	prom    promv1.API
}

// startDemo starts a Tocsin with two database servers and three nodes, its load, and a Prometheus, which evaluates all rules
// each second, as the demo is short. They end with the test; ctx must last as long.
func startDemo(ctx context.Context, t *testing.T) *demo {
	t.Helper()
	d := &demo{began: time.Now()}
	rules := t.TempDir()
	if err := dashboards.CopyRules(ruleFolder, rules, dashboards.AtOneInterval); err != nil {
		t.Fatal(err)
	}
	var err error
	d.cluster, err = devcluster.Start(ctx, devcluster.Options{
		Layout: tocsin.Layout{Databases: 4, Tables: 4}, Servers: 2, Nodes: 3, Demo: true, Version: "demo", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	url, err := d.cluster.Watch(ctx, devcluster.WatchOptions{Every: time.Second, Rules: []string{filepath.Join(rules, "*.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		t.Fatal(err)
	}
	d.prom = promv1.NewAPI(client)
	d.load(ctx, t)
	return d
}

// load adds tasks, sweeps, purges and audits until the test ends.
func (d *demo) load(ctx context.Context, t *testing.T) {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- d.cluster.Demo(ctx, devcluster.DemoOptions{Rate: 50, Sweep: 4 * time.Second, Upkeep: 5 * time.Second})
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Queries that are 1 when the metrics tell what they name.
const (
	allReached = `min(tocsin_node_server_up)`
	sweptOnce  = `min(tocsin_sweeper_last_success_timestamp_seconds > bool 0)`
	seenDown   = `(1 - min(tocsin_node_server_up)) * (sum(tocsin_client_calls_total{result=~"unreachable|unknown_outcome"}) > bool 0)`
)

// breakServer kills the second database server until the metrics of nodes and client tell of it, and brings it back. Before
// that it waits for a sweep that leaves nothing: later ones will.
func (d *demo) breakServer(ctx context.Context) error {
	for _, query := range []string{allReached, sweptOnce} {
		if err := d.await(ctx, query); err != nil {
			return err
		}
	}
	if err := d.cluster.Servers[1].Kill(); err != nil {
		return err
	}
	if err := d.await(ctx, seenDown); err != nil {
		return err
	}
	if err := d.cluster.Servers[1].Restart(ctx); err != nil {
		return err
	}
	return d.await(ctx, allReached)
}

// await returns when Prometheus answers the query with 1.
func (d *demo) await(ctx context.Context, query string) error {
	for {
		now := time.Now()
		found, err := d.ask(ctx, query, now, now)
		if err == nil && len(found) > 0 && found[0] == 1 {
			return nil
		}
		if stopped := loop.Wait(ctx, 200*time.Millisecond); stopped != nil {
			return errors.Join(fmt.Errorf("%s: %w", query, stopped), err)
		}
	}
}

// ask evaluates a query at each second between two times, and returns the numbers in the answer.
func (d *demo) ask(ctx context.Context, query string, from, to time.Time) ([]float64, error) {
	answer, _, _, err := d.prom.QueryRange(ctx, query, promv1.Range{Start: from, End: to, Step: time.Second})
	if err != nil {
		return nil, err
	}
	series, _ := answer.(model.Matrix)
	var numbers []float64
	for _, s := range series {
		for _, sample := range s.Values {
			if v := float64(sample.Value); !math.IsNaN(v) {
				numbers = append(numbers, v)
			}
		}
	}
	return numbers, nil
}
