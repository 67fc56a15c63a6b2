package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/outbox"
)

// outboxRow is the JSON of one row.
type outboxRow struct {
	ID        uint64    `json:"id"`
	Op        string    `json:"op"`
	BizType   string    `json:"biz_type"`
	BizID     uint64    `json:"biz_id,string"` // of the key, if there is one
	BizKey    string    `json:"biz_key,omitempty"`
	DedupKey  string    `json:"dedup_key,omitempty"`
	Headers   string    `json:"headers,omitempty"` // as they are stored
	Payload   string    `json:"payload,omitempty"`
	Created   time.Time `json:"created"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error,omitempty"`
}

func newOutboxList(a *app) *cobra.Command {
	var f outboxFlags
	var stuck bool
	var limit int
	var after uint64
	cmd := &cobra.Command{
		Use: "list", Short: "List the rows of an outbox, or those that were set aside", Args: noArgs,
		Long: "List the rows of an outbox that wait to be moved. With --stuck, list those that a relay has\n" +
			"set aside, and why. Later rows of the same biz_id wait until you retry or drop them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.using(a, func(from *outbox.Outbox) error { return a.listRows(cmd.Context(), from, after, limit, stuck) })
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&stuck, "stuck", false, "only rows that were set aside")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this many rows")
	within(cmd, "limit", 1, operator.MaxFound)
	cmd.Flags().Uint64Var(&after, "after", 0, "rows with ids above this")
	return cmd
}

func (a *app) listRows(ctx context.Context, from *outbox.Outbox, after uint64, limit int, stuck bool) error {
	list, full := []outboxRow{}, true
	for left := limit; full && left > 0; left = limit - len(list) {
		rows, err := from.List(ctx, after, left, stuck)
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = r.ID
			list = append(list, outboxRow{r.ID, r.Op, r.BizType, r.BizID, r.BizKey, name.KeyText(r.Dedup), r.Headers, r.Payload, r.Created, r.Attempts, r.LastError})
		}
		full = outbox.Full(rows, left)
	}
	err := a.print(list, func(w io.Writer) { writeRows(w, list) })
	if full {
		fmt.Fprintf(a.err, "there may be more than these %d: raise --limit, or go on with --after %d\n", len(list), after)
	}
	return err
}

func writeRows(w io.Writer, list []outboxRow) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no rows")
		return
	}
	table(w, []string{"ID", "OP", "BIZ TYPE", "BIZ ID", "KEY", "CREATED", "LAST ERROR"}, list, func(r outboxRow) []any {
		return []any{r.ID, oneCell(r.Op), oneCell(r.BizType), r.BizID, name.KeyLine(r.BizKey), r.Created.Format(time.RFC3339), oneCell(r.LastError)}
	})
}

// changedRows is the JSON of `outbox retry` and `outbox drop`.
type changedRows struct {
	Changed int `json:"changed"`
}

// outboxChange makes a command that changes rows that were set aside.
func outboxChange(a *app, use, short, done string, do func(*outbox.Outbox, context.Context, []uint64, bool) (int, error), long string) *cobra.Command {
	var f outboxFlags
	var ids []uint64
	var all bool
	cmd := &cobra.Command{
		Use: use + " ID... | --all", Short: short, Long: long,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if (len(args) == 0) != all {
				return usage("outbox %s: give the ids of rows, or --all", use)
			}
			ids = make([]uint64, len(args))
			for i, arg := range args {
				if ids[i], err = strconv.ParseUint(arg, 10, 64); err != nil {
					return usage("id %q: want a number", arg)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.using(a, func(from *outbox.Outbox) error {
				n, err := do(from, cmd.Context(), ids, all)
				if err != nil {
					return err
				}
				if n < len(ids) {
					err = fmt.Errorf("%d of %d rows were set aside: `tocsin outbox list --stuck` lists them", n, len(ids))
				}
				return errors.Join(a.print(changedRows{n}, func(w io.Writer) { fmt.Fprintf(w, "%d rows %s\n", n, done) }), err)
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all rows that were set aside")
	return cmd
}

// forgetAfter is how old all of an outbox's rows in the ledgers must be: a relay at work deletes them within minutes.
const forgetAfter = time.Hour

// outboxLedger is the JSON of one outbox in the ledgers.
type outboxLedger struct {
	store.Ledger
	Outbox string `json:"outbox,omitempty"` // its name in the config
}

// forgotten is the JSON of `outbox forget IDENTITY`.
type forgotten struct {
	Identity string `json:"identity"`
	Rows     int    `json:"rows"`
	DryRun   bool   `json:"dry_run"`
}

func newOutboxForget(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "forget [IDENTITY]", Short: "Forget what was moved from an outbox that is no more",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("outbox forget: give one IDENTITY, or none")
			}
			return nil
		},
		Long: "Delete the rows of an outbox from the ledgers, the tables relayed, for an outbox that was\n" +
			"dropped or that no relay moves any more. Without IDENTITY, list what stands in the\n" +
			"ledgers. Refused for an outbox or entrance of the config, and for one whose last row is younger than\n" +
			"an hour, as a relay may be at work. If the outbox still has rows that were moved, a relay\n" +
			"that comes back moves them again.",
		Example: "  tocsin outbox forget\n  tocsin outbox forget 5d41402abc4b2a76 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			tables, names, err := a.ledgers(cmd.Context())
			if err != nil {
				return err
			}
			defer tables.Close()
			found, err := countLedgers(cmd.Context(), tables)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.printLedgers(found, names)
			}
			return a.forget(cmd.Context(), tables, found[args[0]], names[args[0]], args[0], dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count the rows")
	return cmd
}

// ledgers connects, and reads the identities of the config's outboxes and of its entrances' partitions. All must answer.
func (a *app) ledgers(ctx context.Context) (tables *store.Store, names map[string]string, err error) {
	file, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	boxes, err := openOutboxes(file)
	if err != nil {
		return nil, nil, err
	}
	defer closeOutboxes(boxes)
	names = map[string]string{}
	for _, box := range boxes {
		session, err := box.Session(ctx)
		if err != nil {
			return nil, nil, err
		}
		names[session.Identity] = box.String()
		session.Close()
	}
	for _, cfg := range a.relayed(file) {
		entrance, ok := cfg.Driver.(tocsinkafka.Entrance)
		if !ok {
			continue
		}
		identities, err := entrance.Identities(ctx, cfg)
		if err != nil {
			return nil, nil, fmt.Errorf("entrance %s: %w", cfg.Name, err)
		}
		for n, identity := range identities {
			names[identity] = fmt.Sprintf("entrance %s, partition %d", cfg.Name, n)
		}
	}
	tables, err = store.Connect(ctx, file.Tocsin())
	return tables, names, err
}

// countLedgers counts the rows of each outbox in all databases, which must all answer.
func countLedgers(ctx context.Context, tables *store.Store) (map[string]store.Ledger, error) {
	sum := map[string]store.Ledger{}
	for server := range tables.Servers() {
		all, err := tables.Ledgers(ctx, server)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			if before, ok := sum[l.Identity]; ok {
				l.Rows += before.Rows
				if before.Last.After(l.Last) {
					l.Last, l.Age = before.Last, min(l.Age, before.Age)
				}
			}
			sum[l.Identity] = l
		}
	}
	return sum, nil
}

func (a *app) printLedgers(found map[string]store.Ledger, names map[string]string) error {
	list := []outboxLedger{}
	for _, l := range slices.SortedFunc(maps.Values(found), func(l, r store.Ledger) int { return cmp.Compare(l.Identity, r.Identity) }) {
		list = append(list, outboxLedger{l, names[l.Identity]})
	}
	return a.print(list, func(w io.Writer) {
		table(w, []string{"IDENTITY", "ROWS", "LAST", "OUTBOX OF THE CONFIG"}, list, func(l outboxLedger) []any {
			return []any{oneCell(l.Identity), l.Rows, l.Last.Format(time.RFC3339), cmp.Or(l.Outbox, "-")}
		})
	})
}

func (a *app) forget(ctx context.Context, tables *store.Store, of store.Ledger, name, identity string, dryRun bool) error {
	switch {
	case name != "":
		return usage("%s of the config has the identity %s: remove it from the config of all relays first", name, identity)
	case of.Rows == 0:
		return fmt.Errorf("nothing stands in the ledgers of an outbox %q: `tocsin outbox forget` lists what does", identity)
	case of.Age < forgetAfter:
		return fmt.Errorf("a relay moved rows of outbox %s %s ago: it is forgotten an hour after the last one at the earliest", identity, of.Age)
	}
	done := forgotten{identity, of.Rows, dryRun}
	if !dryRun {
		done.Rows = 0
		for server := range tables.Servers() {
			n, err := tables.ForgetOutbox(ctx, server, identity)
			done.Rows += n
			if err != nil {
				return fmt.Errorf("%d of %d rows are forgotten: %w", done.Rows, of.Rows, err)
			}
		}
	}
	return a.print(done, func(w io.Writer) {
		if dryRun {
			fmt.Fprintf(w, "%d rows of outbox %s would be forgotten\n", done.Rows, identity)
			return
		}
		fmt.Fprintf(w, "%d rows of outbox %s are forgotten\n", done.Rows, identity)
	})
}
