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

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleList is the flags of `schedule list`.
type scheduleList struct {
	*app
	schedule.Query
	state, sort string
}

func newScheduleList(a *app) *cobra.Command {
	f := &scheduleList{app: a}
	cmd := &cobra.Command{
		Use: "list", Short: "List schedules by name, or by their next fire time", Args: noArgs,
		Long: `Lists the schedules of all databases by name. --after takes the last name of a page to get the next one.
With --sort next, the active ones come in the order of the first fire time whose run is not made yet: runs
are made up to 20 minutes ahead. With --last, each has the last entry of its history.`,
		Example: "  tocsin schedule list --app billing --last\n  tocsin schedule list --q report --sort next",
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&f.App, "app", "", "only schedules of this app")
	a.typeFlag(cmd, &f.BizType, "only schedules with runs of this biz type")
	cmd.Flags().StringVar(&f.state, "state", "", "active, inactive, paused or ended")
	cmd.Flags().StringVar(&f.Part, "q", "", "only schedules with this text in their name")
	cmd.Flags().StringVar(&f.sort, "sort", "name", "name or next")
	cmd.Flags().BoolVar(&f.Last, "last", false, "show when each ran last, and with which outcome")
	cmd.Flags().StringVar(&f.After, "after", "", "list names after this one")
	cmd.Flags().IntVar(&f.Limit, "limit", 1000, "list at most this many schedules")
	within(cmd, "limit", 1, schedule.MaxListed)
	return cmd
}

func (f *scheduleList) run(ctx context.Context) error {
	f.State, f.ByNext = schedule.State(f.state), f.sort == "next"
	if f.State != "" && !slices.Contains(schedule.States, f.State) {
		return usage("--state %q: want one of %s", f.state, strings.Join(api.ScheduleStates, ", "))
	}
	switch {
	case f.sort != "name" && f.sort != "next":
		return usage("--sort %q: want name or next", f.sort)
	case f.ByNext && f.After != "":
		return usage("--after goes with --sort name: raise --limit to list more")
	case f.ByNext && f.State != "" && f.State != schedule.Active:
		return usage("--sort next lists active schedules, which alone have a next fire time: leave out --state %s", f.State)
	}
	return f.withSchedules(ctx, func(s *schedule.Schedules) error {
		all, failed := s.List(ctx, f.Query)
		if len(all) == 0 && nothingRead(failed) {
			return failed
		}
		return errors.Join(f.print(all, func(w io.Writer) { f.write(w, all, "no schedules"+inWhat(failed)) }), failed)
	})
}

func (f *scheduleList) write(w io.Writer, all []schedule.Schedule, none string) {
	if len(all) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	head := []string{"NAME", "STATE", "CRON", "ZONE", "BIZ TYPE", "NEXT FIRE TIME", "RUNS MADE"}
	if f.Last {
		head = append(head, "LAST RUN", "OUTCOME", "LATE", "TOOK")
	}
	table(w, head, all, func(s schedule.Schedule) []any {
		row := []any{s.Name, s.State, oneCell(s.Cron), s.Zone, s.BizType, cmp.Or(fireText(s.Fires()), "-"), s.Made}
		switch r := s.Last; {
		case !f.Last:
			return row
		case r == nil:
			return append(row, "-", "-", "-", "-")
		default:
			return append(row, r.Started.Format(timeText), r.Outcome, milliseconds(r.LatenessMS), milliseconds(r.DurationMS))
		}
	})
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
