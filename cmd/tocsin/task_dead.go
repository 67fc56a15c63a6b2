package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

// redriveFlags are those of `task redrive`.
type redriveFlags struct {
	operator.DeadQuery
	since, until string
	all          bool
}

func newTaskRedrive(a *app) *cobra.Command {
	var f redriveFlags
	c := &cobra.Command{
		Use: "redrive (JOB_ID... | --type NAME | --all)", Short: "Deliver dead tasks once more, at once",
		Long: `Makes dead tasks pending again and due at once: by their ids, those of a biz type, or all, as far as the
other flags name them. Their attempts begin anew. Tasks that die while it runs stay dead.

They get a new idempotency key (webhook-id), so a receiver that remembers keys takes them as new.
With --same-key they keep the key they have, and such a receiver takes each of them once.

Tasks that a restore made dead, or found dead, may have been delivered before. They are redriven
by their JOB_ID, or with --restored, which redrives no others.`,
		Example: `  tocsin task redrive 1523399873241099
  tocsin task redrive --type order.close --since 2h --error "connection refused" --dry-run
  tocsin task redrive --type order.close --since 2h --limit 10
  tocsin task redrive --all --per-second 50
  tocsin task redrive --all --restored --same-key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && f.BizType == "" && !f.all:
				return a.redriveThese(cmd, args, f.SameKey)
			case len(args) == 0 && (f.BizType != "") != f.all:
				if err := f.check(cmd.Flags().Changed, time.Now()); err != nil {
					return err
				}
				return a.redriveMany(cmd.Context(), f.DeadQuery)
			}
			return usage("name a JOB_ID, --type or --all")
		},
	}
	flags := c.Flags()
	a.typeFlag(c, &f.BizType, "all dead tasks of a biz type")
	flags.BoolVar(&f.all, "all", false, "all dead tasks")
	flags.StringVar(&f.since, "since", "", "only tasks that died then or later: RFC 3339, or how long ago, such as 2h")
	flags.StringVar(&f.until, "until", "", "only tasks that died then or earlier, as --since (default: now)")
	flags.StringVar(&f.Error, "error", "", "only tasks with this text in their last error; upper and lower case differ")
	flags.BoolVar(&f.Restored, "restored", false, "only tasks that a restore made dead, or found dead; without it only others")
	flags.IntVar(&f.Limit, "limit", 0, "redrive at most this many tasks (default: all)")
	within(c, "limit", 1, maxCount)
	flags.IntVar(&f.PerSecond, "per-second", 0, "redrive at most this many tasks a second (default: as fast as the servers write)")
	within(c, "per-second", 1, maxCount)
	flags.BoolVar(&f.SameKey, "same-key", false, "keep the idempotency keys")
	flags.BoolVar(&f.DryRun, "dry-run", false, "only count, up to "+strconv.Itoa(operator.MaxFound))
	return c
}

// check reads the times, and refuses flags that were given and mean nothing.
func (f *redriveFlags) check(given func(string) bool, now time.Time) (err error) {
	switch {
	case given("error") && f.Error == "":
		return usage("--error is empty: name a part of the last error")
	}
	if f.Since, err = past("since", f.since, now, given("since")); err != nil {
		return err
	}
	f.Until, err = past("until", f.until, now, given("until"))
	return err
}

// past reads a time, or how long ago it was.
func past(flag, text string, now time.Time, given bool) (time.Time, error) {
	if !given {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := name.ReadTime(text)
	if err != nil {
		return at, usage("--%s %q: %w, or how long ago, such as 2h", flag, text, err)
	}
	return at, nil
}

// redriveThese redrives tasks by their ids.
func (a *app) redriveThese(cmd *cobra.Command, args []string, same bool) error {
	for _, flag := range []string{"since", "until", "error", "restored", "limit", "per-second", "dry-run"} {
		if cmd.Flags().Changed(flag) {
			return usage("--%s is for --type and --all: leave it out for a JOB_ID", flag)
		}
	}
	if len(args) > 1 {
		return a.act(cmd.Context(), args, "redriven", operator.Act{Deed: operator.DeedRedrive, SameKey: same})
	}
	id, err := parseJobID(args[0])
	if err != nil {
		return err
	}
	return a.rewrite(cmd.Context(), func(o *operator.Operator) (tocsin.Info, error) {
		if same {
			return o.RedriveSameKey(cmd.Context(), id)
		}
		return o.Redrive(cmd.Context(), id)
	})
}

// rewrite changes one task and shows it.
func (a *app) rewrite(ctx context.Context, write func(*operator.Operator) (tocsin.Info, error)) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		now, err := write(o)
		return a.show(readable(now), err, func(w io.Writer) { writeTask(w, now, time.Now()) })
	})
}

// redriveMany redrives the dead tasks of a query.
func (a *app) redriveMany(ctx context.Context, q operator.DeadQuery) error {
	return using(ctx, a, operator.Open, func(o *operator.Operator) error {
		seen := a.tableProgress("redrive dead tasks of", o.Layout().Total())
		q.Progress = seen.add
		done, failed := o.RedriveDead(ctx, q)
		seen.end()
		if errors.Is(failed, tocsin.ErrUnknownBizType) || errors.Is(failed, tocsin.ErrInvalid) {
			return misused(failed)
		}
		return errors.Join(a.print(done, func(w io.Writer) { writeRedriven(w, done, q.Limit) }), failed)
	})
}

func writeRedriven(w io.Writer, r operator.Redriven, limit int) {
	switch {
	case !r.DryRun:
		fmt.Fprintf(w, "%d dead tasks redriven\n", r.Tasks)
	case r.More && r.Tasks != limit:
		fmt.Fprintf(w, "%d+ dead tasks would be redriven\n", r.Tasks)
	default:
		fmt.Fprintf(w, "%d dead tasks would be redriven\n", r.Tasks)
	}
	if r.Left > 0 {
		fmt.Fprintf(w, "%d left, as they may have been delivered before a restore: --restored redrives them\n", r.Left)
	}
}

func newTaskBury(a *app) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "bury JOB_ID...", Short: "Make tasks dead; they can be redriven", Args: someJobs,
		Long: `Makes tasks dead that have not ended, with the reason as their last error. A delivery that is under way
goes on, and may still complete its task; of a strict biz type nothing is changed then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return a.act(cmd.Context(), args, "buried", operator.Act{Deed: operator.DeedBury, Reason: reason})
			}
			return ofJob(func(cmd *cobra.Command, id tocsin.JobID) error {
				return a.rewrite(cmd.Context(), func(o *operator.Operator) (tocsin.Info, error) { return o.Bury(cmd.Context(), id, reason) })
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&reason, "reason", operator.ByHand, "why, for its last error")
	return c
}
