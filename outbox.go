package tocsin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// Outbox is a table in the database of the caller's transactions. AddTx, AddManyTx, CancelTx and RescheduleTx write there
// what they are asked for if the task's table is on another server; a relay moves it to that table after the commit.
// `tocsin outbox apply` makes the table. Without a relay nothing of it is ever delivered: list the outbox in the config of
// `tocsin serve`, or in node.Config, or run `tocsin relay`.
type Outbox struct {
	Table string // database.table, or the table alone if it is in the transaction's own database; in PostgreSQL schema.table, or the table alone if its schema is in the search_path; "": there is none

	// Beside names the one of Servers on which the transactions are: tasks whose table is there are stored directly. "":
	// the transactions are on none of them, and every task goes through the outbox.
	Beside string

	// PostgreSQL says that the transactions are on a PostgreSQL server, of any driver for database/sql. Transactions of pgx
	// itself are for package tocsinpg.
	PostgreSQL bool
}

func (o Outbox) validate(servers []mysql.Spec) error {
	if o.Table == "" {
		if o.Beside != "" {
			return fmt.Errorf("outbox beside %s: name its table", o.Beside)
		}
		if o.PostgreSQL {
			return errors.New("outbox in PostgreSQL: name its table")
		}
		return nil
	}
	if o.Beside != "" && o.PostgreSQL {
		return fmt.Errorf("outbox %s is in PostgreSQL, and so beside no server of tasks: leave Beside out", o.Table)
	}
	if err := outbox.CheckTable(o.Table); err != nil {
		return err
	}
	if o.Beside != "" && !slices.ContainsFunc(servers, func(s mysql.Spec) bool { return s.Name == o.Beside }) {
		return fmt.Errorf("outbox %s beside %s: no server has that name", o.Table, o.Beside)
	}
	return nil
}

// OutboxTx adds, cancels and reschedules tasks in a transaction that is not one of database/sql: all of it goes through
// the outbox of Config.Outbox, with the results and errors of AddTx, AddManyTx, CancelTx and RescheduleTx. Package
// tocsinpg makes one for a transaction of pgx. It is for the goroutines that may use the transaction.
type OutboxTx struct {
	client *Client
	exec   client.Exec
}

// OutboxTx makes an OutboxTx of what runs statements in a transaction. Without an outbox its calls are ErrOtherServer, and
// with one that has Beside ErrInvalid: AddTx stores some tasks directly then, and their order would be lost.
func (c *Client) OutboxTx(exec func(ctx context.Context, statement string, args ...any) error) OutboxTx {
	return OutboxTx{c, exec}
}

// usable refuses a call that can't go through an outbox.
func (o OutboxTx) usable(ctx context.Context) error {
	if err := client.NoContext(ctx); err != nil {
		return err
	}
	switch of := o.client.outbox; {
	case o.exec == nil:
		return client.Refuse(ErrInvalid, "the transaction is nil: begin one, or use the call without Tx")
	case of.Table == "":
		return client.Refuse(ErrOtherServer, "no outbox: %s", client.UseOutbox)
	case of.Beside != "":
		return client.Refuse(ErrInvalid, "outbox %s is beside server %s: use the transactions of database/sql", of.Table, of.Beside)
	}
	return nil
}

// Add is AddTx.
func (o OutboxTx) Add(ctx context.Context, t NewTask) (Added, error) {
	return one(o.client.add(ctx, "add_tx", o.usable(ctx), []NewTask{t}, o.client.storeIn(callers{exec: o.exec})))
}

// AddMany is AddManyTx.
func (o OutboxTx) AddMany(ctx context.Context, tasks []NewTask) ([]Added, error) {
	return o.client.add(ctx, "add_many_tx", o.usable(ctx), tasks, o.client.storeIn(callers{exec: o.exec}))
}

// Cancel is CancelTx.
func (o OutboxTx) Cancel(ctx context.Context, ref Ref) (Change, error) {
	return o.client.change(ctx, "cancel_tx", o.usable(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return o.client.client.RelayChange(ctx, o.exec, outbox.Cancel, ref.ref, client.When{})
	})
}

// Reschedule is RescheduleTx.
func (o OutboxTx) Reschedule(ctx context.Context, ref Ref, when When) (Change, error) {
	return o.client.change(ctx, "reschedule_tx", o.usable(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return o.client.client.RelayChange(ctx, o.exec, outbox.Reschedule, ref.ref, when.when)
	})
}
