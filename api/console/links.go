package console

import (
	"net/url"
	"regexp"
	"strings"
)

// traceparent is the header of W3C trace context, with the id of the trace.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

// noTrace is the id that W3C calls invalid.
var noTrace = strings.Repeat("0", 32)

// Trace is the address of the trace that a task was added in; "" for none.
func (v *visit) Trace(headers map[string]string) string {
	for name, value := range headers {
		if !strings.EqualFold(name, "traceparent") || v.cfg.Trace == "" {
			continue
		}
		if found := traceparent.FindStringSubmatch(value); found != nil && found[1] != noTrace {
			return strings.ReplaceAll(v.cfg.Trace, "{trace_id}", found[1])
		}
	}
	return ""
}

// Grafana is the address of the dashboard of a biz type; "" for none.
func (v *visit) Grafana(bizType string) string {
	if v.cfg.Grafana == "" {
		return ""
	}
	return strings.TrimSuffix(v.cfg.Grafana, "/") + "/d/tocsin-biz-type?" + url.Values{"var-biz_type": {bizType}}.Encode()
}
