package tocsin

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/output"
)

// MaxOutput is the most characters (not bytes) of a run's output; longer text is cut.
const MaxOutput = 1024

// Output gives the run that is under way under ctx, a handler's context or one derived from it, its output: what
// `tocsin task runs` shows. A run has one output. The last call wins, so it is for a result or a summary, not for a log.
// Bytes that are no UTF-8 are replaced. If the attempt fails, its error stands before the output.
//
// In a batch, Output is for all of its tasks; see OutputOf. Output may be called concurrently. It does nothing under any
// other context, once the handler has returned or the delivery has timed out, or if no history is kept of the biz type.
func Output(ctx context.Context, text string) {
	if o := outputs(ctx); o != nil {
		o.Set(text)
	}
}

// OutputOf is Output for one task of a batch.
func OutputOf(ctx context.Context, id JobID, text string) {
	if o := outputs(ctx); o != nil {
		o.SetOf(uint64(id), text)
	}
}

// outputs returns nil if nobody keeps what is put into it.
func outputs(ctx context.Context) *output.Outputs {
	if ctx == nil {
		return nil
	}
	o, _ := ctx.Value(output.Key).(*output.Outputs)
	return o
}
