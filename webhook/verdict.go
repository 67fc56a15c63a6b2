package webhook

import (
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// verdict reads an answer.
func verdict(answer *http.Response, text []byte, now time.Time) error {
	if answer.StatusCode/100 == 2 {
		return nil
	}
	status := answer.StatusCode
	failed := answered{status: status, summary: said(statusOf(answer), text)}
	if status == http.StatusGone {
		return tocsin.Bury(failed)
	}
	wait, told := retryAfter(answer.Header, now)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		failed.rest = max(wait, leastRest)
	}
	if told {
		return tocsin.RetryIn(wait, failed)
	}
	return failed
}

// answered is a callback's answer that the task was not accepted.
type answered struct {
	status  int
	summary string
	rest    time.Duration // above 0: the receiver said "later", with 429, 503 or the result later, and wants no callback for so long, whatever the task
}

func (a answered) Error() string { return a.summary }

// RestFor returns for how long the receiver wants no callbacks.
func (a answered) RestFor() time.Duration { return a.rest }

// FailureCause returns the class of the status, as used in metrics. A redirect counts as 4xx: the policy's URL is wrong.
func (a answered) FailureCause() string {
	if a.status/100 == 5 {
		return "status_5xx"
	}
	return "status_4xx"
}

// said adds the beginning of what a receiver said.
func said(what string, text []byte) string {
	words := strings.Join(strings.Fields(name.Text(string(text), snippet)), " ")
	if words == "" {
		return what
	}
	return what + ": " + words
}
