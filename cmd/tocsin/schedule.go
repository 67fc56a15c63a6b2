package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/schedule"
)

func newSchedule(a *app) *cobra.Command {
	return group("schedule", "Apply, look at, activate, deactivate, run and delete schedules",
		newScheduleApply(a), newScheduleList(a), newScheduleShow(a), newScheduleActivate(a), newScheduleDeactivate(a),
		newScheduleNext(a), newScheduleRuns(a), newScheduleRunNow(a), newScheduleBackfill(a), newScheduleDelete(a))
}

// schedules connects to the config's cluster.
func (a *app) schedules(ctx context.Context) (*schedule.Schedules, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return schedule.Open(ctx, cfg)
}

// withSchedules runs one call.
func (a *app) withSchedules(ctx context.Context, do func(*schedule.Schedules) error) error {
	s, err := a.schedules(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	err = do(s)
	if errors.Is(err, schedule.ErrInvalid) {
		return usageError{err}
	}
	if errors.Is(err, schedule.ErrNotFound) {
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
differ, which keep their state. Schedules that are not in the file are left unchanged. A change
cancels the pending runs, and makes new ones for the fire times from now on.`,
		Example: "  tocsin schedule apply configs/schedules.yaml --dry-run\n  tocsin schedule apply configs/schedules.yaml",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.applySchedules(cmd.Context(), args[0], dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	return cmd
}

// appliedSchedules is the JSON of `schedule apply`.
type appliedSchedules struct {
	Schedules []schedule.Applied `json:"schedules"`
	DryRun    bool               `json:"dry_run"`
}

func (a *app) applySchedules(ctx context.Context, path string, dryRun bool) error {
	definitions, err := readSchedules(path)
	if err != nil {
		return err
	}
	s, err := a.schedules(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	all, failed := s.Apply(ctx, definitions, dryRun)
	if all == nil {
		return failed
	}
	done := appliedSchedules{all, dryRun}
	return errors.Join(a.print(done, done.write), failed)
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
			row = append(row, string(s.State), fmt.Sprint("revision ", s.Revision))
		}
		rows = append(rows, row)
		for _, c := range s.Changes {
			rows = append(rows, []string{"  " + c.Field + ": " + shortened(oneCell(orNothing(c.Old))) + " -> " + shortened(oneCell(orNothing(c.New)))})
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

// orNothing shows a value that is not set.
func orNothing(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// completeSchedules completes the name of a stored schedule as the only argument, or nothing as completeTypes.
func (a *app) completeSchedules(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	s, err := a.schedules(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = s.Close() }()
	all, _ := s.List(ctx, schedule.Query{Limit: completedAtMost}) // those that can be read
	var names []cobra.Completion
	for _, one := range all {
		names = append(names, cobra.CompletionWithDesc(one.Name, one.Cron))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completedAtMost is as many names as a shell can show.
const completedAtMost = 1000
