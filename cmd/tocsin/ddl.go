package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/ddl"
)

func newDDL(a *app) *cobra.Command {
	return group("ddl", "Plan, create and verify the tables, and move databases", newDDLPlan(a), newDDLApply(a), newDDLVerify(a), newDDLMove(a))
}

// clusterFlags let the first apply choose the cluster id and the identity.
func clusterFlags(cmd *cobra.Command, opt *ddl.Options) {
	cmd.Flags().StringVar(&opt.Identity, "identity", "", "identity of databases that have none (default: that of the others, else a new one)")
	cmd.Flags().StringVar(&opt.Cluster, "cluster", "", "cluster id of new databases (default: the config's, else the stored one, else a new one)")
}

// plannedServer is the JSON of `ddl plan` for one server.
type plannedServer struct {
	Server string `json:"server"`
	File   string `json:"file,omitempty"` // with --out
	SQL    string `json:"sql,omitempty"`  // without
}

func newDDLPlan(a *app) *cobra.Command {
	var opt ddl.Options
	var dir string
	cmd := &cobra.Command{
		Use: "plan", Short: "Show every statement for review, without connecting to a server", Args: noArgs,
		Long: "Show every statement that `ddl apply` would run on empty servers. Nothing is connected\n" +
			"to. What is shown may be run with a SQL client instead.",
		RunE: func(*cobra.Command, []string) error { return a.planDDL(opt, dir) },
	}
	clusterFlags(cmd, &opt)
	cmd.Flags().StringVar(&dir, "out", "", "write one .sql file per server into this folder")
	return cmd
}

func (a *app) planDDL(opt ddl.Options, dir string) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	plans, err := ddl.Plan(cfg, opt)
	if err != nil {
		return err
	}
	if dir != "" {
		return a.writePlans(plans, dir)
	}
	planned := make([]plannedServer, len(plans))
	for i, p := range plans {
		planned[i] = plannedServer{Server: p.Server, SQL: p.Text}
	}
	return a.print(planned, func(w io.Writer) {
		for _, p := range plans {
			fmt.Fprintln(w, p.Text)
		}
	})
}

func (a *app) writePlans(plans []ddl.ServerPlan, dir string) error {
	paths, err := ddl.WritePlan(dir, plans)
	if err != nil {
		return err
	}
	planned := make([]plannedServer, len(plans))
	for i, p := range plans {
		planned[i] = plannedServer{Server: p.Server, File: paths[i]}
	}
	return a.print(planned, func(w io.Writer) {
		for _, p := range planned {
			fmt.Fprintln(w, p.File)
		}
	})
}

// appliedDDL is the JSON of `ddl apply`.
type appliedDDL struct {
	Cluster   string  `json:"cluster"`
	Identity  string  `json:"identity"`
	Databases int     `json:"databases"` // created
	Tables    int     `json:"tables"`    // created
	Existing  int     `json:"existing"`  // tables that were there before
	Seconds   float64 `json:"seconds"`
	Warning   string  `json:"warning,omitempty"`
}

func newDDLApply(a *app) *cobra.Command {
	var opt ddl.Options
	cmd := &cobra.Command{
		Use: "apply", Short: "Create the databases and tables that are missing", Args: noArgs,
		Long: "Create what is missing, on all servers at once. It never drops anything, alters only\n" +
			"a layout table that is older than its column identity, may be run again at any time,\n" +
			"and goes on where it was interrupted.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.applyDDL(cmd, opt) },
	}
	clusterFlags(cmd, &opt)
	cmd.Flags().IntVar(&opt.Parallel, "parallel", 0, fmt.Sprintf("connections to each server (default %d)", ddl.DefaultParallel))
	cmd.Flags().DurationVar(&opt.DoorbellHorizon, "doorbell-horizon", 0, "tasks nearer than this ring the doorbell; two scan intervals (default "+ddl.DefaultDoorbellHorizon.String()+")")
	return cmd
}

func (a *app) applyDDL(cmd *cobra.Command, opt ddl.Options) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	shown := a.progress("create", "tables")
	opt.Progress = shown.report
	begin := time.Now()
	res, err := ddl.Apply(cmd.Context(), cfg, opt)
	shown.end()
	if err != nil {
		if res.Tables > 0 {
			return fmt.Errorf("%w; %d tables were created: run it again to go on", err, res.Tables)
		}
		return err
	}
	took := time.Since(begin)
	done := appliedDDL{res.Cluster, res.Identity, res.Databases, res.Tables, res.Existing, took.Round(time.Millisecond).Seconds(), res.Warning}
	return a.print(done, func(w io.Writer) {
		if res.Warning != "" {
			fmt.Fprintf(w, "warning: %s\n", res.Warning)
		}
		fmt.Fprintf(w, "cluster %s, layout %s: %d databases and %d tables created, %d tables were there; in %s\n",
			res.Cluster, cfg.Layout, res.Databases, res.Tables, res.Existing, took.Round(time.Millisecond))
	})
}

// ddlFinding is the JSON of one finding of `ddl verify`.
type ddlFinding struct {
	Server  string `json:"server"`
	Object  string `json:"object"`
	Detail  string `json:"detail"`
	Warning bool   `json:"warning"` // no failure
}

func newDDLVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Name every table, column and index that is missing or differs", Args: noArgs,
		Long: "Compare the tables of all servers with what this program expects. Exit code 1 if\n" +
			"anything is missing or differs; warnings are no failures.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.verifyDDL(cmd) },
	}
}

func (a *app) verifyDDL(cmd *cobra.Command) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	findings, failed := ddl.Verify(cmd.Context(), cfg)
	found := make([]ddlFinding, len(findings))
	differs := false
	for i, f := range findings {
		found[i] = ddlFinding(f)
		differs = differs || !f.Warning
	}
	err = a.print(found, func(w io.Writer) {
		for _, f := range findings {
			fmt.Fprintln(w, f)
		}
		switch {
		case differs || failed != nil:
		case len(findings) > 0:
			fmt.Fprintf(w, "no table of layout %s is missing or differs, but there are warnings\n", cfg.Layout)
		default:
			fmt.Fprintf(w, "all tables of layout %s are as they should be\n", cfg.Layout)
		}
	})
	if err = errors.Join(err, failed); err == nil && differs {
		return errSilent
	}
	return err
}
