package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/outbox"
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
	within(c, "settled", time.Millisecond, maxDuration)
	c.Flags().BoolVar(&f.all, "all", false, "read every row, however long ago it was settled")
	outletFlags(c, &f.out)
	a.typeFlag(c, &f.name, "biz type of --against")
	c.Flags().StringVar(&f.against, "against", "", "list the biz_ids of this file (- for standard input) that have no task")
	c.Flags().BoolVar(&f.outbox, "outbox", false, "check what was moved from outboxes, and what waits in them")
	c.Flags().DurationVar(&f.older, "older", 0, "how long a row may wait in an outbox (default: 5m, or twice the longest delivery time-out and a minute)")
	return c
}

func (a *app) audit(ctx context.Context, f auditFlags) error {
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
	failed = errors.Join(failed, f.out.once(ctx, "audit", file, report.Ended(failed == nil)))
	err = a.print(report, func(w io.Writer) { writeReport(w, report) })
	return found(len(report.Findings), errors.Join(failed, err))
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
	shown := r.Findings[:min(len(r.Findings), maxFindings)]
	table(w, []string{"TABLE", "BIZ TYPE", "FAULT", "ROWS", "JOB_IDS OR NAMES"}, shown, func(f upkeep.Finding) []any {
		words := f.Names
		if len(words) == 0 {
			for _, id := range f.Examples {
				words = append(words, id.String())
			}
		}
		return []any{f.Table, f.Type, f.Fault, f.Rows, someOf(words, f.Rows)}
	})
	if more := len(r.Findings) - maxFindings; more > 0 {
		fmt.Fprintf(w, "and %d lines more: --json has all\n", more)
	}
}

// someOf lists the words, and dots if there are more rows than words.
func someOf(words []string, rows int) string {
	if rows > len(words) {
		words = append(slices.Clone(words), "...")
	}
	return strings.Join(words, " ")
}

// missingTasks is the JSON of `audit --against`.
type missingTasks struct {
	Type   string        `json:"biz_type"`
	Asked  int           `json:"asked"`   // biz_ids
	BizIDs []string      `json:"missing"` // without a task
	Unread int           `json:"unread"`  // biz_ids of tables that could not be read
	Took   time.Duration `json:"took_ns"`
}

func (a *app) auditAgainst(cmd *cobra.Command, f auditFlags) error {
	if f.against == "" || f.name == "" {
		return usage("--type and --against need each other: see `%s --help`", cmd.CommandPath())
	}
	in := cmd.InOrStdin()
	if f.against != "-" {
		file, err := os.Open(f.against)
		if err != nil {
			return usage("--against: %w", err)
		}
		defer file.Close()
		in = file
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	policies, tables, err := openAudit(cmd.Context(), file)
	if err != nil {
		return err
	}
	defer tables.Close()
	missing, failed := upkeep.Against(cmd.Context(), tables, policies, f.name, readBizIDs(in, f.against))
	if failed != nil && missing.Asked == 0 {
		return failed
	}
	m := missingTasks{missing.Type, missing.Asked, make([]string, len(missing.BizIDs)), missing.Unread, missing.Took}
	for i, bizID := range missing.BizIDs {
		m.BizIDs[i] = strconv.FormatUint(bizID, 10)
	}
	err = a.print(m, func(w io.Writer) {
		fmt.Fprintf(w, "audit: %d of %d biz_ids have no task %s, %d could not be looked up, took %s\n",
			len(m.BizIDs), m.Asked, m.Type, m.Unread, m.Took.Round(time.Millisecond))
		for _, bizID := range m.BizIDs {
			fmt.Fprintln(w, bizID)
		}
	})
	return found(len(m.BizIDs), errors.Join(failed, err))
}

// found returns err, or errSilent if an audit without an error has found something: the findings are printed already.
func found(n int, err error) error {
	if err == nil && n > 0 {
		return errSilent
	}
	return err
}

// readBizIDs reads one biz_id from each line; blank lines are left out.
func readBizIDs(in io.Reader, name string) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		lines := bufio.NewScanner(in)
		for n := 1; lines.Scan(); n++ {
			word := strings.TrimSpace(lines.Text())
			if word == "" {
				continue
			}
			bizID, err := strconv.ParseUint(word, 10, 64)
			if err != nil || bizID == 0 {
				yield(0, usage("%s:%d: %.40q is no biz_id: want a decimal number in each line", name, n, word))
				return
			}
			if !yield(bizID, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(0, fmt.Errorf("read %s: %w", name, err))
		}
	}
}

func (a *app) auditOutboxes(ctx context.Context, f auditFlags) error {
	switch {
	case f.all || f.name != "" || f.against != "":
		return usage("--outbox excludes --all, --type and --against: it checks no rows of tasks")
	}
	if err := f.out.check(false); err != nil {
		return err
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	policies, err := biztype.LoadStored(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	tables, err := store.Connect(ctx, file.Tocsin())
	if err != nil {
		return err
	}
	defer tables.Close()
	boxes, err := openOutboxes(file)
	if err != nil {
		return err
	}
	defer closeOutboxes(boxes)
	report, failed := upkeep.AuditOutboxes(ctx, upkeep.OutboxConfig{Store: tables, Outboxes: boxes, Policies: policies, Older: f.older})
	failed = errors.Join(failed, f.out.once(ctx, "audit_outbox", file, report.Ended(failed == nil)))
	err = a.print(report, func(w io.Writer) { writeOutboxReport(w, report) })
	return found(len(report.Findings), errors.Join(failed, err))
}

// openOutboxes opens the outboxes of the config. It connects to none.
func openOutboxes(file config.File) (boxes []*outbox.Outbox, err error) {
	for _, cfg := range tocsinpg.Drive(file.Relayed()) {
		box, err := outbox.Open(cfg)
		if err != nil {
			closeOutboxes(boxes)
			return nil, err
		}
		boxes = append(boxes, box)
	}
	return boxes, nil
}

func closeOutboxes(boxes []*outbox.Outbox) {
	for _, box := range boxes {
		_ = box.Close()
	}
}

func writeOutboxReport(w io.Writer, r upkeep.OutboxReport) {
	waiting := fmt.Sprintf("%d rows wait in %d outboxes", r.Waiting, r.Outboxes)
	if r.Outboxes == 0 && len(r.Failed) == 0 {
		waiting = "the config has no outboxes"
	}
	fmt.Fprintf(w, "audit: %s; %d moved tasks looked for, %d of them may be purged, %s; %d statements that took %s, %s in all\n",
		said(r.Faults, r.Failed), r.Moved, r.Purged, waiting,
		r.Cost.Statements, r.Cost.Busy.Round(time.Millisecond), r.Cost.Took.Round(time.Millisecond))
	if len(r.Findings) == 0 {
		return
	}
	table(w, []string{"WHERE", "FAULT", "ROWS", "JOB_IDS OR IDS"}, r.Findings, func(f upkeep.OutboxFinding) []any {
		return []any{f.Where, f.Fault, f.Rows, someOf(f.Examples, f.Rows)}
	})
}

// said begins the summary of an audit.
func said(faults map[string]int, failed []string) string {
	words := make([]string, 0, len(faults))
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		words = append(words, name+" "+strconv.Itoa(faults[name]))
	}
	text := "all fits"
	switch {
	case len(words) > 0:
		text = strings.Join(words, ", ")
	case len(failed) > 0:
		text = "no fault in what could be read"
	}
	if len(failed) > 0 {
		text += "; not read in full: " + strings.Join(failed, ", ")
	}
	return text
}
