package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/upkeep"
)

// outlet is where commands that cron starts leave their metrics.
type outlet struct {
	dir string // of node_exporter's textfile collector; "": not there
	url string // of a Pushgateway; "": to none
}

// outletFlags adds the flags of commands that cron starts.
func outletFlags(c *cobra.Command, o *outlet) {
	c.Flags().StringVar(&o.dir, "textfile", "", "also write the result as metrics into this directory of node_exporter's textfile collector")
	c.Flags().StringVar(&o.url, "push", "", "also push the result as metrics to the Pushgateway at this URL, where no directory outlasts the command")
}

// check refuses what can't be used; never means that the command would leave no metrics. A directory that is missing, or a
// Pushgateway that does not answer, is an error after the work, which is more important than its metrics.
func (o outlet) check(never bool) error {
	for flag, value := range map[string]string{"--textfile": o.dir, "--push": o.url} {
		if value != "" && never {
			return usage("%s: with --dry-run and --against nothing is written", flag)
		}
	}
	if u, err := url.Parse(o.url); o.url != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return usage("--push %q: want the URL of a Pushgateway, such as http://pushgateway:9091", o.url)
	}
	return nil
}

// once leaves the metrics of a single run of the work.
func (o outlet) once(ctx context.Context, work string, file config.File, run upkeep.Ended) error {
	return o.leave(ctx, outletOf(work, file), run.Metrics(ofCluster(file)))
}

// leaveEvery is how often a resident command leaves its metrics.
const leaveEvery = 5 * time.Second

// whileResident leaves what the registry holds again and again until work returns, and once more then; nothing before a first
// run has ended, so that what the process before has left stays until then.
func (o outlet) whileResident(ctx context.Context, name string, registry *prometheus.Registry, work func() error) error {
	leave := func() error {
		if o == (outlet{}) || !hasRun(registry) {
			return nil
		}
		return o.leave(ctx, name, registry)
	}
	leaving, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for loop.Wait(leaving, leaveEvery) == nil {
			_ = leave() // a directory or a Pushgateway may come back; the last time is told
		}
	})
	err := work()
	end()
	wg.Wait()
	return errors.Join(err, leave())
}

// kept keeps the metrics of a sweeper that has ended: they are left after its end.
type kept struct{ prometheus.Registerer }

func (kept) Unregister(prometheus.Collector) bool { return true }

// leave leaves what a registry holds. The work is done, so it is pushed even if ctx has ended.
func (o outlet) leave(ctx context.Context, name string, registry *prometheus.Registry) error {
	var errs []error
	if o.dir != "" {
		errs = append(errs, upkeep.WriteTextfile(o.dir, name, registry))
	}
	if o.url != "" {
		errs = append(errs, upkeep.Push(context.WithoutCancel(ctx), o.url, name, registry))
	}
	return errors.Join(errs...)
}

// hasRun reports whether the registry knows of a run that has ended.
func hasRun(registry *prometheus.Registry) bool {
	families, err := registry.Gather()
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), "_last_run_timestamp_seconds") && f.GetMetric()[0].GetGauge().GetValue() > 0 {
			return err == nil
		}
	}
	return false
}

// Cron may run the commands of several clusters on one host, so each has files of its own, with its id as a label.

func outletOf(work string, file config.File) string {
	return strings.TrimSuffix("tocsin_"+work+"_"+file.Cluster, "_")
}

func ofCluster(file config.File) prometheus.Labels { return prometheus.Labels{"cluster": file.Cluster} }
