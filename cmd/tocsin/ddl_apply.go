package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// appliedDDL is the JSON of `ddl apply`.
type appliedDDL struct {
	Cluster   string  `json:"cluster"`
	Identity  string  `json:"identity"`
	Databases int     `json:"databases"`  // created
	Tables    int     `json:"tables"`     // created
	Existing  int     `json:"existing"`   // tables that were there before
	Altered   int     `json:"altered"`    // changes made to these
	From      int     `json:"from"`       // the oldest schema version found; 0: all is new
	Version   int     `json:"version"`    // the schema version now
	WorksWith int     `json:"works_with"` // the oldest that programs may be for
	Seconds   float64 `json:"seconds"`
	Warning   string  `json:"warning,omitempty"`
}

func newDDLApply(a *app) *cobra.Command {
	var opt ddl.Options
	cmd := &cobra.Command{
		Use: "apply", Short: "Create the tables that are missing, and upgrade those that are older", Args: noArgs,
		Long: "Create what is missing, on all servers at once, and bring tables of the schema version\n" +
			"before to that of this program, table by table. Programs for the older version may go\n" +
			"on, until `ddl finish`. It drops nothing and copies no row, may be run again at any\n" +
			"time, and goes on where it was interrupted. `ddl plan --migrate` shows what it would do.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.applyDDL(cmd, opt) },
	}
	clusterFlags(cmd, &opt)
	cmd.Flags().IntVar(&opt.Parallel, "parallel", 0, fmt.Sprintf("connections to each server (default %d)", ddl.DefaultParallel))
	cmd.Flags().DurationVar(&opt.Wait, "wait", ddl.DefaultWait, "how long to wait for transactions that hold tables to alter, and for another apply")
	cmd.Flags().DurationVar(&opt.DoorbellHorizon, "doorbell-horizon", 0, "tasks nearer than this ring the doorbell; two scan intervals (default "+ddl.DefaultDoorbellHorizon.String()+")")
	return cmd
}

func (a *app) applyDDL(cmd *cobra.Command, opt ddl.Options) error {
	cfg, opt, err := a.owned(opt)
	if err != nil {
		return err
	}
	created, migrated := a.progress("create", "tables"), a.progress("migrate", "tables")
	opt.Progress, opt.Migrated = created.report, migrated.report
	begin := time.Now()
	res, err := ddl.Apply(cmd.Context(), cfg, opt)
	created.end()
	migrated.end()
	if err != nil {
		if res.Tables+res.Altered > 0 {
			return fmt.Errorf("%w; %d tables were created, %d altered: run it again to go on", err, res.Tables, res.Altered)
		}
		return err
	}
	took := time.Since(begin)
	done := appliedDDL{res.Cluster, res.Identity, res.Databases, res.Tables, res.Existing, res.Altered,
		res.From, layoutrow.SchemaVersion, res.WorksWith, took.Round(time.Millisecond).Seconds(), res.Warning}
	return a.print(done, func(w io.Writer) {
		if res.Warning != "" {
			fmt.Fprintf(w, "warning: %s\n", res.Warning)
		}
		fmt.Fprintf(w, "cluster %s, layout %s: %d databases and %d tables created, %d tables were there; in %s\n",
			res.Cluster, cfg.Layout, res.Databases, res.Tables, res.Existing, took.Round(time.Millisecond))
		done.upgraded(w)
	})
}

// upgraded writes what was migrated, and what is left to do.
func (d appliedDDL) upgraded(w io.Writer) {
	if d.Altered > 0 || d.From > 0 && d.From < d.Version {
		fmt.Fprintf(w, "schema version %d, was %d: %d changes to tables\n", d.Version, d.From, d.Altered)
	}
	if d.WorksWith < d.Version {
		fmt.Fprintf(w, "programs for schema version %d or newer work with it: when all are for version %d, run `tocsin ddl finish`\n", d.WorksWith, d.Version)
	}
}

// finishedDDL is the JSON of `ddl finish`.
type finishedDDL struct {
	Version   int `json:"version"`    // schema version of all databases, and the oldest that programs may be for
	WorkedFor int `json:"worked_for"` // the oldest that programs could be for until now
	Databases int `json:"databases"`  // changed now
}

func newDDLFinish(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "finish", Short: "End an upgrade: refuse programs for older schema versions", Args: noArgs,
		Long: "End an upgrade, when every program is for the schema version that `ddl apply` made. From\n" +
			"then on all databases refuse programs for an older one, which say so and leave the tasks\n" +
			"to others, and what the new version brought may be used. It fails unless all tables are\n" +
			"of that version, and while etcd knows a node of an older program. Services and sweepers\n" +
			"are not registered there: replace them too, first. Before it, going back is to start the\n" +
			"older program again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.finishDDL(cmd, force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "don't look in etcd for nodes of older programs")
	return cmd
}

// noOlderNode fails while a node of an older program is registered. Such a node may not read the layout row again after
// its start, and would go on.
func (a *app) noOlderNode(ctx context.Context) error {
	groups, err := a.nodes(ctx, "")
	if err != nil {
		return err
	}
	for _, group := range groups {
		for _, n := range group.Nodes {
			if schema := max(n.Info.Schema, 1); schema < layoutrow.SchemaVersion {
				return fmt.Errorf("node %s of group %s runs a program for schema version %d, the tables are of version %d: replace it by a newer program",
					n.ID, group.Group, schema, layoutrow.SchemaVersion)
			}
		}
	}
	return nil
}

func (a *app) finishDDL(cmd *cobra.Command, force bool) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	if !force {
		if err := a.noOlderNode(cmd.Context()); err != nil {
			return fmt.Errorf("%w (--force finishes all the same)", err)
		}
	}
	done, err := ddl.Finish(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return a.print(finishedDDL(done), func(w io.Writer) {
		if done.Databases == 0 {
			fmt.Fprintf(w, "schema version %d: programs for older ones were refused already\n", done.Version)
			return
		}
		fmt.Fprintf(w, "schema version %d: %d databases refuse programs for older ones from now on; until now those for version %d worked\n",
			done.Version, done.Databases, done.WorkedFor)
	})
}
