package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/runkey"
	"github.com/tocsinhq/tocsin/operator"
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
			if runkey.Reserved(info.DedupKey) {
				if err := a.nameSchedule(cmd.Context(), &info); err != nil {
					return err
				}
			}
			return a.printTask(info)
		},
	}
}

// nameSchedule adds the schedule of a run, unless this user has no right to schedules.
func (a *app) nameSchedule(ctx context.Context, info *tocsin.Info) error {
	o, err := a.operator(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	if err = o.NameSchedule(ctx, info); mysql.ClassOf(err) == mysql.Denied {
		return nil
	}
	return err
}

func (a *app) printTask(info tocsin.Info) error {
	return a.print(info, func(w io.Writer) { writeTask(w, info, time.Now()) })
}

func newTaskList(a *app) *cobra.Command {
	var bizID uint64
	var key string
	var by byStatus
	cmd := &cobra.Command{
		Use: "list (--biz-id N | --key KEY | --status STATUS)", Short: "Show tasks of a biz_id or key, or of all tables in a status", Args: noArgs,
		Long: `Shows tasks of a biz_id or key, oldest first: of more than --limit those of the biz types with the lowest numbers,
those without a dedup_key first. Or tasks of all tables in a status: pending and claimed ones by action time, the earliest first, and done, cancelled and dead ones from the latest on.`,
		Example: "  tocsin task list --biz-id 42\n  tocsin task list --status dead --type order.close --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (bizID != 0) != (key != "") && by.status == "" && by.name == "":
				return a.listOf(cmd.Context(), tocsin.ListQuery{BizID: bizID, BizKey: key, Limit: by.limit})
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
	cmd.Flags().IntVar(&by.limit, "limit", 100, "list at most this many tasks")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return cmd
}

// listOf lists tasks of a key, or of a biz_id if the key is empty.
func (a *app) listOf(ctx context.Context, q tocsin.ListQuery) error {
	if q.Limit < 1 || q.Limit > operator.MaxFound {
		return usage("--limit %d: use 1 to %d", q.Limit, operator.MaxFound)
	}
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var infos []tocsin.Info
	for left := q.Limit; left > 0; left = q.Limit - len(infos) {
		page := q
		page.Limit = min(left, tocsin.MaxListed)
		found, next, err := client.ListPage(ctx, page)
		if err != nil {
			return misused(err)
		}
		if infos, q.After = append(infos, found...), next; next == nil {
			break
		}
	}
	slices.SortFunc(infos, func(x, y tocsin.Info) int { return cmp.Compare(x.JobID, y.JobID) })
	none := fmt.Sprintf("no tasks of biz_id %d", q.BizID)
	if q.BizKey != "" {
		none = fmt.Sprintf("no tasks of key %q", q.BizKey)
	}
	err = a.printTasks(none, infos)
	if q.After != nil {
		fmt.Fprintf(a.err, "there may be more than these %d: raise --limit\n", len(infos))
	}
	return err
}
