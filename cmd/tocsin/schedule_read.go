package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/schedule"
)

func newScheduleList(a *app) *cobra.Command {
	var q schedule.Query
	var state string
	cmd := &cobra.Command{
		Use: "list", Short: "List schedules by name", Args: noArgs,
		Long: "Lists the schedules of all databases by name. --after takes the last name of a page to get the next one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch q.State = schedule.State(state); q.State {
			case "", schedule.Active, schedule.Inactive, schedule.Paused, schedule.Ended:
			default:
				return usage("--state %q: want one of active, inactive, paused, ended", state)
			}
			if q.Limit < 1 || q.Limit > schedule.MaxListed {
				return usage("--limit %d: use 1 to %d", q.Limit, schedule.MaxListed)
			}
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				all, failed := s.List(cmd.Context(), q)
				if len(all) == 0 && nothingRead(failed) {
					return failed
				}
				return errors.Join(a.print(all, func(w io.Writer) { writeSchedules(w, all, "no schedules"+inWhat(failed)) }), failed)
			})
		},
	}
	cmd.Flags().StringVar(&q.App, "app", "", "only schedules of this app")
	cmd.Flags().StringVar(&q.BizType, "type", "", "only schedules with runs of this biz type")
	cmd.Flags().StringVar(&state, "state", "", "active, inactive, paused or ended")
	cmd.Flags().StringVar(&q.After, "after", "", "list names after this one")
	cmd.Flags().IntVar(&q.Limit, "limit", 1000, "list at most this many schedules")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return cmd
}

// nextFire returns when an active schedule fires next, or fired if nothing made that run: s.NextFire is that of the next
// run to make, up to 20 minutes after those that are pending. Zero: the schedule is not active.
func nextFire(s schedule.Schedule) time.Time {
	if s.State != schedule.Active || s.NextFire.Before(s.ReadAt) {
		return s.NextFire
	}
	fires, err := s.Following(s.ReadAt, 1)
	if err != nil || len(fires) == 0 {
		return s.NextFire
	}
	return fires[0].Time
}

func writeSchedules(w io.Writer, all []schedule.Schedule, none string) {
	if len(all) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	rows := [][]string{{"NAME", "STATE", "CRON", "ZONE", "BIZ TYPE", "NEXT FIRE TIME", "RUNS MADE"}}
	for _, s := range all {
		next := "-"
		if at := nextFire(s); !at.IsZero() {
			next = at.UTC().Format(timeText)
		}
		rows = append(rows, []string{s.Name, string(s.State), oneCell(s.Cron), s.Zone, s.BizType, next, fmt.Sprint(s.Made)})
	}
	columns(w, rows...)
}

func newScheduleShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a schedule, with its defaults, as YAML", Args: exactArgs("NAME"),
		Long:              "Shows a schedule as YAML that can be applied again. Comments above it show its state. All times are UTC.",
		ValidArgsFunction: a.completeSchedules,
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
	text, err := yaml.MarshalWithOptions(struct {
		Schedules []schedule.Definition `yaml:"schedules"`
	}{[]schedule.Definition{s.Definition}}, yaml.CustomMarshaler[string](yamlText))
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

// yamlText quotes a text that the command would not print as it is, so that the file means the same.
func yamlText(s string) ([]byte, error) {
	if strings.ContainsFunc(s, steers) {
		return []byte(strconv.Quote(s)), nil // with escapes that YAML has too
	}
	return yaml.Marshal(s)
}

// standing says how a schedule stands, a line for each fact.
func standing(s schedule.Schedule) []string {
	state := string(s.State)
	if s.Reason != "" {
		state += ": " + oneCell(s.Reason)
	}
	lines := []string{
		fmt.Sprintf("schedule_id %s in table %04d, revision %d of %s", s.ID, s.Table, s.Revision, s.Modified.UTC().Format(timeText)),
		state,
		fmt.Sprintf("%d runs made for fire times until %s, %d fire times passed over", s.Made, s.MadeUntil.UTC().Format(timeText), s.PassedOver),
	}
	if next := nextFire(s); !next.IsZero() {
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
