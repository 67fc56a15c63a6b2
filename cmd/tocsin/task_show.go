package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

func newTaskGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get JOB_ID", Short: "Show a task", Args: exactArgs("JOB_ID"),
		RunE: ofJob(func(cmd *cobra.Command, id tocsin.JobID) error {
			return using(cmd.Context(), a, tocsin.Open, func(client *tocsin.Client) error {
				info, err := client.Get(cmd.Context(), id)
				if err == nil && ids.Reserved(info.DedupKey) {
					err = a.nameSchedule(cmd.Context(), &info)
				}
				return a.show(readable(info), misused(err), func(w io.Writer) { writeTask(w, info, time.Now()) })
			})
		}),
	}
}

// readable is a task as JSON takes it, whatever bytes its dedup_key has.
func readable(info tocsin.Info) tocsin.Info {
	info.DedupKey = name.KeyText(info.DedupKey)
	return info
}

// nameSchedule adds the schedule of a run, unless this user has no right to schedules.
func (a *app) nameSchedule(ctx context.Context, info *tocsin.Info) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		if err := o.NameSchedule(ctx, info); mysql.ClassOf(err) != mysql.Denied {
			return err
		}
		return nil
	})
}

func newTaskList(a *app) *cobra.Command {
	var q tocsin.ListQuery
	var by operator.Query
	var status, from, to string
	cmd := &cobra.Command{
		Use: "list (--biz-id N | --key KEY | --status STATUS)", Short: "Show tasks of a biz_id or key, or of all tables in a status", Args: noArgs,
		Long: `Shows tasks of a biz_id or key, oldest first: of more than --limit those of the biz types with the lowest numbers,
those without a dedup_key first. Or tasks of all tables in a status: pending and claimed ones by action time, the earliest first, and done, cancelled and dead ones from the latest on.

--from and --to bound the action time: when a pending task is due, when a claim ends, when others were settled.`,
		Example: `  tocsin task list --biz-id 42
  tocsin task list --status dead --type order.close --limit 20
  tocsin task list --status dead --from 2h
  tocsin task list --status done --from 2030-01-02T15:00:00Z --to 2030-01-02T16:00:00Z`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			given := cmd.Flags().Changed
			if q.From, err = past("from", from, time.Now(), given("from")); err != nil {
				return err
			}
			if q.To, err = past("to", to, time.Now(), given("to")); err != nil {
				return err
			}
			q.NoPayload = q.NoPayload || !a.json // the text has none
			switch {
			case (q.BizID != 0) != (q.BizKey != "") && status == "" && by.BizType == "":
				return a.listOf(cmd.Context(), q)
			case !given("biz-id") && !given("key") && status != "":
				if err := by.Status.UnmarshalText([]byte(status)); err != nil {
					return usage("--%w", err)
				}
				by.Limit, by.From, by.To, by.NoPayload = q.Limit, q.From, q.To, q.NoPayload
				return a.listByStatus(cmd.Context(), by)
			}
			return usage("name the tasks: --biz-id N, not 0, --key KEY, or --status dead, with --type NAME or without")
		},
	}
	cmd.Flags().Uint64Var(&q.BizID, "biz-id", 0, "your own id of what the tasks belong to, for example of the order; the sharding key")
	cmd.Flags().Var((*keyFlag)(&q.BizKey), "key", "instead of --biz-id: a business key that is not a number")
	cmd.Flags().StringVar(&status, "status", "", "pending, claimed, done, cancelled or dead")
	a.typeFlag(cmd, &by.BizType, "with --status: only tasks of this biz type")
	cmd.Flags().StringVar(&from, "from", "", "only tasks with an action time then or later: RFC 3339, or how long ago, such as 2h")
	cmd.Flags().StringVar(&to, "to", "", "only tasks with an action time then or earlier, as --from")
	cmd.Flags().BoolVar(&q.NoPayload, "no-payload", false, "with --json: read no payloads and headers")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "list at most this many tasks")
	within(cmd, "limit", 1, operator.MaxFound)
	return cmd
}

// listOf lists tasks of a key, or of a biz_id if the key is empty.
func (a *app) listOf(ctx context.Context, q tocsin.ListQuery) error {
	return using(ctx, a, tocsin.Open, func(client *tocsin.Client) error {
		var infos []tocsin.Info
		for left := q.Limit; left > 0; left = q.Limit - len(infos) {
			page := q
			page.Limit = min(left, tocsin.MaxListed)
			found, next, err := client.ListPage(ctx, page)
			if err != nil {
				return misused(err)
			}
			if infos, q.After = append(infos, found...), next; next == nil {
				break
			}
		}
		slices.SortFunc(infos, func(x, y tocsin.Info) int { return cmp.Compare(x.JobID, y.JobID) })
		none := fmt.Sprintf("no tasks of biz_id %d", q.BizID)
		if q.BizKey != "" {
			none = fmt.Sprintf("no tasks of key %q", q.BizKey)
		}
		err := a.printTasks(none, infos)
		if q.After != nil {
			fmt.Fprintf(a.err, "there may be more than these %d: raise --limit\n", len(infos))
		}
		return err
	})
}

// listByStatus lists tasks of all tables.
func (a *app) listByStatus(ctx context.Context, q operator.Query) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		found, failed := o.FindPage(ctx, q)
		if len(found.Tasks) == 0 && nothingRead(failed) {
			return misused(failed)
		}
		return errors.Join(a.printTasks("no "+q.Status.String()+" tasks"+inWhat(failed), found.Tasks), failed)
	})
}

// printTasks lists tasks, or says none.
func (a *app) printTasks(none string, infos []tocsin.Info) error {
	list := make([]tocsin.Info, len(infos))
	for i, info := range infos {
		list[i] = readable(info)
	}
	return a.print(list, func(w io.Writer) {
		if len(infos) == 0 {
			fmt.Fprintln(w, none)
		}
		writeTasks(w, infos, time.Now())
	})
}

// timeText is how a time stands in the text for people: UTC, as in the tables.
const timeText = "2006-01-02 15:04:05.000Z"

// writeTasks writes a line for each task.
func writeTasks(w io.Writer, infos []tocsin.Info, now time.Time) {
	var rows [][]string
	for _, i := range infos {
		of := "biz_id " + strconv.FormatUint(i.BizID, 10)
		if i.BizKey != "" {
			of = "key " + name.KeyLine(i.BizKey)
		}
		row := []string{"job_id " + i.JobID.String(), i.BizType, of, i.Status.String(), whenText(i, now), "attempts " + strconv.Itoa(i.Attempts)}
		if i.Crashes > 0 {
			row = append(row, "crashes "+strconv.Itoa(i.Crashes))
		}
		if i.LastError != "" {
			row = append(row, "last error: "+oneCell(i.LastError))
		}
		rows = append(rows, row)
	}
	columns(w, rows...)
}

// whenText says what action_time means in the task's status.
func whenText(i tocsin.Info, now time.Time) string {
	at := i.ActionTime.UTC().Format(timeText)
	switch i.Status {
	case tocsin.Pending:
		return "due " + at + " (" + away(i.ActionTime.Sub(now)) + ")"
	case tocsin.Claimed:
		return "claimed until " + at
	}
	return i.Status.String() + " " + at
}

// away gives a time relative to now, in no more detail than people want.
func away(d time.Duration) string {
	if d < 0 {
		return operator.Short(-d) + " ago"
	}
	return "in " + operator.Short(d)
}

// writeTask writes everything about one task, a field a line.
func writeTask(w io.Writer, i tocsin.Info, now time.Time) {
	rows := [][]string{
		{"job_id", i.JobID.String()},
		{"biz type", i.BizType},
		{"biz_id", strconv.FormatUint(i.BizID, 10)},
		{"key", name.KeyLine(i.BizKey)},
		{"table", i.Table},
		{"status", i.Status.String()},
		{"action time", i.ActionTime.UTC().Format(timeText) + " (" + away(i.ActionTime.Sub(now)) + ")"},
		{"due time", i.DueTime.UTC().Format(timeText)},
		{"schedule", oneCell(i.Schedule)},
		{"fire time", fireText(i.FireTime)},
		{"attempts", strconv.Itoa(i.Attempts)},
		{"crashes", strconv.Itoa(i.Crashes)},
		{"version", strconv.FormatUint(uint64(i.Version), 10)},
		{"claimed by", oneCell(i.ClaimedBy)},
		{"dedup key", name.KeyLine(i.DedupKey)},
		{"last error", oneCell(i.LastError)},
		{"created", i.Created.UTC().Format(timeText)},
		{"modified", i.Modified.UTC().Format(timeText)},
		{"headers", oneCell(string(i.Headers))},
		{"payload version", strings.TrimPrefix(strconv.Itoa(i.PayloadVersion), "0")},
		{"payload", oneCell(i.Payload)},
	}
	var said [][]string
	for _, row := range rows {
		if row[1] != "" {
			said = append(said, row)
		}
	}
	columns(w, said...)
}

// fireText shows a fire time; "" if there is none.
func fireText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeText)
}

// oneCell keeps foreign text from breaking lines and columns, or steering the
// terminal.
func oneCell(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

func newTaskWhy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "why JOB_ID", Short: "Show where a task is and what it waits for", Args: exactArgs("JOB_ID"),
		Long: `Explains where a task is and what it waits for: its time, a paused or unknown biz type, a node
for its table, a handler or secret, a free slot, the rate, its server, the end of a claim, a sweep.
It reads the row, the policies, etcd (or the session tables), and the status pages of the nodes that
may have the task. It names what it could not ask, and reports the rest. Exit code 1 if there is no such
task.

The first word is the state: not_due, retry, snoozed, paused, unknown_type, no_owner, no_etcd,
no_handler, no_secret, no_worker, stand_in, target_away, target_busy, key_busy, lane_full, rate_limited, queued,
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
		if err := a.print(answer, func(w io.Writer) { writeAnswer(w, answer) }); err != nil || answer.State != operator.StateGone {
			return err
		}
		return errSilent
	}
	return cmd
}

// writeAnswer writes the task in one line, its state in the next, and each further sentence in its own.
func writeAnswer(w io.Writer, a operator.Answer) {
	names := []string{"task " + a.JobID.String()}
	if a.Task != nil {
		names = append(names, a.Task.BizType, "biz_id "+strconv.FormatUint(a.Task.BizID, 10))
	}
	fmt.Fprintln(w, strings.Join(append(names, a.Table+" on "+a.Server), "  "))
	fmt.Fprintf(w, "%s: %s\n", a.State, oneCell(a.Says))
	for _, says := range a.Also {
		fmt.Fprintf(w, "also: %s\n", oneCell(says))
	}
	for _, what := range a.Unasked {
		fmt.Fprintf(w, "not asked: %s\n", oneCell(what))
	}
}
