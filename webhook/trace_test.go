package webhook

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

const (
	ofAdd  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ofNode = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"
)

func TestACallbackCarriesTheTraceContextOfItsAddOrOfItsSender(t *testing.T) {
	t.Parallel()
	fromNode := http.Header{"Traceparent": {ofNode}, "X-Tenant": {"7"}, "Webhook-Id": {"forged"}}
	for name, c := range map[string]struct {
		stored        tocsin.Headers
		given         http.Header
		parent, state string
	}{
		"none":                       {},
		"as the task was added":      {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b"}`, parent: ofAdd, state: "a=b"},
		"the sender's own":           {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b"}`, given: fromNode, parent: ofNode},
		"the sender's alone":         {given: fromNode, parent: ofNode},
		"a parent that is none":      {stored: `{"traceparent":"00-1","tracestate":"a=b"}`},
		"a state of two lines":       {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b\r\nX: y"}`, parent: ofAdd},
		"a state that is too long":   {stored: tocsin.Headers(`{"traceparent":"` + ofAdd + `","tracestate":"` + strings.Repeat("x", 513) + `"}`), parent: ofAdd},
		"a state without its parent": {stored: `{"tracestate":"a=b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got http.Header
			s := newSink(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, SinkConfig{Allow: loopback})
			task := nth(1)
			task.Headers = c.stored
			ctx := t.Context()
			if c.given != nil {
				ctx = WithHeaders(ctx, c.given)
			}
			if err := s.Deliver(ctx, []tocsin.Info{task})[0]; err != nil {
				t.Fatal(err)
			}
			if got.Get("Traceparent") != c.parent || got.Get("Tracestate") != c.state {
				t.Errorf("traceparent %q, tracestate %q", got.Get("Traceparent"), got.Get("Tracestate"))
			}
			if got.Get("X-Tenant") != c.given.Get("X-Tenant") || got.Get("Webhook-Id") != task.Key() {
				t.Errorf("%v", got)
			}
		})
	}
}
