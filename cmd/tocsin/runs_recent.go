package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/operator"
)

func newRuns(a *app) *cobra.Command {
	var q operator.RecentQuery
	var since, until string
	cmd := &cobra.Command{
		Use: "runs", Short: "Show the newest runs of all tasks and schedules", Args: noArgs,
		Long: `Shows what became of the newest attempts of the tasks whose biz type has "history: true", and of the runs of
schedules, the latest start first. It looks at the newest 2,000 of each database, and says if there are
older ones. ` + "`tocsin schedule runs` and `tocsin task runs`" + ` go back further, for one schedule and one task.`,
		Example: "  tocsin runs --since 12h --outcome failed\n  tocsin runs --app billing --outcome missed",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.From, err = past("since", since, time.Now(), cmd.Flags().Changed("since")); err != nil {
				return err
			}
			if q.To, err = past("until", until, time.Now(), cmd.Flags().Changed("until")); err != nil {
				return err
			}
			if q.Outcome != "" && q.Outcome != operator.Failed && !slices.Contains(operator.Outcomes, q.Outcome) {
				return usage("--outcome %q: want failed, or one of %s", q.Outcome, strings.Join(operator.Outcomes, ", "))
			}
			return a.showRecent(cmd.Context(), q)
		},
	}
	cmd.Flags().StringVar(&q.Outcome, "outcome", "", "only runs with this outcome: "+strings.Join(operator.Outcomes, ", ")+"; failed: retried, buried, cut_off or missed")
	cmd.Flags().StringVar(&q.App, "app", "", "only runs of the schedules of this app")
	a.typeFlag(cmd, &q.BizType, "only runs of this biz type")
	cmd.Flags().StringVar(&q.Schedule, "schedule", "", "only runs of the schedule of this name")
	cmd.Flags().StringVar(&since, "since", "", "only runs that started then or later: RFC 3339, or how long ago, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "only runs that started before then, as --since")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "show at most this many runs, "+strconv.Itoa(operator.MaxRuns)+" at most")
	within(cmd, "limit", 1, operator.MaxRuns)
	return cmd
}

func (a *app) showRecent(ctx context.Context, q operator.RecentQuery) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		found, failed := o.RecentRuns(ctx, q)
		if len(found.Runs) == 0 && nothingRead(failed) {
			return misused(failed)
		}
		return errors.Join(a.print(found, func(w io.Writer) { writeRecent(w, found, failed) }), failed)
	})
}

func writeRecent(w io.Writer, found operator.Recent, failed error) {
	if len(found.Runs) == 0 {
		fmt.Fprintln(w, "no runs"+inWhat(failed))
	} else {
		table(w, append([]string{"JOB_ID", "BIZ TYPE", "SCHEDULE"}, runHead...), found.Runs, func(r operator.Run) []any {
			return append([]any{r.JobID, oneCell(r.BizType), cmp.Or(r.Name, "-")}, runRow(r)...)
		})
	}
	if !found.Complete.IsZero() {
		fmt.Fprintf(w, "some that had ended by %s may be missing: only the newest 2,000 runs of each database were looked at\n", found.Complete.Format(timeText))
	}
}
