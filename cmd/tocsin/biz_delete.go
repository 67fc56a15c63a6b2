package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/tocsinpg"
)

func newBizDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a biz type that nothing refers to any more", Args: exactArgs("NAME"),
		Long: `Deletes a biz type. It is refused while a task of any status, a schedule, an alarm of another biz type or a row of
the config's outboxes refers to it, and unless every database can be reached. Stop the programs that add its tasks before: a client that
runs goes on with the type's number, and its tasks wait until the biz type is applied again with that number.`,
		ValidArgsFunction: a.completeTypes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.deleteBiz(cmd.Context(), args[0]) },
	}
}

// deletedBiz is the JSON of `biz delete`.
type deletedBiz struct {
	Name   string `json:"name"`
	Number uint64 `json:"number"`
}

func (a *app) deleteBiz(ctx context.Context, name string) error {
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	number, err := biztype.Delete(ctx, cfg, name, func() (string, error) { return a.refersTo(ctx, name) })
	if err != nil {
		return err
	}
	done := deletedBiz{name, number}
	return a.print(done, func(w io.Writer) { fmt.Fprintf(w, "%s  number %d  deleted\n", done.Name, done.Number) })
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
	o, err := a.operator(ctx)
	if err != nil {
		return "", err
	}
	defer o.Close()
	seen := a.tableProgress("count tasks of", o.Layout().Total())
	all, err := o.Stats(ctx, seen.add)
	seen.end()
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

// The rows of an outbox that are looked at, and how many at once.
const (
	outboxRowsLookedAt = 10_000
	outboxRowsAtOnce   = 1000
)

func (a *app) outboxRowsOf(ctx context.Context, name string) (string, error) {
	file, err := a.load()
	if err != nil {
		return "", err
	}
	n := 0
	for _, cfg := range tocsinpg.Drive(file.Relayed()) {
		some, err := rowsOf(ctx, cfg, name)
		if err != nil {
			return "", fmt.Errorf("outbox %s: %w", cfg.Name, err)
		}
		n += some
	}
	return counted(n, outboxRowsLookedAt, "outbox row"), nil
}

// rowsOf counts the rows of a biz type among the first of an outbox.
func rowsOf(ctx context.Context, cfg outbox.Config, name string) (n int, err error) {
	from, err := outbox.Open(cfg)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	after := uint64(0)
	for range outboxRowsLookedAt / outboxRowsAtOnce {
		rows, err := from.List(ctx, after, outboxRowsAtOnce, false)
		if err != nil {
			return n, err
		}
		for _, r := range rows {
			if after = r.ID; r.BizType == name {
				n++
			}
		}
		if len(rows) < outboxRowsAtOnce {
			break
		}
	}
	return n, nil
}
