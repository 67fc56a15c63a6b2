package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
)

func newTaskCancel(a *app) *cobra.Command {
	var of ofBiz
	cmd := &cobra.Command{
		Use: "cancel (JOB_ID | --type NAME (--biz-id N | --key KEY))", Short: "Cancel tasks",
		Long: "Cancel one task, or all tasks of a biz type and biz_id or key that have not ended. A delivery that is\n" +
			"under way settles nothing any more; of a strict biz type nothing is changed then, and the exit code\n" +
			"is 1. It is 1 too if there were tasks and none was cancelled.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := of.ref(args)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), "cancelled", func(ctx context.Context, c *tocsin.Client) (tocsin.Change, error) {
				return c.Cancel(ctx, ref)
			})
		},
	}
	of.flags(a, cmd)
	return cmd
}

func newTaskReschedule(a *app) *cobra.Command {
	var of ofBiz
	var w when
	cmd := &cobra.Command{
		Use: "reschedule (JOB_ID | --type NAME (--biz-id N | --key KEY)) (--in DURATION | --at TIME)", Short: "Give tasks another action time",
		Long: "Give one task, or all tasks of a biz type and biz_id or key that have not ended, another action time.\n" +
			"Their attempts begin anew. A delivery that is under way settles nothing any more; of a strict biz type\n" +
			"nothing is changed then, and the exit code is 1. It is 1 too if there were tasks and none was rescheduled.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := of.ref(args)
			if err != nil {
				return err
			}
			at, err := w.read(cmd)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), "rescheduled", func(ctx context.Context, c *tocsin.Client) (tocsin.Change, error) {
				return c.Reschedule(ctx, ref, at)
			})
		},
	}
	of.flags(a, cmd)
	w.flags(cmd)
	return cmd
}

// change runs a cancel or reschedule and says what it did.
func (a *app) change(ctx context.Context, done string, do func(context.Context, *tocsin.Client) (tocsin.Change, error)) error {
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	c, err := do(ctx, client)
	if err != nil {
		return misused(err)
	}
	err = a.print(c, func(w io.Writer) {
		fmt.Fprintf(w, "%d %s, of these %d in delivery, %d finished before\n", c.Changed, done, c.InDelivery, c.Final)
	})
	return errors.Join(err, unchanged(c, done))
}

// unchanged is an error where there were tasks and none was changed: the caller
// must not believe that it was.
func unchanged(c tocsin.Change, done string) error {
	if c.Changed > 0 || c.Final == 0 {
		return nil
	}
	return fmt.Errorf("nothing was %s: it is done, cancelled or dead already", done)
}
