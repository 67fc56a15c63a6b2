package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// redriveFlags name dead tasks of all tables.
type redriveFlags struct {
	name string // of a biz type
	all  bool
}

func newTaskRedrive(a *app) *cobra.Command {
	var f redriveFlags
	c := &cobra.Command{
		Use: "redrive (JOB_ID | --type NAME | --all)", Short: "Deliver dead tasks once more, at once",
		Long: `Makes dead tasks pending again and due at once: one, those of a biz type, or all. Their attempts
begin anew, and they get a new idempotency key. Tasks that die while it runs stay dead.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && f == redriveFlags{}:
				id, err := parseJobID(args[0])
				if err != nil {
					return err
				}
				return a.rewrite(cmd.Context(), func(o *operator.Operator) (tocsin.Info, error) { return o.Redrive(cmd.Context(), id) })
			case len(args) == 0 && (f.name != "") != f.all:
				return a.redriveMany(cmd.Context(), f.name)
			}
			return usage("name one JOB_ID, --type or --all")
		},
	}
	c.Flags().StringVar(&f.name, "type", "", "all dead tasks of a biz type")
	c.Flags().BoolVar(&f.all, "all", false, "all dead tasks")
	_ = c.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return c
}

// rewrite changes one task and shows it.
func (a *app) rewrite(ctx context.Context, write func(*operator.Operator) (tocsin.Info, error)) error {
	o, err := a.operator(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	now, err := write(o)
	if err != nil {
		return err
	}
	return a.printTask(now)
}

// redriven is the JSON of a redrive of many.
type redriven struct {
	Redriven int `json:"redriven"`
}

// redriveMany redrives all dead tasks of a biz type; of all for "".
func (a *app) redriveMany(ctx context.Context, bizType string) error {
	o, err := a.operator(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	seen := a.tableProgress("redrive dead tasks of", o.Layout().Total())
	total, failed := o.RedriveAll(ctx, bizType, seen.more)
	seen.end()
	if errors.Is(failed, tocsin.ErrUnknownBizType) {
		return failed
	}
	return errors.Join(a.print(redriven{total}, func(w io.Writer) { fmt.Fprintf(w, "%d dead tasks redriven\n", total) }), failed)
}

func newTaskBury(a *app) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "bury JOB_ID", Short: "Make a task dead; it can be redriven", Args: exactArgs("JOB_ID"),
		Long: `Makes a task dead that has not ended, with the reason as its last error. A delivery that is under way
goes on, and may still complete it; of a strict biz type nothing is changed then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseJobID(args[0])
			if err != nil {
				return err
			}
			return a.rewrite(cmd.Context(), func(o *operator.Operator) (tocsin.Info, error) { return o.Bury(cmd.Context(), id, reason) })
		},
	}
	c.Flags().StringVar(&reason, "reason", "buried by hand", "why, for its last error")
	return c
}
