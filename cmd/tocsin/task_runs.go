package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/operator"
)

func newTaskRuns(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "runs JOB_ID", Short: "Show what became of each attempt of a task", Args: exactArgs("JOB_ID"),
		Long: `Shows what became of each attempt of a task, the latest first: when it started, how late and for how
long, its outcome and output, and for a failure its error. The biz type must have "history: true",
or the task be a run of a schedule. Runs outlive the row of their task, if that is purged first.

Outcomes: completed, retried, snoozed, buried; cancelled and rescheduled (in flight), lost (another
attempt settled the task first), cut_off (by the end of the node), missed and skipped (by the
policies of a schedule).`,
		Example: "  tocsin task runs 1523399873241099",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseJobID(args[0])
			if err != nil {
				return err
			}
			o, err := a.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer o.Close()
			runs, err := o.Runs(cmd.Context(), operator.RunsQuery{JobID: id, Limit: limit})
			if err != nil {
				return misused(err)
			}
			return a.print(runs, func(w io.Writer) { writeRuns(w, "task "+id.String(), runs) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "show at most this many runs, "+strconv.Itoa(operator.MaxRuns)+" at most")
	return cmd
}

// shortOutput is how many characters of an output stand in a line. --json has all.
const shortOutput = 120

// writeRuns writes a line for each run of something.
func writeRuns(w io.Writer, of string, runs []operator.Run) {
	if len(runs) == 0 {
		fmt.Fprintf(w, "no runs of %s: its biz type has no \"history: true\", it was not delivered since, or they were purged\n", of)
		return
	}
	rows := [][]string{runHead}
	for _, r := range runs {
		rows = append(rows, runRow(r))
	}
	columns(w, rows...)
}

var runHead = []string{"STARTED", "VERSION", "ATTEMPT", "OUTCOME", "LATE", "TOOK", "NODE", "OUTPUT"}

func runRow(r operator.Run) []string {
	return []string{
		r.Started.Format(timeText), strconv.FormatUint(uint64(r.Version), 10), strconv.Itoa(r.Attempt), r.Outcome,
		millisText(r.LatenessMS), millisText(r.DurationMS), oneCell(r.Node), shortened(oneCell(r.Output)),
	}
}

func millisText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// shortened cuts a text for a line.
func shortened(s string) string {
	if all := []rune(s); len(all) > shortOutput {
		return string(all[:shortOutput]) + "..."
	}
	return s
}
