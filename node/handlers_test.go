package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestABatchHandlerThatReturnsTooFewErrorsIsToldHowMany(t *testing.T) {
	t.Parallel()
	tasks := []tocsin.Info{{Payload: "1"}, {Payload: "2"}, {Payload: "x"}, {Payload: "4"}} // the third does not decode
	for got, want := range map[int]string{
		0: "the batch handler returned 0 errors for 3 tasks: return one per task, or nil",
		1: "the batch handler returned 1 error for 3 tasks: return one per task, or nil",
		2: "the batch handler returned 2 errors for 3 tasks: return one per task, or nil",
	} {
		var h Handlers
		HandleBatch(&h, tocsin.Define[int]("a"), 5, func(context.Context, []*tocsin.Task[int]) []error { return make([]error, got) })
		errs := h.targets["a"].Sink.Deliver(t.Context(), tasks)
		for i, err := range slices.Delete(slices.Clone(errs), 2, 3) {
			if (err == nil) != (i < got) || err != nil && err.Error() != want {
				t.Errorf("task %d of a handler that returned %d: %v, want %s", i, got, err, want)
			}
		}
	}
}

func TestTheFirstMiddlewareIsTheOutermostAndMayAnswerInsteadOfTheHandler(t *testing.T) {
	t.Parallel()
	var notes []string
	traced := func(name string) func(HandlerFunc) HandlerFunc {
		return func(next HandlerFunc) HandlerFunc {
			return func(ctx context.Context, tasks []tocsin.Info) []error {
				notes = append(notes, name)
				defer func() { notes = append(notes, "/"+name) }()
				return next(ctx, tasks)
			}
		}
	}
	closed := errors.New("closed for the night")
	var h Handlers
	h.Use(traced("outer"))
	Handle(&h, tocsin.Define[int]("a"), func(context.Context, *tocsin.Task[int]) error {
		notes = append(notes, "handler")
		return nil
	})
	h.Use(traced("inner"), func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			switch tasks[0].BizID {
			case 7:
				return []error{closed}
			case 8:
				return nil // completes its tasks
			}
			return next(ctx, tasks)
		}
	})
	sink := h.wrapped().targets["a"].Sink
	for bizID, want := range map[uint64]struct {
		notes []string
		err   error
	}{
		1: {[]string{"outer", "inner", "handler", "/inner", "/outer"}, nil},
		7: {[]string{"outer", "inner", "/inner", "/outer"}, closed},
		8: {[]string{"outer", "inner", "/inner", "/outer"}, nil},
	} {
		notes = nil
		if errs := sink.Deliver(t.Context(), []tocsin.Info{{BizID: bizID, Payload: "1"}}); len(errs) != 1 || errs[0] != want.err || !slices.Equal(notes, want.notes) {
			t.Errorf("%d: %v, the order was %q", bizID, errs, notes)
		}
	}
}
