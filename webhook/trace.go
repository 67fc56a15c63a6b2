package webhook

import (
	"context"
	"maps"
	"net/http"
	"regexp"
)

// The headers of W3C Trace Context, in a task's headers and in a request.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// What of a task's own context is passed on: others than tracers may have written it.
var (
	parentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	stateForm  = regexp.MustCompile(`^[ -~]{1,512}$`)
)

type headersKey struct{}

// WithHeaders returns a context under which Deliver sends these headers too. Those that
// every callback has, such as its signature, stay as they are.
func WithHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

// trace sets the headers of WithHeaders. Unless traceparent is among them, it sets the
// trace context with which the task was added, if it has one.
func trace(req *http.Request, stored map[string]string) {
	given, _ := req.Context().Value(headersKey{}).(http.Header)
	maps.Copy(req.Header, given)
	if req.Header.Get(traceParent) != "" || !parentForm.MatchString(stored[traceParent]) {
		return
	}
	req.Header.Set(traceParent, stored[traceParent])
	if state := stored[traceState]; stateForm.MatchString(state) {
		req.Header.Set(traceState, state)
	}
}
