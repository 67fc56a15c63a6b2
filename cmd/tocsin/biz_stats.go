package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/operator"
)

func newBizStats(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count the tasks of each biz type, by status", Args: noArgs,
		Long: `Counts all tasks of all tables, by biz type and status. It reads a whole index of each table, which takes
seconds for millions of tasks: for watching, use the metrics or ` + "`tocsin top`" + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer o.Close()
			seen := a.tableProgress("count tasks of", o.Layout().Total())
			all, failed := o.Stats(cmd.Context(), seen.add)
			seen.end()
			if len(all) == 0 && failed != nil {
				return failed
			}
			return errors.Join(a.print(all, func(w io.Writer) {
				writeStats(w, all)
				writeUncounted(w, failed)
			}), failed)
		},
	}
}

// writeUncounted names the servers whose tasks are not all in the counts above.
func writeUncounted(w io.Writer, failed error) {
	var partial *operator.Partial
	if errors.As(failed, &partial) {
		fmt.Fprintf(w, "not counted in full: %s\n", strings.Join(partial.Servers, ", "))
	}
}

func writeStats(w io.Writer, all []operator.Stats) {
	rows := [][]string{{"BIZ TYPE", "PENDING", "CLAIMED", "DONE", "CANCELLED", "DEAD", "OLDEST OVERDUE"}}
	for _, s := range all {
		row := []string{s.BizType}
		for _, n := range []int{s.Pending, s.Claimed, s.Done, s.Cancelled, s.Dead} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, append(row, overdue(s.Overdue)))
	}
	columns(w, rows...)
}
