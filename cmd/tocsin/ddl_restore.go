package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/operator"
)

// restoreFlags are those of `ddl restore-check`.
type restoreFlags struct {
	opt          ddl.RestoreOptions
	until        string
	hold, accept bool
}

func newDDLRestoreCheck(a *app) *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use: "restore-check", Short: "Find databases that are older copies of themselves, and put them into use", Args: noArgs,
		Long: `Find databases that are older copies of themselves, as after a restore from a dump. Nodes,
sweepers and clients refuse such a database until you decide: its tasks that were settled
after the copy was made are pending in it, and would be delivered again.

Without --accept it changes nothing: it says how old the copy is, and counts its tasks by biz
type. "settled?" are tasks that were due, or in delivery, while the cluster still worked with
the database, until --until: they were probably settled. With --accept they are delivered again,
or, for the biz types of --dead and --cancel, become dead or cancelled. Then the database is in
use. Tasks that became dead, or were dead in the copy, are redriven only by their JOB_ID, or with
"tocsin task redrive --restored". Exit code 1 while a database waits for a decision.

With --hold it takes a database out of use, before you load a dump into it.`,
		Example: `  tocsin ddl restore-check
  tocsin ddl restore-check --database toc_3 --hold
  tocsin ddl restore-check --database toc_3 --dead order.close
  tocsin ddl restore-check --database toc_3 --dead order.close --accept`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.restoreCheck(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.opt.Databases, "database", nil, "names of databases, toc_3 say (default: all)")
	flags.StringVar(&f.until, "until", "", "tasks that were due until then count as settled, as 2026-11-21T02:00:00Z (default: 20 s after the last time known of the database)")
	flags.StringSliceVar(&f.opt.Dead, "dead", nil, "biz types whose settled tasks become dead; all: every one")
	flags.StringSliceVar(&f.opt.Cancelled, "cancel", nil, "biz types whose settled tasks become cancelled; all: every one")
	flags.IntVar(&f.opt.Parallel, "parallel", 0, fmt.Sprintf("connections to each server (default %d)", ddl.DefaultParallel))
	flags.BoolVar(&f.hold, "hold", false, "take the databases out of use; needs --database")
	flags.BoolVar(&f.accept, "accept", false, "settle tasks as the other flags say, and put the databases into use; needs --database")
	return cmd
}

// check refuses flags that don't fit together.
func (f *restoreFlags) check() (err error) {
	switch {
	case f.hold && f.accept:
		return usage("--hold and --accept exclude each other")
	case (f.hold || f.accept) && len(f.opt.Databases) == 0:
		return usage("--database is needed: the names of the databases to change")
	case f.until == "":
		return nil
	}
	f.opt.Until, err = parseTime("until", f.until)
	return err
}

func (a *app) restoreCheck(ctx context.Context, f restoreFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	if f.hold {
		if err := ddl.HoldDatabases(ctx, cfg, f.opt.Databases); err != nil {
			return err
		}
		held := struct {
			Held []string `json:"held"`
		}{f.opt.Databases}
		return a.print(held, func(w io.Writer) {
			fmt.Fprintf(w, "held: %s; nodes, sweepers and clients refuse it within 5s, until `tocsin ddl restore-check --accept`\n", strings.Join(f.opt.Databases, ", "))
		})
	}
	var noEtcd error
	f.opt.Kept, noEtcd = a.marksInEtcd(ctx)
	if noEtcd != nil && f.accept && f.until == "" {
		return fmt.Errorf("the marks in etcd can't be read, and may be of a later time until which tasks count as settled: accept when etcd answers, or give that time with --until: %w", noEtcd)
	}
	shown := a.progress("read", "tables")
	f.opt.Progress = shown.report
	work := ddl.CheckRestored
	if f.accept {
		work = ddl.AcceptRestored
	}
	all, err := work(ctx, cfg, f.opt)
	shown.end()
	if err != nil && all == nil {
		return err
	}
	return errors.Join(a.showRestored(all, f, noEtcd), err)
}

// marksInEtcd reads the marks of the databases that are kept in etcd. The error says why they can't be read.
func (a *app) marksInEtcd(ctx context.Context) (marks map[int]int64, err error) {
	v, err := a.view()
	if err != nil || v.ByRows || len(v.Etcd.Endpoints) == 0 {
		return nil, err // nobody keeps any there, or the config names no etcd
	}
	err = v.WithIdentity(ctx, func(ctx context.Context, own string, keys *assign.Registry) error {
		marks, err = keys.Marks(ctx, own)
		return err
	})
	return marks, err
}

// restoredJSON is the JSON of `ddl restore-check` for one database.
type restoredJSON struct {
	Database string             `json:"database"`
	Server   string             `json:"server"`
	State    string             `json:"state"`
	Older    bool               `json:"older"` // it lacks what happened since ends
	Ends     *time.Time         `json:"ends"`  // null: not known
	Known    *time.Time         `json:"known"` // the last time known of it elsewhere; null: none
	KnownBy  string             `json:"known_by,omitempty"`
	Until    *time.Time         `json:"until"`
	Types    []ddl.RestoredType `json:"biz_types"`
	Added    *int               `json:"missing"` // estimate of tasks that were added between ends and known; null: not known
	Stale    []string           `json:"stale_biz_types,omitempty"`
}

// known returns nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// showRestored prints the databases that wait for a decision, or were just put into use.
func (a *app) showRestored(all []ddl.Restored, f restoreFlags, noEtcd error) error {
	waits := slices.ContainsFunc(all, ddl.Restored.Waits)
	list := []restoredJSON{}
	for _, r := range all {
		if !r.Waits() && len(f.opt.Databases) == 0 {
			continue
		}
		j := restoredJSON{
			Database: r.Database, Server: r.Server, State: r.State, Older: r.Older, Ends: known(r.Ends), Known: known(r.Known),
			KnownBy: r.Knows, Until: known(r.Until), Types: orEmpty(r.Types), Stale: r.Stale,
		}
		if r.Added >= 0 {
			j.Added = &r.Added
		}
		list = append(list, j)
	}
	err := a.print(list, func(w io.Writer) {
		for _, r := range all {
			if r.Waits() || f.accept {
				writeRestored(w, r, f)
			}
		}
		if !waits && !f.accept {
			fmt.Fprintf(w, "%s: none is held or an older copy\n", plural(len(all), "database"))
		}
		if noEtcd != nil {
			fmt.Fprintf(w, "warning: the marks in etcd can't be read, so only those in the databases count: %s\n", operator.OneLine(noEtcd))
		}
	})
	if err == nil && waits {
		return errSilent
	}
	return err
}

func writeRestored(w io.Writer, r ddl.Restored, f restoreFlags) {
	fmt.Fprintf(w, "%s on %s: %s\n", r.Database, r.Server, ageOf(r))
	dueNow := func(t ddl.RestoredType) int { return t.Settled - t.Killed - t.Cancelled + t.Due }
	again := 0
	for _, t := range r.Types {
		again += dueNow(t)
	}
	if len(r.Types) > 0 {
		head := []string{"BIZ TYPE", "SETTLED?", "DUE SINCE", "LATER", "DEAD", "TO DEAD", "TO CANCELLED", "DUE NOW"}
		table(w, head, r.Types, func(t ddl.RestoredType) []any {
			return []any{oneCell(t.Type), t.Settled, t.Due, t.Later, t.Dead, t.Killed, t.Cancelled, dueNow(t)}
		})
	}
	writeLost(w, r)
	if f.accept {
		fmt.Fprintf(w, "%s is in use now, with %s to deliver at once\n", r.Database, plural(again, "task"))
		return
	}
	fmt.Fprintf(w, "nothing was changed: `tocsin ddl restore-check --database %s%s --accept` puts it into use, with %s to deliver at once\n",
		r.Database, f.choices(), plural(again, "task"))
}

// ageOf says how old a copy is.
func ageOf(r ddl.Restored) string {
	const form = "2006-01-02 15:04:05 UTC"
	state := map[string]string{layoutrow.Held: ", held"}[r.State]
	switch {
	case r.Known.IsZero():
		return "nobody knows how old it is" + state
	case r.Ends.IsZero():
		return fmt.Sprintf("it has no mark, so it was made anew or is older than marks%s; %s knows of it at %s", state, r.Knows, r.Known.Format(form))
	case r.Known.After(r.Ends):
		return fmt.Sprintf("it ends at %s, and %s knows of it %s later, at %s%s",
			r.Ends.Format(form), r.Knows, r.Known.Sub(r.Ends).Round(time.Second), r.Known.Format(form), state)
	}
	return fmt.Sprintf("it ends at %s, and nobody knows of it later%s", r.Ends.Format(form), state)
}

// writeLost says what the copy lacks.
func writeLost(w io.Writer, r ddl.Restored) {
	switch {
	case r.Added >= 0:
		fmt.Fprintf(w, "missing: about %s added between these times, by the other databases; `tocsin audit --against` finds them\n", plural(r.Added, "task"))
	case r.Older:
		fmt.Fprintln(w, "missing: the tasks that were added since it ends; `tocsin audit --against` finds them")
	}
	if r.Older {
		fmt.Fprintln(w, "also lost: cancels, reschedules and redrives since it ends, so tasks that are not due yet may be unwanted")
	}
	if len(r.Stale) > 0 {
		fmt.Fprintf(w, "older than in other databases: the policies of %s; then run `tocsin biz apply`\n", strings.Join(r.Stale, ", "))
	}
}

// choices repeats the flags that were given.
func (f restoreFlags) choices() string {
	var all string
	for _, flag := range []struct {
		name   string
		values []string
	}{{"dead", f.opt.Dead}, {"cancel", f.opt.Cancelled}} {
		if len(flag.values) > 0 {
			all += " --" + flag.name + " " + strings.Join(flag.values, ",")
		}
	}
	if f.until != "" {
		all += " --until " + f.until
	}
	return all
}
