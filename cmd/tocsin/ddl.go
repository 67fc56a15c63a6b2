package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

func newDDL(a *app) *cobra.Command {
	return group("ddl", "Plan, create, upgrade and verify the tables, and move and restore databases",
		newDDLPlan(a), newDDLApply(a), newDDLVerify(a), newDDLFinish(a), newDDLOwnership(a), newDDLGrace(a), newDDLMove(a), newDDLRestoreCheck(a), newDDLGrants(a))
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
	var migrate bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show every statement for review, without running any", Args: noArgs,
		Long: "Show every statement that `ddl apply` would run on empty servers, without connecting to\n" +
			"any. With --migrate, look at the servers and show what `ddl apply` would run there now:\n" +
			"the way of older tables to the schema version of this program. What is shown may be run\n" +
			"with a SQL client instead.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.planDDL(cmd.Context(), opt, dir, migrate) },
	}
	clusterFlags(cmd, &opt)
	cmd.Flags().BoolVar(&migrate, "migrate", false, "look at the servers, and show what their tables lack")
	cmd.Flags().StringVar(&dir, "out", "", "write one .sql file per server into this folder")
	return cmd
}

func (a *app) planDDL(ctx context.Context, opt ddl.Options, dir string, migrate bool) error {
	cfg, opt, err := a.owned(opt)
	if err != nil {
		return err
	}
	var plans []ddl.ServerPlan
	if migrate {
		plans, err = ddl.PlanMigration(ctx, cfg, opt)
	} else {
		plans, err = ddl.Plan(cfg, opt)
	}
	if err != nil {
		return err
	}
	return a.showPlans(plans, dir)
}

// showPlans prints the plans, or writes them into a folder.
func (a *app) showPlans(plans []ddl.ServerPlan, dir string) error {
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
			"anything is missing or differs, or is of another schema version; warnings are no failures.",
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
			fmt.Fprintf(w, "all tables of layout %s are as they should be: schema version %d\n", cfg.Layout, layoutrow.SchemaVersion)
		}
	})
	if err = errors.Join(err, failed); err == nil && differs {
		return errSilent
	}
	return err
}
