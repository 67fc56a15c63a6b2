package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Failures tell their cause, also from behind a Bury or a RetryIn.
func TestFailuresTellTheirCause(t *testing.T) {
	t.Parallel()
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(status)
		}
	}
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		receiver http.HandlerFunc
		allow    []string
		want     string
	}{
		"a redirect": {answer(307), loopback, "status_4xx"}, "not found": {answer(404), loopback, "status_4xx"},
		"gone, which buries": {answer(410), loopback, "status_4xx"}, "busy, which says when": {answer(503), loopback, "status_5xx"},
		"a private address": {answer(200), nil, "refused_address"}, "a connection that breaks": {cut, loopback, "unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := post(t, c.receiver, SinkConfig{Allow: c.allow})
			var told interface{ FailureCause() string }
			if !errors.As(err, &told) || told.FailureCause() != c.want {
				t.Errorf("got %v (%T), want the cause %s", err, err, c.want)
			}
		})
	}
}

// The dispatcher counts these as time-outs.
func TestACallbackOverItsTimeoutIsDeadlineExceeded(t *testing.T) {
	t.Parallel()
	s := newSink(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the connection is gone
		<-r.Context().Done()
	}, SinkConfig{Allow: loopback})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to connect
	defer cancel()
	if err := s.Deliver(ctx, []tocsin.Info{nth(1)})[0]; !errors.Is(err, context.DeadlineExceeded) || err.Error() != "callback: no answer in time" {
		t.Errorf("got %v", err)
	}
}
