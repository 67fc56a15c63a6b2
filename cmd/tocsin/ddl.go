package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, opt, err := a.owned(opt)
			if err != nil {
				return err
			}
			var plans []ddl.ServerPlan
			if migrate {
				plans, err = ddl.PlanMigration(cmd.Context(), cfg, opt)
			} else {
				plans, err = ddl.Plan(cfg, opt)
			}
			if err != nil {
				return err
			}
			return a.showPlans(plans, dir)
		},
	}
	clusterFlags(cmd, &opt)
	cmd.Flags().BoolVar(&migrate, "migrate", false, "look at the servers, and show what their tables lack")
	cmd.Flags().StringVar(&dir, "out", "", "write one .sql file per server into this folder")
	return cmd
}

// showPlans prints the plans, or writes them into a folder and prints where.
func (a *app) showPlans(plans []ddl.ServerPlan, dir string) error {
	planned := make([]plannedServer, len(plans))
	for i, p := range plans {
		planned[i] = plannedServer{Server: p.Server, SQL: p.Text}
	}
	if dir != "" {
		paths, err := ddl.WritePlan(dir, plans)
		if err != nil {
			return err
		}
		for i, path := range paths {
			planned[i].File, planned[i].SQL = path, ""
		}
	}
	return a.print(planned, func(w io.Writer) {
		for _, p := range planned {
			fmt.Fprintln(w, cmp.Or(p.File, p.SQL))
		}
	})
}

func newDDLVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Name every table, column and index that is missing or differs", Args: noArgs,
		Long: "Compare the tables of all servers with what this program expects. Exit code 1 if\n" +
			"anything is missing or differs, or is of another schema version; warnings are no failures.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.cluster()
			if err != nil {
				return err
			}
			found, failed := ddl.Verify(cmd.Context(), cfg)
			fits := fmt.Sprintf("all tables of layout %s are as they should be: schema version %d", cfg.Layout, layoutrow.SchemaVersion)
			if len(found) > 0 {
				fits = fmt.Sprintf("no table of layout %s is missing or differs, but there are warnings", cfg.Layout)
			}
			return a.printFindings(found, failed, fits)
		},
	}
}

// printFindings prints what differs, or fits if nothing does but for warnings. It ends with exit code 1 if anything differs.
func (a *app) printFindings(found []ddl.Finding, failed error, fits string) error {
	differs := slices.ContainsFunc(found, func(f ddl.Finding) bool { return !f.Warning })
	err := a.print(orEmpty(found), func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintln(w, f)
		}
		if !differs && failed == nil {
			fmt.Fprintln(w, fits)
		}
	})
	if err = errors.Join(err, failed); err == nil && differs {
		return errSilent
	}
	return err
}

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
		if done.Altered > 0 || done.From > 0 && done.From < done.Version {
			fmt.Fprintf(w, "schema version %d, was %d: %d changes to tables\n", done.Version, done.From, done.Altered)
		}
		if done.WorksWith < done.Version {
			fmt.Fprintf(w, "programs for schema version %d or newer work with it: when all are for version %d, run `tocsin ddl finish`\n", done.WorksWith, done.Version)
		}
	})
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
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return a.show(done, err, func(w io.Writer) {
				if done.Databases == 0 {
					fmt.Fprintf(w, "schema version %d: programs for older ones were refused already\n", done.Version)
					return
				}
				fmt.Fprintf(w, "schema version %d: %d databases refuse programs for older ones from now on; until now those for version %d worked\n",
					done.Version, done.Databases, done.WorkedFor)
			})
		},
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

func newDDLGrants(a *app) *cobra.Command {
	var opt ddl.GrantOptions
	var dir string
	var help strings.Builder
	for _, r := range ddl.Roles() {
		help.WriteString("\n  " + r.Name + strings.Repeat(" ", 15-len(r.Name)) + r.Does)
	}
	cmd := &cobra.Command{
		Use: "grants --role ROLE", Short: "Show the GRANT statements that a user needs, without running any", Args: noArgs,
		Long: "Show the GRANT statements that a user needs for a role, or for several, on each server of\n" +
			"the config. An administrator runs them with a SQL client. It connects to no server, and needs\n" +
			"no password: variables of the config may be unset. The roles:\n" + help.String(),
		Example: "  tocsin ddl grants --role node\n" +
			"  tocsin ddl grants --role node,sweep --user tocsin --host 10.0.0.% --out grants",
		RunE: func(*cobra.Command, []string) error { return a.grants(opt, dir) },
	}
	roleFlag(cmd, &opt.Roles, "a role, or several (needed)")
	cmd.Flags().StringVar(&opt.User, "user", "", "the user's name (default tocsin_ and the first role)")
	cmd.Flags().StringVar(&opt.Host, "host", "%", "the host from which the user connects")
	cmd.Flags().BoolVar(&opt.PerTable, "per-table", false, "grant on each task table instead of on whole databases: least rights, but a GRANT for each table")
	cmd.Flags().BoolVar(&opt.Literal, "partial-revokes", false, "for MySQL servers with partial_revokes on: don't escape _ in names of databases")
	cmd.Flags().StringVar(&dir, "out", "", "write one .sql file per server into this folder")
	return cmd
}

func (a *app) grants(opt ddl.GrantOptions, dir string) error {
	if len(opt.Roles) == 0 {
		return usage("--role is needed: see `tocsin ddl grants --help`")
	}
	if _, err := ddl.Rights(opt.Roles); err != nil {
		return usageError{err}
	}
	file, err := config.LoadToPlan(a.configPath)
	if err != nil {
		return err
	}
	plans, err := ddl.Grants(file.Tocsin(), opt)
	if err != nil {
		return err
	}
	return a.showPlans(plans, dir)
}

// roleFlag adds the flag that names roles.
func roleFlag(cmd *cobra.Command, roles *[]string, usage string) {
	cmd.Flags().StringSliceVar(roles, "role", nil, usage)
	var names []string
	for _, r := range ddl.Roles() {
		names = append(names, r.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that does not exist only
}
