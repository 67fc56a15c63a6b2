package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
)

func newTaskGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get JOB_ID", Short: "Show a task", Args: exactArgs("JOB_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseJobID(args[0])
			if err != nil {
				return err
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			info, err := client.Get(cmd.Context(), id)
			if err != nil {
				return misused(err)
			}
			return a.printTask(info)
		},
	}
}

func (a *app) printTask(info tocsin.Info) error {
	return a.print(info, func(w io.Writer) { writeTask(w, info, time.Now()) })
}

func newTaskList(a *app) *cobra.Command {
	var bizID uint64
	var key string
	var by byStatus
	cmd := &cobra.Command{
		Use: "list (--biz-id N | --key KEY | --status STATUS)", Short: "Show all tasks of a biz_id or key, or of all tables in a status", Args: noArgs,
		Long: `Shows all tasks of a biz_id or key, oldest first; or tasks of all tables in a status: pending and claimed
ones by action time, the earliest first, and done, cancelled and dead ones from the latest on.`,
		Example: "  tocsin task list --biz-id 42\n  tocsin task list --status dead --type order.close --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (bizID != 0) != (key != "") && by.status == "" && by.name == "":
				return a.listOf(cmd.Context(), bizID, key)
			case !cmd.Flags().Changed("biz-id") && !cmd.Flags().Changed("key") && by.status != "":
				return a.listByStatus(cmd.Context(), by)
			}
			return usage("name the tasks: --biz-id N, not 0, --key KEY, or --status dead, with --type NAME or without")
		},
	}
	cmd.Flags().Uint64Var(&bizID, "biz-id", 0, "your own id of what the tasks belong to, for example of the order; the sharding key")
	cmd.Flags().StringVar(&key, "key", "", "instead of --biz-id: a business key that is not a number")
	cmd.Flags().StringVar(&by.status, "status", "", "pending, claimed, done, cancelled or dead")
	cmd.Flags().StringVar(&by.name, "type", "", "with --status: only tasks of this biz type")
	cmd.Flags().IntVar(&by.limit, "limit", 100, "with --status: list at most this many tasks")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return cmd
}

// listOf lists the tasks of a key, or of a biz_id if the key is empty.
func (a *app) listOf(ctx context.Context, bizID uint64, key string) error {
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	none := fmt.Sprintf("no tasks of biz_id %d", bizID)
	list := func() ([]tocsin.Info, error) { return client.List(ctx, bizID) }
	if key != "" {
		none = fmt.Sprintf("no tasks of key %q", key)
		list = func() ([]tocsin.Info, error) { return client.ListKey(ctx, key) }
	}
	infos, err := list()
	if err != nil {
		return misused(err)
	}
	return a.printTasks(none, infos)
}
