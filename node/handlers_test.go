package node

import (
	"context"
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
