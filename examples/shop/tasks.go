package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// Group is the one that biz.yaml names: nodes of this group deliver the shop's tasks.
const Group = "shop"

// The shop's tasks. The biz_id of each is the order's id.
var (
	OrderClose   = tocsin.Define[Closing]("order.close")
	PaymentCheck = tocsin.Define[Payment]("payment.check")
	ReceiptSend  = tocsin.Define[Receipt]("receipt.send")
)

// Payloads hold what a handler can't look up, or what must stay as it was.
type (
	Closing struct {
		Order uint64 `json:"order"`
	}
	Payment struct {
		Order uint64 `json:"order"`
		Card  string `json:"card"`
	}
	Receipt struct {
		Order uint64 `json:"order"`
		Cents int64  `json:"cents"`
	}
)

// ErrRefused is the provider's final no.
var ErrRefused = errors.New("payment refused")

// Provider takes payments. Charge is idempotent by key: true means paid, false not yet. ErrRefused is final, any other error
// is worth another try.
type Provider interface {
	Charge(ctx context.Context, key, card string, cents int64) (paid bool, err error)
}

// askAgain is how long the provider gets before it is asked again.
const askAgain = 500 * time.Millisecond

// Handlers returns the shop's handlers.
func (s *Shop) Handlers() *node.Handlers {
	var all node.Handlers
	all.Use(s.logged)
	node.Handle(&all, OrderClose, s.closeOrder)
	node.Handle(&all, PaymentCheck, s.checkPayment)
	node.HandleBatch(&all, ReceiptSend, 100, s.sendReceipts)
	return &all
}

// logged is middleware: it logs what each delivery did, and how late it began.
func (s *Shop) logged(next node.HandlerFunc) node.HandlerFunc {
	return func(ctx context.Context, tasks []tocsin.Info) []error {
		begun := time.Now()
		errs := next(ctx, tasks)
		for i, task := range tasks {
			verb, _, reason := tocsin.AsOutcome(errs[i])
			s.Log.Info("delivered", "type", task.BizType, "order", task.BizID, "outcome", verb, "reason", reason,
				"late", begun.Sub(task.ActionTime).Round(100*time.Microsecond))
		}
		return errs
	}
}

// closeOrder closes an order that nobody paid.
func (s *Shop) closeOrder(ctx context.Context, task *tocsin.Task[Closing]) error {
	return s.change(ctx, task.Payload.Order, Unpaid, Closed)
}

// checkPayment asks the provider, until it says yes or no.
func (s *Shop) checkPayment(ctx context.Context, task *tocsin.Task[Payment]) error {
	order, err := s.Order(ctx, task.Payload.Order)
	if err != nil {
		return err
	}
	key := task.JobID.String() // not task.Key(), which changes with a redrive: the provider might charge again
	paid, err := s.Provider.Charge(ctx, key, task.Payload.Card, order.Cents)
	switch {
	case errors.Is(err, ErrRefused):
		return tocsin.Bury(err) // stays as a dead task, for people to look at; the order is closed in its time
	case err != nil:
		return err // again after the wait of the biz type's policy
	case !paid:
		return tocsin.Snooze(askAgain) // no failure: no attempt is counted
	}
	return s.paid(ctx, order)
}

// sendReceipts prints all receipts of a batch at once, in place of a mail server that takes many in one call.
func (s *Shop) sendReceipts(_ context.Context, tasks []*tocsin.Task[Receipt]) []error {
	for _, task := range tasks {
		s.Log.Info("receipt", "order", task.Payload.Order, "cents", task.Payload.Cents)
	}
	return make([]error, len(tasks))
}

// Log is where the shop says what it does.
type Log = *slog.Logger
