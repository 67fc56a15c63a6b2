package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule"
)

func newScheduleActivate(a *app) *cobra.Command {
	return a.turning("activate", "Have a schedule make runs again",
		`Activates a schedule that was deactivated, was paused or has ended, for the fire times from now on. Fire times
that passed meanwhile are not made up for: see `+"`tocsin schedule backfill`"+`. @every counts from now.`, (*schedule.Schedules).Activate)
}

func newScheduleDeactivate(a *app) *cobra.Command {
	return a.turning("deactivate", "Keep a schedule from making runs, and cancel those that are pending",
		`Deactivates a schedule: it makes no runs, and its pending runs are cancelled. Deliveries in progress go on, and
so do runs of run-now and backfill.`, (*schedule.Schedules).Deactivate)
}

// turned is the JSON of `schedule activate` and `deactivate`.
type turned struct {
	Changed bool `json:"changed"` // false: it was so before
	schedule.Schedule
}

func (a *app) turning(verb, short, long string, turn func(*schedule.Schedules, context.Context, string) (schedule.Schedule, bool, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: exactArgs("NAME"), ValidArgsFunction: a.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				after, changed, err := turn(s, cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(turned{changed, after}, func(w io.Writer) { writeTurned(w, after, changed) })
			})
		},
	}
}

func writeTurned(w io.Writer, s schedule.Schedule, changed bool) {
	state := string(s.State)
	if !changed {
		state = "was " + state + " already"
	}
	row := []string{s.Name, state, fmt.Sprint("revision ", s.Revision)}
	if next := nextFire(s); !next.IsZero() {
		row = append(row, "next fire time: "+next.UTC().Format(timeText))
	}
	columns(w, row)
}

func newScheduleRunNow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "run-now NAME", Short: "Make a run that is due now", Args: exactArgs("NAME"), ValidArgsFunction: a.completeSchedules,
		Long: `Makes one run that is due now, whatever the state of the schedule, beside those of its fire times. The
schedule's overlap policy applies to it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				run, err := s.RunNow(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(run, func(w io.Writer) {
					columns(w, []string{"job_id " + run.JobID.String(), args[0], "due " + run.Due.UTC().Format(timeText)})
				})
			})
		},
	}
}

// scheduleBackfill is the flags of `schedule backfill`.
type scheduleBackfill struct {
	from, to string
	dryRun   bool
}

func newScheduleBackfill(a *app) *cobra.Command {
	var f scheduleBackfill
	cmd := &cobra.Command{
		Use: "backfill NAME --from TIME --to TIME", Short: "Make runs for fire times of the past", Args: exactArgs("NAME"),
		Long: fmt.Sprintf(`Makes a run, due now, for each fire time t of the past with from <= t < to: at most %d. It does not
matter whether a fire time had a run; one that was backfilled before gets no other run until that one is
cancelled or purged.`, schedule.MaxBackfill),
		Example:           "  tocsin schedule backfill report.daily --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run",
		ValidArgsFunction: a.completeSchedules,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.backfill(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringVar(&f.from, "from", "", "first fire time, RFC 3339")
	cmd.Flags().StringVar(&f.to, "to", "", "fire times before this time, RFC 3339; not in the future")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the fire times, and make no runs")
	return cmd
}

// backfilled is the JSON of `schedule backfill`.
type backfilled struct {
	schedule.Backfilled
	DryRun bool `json:"dry_run"`
}

func (a *app) backfill(ctx context.Context, name string, f scheduleBackfill) error {
	if f.from == "" || f.to == "" {
		return usage("--from and --to are needed: see `tocsin schedule backfill --help`")
	}
	from, err := parseTime("from", f.from)
	if err != nil {
		return err
	}
	to, err := parseTime("to", f.to)
	if err != nil {
		return err
	}
	return a.withSchedules(ctx, func(s *schedule.Schedules) error {
		done, err := s.Backfill(ctx, name, from, to, f.dryRun)
		if err != nil {
			return err
		}
		if done.Times == nil {
			done.Times = []schedule.Fire{}
		}
		return a.print(backfilled{done, f.dryRun}, func(w io.Writer) { writeBackfilled(w, done, f.dryRun) })
	})
}

func writeBackfilled(w io.Writer, done schedule.Backfilled, dryRun bool) {
	if !dryRun {
		fmt.Fprintf(w, "%d fire times: %d runs made, %d there already\n", len(done.Times), done.Made, done.There)
		return
	}
	for _, t := range done.Times {
		fmt.Fprintln(w, t.Time.UTC().Format(timeText))
	}
	fmt.Fprintf(w, "%d fire times, nothing was made\n", len(done.Times))
}

func newScheduleDelete(a *app) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "delete (NAME | --id SCHEDULE_ID)", Short: "Delete a schedule, and cancel its pending runs", Args: oneNameAtMost,
		Long: `Deletes a schedule and cancels its pending runs, also those of run-now and backfill. Deliveries in
progress go on, and the history of its runs stays until it is purged. --id is for one of two schedules with the same name.`,
		ValidArgsFunction: a.completeSchedules,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.deleteSchedule(cmd.Context(), args, id) },
	}
	cmd.Flags().StringVar(&id, "id", "", "`SCHEDULE_ID`, as tocsin schedule show prints it")
	return cmd
}

// deletedSchedule is the JSON of `schedule delete`.
type deletedSchedule struct {
	Name string       `json:"name,omitempty"`
	ID   tocsin.JobID `json:"schedule_id,omitempty"`
}

func (a *app) deleteSchedule(ctx context.Context, names []string, text string) error {
	if (len(names) == 1) == (text != "") {
		return usage("name one schedule, or give its --id")
	}
	gone := deletedSchedule{}
	if text != "" {
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			return usage("--id %q: want a decimal number from 1 to 2^63-1", text)
		}
		gone.ID = id
	} else {
		gone.Name = names[0]
	}
	return a.withSchedules(ctx, func(s *schedule.Schedules) error {
		if err := gone.delete(ctx, s); err != nil {
			return err
		}
		return a.print(gone, func(w io.Writer) { fmt.Fprintln(w, "deleted, its pending runs are cancelled") })
	})
}

func (d deletedSchedule) delete(ctx context.Context, s *schedule.Schedules) error {
	if d.Name != "" {
		return s.Delete(ctx, d.Name)
	}
	return s.DeleteID(ctx, d.ID)
}
