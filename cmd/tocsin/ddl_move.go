package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

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
	cmd.Flags().DurationVar(&f.opt.Wait, "wait", ddl.DefaultMoveWait, "how long to wait for a transaction that holds a table")
	cmd.Flags().IntVar(&f.opt.Parallel, "parallel", ddl.DefaultMoveParallel, "connections to each server")
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
			return a.showDifferences(found)
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
	Database  string        `json:"database"`
	From      string        `json:"from"`
	FromState ddl.CopyState `json:"from_state"`
	To        string        `json:"to"`
	ToState   ddl.CopyState `json:"to_state"`
	Next      string        `json:"next"`
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
		moved[i] = movedJSON{d.Database, d.From, d.FromState, d.To, d.ToState, nextOf(d)}
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

// showDifferences ends with exit code 1 if there are any.
func (a *app) showDifferences(found []ddl.Finding) error {
	list := make([]ddlFinding, len(found))
	for i, f := range found {
		list[i] = ddlFinding(f)
	}
	err := a.print(list, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintln(w, f)
		}
		if len(found) == 0 {
			fmt.Fprintln(w, "the copies are equal; next: `tocsin ddl move activate`")
		}
	})
	if err == nil && len(found) > 0 {
		return errSilent
	}
	return err
}
