package dispatcher

import (
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// reply is what an error of a target says. The zero value is nil's.
type reply struct {
	verb    tocsin.Verb
	undone  bool          // see ending
	missed  bool          // its delivery did not reach the target, and shall be made again
	away    bool          // missed, and the sink knows that the target is away
	leased  bool          // a worker has the task: see ErrLeased
	untaken bool          // no worker took it: see ErrUntaken
	unsent  bool          // found without the target: it shows nothing of that
	cause   cause         // of a failure
	in      time.Duration // Retried, Snoozed: until the next attempt, at least; below 0: by the policy
	rest    time.Duration // Retried: the target said later, and is left alone for so long at least; 0: it did not
	told    bool          // the task was told later before
	reason  string
}

// replyOf reads an error, once and for all: its methods are the target's, and may panic. Then neither its cause is known nor what it says of
// the target.
func replyOf(err error) (a reply) {
	if err == nil {
		return a
	}
	switch err { // these come in numbers
	case ErrLeased:
		return reply{verb: tocsin.Snoozed, leased: true}
	case ErrUntaken:
		return reply{verb: tocsin.Snoozed, undone: true, untaken: true}
	}
	a.verb, a.in, a.reason = tocsin.AsOutcome(err)
	defer func() { _ = recover() }()
	a.cause = causeOf(err)
	var unreached notReached
	var knows away
	var own unsent
	var rests resting
	a.missed = a.verb == tocsin.Retried && errors.As(err, &unreached) && unreached.NotReached()
	a.unsent = errors.As(err, &own) && own.Unsent()
	a.away = a.missed && errors.As(err, &knows) && knows.Away()
	if errors.As(err, &rests) {
		a.rest = max(min(rests.RestFor(), longestProbe), 0)
	}
	return a
}

// endingOf decides what a target's reply means for a row at now. The attempt that reaches the policy's highest number buries
// the task. What the target says of the time may make the next attempt later than the policy has it, never sooner. An answer
// "later" is no attempt until the task has been told so for laterFor. Pure, except for rnd, which returns numbers in [0, 1).
func endingOf(p biztype.Policy, row *store.Row, a reply, now int64, rnd func() float64) ending {
	end := ending{verb: a.verb, undone: a.undone, reason: a.reason}
	switch {
	case a.verb == tocsin.Completed || a.verb == tocsin.Buried:
		return end
	case a.verb == tocsin.Snoozed && !a.undone:
		a.in = max(a.in, leastSnooze)
	case a.verb == tocsin.Retried:
		wait := p.Wait(row.Attempts+1, rnd)
		if a.rest > 0 {
			t := toldOf(&row.Info).again(now)
			wait = max(wait, min(p.Wait(t.times, rnd), mostLater))
			if end.reason = t.before(a.reason); !t.over(now) {
				end.verb = tocsin.Snoozed
			}
		}
		if end.verb == tocsin.Retried && row.Attempts+1 >= p.Attempts {
			return ending{verb: tocsin.Buried, reason: a.reason}
		}
		a.in = max(a.in, wait)
	}
	end.next = now + ceilMilli(min(a.in, maxPutOff))
	return end
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
