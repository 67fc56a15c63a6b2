package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// maxFindings is how many findings stand in the text for people.
const maxFindings = 40

// auditFlags are those of `tocsin audit`.
type auditFlags struct {
	grace   time.Duration
	settled time.Duration
	all     bool
	name    string
	against string
	outbox  bool
	older   time.Duration

	out outlet
}

func newAudit(a *app) *cobra.Command {
	var f auditFlags
	c := &cobra.Command{
		Use: "audit [--outbox | --type NAME --against FILE]", Short: "Look for faulty rows and lost tasks", Args: noArgs,
		Long: `Checks each row against itself: the right table for its biz_id and job_id, a known biz type,
not overdue, no claim that ran out, and status, times, attempts and crashes that fit. It reads
all live rows, finished ones that were settled within --settled, all schedules, and the runs of
the history that began within --settled, and changes nothing. Run it each hour; it says what it
cost. Exit code 1 if something does not fit.

With --against it does not check rows, but lists the biz_ids of a file, one in each line, that
have no task of the biz type, whatever its status: never added, or purged by now.

With --outbox it checks no rows either, but looks for the tasks that were moved from outboxes
in the last ten minutes, and for rows of the config's outboxes that wait for longer than
--older. Run it every five minutes. Exit code 1 if a task is gone that no purge can have
removed, or if a row waits; 0 if the config has no outboxes and no task is gone.`,
		Example: `  tocsin audit
  tocsin audit --outbox
  mysql shop -N <unpaid.sql | tocsin audit --type order.close --against -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.outbox {
				return a.auditOutboxes(cmd.Context(), f)
			}
			if f.older != 0 {
				return usage("--older belongs to --outbox")
			}
			if f.against == "" && f.name == "" {
				return a.audit(cmd.Context(), f)
			}
			if err := f.out.check(true); err != nil {
				return err
			}
			return a.auditAgainst(cmd, f)
		},
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, "how late a task may be (default: sweep.grace of the config, then 60s)")
	c.Flags().DurationVar(&f.settled, "settled", upkeep.DefaultSettled, "read finished tasks that were settled at most this long ago")
	c.Flags().BoolVar(&f.all, "all", false, "read every row, however long ago it was settled")
	outletFlags(c, &f.out)
	c.Flags().StringVar(&f.name, "type", "", "biz type of --against")
	c.Flags().StringVar(&f.against, "against", "", "list the biz_ids of this file (- for standard input) that have no task")
	c.Flags().BoolVar(&f.outbox, "outbox", false, "check what was moved from outboxes, and what waits in them")
	c.Flags().DurationVar(&f.older, "older", 0, "how long a row may wait in an outbox (default: 5m, or twice the longest delivery time-out and a minute)")
	_ = c.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return c
}

func (a *app) audit(ctx context.Context, f auditFlags) error {
	if f.grace < 0 || f.settled <= 0 {
		return usage("--grace and --settled: want a time above 0")
	}
	if err := f.out.check(false); err != nil {
		return err
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	policies, tables, err := openAudit(ctx, file)
	if err != nil {
		return err
	}
	defer tables.Close()
	seen := a.tableProgress("audit", tables.Layout().Total())
	cfg := upkeep.AuditConfig{Store: tables, Policies: policies, Grace: f.grace, Settled: f.settled, Progress: seen.add}
	if cfg.Grace == 0 {
		cfg.Grace = file.Sweep.Grace.D()
	}
	if f.all {
		cfg.Settled = upkeep.All
	}
	report, failed := upkeep.Audit(ctx, cfg)
	seen.end()
	if left := f.out.once(ctx, "audit", file, report.Ended(failed == nil)); left != nil {
		failed = errors.Join(failed, left)
	}
	if err := a.print(report, func(w io.Writer) { writeReport(w, report) }); err != nil {
		return err
	}
	if failed == nil && len(report.Findings) > 0 {
		return errSilent
	}
	return failed
}

// openAudit opens what an audit of tasks reads. The caller closes the store.
func openAudit(ctx context.Context, file config.File) ([]biztype.Policy, *store.Store, error) {
	policies, err := biztype.Load(ctx, file.Tocsin())
	if err != nil {
		return nil, nil, err
	}
	tables, err := store.Connect(ctx, file.Tocsin())
	return policies, tables, err
}

func writeReport(w io.Writer, r upkeep.AuditReport) {
	fmt.Fprintf(w, "audit: %s; %d tables, %d rows read by %d statements that took %s, %s in all\n", said(r.Faults, r.Failed),
		r.Tables, r.Cost.Rows, r.Cost.Statements, r.Cost.Busy.Round(time.Millisecond), r.Cost.Took.Round(time.Millisecond))
	if len(r.Findings) == 0 {
		return
	}
	rows := [][]string{{"TABLE", "BIZ TYPE", "FAULT", "ROWS", "JOB_IDS OR NAMES"}}
	for _, f := range r.Findings[:min(len(r.Findings), maxFindings)] {
		rows = append(rows, []string{f.Table, f.Type, f.Fault, strconv.Itoa(f.Rows), examples(f)})
	}
	columns(w, rows...)
	if more := len(r.Findings) - maxFindings; more > 0 {
		fmt.Fprintf(w, "and %d lines more: --json has all\n", more)
	}
}

// examples lists some rows of a finding.
func examples(f upkeep.Finding) string {
	if len(f.Names) == 0 {
		return someIDs(f.Examples, f.Rows)
	}
	words := f.Names
	if f.Rows > len(words) {
		words = append(slices.Clone(words), "...")
	}
	return strings.Join(words, " ")
}

// someIDs lists examples of so many rows.
func someIDs(ids []tocsin.JobID, rows int) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	if rows > len(ids) {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}
