package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleRuns is the JSON of `schedule runs`.
type scheduleRuns struct {
	Open []schedule.OpenRun `json:"open"` // the first to be delivered first
	Runs []operator.Run     `json:"runs"` // the latest first
}

func newScheduleRuns(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "runs NAME", Short: "Show the pending runs of a schedule, and the history of the others", Args: exactArgs("NAME"),
		Long: `Shows the runs of a schedule that are pending or being delivered, the first to be delivered first, and then the
history: a line for each attempt, the latest first, as ` + "`tocsin task runs`" + ` shows it for one task.
Runs are made up to 20 minutes ahead.`,
		ValidArgsFunction: a.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > min(schedule.MaxOpen, operator.MaxRuns) {
				return usage("--limit %d: use 1 to %d", limit, min(schedule.MaxOpen, operator.MaxRuns))
			}
			all, err := a.runsOf(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) { all.write(w, time.Now()) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most this many open runs, and this many attempts of the history")
	return cmd
}

func (a *app) runsOf(ctx context.Context, name string, limit int) (all scheduleRuns, err error) {
	var id uint64
	err = a.withSchedules(ctx, func(s *schedule.Schedules) error {
		one, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		id = uint64(one.ID)
		all.Open, err = s.OpenRuns(ctx, name, limit)
		return err
	})
	if err != nil {
		return all, err
	}
	o, err := a.operator(ctx)
	if err != nil {
		return all, err
	}
	defer o.Close()
	all.Runs, err = o.Runs(ctx, operator.RunsQuery{Schedule: id, Limit: limit})
	return all, err
}

func (r scheduleRuns) write(w io.Writer, now time.Time) {
	if len(r.Open) == 0 {
		fmt.Fprintln(w, "no open runs")
	}
	rows := make([][]string, len(r.Open))
	for i, o := range r.Open {
		rows[i] = openRow(o, now)
	}
	columns(w, rows...)
	if len(r.Runs) == 0 {
		fmt.Fprintln(w, "no history: none of its runs was delivered yet, or they were purged")
		return
	}
	rows = [][]string{append([]string{"JOB_ID", "FIRE TIME"}, runHead...)}
	for _, run := range r.Runs {
		rows = append(rows, append([]string{run.JobID.String(), cmp.Or(fireText(run.FireTime), "-")}, runRow(run)...))
	}
	columns(w, rows...)
}

// madeFor are words for people.
var madeFor = map[schedule.Why]string{schedule.ForBackfill: "backfill of", schedule.ForFireTime: "fire time", schedule.ForRunNow: "run-now"}

func openRow(o schedule.OpenRun, now time.Time) []string {
	what := madeFor[o.For]
	if !o.Time.IsZero() {
		what += " " + o.Time.UTC().Format(timeText)
	}
	return []string{
		"job_id " + o.JobID.String(), what, o.Status.String(),
		whenText(tocsin.Info{Status: o.Status, ActionTime: o.Action}, now), "attempts " + strconv.Itoa(o.Attempts),
	}
}
