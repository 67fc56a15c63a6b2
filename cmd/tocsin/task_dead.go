package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// redriveFlags name dead tasks of all tables.
type redriveFlags struct {
	name string // of a biz type
	all  bool
}

func newTaskRedrive(a *app) *cobra.Command {
	var f redriveFlags
	c := &cobra.Command{
		Use: "redrive (JOB_ID | --type NAME | --all)", Short: "Deliver dead tasks once more, at once",
		Long: `Makes one dead task, all of a biz type, or all there are, pending again and due at once. Their
attempts begin anew, and so does their idempotency key. Those that die while it runs are left.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && f == redriveFlags{}:
				id, err := parseJobID(args[0])
				if err != nil {
					return err
				}
				return a.redrive(cmd.Context(), id)
			case len(args) == 0 && (f.name != "") != f.all:
				return a.redriveMany(cmd.Context(), f)
			}
			return usage("name one JOB_ID, --type or --all")
		},
	}
	c.Flags().StringVar(&f.name, "type", "", "all dead tasks of a biz type")
	c.Flags().BoolVar(&f.all, "all", false, "all dead tasks")
	_ = c.RegisterFlagCompletionFunc("type", a.completeTypes) // fails for a flag that does not exist only
	return c
}

// redrive makes one dead task pending.
func (a *app) redrive(ctx context.Context, id tocsin.JobID) error {
	return a.rewrite(ctx, id, func(tables *store.Store) (bool, error) { return tables.Redrive(ctx, id) },
		"only a dead task can be redriven")
}

// rewrite changes one task and shows it. It asks the client first, which checks
// the layout, and tells a task that is not there from one that is not fit.
func (a *app) rewrite(ctx context.Context, id tocsin.JobID, write func(*store.Store) (bool, error), unfit string) error {
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Get(ctx, id); err != nil {
		return misused(err)
	}
	tables, err := a.store()
	if err != nil {
		return err
	}
	defer tables.Close()
	written, err := write(tables)
	if err != nil {
		return err
	}
	now, err := client.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case !written:
		return fmt.Errorf("task %s is %s: %s", id, now.Status, unfit)
	}
	return a.printTask(now)
}

// redriven is the JSON of a redrive of many.
type redriven struct {
	Redriven int `json:"redriven"`
}

func (a *app) redriveMany(ctx context.Context, f redriveFlags) error {
	var types []uint64 // all
	if f.name != "" {
		known, err := a.knownTypes(ctx)
		if err != nil {
			return err
		}
		number, err := known.number(f.name)
		if err != nil {
			return err
		}
		types = []uint64{number}
	}
	tables, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer tables.Close()
	seen := a.tableProgress("redrive dead tasks of", tables.Layout().Total())
	total, failed := redriveAll(ctx, tables, types, seen)
	seen.end()
	return errors.Join(a.print(redriven{total}, func(w io.Writer) { fmt.Fprintf(w, "%d dead tasks redriven\n", total) }), failed)
}

// redriveAll goes through all servers at once. The number stands beside an error,
// which names servers and tables that could not be done.
func redriveAll(ctx context.Context, tables *store.Store, types []uint64, seen *tableProgress) (total int, err error) {
	counts := make([]int, len(tables.Servers()))
	errs := make([]error, len(counts))
	tablewalk.Servers(len(counts), func(server int) {
		counts[server], errs[server] = redriveServer(ctx, tables, server, types, seen)
	})
	for _, n := range counts {
		total += n
	}
	return total, errors.Join(errs...)
}

// redriveLimit is the number of tasks in one batch.
const redriveLimit = 500

func redriveServer(ctx context.Context, tables *store.Store, server int, types []uint64, seen *tableProgress) (total int, err error) {
	way := tablewalk.Walk{Server: server, Tables: tables.TablesOf(server), Measure: tables.Measure, Progress: seen.add}
	began := sync.OnceValue(func() int64 { return tables.Now(server) })
	var errs []error
	err = way.Run(ctx, func(chunk []int) error {
		q := store.DeadQuery{Server: server, Tables: chunk, Types: types, Until: began(), Limit: redriveLimit}
		var failed error // of the last batch: it names all that failed in the others
		for n := 1; n > 0; total += n {
			n, failed = tables.RedriveDead(ctx, q)
		}
		errs = append(errs, failed)
		return nil
	})
	return total, tablewalk.Join(append(errs, err)...)
}

func newTaskBury(a *app) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "bury JOB_ID", Short: "Give a pending task up: it is dead, and can be redriven", Args: exactArgs("JOB_ID"),
		Long: `Makes a pending task dead, with the reason as its last error. A delivery that is under way at this
moment may still complete it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseJobID(args[0])
			if err != nil {
				return err
			}
			return a.rewrite(cmd.Context(), id, func(tables *store.Store) (bool, error) { return tables.Bury(cmd.Context(), id, reason) },
				"only a pending task can be buried")
		},
	}
	c.Flags().StringVar(&reason, "reason", "buried by hand", "why, for its last error")
	return c
}
