package tocsin_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// A nil context once panicked inside the pool and left its lock taken, which blocked
// the client for ever. In AddMany it ended the process.
func TestANilContextOrTransactionIsRefusedAndTheClientGoesOn(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tx := must[*sql.Tx](t)(db.Begin())
	defer func() { _ = tx.Rollback() }()
	var none context.Context
	task, ref, in := remind.New(1, "x", tocsin.In(day)), tocsin.ByID(1), tocsin.In(0)
	for name, call := range map[string]func() error{
		"Open":           func() error { _, err := tocsin.Open(none, cfg); return err },
		"Add":            func() error { _, err := c.Add(none, task); return err },
		"AddMany":        func() error { _, err := c.AddMany(none, []tocsin.NewTask{task}); return err },
		"AddTx":          func() error { _, err := c.AddTx(none, tx, task); return err },
		"Cancel":         func() error { _, err := c.Cancel(none, ref); return err },
		"CancelTx":       func() error { _, err := c.CancelTx(none, tx, ref); return err },
		"Reschedule":     func() error { _, err := c.Reschedule(none, ref, in); return err },
		"RescheduleTx":   func() error { _, err := c.RescheduleTx(none, tx, ref, in); return err },
		"Get":            func() error { _, err := c.Get(none, 1); return err },
		"List":           func() error { _, err := c.List(none, 1); return err },
		"CompleteTx":     func() error { return tocsin.CompleteTx(none, tx, tocsin.Info{}) },
		"AddTx, nil":     func() error { _, err := c.AddTx(t.Context(), nil, task); return err },
		"CancelTx, nil":  func() error { _, err := c.CancelTx(t.Context(), nil, ref); return err },
		"Resched., nil":  func() error { _, err := c.RescheduleTx(t.Context(), nil, ref, in); return err },
		"Complete., nil": func() error { return tocsin.CompleteTx(t.Context(), nil, tocsin.Info{}) },
	} {
		if err := call(); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), "is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	added, _ := c.AddMany(none, []tocsin.NewTask{task, task})
	for _, a := range added {
		if !errors.Is(a.Err, tocsin.ErrInvalid) {
			t.Errorf("AddMany says %v of a task", a.Err)
		}
	}
	add(t, c, task) // nothing is locked
}
