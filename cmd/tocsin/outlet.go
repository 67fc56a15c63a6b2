package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// textfileFlag adds the flag of commands that cron starts.
func textfileFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "textfile", "", "also write the result as metrics into this directory of node_exporter's textfile collector")
}

// checkTextfile refuses the flag if the command would write no file. A directory that is missing is an error after the work,
// which is more important than its metrics.
func checkTextfile(dir string, never bool) error {
	if dir != "" && never {
		return usage("--textfile: with --dry-run and --against nothing is written")
	}
	return nil
}

// textfileEvery is how often a resident command writes its file.
const textfileEvery = 5 * time.Second

// whileResident writes what the registry holds until work returns; nothing before a first run has ended, so that the file
// of the process before stays until then. It returns an error if the file could not be written last.
func whileResident(ctx context.Context, dir, name string, registry *prometheus.Registry, work func() error) error {
	writing, end := context.WithCancel(ctx)
	var written error
	var wg sync.WaitGroup
	wg.Go(func() {
		for wait.For(writing, textfileEvery) == nil { // a directory may come back
			if hasRun(registry) {
				written = prometheus.WriteToTextfile(filepath.Join(dir, name+".prom"), registry)
			}
		}
	})
	err := work()
	end()
	wg.Wait()
	return errors.Join(err, written)
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

func textfileOf(work string, file config.File) string {
	return strings.TrimSuffix("tocsin_"+work+"_"+file.Cluster, "_")
}

func ofCluster(file config.File) prometheus.Labels { return prometheus.Labels{"cluster": file.Cluster} }
