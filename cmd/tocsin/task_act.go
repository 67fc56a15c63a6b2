package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// parseJobIDs reads arguments that are JOB_IDs, each once.
func parseJobIDs(args []string) (ids []tocsin.JobID, err error) {
	for _, arg := range args {
		id, err := parseJobID(arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// someJobs wants a JOB_ID, or several.
func someJobs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exactArgs("JOB_ID")(cmd, args)
	}
	_, err := parseJobIDs(args)
	return err
}

// actedTask is the JSON of one of several tasks that were acted on.
type actedTask struct {
	operator.Acted
	Error string `json:"error,omitempty"` // why it was not changed, or may not be
}

// act does the same with several tasks, and says what became of each. It fails if it was not done with all of them.
func (a *app) act(ctx context.Context, args []string, done string, act operator.Act) (err error) {
	if act.IDs, err = parseJobIDs(args); err != nil {
		return err
	}
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		all, err := o.Act(ctx, act)
		if err != nil {
			return misused(err)
		}
		failed, tasks := 0, make([]actedTask, len(all))
		for i, one := range all {
			if tasks[i].Acted = one; one.Err != nil {
				failed++
				tasks[i].Error = operator.OneLine(one.Err)
			}
		}
		err = a.print(tasks, func(w io.Writer) { writeActed(w, tasks) })
		if err == nil && failed > 0 {
			err = fmt.Errorf("%d of %d tasks were not %s", failed, len(all), done)
		}
		return err
	})
}

func writeActed(w io.Writer, tasks []actedTask) {
	var rows [][]string
	for _, t := range tasks {
		row := []string{"job_id " + t.JobID.String(), t.BizType, t.Status}
		switch {
		case t.Error != "":
			row = append(row, "not changed: "+oneCell(t.Error))
		case t.InDelivery:
			row = append(row, "a delivery may be under way")
		}
		rows = append(rows, row)
	}
	columns(w, rows...)
}
