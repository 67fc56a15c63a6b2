package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// retryAfterCap bounds how long a receiver may put a task off.
const retryAfterCap = 24 * time.Hour

// verdict reads an answer.
func verdict(answer *http.Response, text []byte, now time.Time) error {
	if answer.StatusCode/100 == 2 {
		return nil
	}
	status := answer.StatusCode
	failed := answered{status: status, summary: said(fmt.Sprintf("callback answered %d %s", status, http.StatusText(status)), text)}
	switch {
	case status == http.StatusGone:
		return tocsin.Bury(failed)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status/100 == 5: // "later" rather than "no"
		if wait, ok := retryAfter(answer.Header.Get("Retry-After"), now); ok {
			if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
				failed.rest = wait
			}
			return tocsin.RetryIn(wait, failed)
		}
	}
	return failed
}

// answered is a callback's answer that the task was not accepted.
type answered struct {
	status  int
	summary string
	rest    time.Duration // with 429 and 503: the receiver wants no callback for so long, whatever the task; 0: it does
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

// retryAfter reads seconds or an HTTP date.
func retryAfter(header string, now time.Time) (time.Duration, bool) {
	if header == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseInt(header, 10, 64); seconds >= 0 && (err == nil || errors.Is(err, strconv.ErrRange)) {
		return time.Duration(min(seconds, int64(retryAfterCap/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), retryAfterCap), true
}
