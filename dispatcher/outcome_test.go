package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
)

// TestAnUnclaimedDeliveryEndsBeforeASweeperLooks is why claimAfter is what it
// is: a row that starts just before it, after the longest wait as loaded, is
// through before the grace time is over.
func TestAnUnclaimedDeliveryEndsBeforeASweeperLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grace := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "grace"))
		timeout := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "timeout"))
		swept := biztype.SweptAfter(biztype.Policy{Timeout: biztype.Duration(timeout)}, grace)
		after := claimAfter(swept, timeout)
		if after < 0 {
			t.Fatalf("claimAfter %s", after)
		}
		if after > 0 && after+staleAfter+timeout+claimMargin > swept {
			t.Fatalf("a delivery that starts %s late ends under the sweeper's eyes", after+staleAfter)
		}
	})
}

func TestEveryEndingIsBoundedAndNeverInThePast(t *testing.T) {
	causes := map[string]error{
		"nil":     nil,
		"error":   errors.New("busy"),
		"bury":    tocsin.Bury(errors.New("never")),
		"retryIn": tocsin.RetryIn(90*time.Second, errors.New("busy")),
		"snooze":  tocsin.Snooze(time.Microsecond),
	}
	rapid.Check(t, func(t *rapid.T) {
		p := biztype.Policy{Attempts: rapid.IntRange(1, 20).Draw(t, "most")}.WithDefaults()
		row := store.Row{Info: tocsin.Info{Attempts: rapid.IntRange(0, 20).Draw(t, "attempts")}}
		cause := rapid.SampledFrom([]string{"nil", "error", "bury", "retryIn", "snooze"}).Draw(t, "cause")
		rnd := rapid.Float64Range(0, 0.999).Draw(t, "rnd")
		end := endingOf(p, &row, replyOf(causes[cause]), 1000, func() float64 { return rnd })
		again := end.verb == tocsin.Retried || end.verb == tocsin.Snoozed
		switch {
		case end.verb == tocsin.Retried && row.Attempts+1 >= p.Attempts:
			t.Fatal("retried after the last attempt")
		case again && end.next <= 1000:
			t.Fatalf("again at %d, which has passed", end.next)
		case end.verb == tocsin.Completed && causes[cause] != nil:
			t.Fatal("a failure counts as complete")
		case cause == "snooze" && end.verb != tocsin.Snoozed:
			t.Fatal("a snooze counts as an attempt")
		}
	})
}

func TestReadyRowsKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q ready
		var model []*task
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 5).Draw(t, "n")
			if rapid.Bool().Draw(t, "push") {
				for range n {
					model = append(model, &task{})
				}
				q.push(model[len(model)-n:], false)
				continue
			}
			n = min(n, len(model))
			if got, _ := q.pop(&rule{batch: n}, n, 1, nil); !slices.Equal(got, model[:n]) {
				t.Fatal("out of order")
			}
			model = model[n:]
			if q.len() != len(model) {
				t.Fatalf("%d left, want %d", q.len(), len(model))
			}
		}
	})
}

// However many settlers there are, outcomes wait for one another, or each settler
// would store one of them.
func TestOutcomesOfAMomentAreSettledTogether(t *testing.T) {
	eachWay(t, testOutcomesOfAMomentAreSettledTogether)
}

func testOutcomesOfAMomentAreSettledTogether(t *testing.T) {
	const tasks, each = 40, linger / 10
	var turn atomic.Int32
	p := policy("order.close", 1)
	p.Concurrency = tasks
	inBubble(t, p, func(context.Context, tocsin.Info) error {
		time.Sleep(time.Duration(turn.Add(1)) * each)
		return nil
	}, func(r *rig) {
		for range tasks {
			r.add(0, 1, time.Second)
		}
		pass(2 * time.Second)
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if most := int(tasks*each/linger) + 1; r.store.fates[store.Stored] != tasks || r.store.settles > most {
			t.Errorf("%d statements settled %v, want %d at most", r.store.settles, r.store.fates, most)
		}
	})
}

// While handlers complete their tasks in their own transactions, their outcomes are
// settled apart from others.
func TestOutcomesOfHandlersWithTransactionsAreSettledApart(t *testing.T) {
	eachWay(t, testOutcomesOfHandlersWithTransactionsAreSettledApart)
}

func testOutcomesOfHandlersWithTransactionsAreSettledApart(t *testing.T) {
	var mem *memory
	var inTx atomic.Bool
	inTx.Store(true)
	inBubble(t, policy("order.close", 1), func(_ context.Context, task tocsin.Info) error {
		if inTx.Load() {
			mem.change(task.JobID, func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Done, client.CompletedInTx })
		}
		return nil
	}, func(r *rig) {
		mem = r.store
		deliver := func(tx bool) store.Outcome {
			inTx.Store(tx)
			id := r.add(0, 1, 0)
			pass(time.Second)
			r.status(id, tocsin.Done)
			if held, _, _ := r.Lane(0, 1); held != 0 {
				t.Error("it is still known")
			}
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			return r.store.settled[len(r.store.settled)-1]
		}
		deliver(true)
		if o := deliver(true); !o.InTx {
			t.Error("the second one is not expected to be completed")
		}
		deliver(false)
		if o := deliver(false); o.InTx {
			t.Error("a handler without a transaction is expected to have one")
		}
		if _, n := r.store.counts(store.InTx); n != 2 {
			t.Errorf("%d completed by their handlers, want 2", n)
		}
	})
}
