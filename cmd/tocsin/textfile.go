package main

import (
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
)

// textfileFlag adds the flag of commands that cron starts.
func textfileFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "textfile", "", "also write the result as metrics into this directory of node_exporter's textfile collector")
}

// checkTextfile refuses the flag if the command writes no file, or could not.
func checkTextfile(dir string, never bool) error {
	switch info, err := os.Stat(dir); {
	case dir == "":
		return nil
	case never:
		return usage("--textfile is for a single run that does its work: not with --cron (nor a cron in the config, unless --once), --dry-run or --against")
	case err != nil:
		return usage("--textfile: %v", err)
	case !info.IsDir():
		return usage("--textfile %s: not a directory", dir)
	}
	return nil
}

// Cron may run the commands of several clusters on one host, so each has files of its own, with its id as a label.

func textfileOf(work string, file config.File) string {
	return strings.TrimSuffix("tocsin_"+work+"_"+file.Cluster, "_")
}

func ofCluster(file config.File) prometheus.Labels { return prometheus.Labels{"cluster": file.Cluster} }
