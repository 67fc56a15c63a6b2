package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
)

// moveFlags are those of every step.
type moveFlags struct {
	from string
	opt  ddl.MoveOptions
}

func newDDLMove(a *app) *cobra.Command {
	c := group("move", "Move databases to other servers, without two copies that take writes",
		newMoveStep(a, "check", "Say where every database stands, and what to do next", nil),
		newMoveStep(a, "retire", "Have the old copies refuse every write", (*ddl.Move).Retire),
		newMoveCompare(a),
		newMoveStep(a, "activate", "Compare, and put the new copies into use", (*ddl.Move).Activate),
		newMoveStep(a, "undo", "Put the old copies into use again", (*ddl.Move).Undo),
	)
	c.Long = `Move databases to other servers. --config is the new config, --from the old one: what
moves is what has another server in it. The rows are copied by your own means, between
retire and compare; from retire to activate the tasks of these databases wait, and adding
any is refused. Every step may be repeated, and docs/operations.md has them all.`
	c.Example = `  tocsin ddl move retire   --from old.yaml --config new.yaml
  mysqldump --single-transaction --databases toc_3 ... | mysql ...
  tocsin ddl move compare  --from old.yaml --config new.yaml
  tocsin ddl move activate --from old.yaml --config new.yaml`
	return c
}

// flags adds those of every step.
func (f *moveFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "config file that names the old servers (needed)")
	cmd.Flags().StringArrayVar(&f.opt.Databases, "database", nil, "name of a database to move, toc_3 say; may be repeated (default: all whose server differs)")
	cmd.Flags().DurationVar(&f.opt.Wait, "wait", ddl.DefaultWait, "how long to wait for a transaction that holds a table")
	cmd.Flags().IntVar(&f.opt.Parallel, "parallel", ddl.DefaultParallel, "connections to each server")
}

// newMoveStep makes the command of a step; step nil: it only looks.
func newMoveStep(a *app, name, short string, step func(*ddl.Move, context.Context) error) *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{Use: name, Short: short, Args: noArgs}
	f.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.move(f, name, func(m *ddl.Move) error {
			if step != nil {
				if err := step(m, cmd.Context()); err != nil {
					return err
				}
			}
			return a.showMove(cmd.Context(), f)
		})
	}
	return cmd
}

func newMoveCompare(a *app) *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{Use: "compare", Short: "Name in what the new copies differ from the old", Args: noArgs}
	f.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.move(f, "compare", func(m *ddl.Move) error {
			found, err := m.Compare(cmd.Context())
			if err != nil {
				return err
			}
			return a.printFindings(found, nil, "the copies are equal; next: `tocsin ddl move activate`")
		})
	}
	return cmd
}

// openMove reads both configs.
func (a *app) openMove(f moveFlags) (*ddl.Move, error) {
	if f.from == "" {
		return nil, usage("--from is needed: the config file that names the old servers")
	}
	before, err := config.Load(f.from)
	if err != nil {
		return nil, err
	}
	after, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return ddl.OpenMove(before.Tocsin(), after, f.opt)
}

// move runs a step with its progress.
func (a *app) move(f moveFlags, step string, do func(*ddl.Move) error) error {
	shown := a.progress(step, "tables")
	f.opt.Progress = shown.report
	m, err := a.openMove(f)
	if err != nil {
		return err
	}
	defer m.Close()
	defer shown.end()
	return do(m)
}

// movedJSON is the JSON of a step for one database.
type movedJSON struct {
	ddl.Moved
	Next string `json:"next"`
}

// showMove says where the databases stand by now.
func (a *app) showMove(ctx context.Context, f moveFlags) error {
	m, err := a.openMove(f)
	if err != nil {
		return err
	}
	defer m.Close()
	all, err := m.Look(ctx)
	if err != nil {
		return err
	}
	moved := make([]movedJSON, len(all))
	for i, d := range all {
		moved[i] = movedJSON{d, nextOf(d)}
	}
	return a.print(moved, func(w io.Writer) {
		for _, d := range moved {
			fmt.Fprintf(w, "%s: %s on %s, %s on %s; next: %s\n", d.Database, d.FromState, d.From, d.ToState, d.To, d.Next)
		}
	})
}

// nextOf says what to do with a database.
func nextOf(d ddl.Moved) string {
	switch {
	case d.FromState == ddl.CopyAbsent:
		return "nothing can be moved, correct the old config"
	case d.ToState == ddl.CopyActive:
		return "restart nodes, sweepers and services with the new config"
	case d.ToState == ddl.CopyHalf:
		return "`tocsin ddl move activate`, or `tocsin ddl move undo`"
	case d.FromState != ddl.CopyRetired:
		return "`tocsin ddl move retire`"
	case d.ToState == ddl.CopyAbsent:
		return "copy it, all tables, then `tocsin ddl move compare`"
	}
	return "`tocsin ddl move activate`, which compares again"
}

func newDDLOwnership(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "ownership OWNERSHIP", Short: "Change who may start a row, with all nodes stopped", Args: exactArgs("OWNERSHIP"),
		Long: "Write into every database who may start a row. With etcd, each table has an owner, by a\n" +
			"key in etcd. With rows, nobody owns tables: every node claims each row before it starts,\n" +
			"and no etcd is needed. With nodes of both kinds, tasks would be delivered twice, so nodes\n" +
			"refuse databases of the other kind. It fails while a node lives. Stop all nodes, run it,\n" +
			"set layout.ownership in the config of every node, and start them again. Clients and\n" +
			"sweepers work with both, and may go on meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ownership := args[0]
			if ownership != ddl.ByEtcd && ownership != ddl.ByRows {
				return usage("ownership %q: want %s or %s", ownership, ddl.ByEtcd, ddl.ByRows)
			}
			changed, err := a.whileStopped(cmd.Context(), force, func(cfg tocsin.Config) (int, error) {
				done, err := ddl.SetOwnership(cmd.Context(), cfg, ownership, force)
				return done.Databases, err
			})
			return a.show(ddl.Owned{Ownership: ownership, Databases: changed}, err, func(w io.Writer) {
				if changed == 0 {
					fmt.Fprintf(w, "ownership is %s already\n", ownership)
					return
				}
				fmt.Fprintf(w, "ownership is %[1]s: %[2]d databases were changed; set layout.ownership: %[1]s in the config of every node before it starts\n",
					ownership, changed)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "don't look for live nodes, neither in etcd nor in the session tables")
	return cmd
}

// whileStopped changes all databases, and fails if a node lives before or after that.
func (a *app) whileStopped(ctx context.Context, force bool, change func(tocsin.Config) (databases int, err error)) (int, error) {
	cfg, err := a.cluster()
	if err != nil {
		return 0, err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return 0, err
	}
	changed, err := change(cfg)
	if err != nil && changed > 0 {
		return changed, fmt.Errorf("%w; %d databases were changed: run it again to go on", err, changed)
	}
	if err != nil {
		return 0, err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return changed, fmt.Errorf("it started meanwhile, so tasks may be delivered twice: %w", err)
	}
	return changed, nil
}

// noOwner refuses while etcd knows a node. Without etcd in the config there can be none.
func (a *app) noOwner(ctx context.Context, force bool) error {
	file, err := a.load()
	if err != nil || force || len(file.Etcd.Endpoints) == 0 {
		return err
	}
	v := viewOf(file)
	v.ByRows = false // a node that owns tables is in etcd, whatever this config says
	groups, err := v.Nodes(ctx, "")
	if err != nil {
		return fmt.Errorf("%w: etcd must say that no node lives (--force goes on all the same)", err)
	}
	for _, g := range groups {
		for _, n := range g.Nodes {
			return fmt.Errorf("node %s of group %s lives: stop all nodes first (--force goes on all the same)", n.ID, g.Group)
		}
	}
	return nil
}

// owned reads the servers from the config file, and adds to the options what else the databases are to say.
func (a *app) owned(opt ddl.Options) (tocsin.Config, ddl.Options, error) {
	file, err := a.load()
	if err != nil {
		return tocsin.Config{}, opt, err
	}
	opt.Ownership, opt.SweepGrace = file.Layout.Ownership, file.Sweep.Grace.D()
	return file.Tocsin(), opt, nil
}

// gracedDDL is the JSON of `ddl grace`.
type gracedDDL struct {
	Grace     string `json:"grace"`     // of all databases
	Databases int    `json:"databases"` // changed now
}

func newDDLGrace(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "grace DURATION", Short: "Change the grace of sweeps, with all nodes and sweeps stopped", Args: exactArgs("DURATION"),
		Long: "Write into every database how long a task must be overdue before a sweep takes it. Nodes\n" +
			"claim what is nearly as late, so that no sweep delivers beside them. Therefore nodes and\n" +
			"sweeps with another sweep.grace are refused. `ddl apply` writes it first. It fails while a\n" +
			"node lives. Stop all nodes and sweeps, run it, set sweep.grace in the config of each, and\n" +
			"start them again. Services may go on meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, err := time.ParseDuration(args[0])
			if err != nil || grace < ddl.MinSweepGrace || grace > ddl.MaxSweepGrace {
				return usage("grace %q: want %s to %s", args[0], ddl.MinSweepGrace, ddl.MaxSweepGrace)
			}
			changed, err := a.whileStopped(cmd.Context(), force, func(cfg tocsin.Config) (int, error) {
				return ddl.SetSweepGrace(cmd.Context(), cfg, grace, force)
			})
			return a.show(gracedDDL{grace.String(), changed}, err, func(w io.Writer) {
				if changed == 0 {
					fmt.Fprintf(w, "grace of sweeps is %s already\n", grace)
					return
				}
				fmt.Fprintf(w, "grace of sweeps is %[1]s: %[2]d databases were changed; set sweep.grace: %[1]s in the config of every node and sweep before it starts\n",
					grace, changed)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "don't look for live nodes, neither in etcd nor in the session tables")
	return cmd
}
