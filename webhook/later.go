package webhook

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	retryAfterCap = 24 * time.Hour // bounds how long a receiver may put a task off
	leastRest     = time.Second    // for which a receiver that said "later" gets no callback, whatever Retry-After it sends, if any
)

// seconds is the form of Retry-After in seconds. Fractions are no HTTP, and some send them.
var seconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// retryAfter returns how long an answer of now asks to wait, a day at most. False: it does not say. Of several values the longest
// counts, and one that can't be read does not. A date is compared with the answer's own Date, as the receiver's clock may be wrong.
//
// The RateLimit fields of the IETF's draft are not read: they differ between its versions, and a receiver that refuses a request
// has Retry-After for it.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, told bool) {
	if sent, err := http.ParseTime(h.Get("Date")); err == nil && inGMT(sent) {
		now = sent
	}
	for _, value := range h.Values("Retry-After") {
		value = strings.TrimSpace(value)
		var one time.Duration
		if seconds.MatchString(value) {
			n, _ := strconv.ParseFloat(value, 64) // infinite, if it is out of range
			one = time.Duration(min(n, retryAfterCap.Seconds()) * float64(time.Second))
		} else if at, err := http.ParseTime(value); err == nil && inGMT(at) {
			one = min(max(at.Sub(now), 0), retryAfterCap)
		} else {
			continue
		}
		wait, told = max(wait, one), true
	}
	return wait, told
}

// inGMT reports whether a date has the only zone that HTTP knows. ParseTime reads the old form of dates with any, and takes most for GMT.
func inGMT(at time.Time) bool {
	zone, _ := at.Zone()
	return zone == "GMT" || zone == "UTC"
}
