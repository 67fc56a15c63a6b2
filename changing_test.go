package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestChangesGoThroughTheFunctionsOfUseChanges(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	var seen []string
	for _, name := range []string{"outer", "inner"} {
		cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
			return func(ctx context.Context, call *tocsin.Changing) error {
				err := next(ctx, call)
				seen = append(seen, fmt.Sprint(name, " ", call.Op, " ", call.BizType, " ", call.BizID, " ", call.BizKey, " ", call.JobID != 0, " ", call.Done.Changed))
				return err
			}
		})
	}
	client := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	added, err := client.AddMany(t.Context(), []tocsin.NewTask{closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.NewKey("ord_1", order{}, tocsin.In(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	id := added[0].JobID
	within := func(do func(tx tocsin.Tx) (tocsin.Change, error)) (tocsin.Change, error) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Commit() }()
		return do(tx)
	}
	for want, call := range map[string]func() (tocsin.Change, error){ // in any order
		"reschedule order.close 7  false 1": func() (tocsin.Change, error) {
			return client.Reschedule(t.Context(), closeOrder.Of(7), tocsin.In(2*time.Hour))
		},
		"reschedule_tx  0  true 1": func() (tocsin.Change, error) {
			return within(func(tx tocsin.Tx) (tocsin.Change, error) {
				return client.RescheduleTx(t.Context(), tx, tocsin.ByID(id), tocsin.In(3*time.Hour))
			})
		},
		fmt.Sprintf("cancel_tx order.close %d ord_1 false 1", tocsin.KeyID("ord_1")): func() (tocsin.Change, error) {
			return within(func(tx tocsin.Tx) (tocsin.Change, error) {
				return client.CancelTx(t.Context(), tx, closeOrder.OfKey("ord_1"))
			})
		},
	} {
		seen = nil
		done, err := call()
		if err != nil || done.Changed != 1 || !slices.Equal(seen, []string{"inner " + want, "outer " + want}) {
			t.Errorf("%+v, %v: %q, want %q", done, err, seen, want)
		}
	}
}

func TestAFunctionOfUseChangesMayRefuseAChange(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	refused := errors.New("not on a Friday")
	cfg.UseChanges = append(cfg.UseChanges, func(next tocsin.ChangeFunc) tocsin.ChangeFunc {
		return func(ctx context.Context, call *tocsin.Changing) error {
			if call.Op == "reschedule" {
				return refused
			}
			return next(ctx, call)
		}
	})
	client := open(t, cfg)
	added, err := client.Add(t.Context(), closeOrder.New(7, order{}, tocsin.In(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := client.Reschedule(t.Context(), tocsin.ByID(added.JobID), tocsin.In(0)); !errors.Is(err, refused) || done.Changed != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := client.Cancel(t.Context(), tocsin.ByID(added.JobID)); err != nil || done.Changed != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	cfg.UseChanges = append(cfg.UseChanges, nil)
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "a function of UseChanges is nil") {
		t.Error(err)
	}
}
