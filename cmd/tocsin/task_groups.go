package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/operator"
)

func newTaskDead(a *app) *cobra.Command {
	var q operator.DeadQuery
	var since, until string
	c := &cobra.Command{
		Use: "dead", Short: "Show of what tasks have died, grouped by error", Args: noArgs,
		Long: `Groups the latest ` + strconv.Itoa(operator.MaxGrouped) + ` dead tasks by biz type and last error, and says if there may be more: --until shows
those before. In an error, * stands for numbers, ids, addresses and quoted text.

The part of an error that all its tasks have is the --error of ` + "`tocsin task redrive`" + `. Other errors may have it
too: look with --dry-run first.`,
		Example: `  tocsin task dead --since 24h
  tocsin task dead --type order.close --json`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			given, now := cmd.Flags().Changed, time.Now()
			if q.Since, err = past("since", since, now, given("since")); err != nil {
				return err
			}
			if q.Until, err = past("until", until, now, given("until")); err != nil {
				return err
			}
			return a.groupDead(cmd.Context(), q)
		},
	}
	a.typeFlag(c, &q.BizType, "only tasks of this biz type")
	c.Flags().StringVar(&since, "since", "", "only tasks that died then or later: RFC 3339, or how long ago, such as 2h")
	c.Flags().StringVar(&until, "until", "", "only tasks that died then or earlier, as --since (default: now)")
	return c
}

func (a *app) groupDead(ctx context.Context, q operator.DeadQuery) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		found, failed := o.DeadGroups(ctx, q)
		if found.Tasks == 0 && nothingRead(failed) {
			return misused(failed)
		}
		return errors.Join(a.print(found, func(w io.Writer) { writeDeadGroups(w, found, failed, time.Now()) }), failed)
	})
}

func writeDeadGroups(w io.Writer, found operator.DeadGroups, failed error, now time.Time) {
	if found.Tasks == 0 {
		fmt.Fprintln(w, "no dead tasks"+inWhat(failed))
		return
	}
	table(w, []string{"TASKS", "BIZ TYPE", "LAST", "FIRST", "LATEST JOB_ID", "ERROR"}, found.Groups, func(g operator.DeadGroup) []any {
		return []any{g.Tasks, g.BizType, away(g.Last.Sub(now)), away(g.First.Sub(now)), g.JobIDs[0], oneCell(g.Error)}
	})
	if found.More {
		fmt.Fprintf(w, "these are the latest %d dead tasks, and there may be more: --until shows those before\n", found.Tasks)
	}
	if g := found.Groups[0]; g.Part != "" && g.Part == oneCell(g.Part) && g.BizType[0] != '#' {
		part := "'" + strings.ReplaceAll(g.Part, "'", `'\''`) + "'" // for a shell
		fmt.Fprintf(w, "to redrive the first group: tocsin task redrive --type %s --error %s --dry-run\n", g.BizType, part)
	}
}
