package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// The context of a delivery is like one of the standard library's, whoever asks
// it what, and when.
func TestContextOfADelivery(t *testing.T) {
	const timeout = time.Minute
	type look func(t *testing.T, ctx *attemptContext, stop context.CancelCauseFunc)
	cases := map[string]look{
		"it is alive until it ends": func(t *testing.T, ctx *attemptContext, _ context.CancelCauseFunc) {
			if ctx.Err() != nil {
				t.Errorf("alive, it says %v", ctx.Err())
			}
			ctx.end()
			if !errors.Is(ctx.Err(), context.Canceled) || !closed(ctx) {
				t.Errorf("ended, it says %v", ctx.Err())
			}
		},
		"who waits for it sees the deadline": func(t *testing.T, ctx *attemptContext, _ context.CancelCauseFunc) {
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != timeout || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("done after %s: %v", took, ctx.Err())
			}
		},
		"who never waited sees it afterwards": func(t *testing.T, ctx *attemptContext, _ context.CancelCauseFunc) {
			time.Sleep(timeout)
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !closed(ctx) {
				t.Errorf("after the deadline: %v", ctx.Err())
			}
		},
		"one derived from it ends with it": func(t *testing.T, ctx *attemptContext, _ context.CancelCauseFunc) {
			child, cancel := context.WithTimeout(ctx, 2*timeout)
			defer cancel()
			if deadline, ok := child.Deadline(); !ok || time.Until(deadline) != timeout {
				t.Errorf("the child ends in %s", time.Until(deadline))
			}
			ctx.end()
			synctest.Wait()
			if !closed(child) {
				t.Error("the child lives on")
			}
		},
		"the end of the node is its cause": func(t *testing.T, ctx *attemptContext, stop context.CancelCauseFunc) {
			if stop(errStopping); !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), errStopping) {
				t.Errorf("stopped: %v, %v", ctx.Err(), context.Cause(ctx))
			}
		},
	}
	for name, look := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, stop := context.WithCancelCause(context.Background())
				defer stop(nil)
				ctx := &attemptContext{parent: parent, deadline: time.Now().Add(timeout), tasks: make([]tocsin.Info, 1)}
				defer ctx.end()
				look(t, ctx, stop)
			})
		})
	}
}

func closed(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// Each delivery ends at its own time-out, also those that begin while others are
// in hand, and when nothing was in hand for long.
func TestEveryDeliveryHasItsOwnTimeout(t *testing.T) { eachWay(t, testEveryDeliveryHasItsOwnTimeout) }

func testEveryDeliveryHasItsOwnTimeout(t *testing.T) {
	p := policy("order.close", 1)
	p.Ladder = []biztype.Duration{biztype.Duration(24 * time.Hour)}
	inBubble(t, p, func(context.Context, tocsin.Info) error {
		time.Sleep(time.Hour) // ignores its context
		return errors.New("no answer")
	}, func(r *rig) {
		began := make(map[tocsin.JobID]time.Time)
		for _, pause := range []time.Duration{0, 700 * time.Millisecond, time.Minute} {
			pass(pause)
			id := r.add(0, 1, 0)
			began[id] = time.Now()
		}
		pass(1900 * time.Millisecond)
		for id, at := range began {
			if want := min(int(time.Since(at)/(2*time.Second)), 1); r.store.row(id).Attempts != want {
				t.Errorf("%s after its start it has %d failed attempts, want %d", time.Since(at), r.store.row(id).Attempts, want)
			}
		}
		pass(200 * time.Millisecond)
		for id := range began {
			if got := r.store.row(id).Attempts; got != 1 {
				t.Errorf("%d failed attempts, want 1", got)
			}
		}
		pass(time.Hour)
	})
}
