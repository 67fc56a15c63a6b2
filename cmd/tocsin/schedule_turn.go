package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/schedule"
)

// turned is the JSON of `schedule activate` and `deactivate` of one schedule.
type turned struct {
	Changed bool `json:"changed"` // false: it was so before
	schedule.Schedule
}

// turnedMany is the JSON of those of several schedules.
type turnedMany struct {
	Results []turnedOne `json:"results"` // in the order of the names
}

type turnedOne struct {
	Name     string             `json:"name"`
	Changed  bool               `json:"changed"`
	Schedule *schedule.Schedule `json:"schedule,omitempty"` // nil: it failed
	Error    string             `json:"error,omitempty"`
}

func (a *app) turning(verb, short, long string, turn func(*schedule.Schedules, context.Context, []string, func(string) bool) ([]schedule.Turned, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME...", Short: short, Long: long + " If one of several fails, the others are changed all the same.",
		ValidArgsFunction: completing(a.scheduleNames),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactArgs("NAME")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(s *schedule.Schedules) error {
				all, err := turn(s, cmd.Context(), args, nil)
				if err == nil && len(all) == 1 {
					err = all[0].Err
				}
				if err != nil {
					return err
				}
				return a.showTurned(all)
			})
		},
	}
}

func (a *app) showTurned(all []schedule.Turned) error {
	if len(all) == 1 {
		one := turned{all[0].Changed, all[0].Schedule}
		return a.print(one, func(w io.Writer) { columns(w, one.row()) })
	}
	var failed error
	done := turnedMany{}
	rows := make([][]string, len(all))
	for i, t := range all {
		one := turnedOne{Name: t.Name, Changed: t.Changed, Schedule: &all[i].Schedule}
		if rows[i] = (turned{t.Changed, t.Schedule}).row(); t.Err != nil {
			one.Schedule, one.Error, failed = nil, t.Err.Error(), errors.Join(failed, t.Err)
			rows[i] = []string{oneCell(t.Name), "failed"}
		}
		done.Results = append(done.Results, one)
	}
	return errors.Join(a.print(done, func(w io.Writer) { columns(w, rows...) }), failed)
}

// row says how the schedule stands.
func (s turned) row() []string {
	state := oneCell(s.Stands())
	if !s.Changed {
		state = "was " + state + " already"
	}
	row := []string{s.Name, state, fmt.Sprint("revision ", s.Revision)}
	if next := s.Fires(); !next.IsZero() {
		row = append(row, "next fire time: "+next.UTC().Format(timeText))
	}
	return row
}
