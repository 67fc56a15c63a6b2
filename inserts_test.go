package tocsin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// overLimit returns the error of a call that is over the limit of inserts of order.close; nil: it is not.
func overLimit(err error) *tocsin.InsertLimitError {
	over, _ := errors.AsType[*tocsin.InsertLimitError](err)
	if over == nil || over.BizType != "order.close" || over.After <= 0 {
		return nil
	}
	return over
}

func TestEveryAddIsLimitedByItsNumberOfTasks(t *testing.T) {
	t.Parallel()
	dsn := devtest.DSN(t)
	for op, add := range adds {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(8, order{}, tocsin.In(time.Hour)))
			cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.001, Burst: 2*len(tasks) - 1}}
			c := open(t, cfg)
			if _, err := add(t, c, dsn, t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
			added, err := add(t, c, dsn, t.Context(), tasks)
			if over := overLimit(err); over == nil || over.After < 900*time.Second || over.After > 1000*time.Second || len(added) != len(tasks) {
				t.Errorf("added %+v: %v", added, err)
			}
			for i, a := range added {
				if infos, err := c.List(t.Context(), tasks[i].BizID()); err != nil || len(infos) != 1 || a.JobID != 0 || len(tasks) > 1 && overLimit(a.Err) == nil {
					t.Errorf("added %+v, stored %+v, %v", a, infos, err)
				}
			}
			if _, err := add(t, c, dsn, t.Context(), asMany(op, remind.New(7, "", tocsin.In(time.Hour)), remind.New(8, "", tocsin.In(time.Hour)))); err != nil {
				t.Errorf("another biz type: %v", err)
			}
		})
	}
}

func TestTasksForAnOutboxAreLimited(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.001, Burst: 4}}
	c := open(t, cfg)
	own := session(t, devtest.DSN(t), "")
	tx := begin(t, own)
	other := c.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	task := closeOrder.New(7, order{}, tocsin.In(time.Hour))
	calls := []func() error{
		func() error { _, err := c.AddTx(t.Context(), tx, task); return err },
		func() error { _, err := c.AddManyTx(t.Context(), tx, []tocsin.NewTask{task}); return err },
		func() error { _, err := other.Add(t.Context(), task); return err },
		func() error { _, err := other.AddMany(t.Context(), []tocsin.NewTask{task}); return err },
	}
	for i, call := range append(calls, calls...) {
		if err := call(); (overLimit(err) != nil) != (i >= 4) || err != nil && i < 4 {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, own, "SELECT COUNT(*) FROM "+cfg.Outbox.Table); n != 4 {
		t.Errorf("%d rows", n)
	}
}

// A call in a transaction waits as others do, and the transaction is usable after it.
func TestAddsWaitForTheirLimit(t *testing.T) {
	t.Parallel()
	dsn := devtest.DSN(t)
	for op, add := range adds {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 20, Burst: 1, Wait: true}}
			c := open(t, cfg)
			begin := time.Now()
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(7, order{}, tocsin.In(time.Hour)))
			for range 3 {
				must[[]tocsin.Added](t)(add(t, c, dsn, t.Context(), tasks))
			}
			if waits := time.Duration(3*len(tasks)-1) * 50 * time.Millisecond; time.Since(begin) < waits {
				t.Errorf("%d tasks took %s", 3*len(tasks), time.Since(begin))
			}
			if infos, err := c.List(t.Context(), 7); err != nil || len(infos) != 3*len(tasks) {
				t.Errorf("stored %d, %v", len(infos), err)
			}
		})
	}
}
