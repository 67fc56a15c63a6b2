package dispatcher

import (
	"context"
	"errors"

	"github.com/tocsinhq/tocsin/internal/client"
)

// cause is why an attempt failed, for metrics.
type cause uint8

const (
	byError       cause = iota // the target returned an error
	byTimeout                  // the delivery's time was over
	byPanic                    // the handler panicked
	byUnreachable              // the connection broke under the callback
	byStatus4xx                // the callback answered that it does not want the task, or with a redirect
	byStatus5xx                // the callback answered that it failed
	causes                     // how many there are
)

// causeLabels are the values of the label "cause". A sink names its own causes by them.
var causeLabels = [causes]string{"error", "timeout", "panic", "unreachable", "status_4xx", "status_5xx"}

// panicked is what a handler panicked with.
type panicked struct{ value any }

func (p panicked) Error() string { return client.PanicWords(p.value) }

// causeOf classifies the error of a failed attempt. A sink's error that has the method FailureCause says it itself.
func causeOf(err error) cause {
	var told interface{ FailureCause() string }
	var panicked panicked
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return byTimeout
	case errors.As(err, &panicked):
		return byPanic
	case errors.As(err, &told):
		for c, label := range causeLabels {
			if label == told.FailureCause() {
				return cause(c)
			}
		}
	}
	return byError
}

// second is why a task was, or will be, delivered once more although no attempt of it failed.
type second uint8

const (
	secondCutOff     second = iota // the node ended before the delivery, which is made again
	secondOverlapped               // an earlier delivery in this process had not returned one time-out after its end
	secondElsewhere                // another process settled or claimed the task meanwhile
	secondCrashed                  // a claim of the task ran out before, so that a delivery may have begun then
	secondResent                   // a kept connection broke under a callback, which was sent again by another
	seconds                        // how many there are
)

var secondLabels = [seconds]string{"cut_off", "overlapped", "elsewhere", "crashed", "resent"}
