package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

func newTask(a *app) *cobra.Command {
	return group("task", "Add, look up, explain, cancel, reschedule, redrive, bury and work on tasks",
		newTaskAdd(a), newTaskGet(a), newTaskRuns(a), newTaskWhy(a), newTaskList(a), newTaskDead(a), newTaskCancel(a), newTaskReschedule(a), newTaskRedrive(a), newTaskBury(a),
		newTaskReserve(a), newTaskExtend(a), newTaskSettle(a))
}

// misused makes what the root package refuses without asking a server an error
// of exit code 2.
func misused(err error) error {
	if errors.Is(err, tocsin.ErrInvalid) {
		return usageError{err}
	}
	return err
}

// when is the pair of flags that say when to act.
type when struct {
	in time.Duration
	at string
}

func (w *when) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.in, "in", 0, "act after this time, by the database's clock (30m, 72h)")
	cmd.Flags().StringVar(&w.at, "at", "", "act at this time, RFC 3339 (2030-01-02T15:04:05Z)")
}

func (w *when) read(cmd *cobra.Command) (tocsin.When, error) {
	in, at := cmd.Flags().Changed("in"), cmd.Flags().Changed("at")
	switch {
	case in && at:
		return tocsin.When{}, usage("use --in or --at, not both")
	case in:
		return tocsin.In(w.in), nil
	case !at:
		return tocsin.When{}, usage("no action time: use --in 30m or --at 2030-01-02T15:04:05Z")
	}
	t, err := parseTime("at", w.at)
	if err != nil {
		return tocsin.When{}, err
	}
	return tocsin.At(t), nil
}

// ofBiz is the pair of flags that name tasks by what they are about.
type ofBiz struct {
	name  string
	bizID uint64
	key   string
}

func (o *ofBiz) flags(a *app, cmd *cobra.Command) {
	a.typeFlag(cmd, &o.name, "name of the biz type")
	cmd.Flags().Uint64Var(&o.bizID, "biz-id", 0, "your own id of what the task belongs to, for example of the order; the sharding key")
	cmd.Flags().Var((*keyFlag)(&o.key), "key", "instead of --biz-id: a business key that is not a number, at most 64 bytes; \\x and hex digits stand for bytes")
}

// keyFlag is a flag that takes a key as name.KeyLine shows it.
type keyFlag string

func (k *keyFlag) String() string { return string(*k) }
func (k *keyFlag) Type() string   { return "string" }

func (k *keyFlag) Set(text string) error {
	key, err := name.ReadKey(text)
	*k = keyFlag(key)
	return err
}

// ref reads either the first JOB_ID argument or the flags.
func (o *ofBiz) ref(args []string) (tocsin.Ref, error) {
	switch {
	case len(args) > 0 && (o.name != "" || o.bizID != 0 || o.key != ""):
		return tocsin.Ref{}, usage("name a JOB_ID, or --type and --biz-id or --key, not both")
	case len(args) > 0:
		id, err := parseJobID(args[0])
		return tocsin.ByID(id), err
	case o.name == "" || (o.bizID == 0) == (o.key == ""):
		return tocsin.Ref{}, usage("name a JOB_ID, or --type and one of --biz-id and --key")
	case o.key != "":
		return tocsin.Define[string](o.name).OfKey(o.key), nil
	}
	return tocsin.Define[string](o.name).Of(o.bizID), nil
}

func parseJobID(text string) (tocsin.JobID, error) {
	id, err := tocsin.ParseJobID(text)
	if err != nil {
		return 0, usageError{err}
	}
	return id, nil
}

// ofJob is what cobra runs of a command whose argument is a JOB_ID.
func ofJob(do func(*cobra.Command, tocsin.JobID) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := parseJobID(args[0])
		if err != nil {
			return err
		}
		return do(cmd, id)
	}
}

type taskAdd struct {
	*app
	when
	ofBiz
	dedup   string
	payload string
	headers []string
}

func newTaskAdd(a *app) *cobra.Command {
	t := &taskAdd{app: a}
	cmd := &cobra.Command{
		Use: "add --type NAME (--biz-id N | --key KEY) (--in DURATION | --at TIME)", Short: "Add a task",
		Long: "Add a task. Without --payload its payload is empty. A task that is there already with\n" +
			"the same --dedup key is shown instead.",
		Example: `  tocsin task add --type order.close --biz-id 42 --in 30m --payload '{"order":42}'
  tocsin task add --type order.close --biz-id 42 --at 2030-01-02T15:04:05Z --dedup close --payload @order.json
  tocsin task add --type order.close --key ord_01J8Z3 --in 30m --header tenant=shop-7`,
		Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	t.when.flags(cmd)
	t.ofBiz.flags(a, cmd)
	cmd.Flags().Var((*keyFlag)(&t.dedup), "dedup", "key that only one task of this type and biz_id may have; \\x and hex digits stand for bytes")
	cmd.Flags().StringVar(&t.payload, "payload", "", "text, @FILE, or - for standard input; passed on as it is")
	cmd.Flags().StringArrayVar(&t.headers, "header", nil, "NAME=TEXT, a header of the task; may be repeated")
	return cmd
}

// addedTask is the JSON of `task add`.
type addedTask struct {
	tocsin.Info
	Existing bool `json:"existing"`
}

func (t *taskAdd) run(cmd *cobra.Command) error {
	task, err := t.task(cmd)
	if err != nil {
		return err
	}
	return using(cmd.Context(), t.app, tocsin.Open, func(client *tocsin.Client) error {
		added, err := client.Add(cmd.Context(), task)
		if err != nil {
			return misused(err)
		}
		info, err := client.Get(cmd.Context(), added.JobID)
		if err != nil {
			return fmt.Errorf("task %s is added, but: %w", added.JobID, err)
		}
		return t.print(addedTask{info, added.Existing}, func(w io.Writer) {
			writeTasks(w, []tocsin.Info{info}, time.Now())
			if added.Existing {
				fmt.Fprintln(w, "it was there already: this is the task with that dedup key")
			}
		})
	})
}

func (t *taskAdd) task(cmd *cobra.Command) (tocsin.NewTask, error) {
	if t.name == "" || cmd.Flags().Changed("biz-id") == cmd.Flags().Changed("key") {
		return tocsin.NewTask{}, usage("--type and one of --biz-id and --key are needed: see `%s --help`", cmd.CommandPath())
	}
	at, err := t.when.read(cmd)
	if err != nil {
		return tocsin.NewTask{}, err
	}
	payload, err := readPayload(t.payload, cmd.InOrStdin())
	if err != nil {
		return tocsin.NewTask{}, err
	}
	biz := tocsin.Define[string](t.name)
	task := biz.New(t.bizID, payload, at)
	if cmd.Flags().Changed("key") {
		task = biz.NewKey(t.key, payload, at)
	}
	for _, h := range t.headers {
		name, text, ok := strings.Cut(h, "=")
		if !ok {
			return tocsin.NewTask{}, usage("--header %q: want NAME=TEXT", h)
		}
		task = task.Header(name, text)
	}
	return task.Dedup(t.dedup), nil
}

// readLimit is the most bytes that a payload can have.
const readLimit = 4 * tocsin.MaxPayload

// readPayload returns text as it is, the content of @FILE, or of in for "-".
func readPayload(text string, in io.Reader) (string, error) {
	path, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-":
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return "", usage("--payload: %w", err)
		}
		defer f.Close()
		in = f
	default:
		return text, nil
	}
	b, err := io.ReadAll(io.LimitReader(in, readLimit+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("--payload: %w", err)
	case len(b) > readLimit: // the rest was not read
		return "", usage("payload has over %d bytes: at most %d characters", readLimit, tocsin.MaxPayload)
	}
	return string(b), nil
}

func newTaskCancel(a *app) *cobra.Command {
	var of ofBiz
	cmd := &cobra.Command{
		Use: "cancel (JOB_ID... | --type NAME (--biz-id N | --key KEY))", Short: "Cancel tasks",
		Long: "Cancel tasks by their ids, or all tasks of a biz type and biz_id or key that have not ended. A delivery that is\n" +
			"under way settles nothing any more; of a strict biz type nothing is changed then, and the exit code\n" +
			"is 1. It is 1 too if there were tasks and none was cancelled, or not all of several JOB_IDs.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := of.ref(args)
			if err != nil {
				return err
			}
			if len(args) > 1 {
				return a.act(cmd.Context(), args, "cancelled", operator.Act{Deed: operator.DeedCancel})
			}
			return a.change(cmd.Context(), "cancelled", func(c *tocsin.Client) (tocsin.Change, error) { return c.Cancel(cmd.Context(), ref) })
		},
	}
	of.flags(a, cmd)
	return cmd
}

func newTaskReschedule(a *app) *cobra.Command {
	var of ofBiz
	var w when
	cmd := &cobra.Command{
		Use: "reschedule (JOB_ID... | --type NAME (--biz-id N | --key KEY)) (--in DURATION | --at TIME)", Short: "Give tasks another action time",
		Long: "Give tasks by their ids, or all tasks of a biz type and biz_id or key that have not ended, another action time.\n" +
			"Their attempts begin anew. A delivery that is under way settles nothing any more; of a strict biz type\n" +
			"nothing is changed then, and the exit code is 1. It is 1 too if there were tasks and none was rescheduled,\n" +
			"or not all of several JOB_IDs.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := of.ref(args)
			if err != nil {
				return err
			}
			at, err := w.read(cmd)
			if err != nil {
				return err
			}
			if len(args) > 1 {
				return a.act(cmd.Context(), args, "rescheduled", operator.Act{Deed: operator.DeedReschedule, When: at})
			}
			return a.change(cmd.Context(), "rescheduled", func(c *tocsin.Client) (tocsin.Change, error) { return c.Reschedule(cmd.Context(), ref, at) })
		},
	}
	of.flags(a, cmd)
	w.flags(cmd)
	return cmd
}

// change runs a cancel or reschedule and says what it did. It fails if there were tasks and none was changed: the caller
// must not believe that it was.
func (a *app) change(ctx context.Context, done string, do func(*tocsin.Client) (tocsin.Change, error)) error {
	return using(ctx, a, tocsin.Open, func(client *tocsin.Client) error {
		c, err := do(client)
		if err != nil {
			return misused(err)
		}
		err = a.print(c, func(w io.Writer) {
			fmt.Fprintf(w, "%d %s, of these %d in delivery, %d finished before\n", c.Changed, done, c.InDelivery, c.Final)
		})
		if c.Changed == 0 && c.Final > 0 {
			return errors.Join(err, fmt.Errorf("nothing was %s: it is done, cancelled or dead already", done))
		}
		return err
	})
}

// typeNames returns the names of the stored biz types that can be read.
func (a *app) typeNames(ctx context.Context) (names []cobra.Completion) {
	policies, _ := a.policies(ctx)
	for _, p := range policies {
		names = append(names, cobra.CompletionWithDesc(p.Name, target(p)))
	}
	return names
}

// typeFlag adds a flag that names a biz type.
func (a *app) typeFlag(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "type", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("type", completing(a.typeNames)) // fails for a flag that does not exist only
}
