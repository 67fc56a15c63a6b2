package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// The states of an order.
const (
	Unpaid = "unpaid"
	Paid   = "paid"
	Closed = "closed" // nobody paid in time
)

// ErrNoOrder means that there is none with that id.
var ErrNoOrder = errors.New("no such order")

// Order is a row of the shop's table.
type Order struct {
	ID    uint64 `json:"id"`
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
	State string `json:"state"`
}

// Shop keeps the orders.
type Shop struct {
	DB       *sql.DB        // the shop's own database
	Tasks    *tocsin.Client // Tocsin's, wherever they are
	Provider Provider
	PayIn    time.Duration // an order that is not paid by then is closed
	Log      Log
}

//go:embed schema.sql
var schema string

// MakeTables makes the shop's tables where they are missing.
func (s *Shop) MakeTables(ctx context.Context) error {
	for statement := range strings.SplitSeq(schema, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := s.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the shop's tables: %w", err)
		}
	}
	return nil
}

// inTx runs work in a transaction of the shop's database.
func (s *Shop) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Place stores an order, and the task that closes it: both or neither.
func (s *Shop) Place(ctx context.Context, item string, cents int64) (order Order, err error) {
	order = Order{Item: item, Cents: cents, State: Unpaid}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		stored, err := tx.ExecContext(ctx, "INSERT INTO shop.orders (item, cents) VALUES (?, ?)", item, cents)
		if err != nil {
			return err
		}
		id, err := stored.LastInsertId()
		if err != nil {
			return err
		}
		order.ID = uint64(id)
		_, err = s.Tasks.AddTx(ctx, tx, OrderClose.New(order.ID, Closing{order.ID}, tocsin.In(s.PayIn)))
		return err
	})
	return order, err
}

// Pay takes the customer's card. The provider is asked by a task, so that neither a crash nor its outage forgets it. A second
// click adds no second task: the dedup key is the order's.
func (s *Shop) Pay(ctx context.Context, id uint64, card string) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var state string
		err := tx.QueryRowContext(ctx, "SELECT state FROM shop.orders WHERE id = ? FOR UPDATE", id).Scan(&state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNoOrder
		case err != nil:
			return err
		case state != Unpaid:
			return fmt.Errorf("order %d is %s", id, state)
		}
		_, err = s.Tasks.AddTx(ctx, tx, PaymentCheck.New(id, Payment{id, card}, tocsin.In(0)).Dedup("pay"))
		return err
	})
}

// paid notes a payment: the order must not be closed any more, and the customer gets a receipt.
func (s *Shop) paid(ctx context.Context, order Order) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		done, err := changed(tx.ExecContext(ctx, "UPDATE shop.orders SET state = ? WHERE id = ? AND state <> ?", Paid, order.ID, Paid))
		if err != nil || !done {
			return err // an earlier delivery of this task has done it all
		}
		if _, err := s.Tasks.CancelTx(ctx, tx, OrderClose.Of(order.ID)); err != nil {
			return err
		}
		_, err = s.Tasks.AddTx(ctx, tx, ReceiptSend.New(order.ID, Receipt{order.ID, order.Cents}, tocsin.In(0)))
		return err
	})
}

// change gives an order another state, if it is in the first.
func (s *Shop) change(ctx context.Context, id uint64, from, to string) error {
	_, err := s.DB.ExecContext(ctx, "UPDATE shop.orders SET state = ? WHERE id = ? AND state = ?", to, id, from)
	return err
}

// Order reads one.
func (s *Shop) Order(ctx context.Context, id uint64) (o Order, err error) {
	err = s.DB.QueryRowContext(ctx, "SELECT id, item, cents, state FROM shop.orders WHERE id = ?", id).Scan(&o.ID, &o.Item, &o.Cents, &o.State)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	return o, err
}

// changed reports whether a statement changed a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
