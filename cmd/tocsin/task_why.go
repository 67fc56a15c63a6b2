package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/why"
)

func newTaskWhy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "why JOB_ID", Short: "Show where a task is and what it waits for", Args: exactArgs("JOB_ID"),
		Long: `Explains where a task is and what it waits for: its time, a paused or unknown biz type, a node
for its table, a handler or secret, a free slot, the rate, its server, the end of a claim, a sweep.
It reads the row, the policies, etcd (or the node tables), and the status pages of the nodes that
may have the task. It names what it could not ask, and reports the rest. Exit code 1 if there is no such
task.

The first word is the state: not_due, retry, snoozed, paused, unknown_type, no_owner, no_etcd,
no_handler, no_secret, stand_in, target_away, target_busy, key_busy, lane_full, rate_limited, queued,
unseen, due, overdue, in_delivery, unsettled, claimed, claim_run_out, server_away, server_hangs,
server_read_only, database_refused, older_copy, done, cancelled, dead or gone.`,
		Example: "  tocsin task why 1523399873241099\n  tocsin task why 1523399873241099 --ask 10.0.0.7:8480 --json",
	}
	ask := cmd.Flags().StringSlice("ask", nil, "more addresses of status pages to ask, host:port")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseJobID(args[0])
		if err == nil {
			err = checkAddresses("--ask", *ask)
		}
		if err != nil {
			return err
		}
		v, err := a.view()
		if err != nil {
			return err
		}
		answer, err := v.Why(cmd.Context(), id, *ask, nil)
		if err != nil {
			return err
		}
		if err := a.print(answer, func(w io.Writer) { writeAnswer(w, answer) }); err != nil || answer.State != why.Gone {
			return err
		}
		return errSilent
	}
	return cmd
}

// writeAnswer writes the task in one line, its state in the next, and each further sentence in its own.
func writeAnswer(w io.Writer, a why.Answer) {
	fmt.Fprintln(w, strings.Join(append(namesOf(a), a.Table+" on "+a.Server), "  "))
	fmt.Fprintf(w, "%s: %s\n", a.State, oneCell(a.Says))
	for _, says := range a.Also {
		fmt.Fprintf(w, "also: %s\n", oneCell(says))
	}
	for _, what := range a.Unasked {
		fmt.Fprintf(w, "not asked: %s\n", oneCell(what))
	}
}

func namesOf(a why.Answer) []string {
	names := []string{"task " + a.JobID.String()}
	if a.Task != nil {
		names = append(names, a.Task.BizType, "biz_id "+strconv.FormatUint(a.Task.BizID, 10))
	}
	return names
}

// checkAddresses refuses what is no address of a status page.
func checkAddresses(flag string, addresses []string) error {
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return usage("%s %q: want host:port", flag, address)
		}
	}
	return nil
}
