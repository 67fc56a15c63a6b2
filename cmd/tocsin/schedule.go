package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule"
)

func newSchedule(a *app) *cobra.Command {
	return group("schedule", "Apply, look at, activate, deactivate, run and delete schedules",
		newScheduleApply(a), newScheduleList(a), newScheduleShow(a),
		a.turning("activate", "Have schedules make runs again",
			`Activates schedules that were deactivated, were paused or have ended, for the fire times from now on. Fire times
that passed meanwhile are not made up for: see `+"`tocsin schedule backfill`"+`. @every without a start counts from now.`, (*schedule.Schedules).ActivateMany),
		a.turning("deactivate", "Keep schedules from making runs, and cancel those that are pending",
			`Deactivates schedules: they make no runs, and their pending runs are cancelled. Deliveries in progress go on, and
so do runs of run-now and backfill.`, (*schedule.Schedules).DeactivateMany),
		newScheduleNext(a), newScheduleRuns(a), newScheduleRunNow(a), newScheduleBackfill(a), newScheduleDelete(a))
}

// withSchedules runs one call.
func (a *app) withSchedules(ctx context.Context, do func(*schedule.Schedules) error) error {
	err := using(ctx, a, schedule.Open, do)
	switch {
	case errors.Is(err, schedule.ErrInvalid):
		return usageError{err}
	case errors.Is(err, schedule.ErrNotFound):
		return fmt.Errorf("%w: `tocsin schedule list` names those that are applied", err)
	}
	return err
}

// readSchedules reads a file of definitions.
func readSchedules(path string) ([]schedule.Definition, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return schedule.Parse(text, path)
}

func newScheduleApply(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Create and change the schedules of a YAML file", Args: exactArgs("FILE"),
		Long: `Brings the cluster's schedules in line with a YAML file: creates missing ones, active, and changes those that
differ, which keep their state. Schedules that are not in the file are left unchanged. Runs that are due by a change
stay as they are, and later ones are made anew.`,
		Example: "  tocsin schedule apply configs/schedules.yaml --dry-run\n  tocsin schedule apply configs/schedules.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			definitions, err := readSchedules(args[0])
			if err != nil {
				return err
			}
			return using(cmd.Context(), a, schedule.Open, func(s *schedule.Schedules) error {
				all, failed := s.Apply(cmd.Context(), definitions, dryRun)
				if all == nil {
					return failed
				}
				done := appliedSchedules{all, dryRun}
				return errors.Join(a.print(done, done.write), failed)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	return cmd
}

// appliedSchedules is the JSON of `schedule apply`.
type appliedSchedules struct {
	Schedules []schedule.Applied `json:"schedules"`
	DryRun    bool               `json:"dry_run"`
}

func (d appliedSchedules) write(w io.Writer) {
	count := map[schedule.Verdict]int{}
	rows := make([][]string, 0, len(d.Schedules))
	for _, s := range d.Schedules {
		if s.Err != nil {
			count["failed"]++
			rows = append(rows, []string{s.Name, "failed"})
			continue
		}
		count[s.Verdict]++
		row := []string{s.Name, d.verdict(s.Verdict)}
		if s.ID != 0 {
			row = append(row, oneCell(cmp.Or(s.Stands, string(s.State))), fmt.Sprint("revision ", s.Revision))
		}
		rows = append(rows, row)
		for _, c := range s.Changes {
			rows = append(rows, []string{"  " + c.Field + ": " + shortened(oneCell(cmp.Or(c.Old, "(none)"))) + " -> " + shortened(oneCell(cmp.Or(c.New, "(none)")))})
		}
	}
	columns(w, rows...)
	fmt.Fprintf(w, "%d %s, %d %s, %d unchanged", count[schedule.Created], d.verdict(schedule.Created), count[schedule.Changed], d.verdict(schedule.Changed), count[schedule.Unchanged])
	if n := count["failed"]; n > 0 {
		fmt.Fprintf(w, ", %d failed", n)
	}
	fmt.Fprintln(w)
}

// verdict says of a dry run what would be done.
func (d appliedSchedules) verdict(v schedule.Verdict) string {
	if d.DryRun && v != schedule.Unchanged {
		return "would be " + string(v)
	}
	return string(v)
}

// scheduleNames returns the names of the stored schedules that can be read.
func (a *app) scheduleNames(ctx context.Context) (names []cobra.Completion) {
	_ = a.withSchedules(ctx, func(s *schedule.Schedules) error {
		all, err := s.List(ctx, schedule.Query{Limit: 1000}) // more names than a shell can show
		for _, one := range all {
			names = append(names, cobra.CompletionWithDesc(one.Name, one.Cron))
		}
		return err
	})
	return names
}

func newScheduleShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a schedule, with its defaults, as YAML", Args: exactArgs("NAME"),
		Long:              "Shows a schedule as YAML that can be applied again. Comments above it show its state. All times are UTC.",
		ValidArgsFunction: completing(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				one, err := s.Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.showSchedule(one)
			})
		},
	}
}

func (a *app) showSchedule(s schedule.Schedule) error {
	text, err := schedule.YAML([]schedule.Definition{s.Definition})
	if err != nil {
		return fmt.Errorf("show schedule %s: %w", s.Name, err)
	}
	return a.print(s, func(w io.Writer) {
		for _, line := range standing(s) {
			fmt.Fprintln(w, "# "+line)
		}
		_, _ = w.Write(text)
	})
}

// standing says how a schedule stands, a line for each fact.
func standing(s schedule.Schedule) []string {
	lines := []string{
		fmt.Sprintf("schedule_id %s in table %04d, revision %d of %s", s.ID, s.Table, s.Revision, s.Modified.UTC().Format(timeText)),
		oneCell(s.Stands()),
		fmt.Sprintf("%d runs made for fire times until %s, %d fire times passed over", s.Made, s.MadeUntil.UTC().Format(timeText), s.PassedOver),
	}
	if next := s.Fires(); !next.IsZero() {
		lines = append(lines, "next fire time: "+next.UTC().Format(timeText)+" ("+away(next.Sub(s.ReadAt))+")")
	}
	if !s.NextFire.IsZero() {
		lines = append(lines, "next run to make: "+s.NextFire.UTC().Format(timeText)+" ("+away(s.NextFire.Sub(s.ReadAt))+")")
	}
	if s.FarAhead() {
		lines = append(lines, "no runs are made until then, as the clock of its database was ahead, or is behind: if it is right, a node mends this within an hour, and an edit at once")
	}
	if strings.HasPrefix(strings.TrimSpace(s.Cron), "@every") {
		lines = append(lines, "counts from "+s.Anchor.UTC().Format(timeText))
	}
	if s.Failures > 0 {
		lines = append(lines, fmt.Sprintf("%d runs failed in a row", s.Failures))
	}
	return lines
}

func newScheduleRunNow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "run-now NAME", Short: "Make a run that is due now", Args: exactArgs("NAME"), ValidArgsFunction: completing(a.scheduleNames),
		Long: `Makes one run that is due now, whatever the state of the schedule, beside those of its fire times. The
schedule's overlap policy applies to it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				run, err := s.RunNow(cmd.Context(), args[0])
				return a.show(run, err, func(w io.Writer) {
					columns(w, []string{"job_id " + run.JobID.String(), args[0], "due " + run.Due.UTC().Format(timeText)})
				})
			})
		},
	}
}

// backfilled is the JSON of `schedule backfill`.
type backfilled struct {
	schedule.Backfilled
	DryRun bool `json:"dry_run"`
}

func newScheduleBackfill(a *app) *cobra.Command {
	var from, to string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "backfill NAME --from TIME --to TIME", Short: "Make runs for fire times of the past", Args: exactArgs("NAME"),
		Long: fmt.Sprintf(`Makes a run, due now, for each fire time t of the past with from <= t < to: at most %d. It does not
matter whether a fire time had a run; one that was backfilled before gets no other run until that one is
cancelled or purged.`, schedule.MaxBackfill),
		Example:           "  tocsin schedule backfill report.daily --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run",
		ValidArgsFunction: completing(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" || to == "" {
				return usage("--from and --to are needed: see `tocsin schedule backfill --help`")
			}
			first, err := parseTime("from", from)
			if err != nil {
				return err
			}
			end, err := parseTime("to", to)
			if err != nil {
				return err
			}
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				done, err := s.Backfill(cmd.Context(), args[0], first, end, dryRun)
				done.Times = orEmpty(done.Times)
				return a.show(backfilled{done, dryRun}, err, func(w io.Writer) { writeBackfilled(w, done, dryRun) })
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "first fire time, RFC 3339")
	cmd.Flags().StringVar(&to, "to", "", "fire times before this time, RFC 3339; not in the future")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the fire times, and make no runs")
	return cmd
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
		ValidArgsFunction: completing(a.scheduleNames),
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

func (a *app) deleteSchedule(ctx context.Context, names []string, text string) (err error) {
	if (len(names) == 1) == (text != "") {
		return usage("name one schedule, or give its --id")
	}
	gone := deletedSchedule{}
	if text == "" {
		gone.Name = names[0]
	} else if gone.ID, err = tocsin.ParseJobID(text); err != nil {
		return usage("--id %q: want a decimal number from 1 to 2^63-1", text)
	}
	return a.withSchedules(ctx, func(s *schedule.Schedules) error {
		if gone.Name != "" {
			err = s.Delete(ctx, gone.Name)
		} else {
			err = s.DeleteID(ctx, gone.ID)
		}
		return a.show(gone, err, func(w io.Writer) { fmt.Fprintln(w, "deleted, its pending runs are cancelled") })
	})
}
