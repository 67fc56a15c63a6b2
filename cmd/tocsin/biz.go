package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/schedule"
)

func newBiz(a *app) *cobra.Command {
	return group("biz", "Apply, show, count, pause, resume and delete biz types",
		newBizApply(a), newBizList(a), newBizShow(a), newBizStats(a),
		a.pausing("pause", "Make the tasks of a biz type wait", `Pauses a biz type: within two seconds, nodes and sweepers start none of its tasks any more. Deliveries in
progress go on. Tasks can still be added, and wait. The next `+"`tocsin biz apply`"+` sets the state that its file has.`, true),
		a.pausing("resume", "Deliver the tasks of a paused biz type again",
			"Ends the pause of a biz type: what is overdue is delivered at once, as fast as its concurrency and rate allow.", false),
		newBizDelete(a))
}

// appliedBiz is the JSON of `biz apply`.
type appliedBiz struct {
	biztype.Result
	DryRun bool `json:"dry_run,omitempty"`
}

func newBizApply(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Write the policies of a YAML file into every database", Args: exactArgs("FILE"),
		Long: "Write the policies of a YAML file into every database. Biz types that are not in the\n" +
			"file are left alone. Nodes follow in about a second.",
		RunE: func(cmd *cobra.Command, args []string) error {
			policies, err := readPolicies(args[0])
			if err != nil {
				return err
			}
			file, err := a.load()
			if err != nil {
				return err
			}
			if err := a.checkSinks(cmd.Context(), file, policies); err != nil {
				return err
			}
			a.warnForbidden(policies)
			apply := biztype.Apply
			if dryRun {
				apply = biztype.Preview
			}
			res, failed := apply(cmd.Context(), file.Tocsin(), policies)
			return a.printApplied(res, dryRun, failed)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be written, and write nothing")
	return cmd
}

// readPolicies reads a file of biz types.
func readPolicies(path string) ([]biztype.Policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return biztype.Parse(text, path)
}

// printApplied says what was written, or would be. If a failure left nothing of that, it returns the failure.
func (a *app) printApplied(res biztype.Result, dryRun bool, failed error) error {
	if failed != nil && res.Databases == 0 && (!dryRun || len(res.Types) == 0) {
		return failed
	}
	res.Types = orEmpty(res.Types)
	return errors.Join(a.print(appliedBiz{res, dryRun}, func(w io.Writer) {
		rows := make([][]string, len(res.Types))
		for i, t := range res.Types {
			rows[i] = []string{t.Name, "number " + strconv.FormatUint(t.Number, 10), string(t.Verdict)}
		}
		columns(w, rows...)
		if dryRun {
			fmt.Fprintln(w, "nothing was written")
			return
		}
		fmt.Fprintf(w, "revision %d, %d databases written\n", res.Revision, res.Databases)
	}), failed)
}

func newBizList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the stored biz types", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := a.policies(cmd.Context())
			return a.show(policies, err, func(w io.Writer) {
				head := []string{"NAME", "NUMBER", "GROUP", "TARGET", "TIMEOUT", "ATTEMPTS", "CONCURRENCY", "STATE"}
				table(w, head, policies, func(p biztype.Policy) []any {
					state := "active"
					if p.Paused {
						state = "paused"
					}
					return []any{p.Name, p.Number, p.Group, target(p), p.Timeout.String(), p.Attempts, p.Concurrency, state}
				})
			})
		},
	}
}

// policies reads the stored policies, with the defaults filled in: people ask
// what holds.
func (a *app) policies(ctx context.Context) ([]biztype.Policy, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return operator.Policies(ctx, cfg)
}

func target(p biztype.Policy) string {
	switch {
	case p.Webhook != nil:
		return p.Webhook.URL
	case p.Sink != nil:
		return p.Sink.Name + "/" + p.Sink.Topic
	case p.Pull != nil:
		return "workers, " + p.WithDefaults().Pull.Lease.String()
	}
	return "Go handler"
}

func newBizShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show the policy of a biz type and what its nodes do", Args: exactArgs("NAME"),
		Long: `Show the policy of a biz type, with its defaults, as YAML that "biz apply" takes. A comment for each node of its group
says, by the node's status page, whether tasks begin there: open, limited (they wait for the rate), paused, lacking (no
handler or secret, or no worker asks), away (the target can't be reached) or busy (the target has said "later"); and of a
type with pull, how many workers wait there, or when one asked last.`,
		ValidArgsFunction: completing(a.typeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			policies, err := a.policies(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", args[0])
			}
			v, err := a.view()
			if err != nil {
				return err
			}
			if p := &policies[i]; p.Pull != nil {
				p.Timeout, p.Concurrency = 0, 0 // "biz apply" refuses them
			}
			shown := shownPolicy{Policy: policies[i]}
			if shown.Nodes, err = v.Lanes(cmd.Context(), shown.WithDefaults().Group, shown.Name); err != nil {
				shown.Unasked = operator.OneLine(err)
			}
			text, err := yaml.Marshal(struct {
				BizTypes []biztype.Policy `yaml:"biz_types"`
			}{policies[i : i+1]})
			return a.show(shown, err, func(w io.Writer) { shown.write(w, text) })
		},
	}
}

// shownPolicy is the JSON of `biz show`.
type shownPolicy struct {
	biztype.Policy
	Nodes   []operator.Lane `json:"nodes,omitempty"`
	Unasked string          `json:"nodes_not_asked,omitempty"` // why
}

func (p shownPolicy) write(w io.Writer, text []byte) {
	_, _ = w.Write(text)
	for _, n := range p.Nodes {
		fmt.Fprintf(w, "# %s: %s\n", oneCell(n.Node), oneCell(laneState(n)))
	}
	if p.Unasked != "" {
		fmt.Fprintf(w, "# its nodes were not asked: %s\n", oneCell(p.Unasked))
	}
}

// laneState says whether tasks begin on a node, and what keeps them from it.
func laneState(n operator.Lane) string {
	l := n.Lane
	switch {
	case n.Error != "":
		return "not asked: " + n.Error
	case l == nil && n.Workers != nil:
		return string(dispatcher.Lacking) + workers(n.Workers)
	case l == nil:
		return "has not read the policy yet"
	}
	says := fmt.Sprintf("%s, %d of %d slots in use, %d tasks wait", l.State, l.Running, l.Limit, l.Queued+l.Ready)
	if !l.AwaySince.IsZero() {
		says += ", since " + l.AwaySince.UTC().Format(time.RFC3339)
	}
	if l.Rate > 0 {
		says += fmt.Sprintf(", throttled to %.2g a second", l.Rate)
	}
	if !l.NextTry.IsZero() {
		says += ", next try " + l.NextTry.UTC().Format(time.RFC3339)
	}
	if l.Why != "" {
		says += ": " + l.Why
	}
	return says + workers(n.Workers)
}

// workers says who asks a node for tasks of a pull type; "" of other types.
func workers(asked *pull.Asked) string {
	switch {
	case asked == nil:
		return ""
	case asked.Waiting > 0:
		return fmt.Sprintf(", workers that wait: %d", asked.Waiting)
	case asked.Last.IsZero():
		return ", no worker has asked"
	}
	return ", no worker waits, one asked last at " + asked.Last.UTC().Format(time.RFC3339)
}

func newBizStats(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count the tasks of each biz type, by status", Args: noArgs,
		Long: `Counts all tasks of all tables, by biz type and status. It reads a whole index of each table, which takes
seconds for millions of tasks: for watching, use the metrics or ` + "`tocsin top`" + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, failed := a.stats(cmd.Context())
			if len(all) == 0 && failed != nil {
				return failed
			}
			return errors.Join(a.print(all, func(w io.Writer) {
				head := []string{"BIZ TYPE", "PENDING", "CLAIMED", "DONE", "CANCELLED", "DEAD", "OLDEST OVERDUE"}
				table(w, head, all, func(s operator.Stats) []any {
					return []any{s.BizType, s.Pending, s.Claimed, s.Done, s.Cancelled, s.Dead, overdue(s.Overdue)}
				})
				writeUncounted(w, failed)
			}), failed)
		},
	}
}

// stats counts the tasks of each biz type.
func (a *app) stats(ctx context.Context) (all []operator.Stats, err error) {
	err = using(ctx, a, operator.Open, func(o *operator.Operator) error {
		seen := a.tableProgress("count tasks of", o.Layout().Total())
		defer seen.end()
		all, err = o.Stats(ctx, seen.add)
		return err
	})
	return all, err
}

func (a *app) pausing(verb, short, long string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: exactArgs("NAME"), ValidArgsFunction: completing(a.typeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return using(cmd.Context(), a, operator.Open, func(o *operator.Operator) error {
				res, failed := o.Pause(cmd.Context(), args[0], paused)
				return a.printApplied(res, false, failed)
			})
		},
	}
}

// deletedBiz is the JSON of `biz delete`.
type deletedBiz struct {
	Name   string `json:"name"`
	Number uint64 `json:"number"`
}

func newBizDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a biz type that nothing refers to any more", Args: exactArgs("NAME"),
		Long: `Deletes a biz type. It is refused while a task of any status, a schedule, an alarm of another biz type or a row of
the config's outboxes refers to it, and unless every database can be reached. Stop the programs that add its tasks before: a client that
runs goes on with the type's number, and its tasks wait until the biz type is applied again with that number.`,
		ValidArgsFunction: completing(a.typeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.cluster()
			if err != nil {
				return err
			}
			name := args[0]
			number, err := biztype.Delete(cmd.Context(), cfg, name, func() (string, error) { return a.refersTo(cmd.Context(), name) })
			return a.show(deletedBiz{name, number}, err, func(w io.Writer) { fmt.Fprintf(w, "%s  number %d  deleted\n", name, number) })
		},
	}
}

// refersTo says what refers to a biz type; "": nothing.
func (a *app) refersTo(ctx context.Context, name string) (string, error) {
	var found []string
	for _, count := range []func(context.Context, string) (string, error){a.tasksOf, a.schedulesOf, a.outboxRowsOf} {
		what, err := count(ctx, name)
		if err != nil {
			return "", err
		}
		if what != "" {
			found = append(found, what)
		}
	}
	return strings.Join(found, ", "), nil
}

func (a *app) tasksOf(ctx context.Context, name string) (string, error) {
	all, err := a.stats(ctx)
	i := slices.IndexFunc(all, func(s operator.Stats) bool { return s.BizType == name })
	if err != nil || i < 0 {
		return "", err
	}
	s := all[i]
	what := counted(s.Pending+s.Claimed+s.Done+s.Cancelled+s.Dead, math.MaxInt, "task")
	if what != "" {
		what += fmt.Sprintf(" (%d pending, %d claimed, %d done, %d cancelled, %d dead)", s.Pending, s.Claimed, s.Done, s.Cancelled, s.Dead)
	}
	return what, nil
}

func (a *app) schedulesOf(ctx context.Context, name string) (what string, err error) {
	err = a.withSchedules(ctx, func(s *schedule.Schedules) error {
		all, err := s.List(ctx, schedule.Query{BizType: name, Limit: schedule.MaxListed})
		what = counted(len(all), schedule.MaxListed, "schedule")
		return err
	})
	return what, err
}

// counted is a count that ends at a limit; "" for none.
func counted(n, limit int, what string) string {
	switch {
	case n == 0:
		return ""
	case n == 1:
		return "1 " + what
	case n < limit:
		return fmt.Sprintf("%d %ss", n, what)
	}
	return fmt.Sprintf("%d %ss or more", n, what)
}

// The rows of an outbox that are counted, and how many are read at once.
const (
	outboxRowsCounted = 10_000
	outboxRowsAtOnce  = 1000
)

func (a *app) outboxRowsOf(ctx context.Context, name string) (string, error) {
	file, err := a.load()
	if err != nil {
		return "", err
	}
	boxes, err := openOutboxes(file)
	if err != nil {
		return "", err
	}
	defer closeOutboxes(boxes)
	n := 0
	for _, box := range boxes {
		some, err := rowsOf(ctx, box, name)
		if err != nil {
			return "", err
		}
		n += some
	}
	return counted(n, outboxRowsCounted, "outbox row"), nil
}

// rowsOf counts the rows of a biz type in an outbox, up to outboxRowsCounted.
func rowsOf(ctx context.Context, from *outbox.Outbox, name string) (n int, err error) {
	after := uint64(0)
	for full := true; full && n < outboxRowsCounted; {
		rows, err := from.List(ctx, after, outboxRowsAtOnce, false)
		if err != nil {
			return n, err
		}
		for _, r := range rows {
			if after = r.ID; r.BizType == name {
				n++
			}
		}
		full = outbox.Full(rows, outboxRowsAtOnce)
	}
	return n, nil
}
