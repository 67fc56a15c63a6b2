package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/outboxrow"
	"github.com/tocsinhq/tocsin/outbox"
)

// open opens the outbox that is meant. The caller closes it.
func (f outboxFlags) open(a *app) (*outbox.Outbox, error) {
	cfg, err := f.one(a)
	if err != nil {
		return nil, err
	}
	return outbox.Open(cfg)
}

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
			from, err := f.open(a)
			if err != nil {
				return err
			}
			defer from.Close()
			rows, err := from.List(cmd.Context(), after, limit, stuck)
			if err != nil {
				return err
			}
			return a.printRows(rows)
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&stuck, "stuck", false, "only rows that were set aside")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this many rows")
	cmd.Flags().Uint64Var(&after, "after", 0, "rows with ids above this")
	return cmd
}

func (a *app) printRows(rows []outboxrow.Row) error {
	list := make([]outboxRow, len(rows))
	for i, r := range rows {
		list[i] = outboxRow{r.ID, r.Op, r.BizType, r.BizID, r.BizKey, r.Dedup, r.Headers, r.Payload, r.Created, r.Attempts, r.LastError}
	}
	return a.print(list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no rows")
			return
		}
		table := [][]string{{"ID", "OP", "BIZ TYPE", "BIZ ID", "KEY", "CREATED", "LAST ERROR"}}
		for _, r := range list {
			table = append(table, []string{strconv.FormatUint(r.ID, 10), oneCell(r.Op), oneCell(r.BizType), strconv.FormatUint(r.BizID, 10),
				oneCell(r.BizKey), r.Created.Format(time.RFC3339), oneCell(r.LastError)})
		}
		columns(w, table...)
	})
}

// changedRows is the JSON of `outbox retry` and `outbox drop`.
type changedRows struct {
	Changed int `json:"changed"`
}

func newOutboxRetry(a *app) *cobra.Command {
	return outboxChange(a, "retry", "Let relays move rows that were set aside", "will be tried again within seconds", (*outbox.Outbox).Retry,
		"Let relays try rows that were set aside again. Mend the cause first: apply the missing biz\ntype, for example.")
}

func newOutboxDrop(a *app) *cobra.Command {
	return outboxChange(a, "drop", "Delete rows that were set aside", "dropped", (*outbox.Outbox).Drop,
		"Delete rows that were set aside: what they ask for never happens. Then later rows of the\nsame biz_id are moved.")
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
			from, err := f.open(a)
			if err != nil {
				return err
			}
			defer from.Close()
			n, err := do(from, cmd.Context(), ids, all)
			if err != nil {
				return err
			}
			if n < len(ids) {
				err = fmt.Errorf("%d of %d rows were set aside: `tocsin outbox list --stuck` lists them", n, len(ids))
			}
			return errors.Join(a.print(changedRows{n}, func(w io.Writer) { fmt.Fprintf(w, "%d rows %s\n", n, done) }), err)
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all rows that were set aside")
	return cmd
}
