package dispatcher

import (
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// endingOf decides what a target's error means for a row at now. The attempt
// that reaches the policy's highest number buries the task. Pure but for rnd,
// which gives numbers in [0, 1).
func endingOf(p biztype.Policy, row *store.Row, err error, now int64, rnd func() float64) ending {
	verb, in, reason := tocsin.AsOutcome(err)
	switch {
	case verb == tocsin.Retried && row.Attempts+1 >= p.Attempts:
		return ending{verb: tocsin.Buried, reason: reason}
	case verb == tocsin.Retried && in < 0:
		in = p.Wait(row.Attempts+1, rnd)
	case verb == tocsin.Completed || verb == tocsin.Buried:
		return ending{verb: verb, reason: reason}
	}
	return ending{verb: verb, next: now + ceilMilli(min(in, maxPutOff)), reason: reason}
}

// ceilMilli rounds up, so that nothing is early.
func ceilMilli(d time.Duration) int64 {
	milli := d.Milliseconds()
	if d > time.Duration(milli)*time.Millisecond {
		milli++
	}
	return milli
}

// claimAfter is how long a row may be overdue and still start without a claim:
// a sweeper may look at it once it is swept, and the delivery must
// have ended by then. A loaded row may wait staleAfter more.
func claimAfter(swept, timeout time.Duration) time.Duration {
	return max(swept-timeout-claimMargin-staleAfter, 0)
}
