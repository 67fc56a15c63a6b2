package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/api"
)

// seeds are requests from which the fuzzer goes on.
var seeds = [][3]string{
	{"POST", "/v1/tasks", `{"biz_type": "order.close", "biz_id": "42", "delay_ms": 3600000, "dedup_key": "k", "payload": "p", "headers": {"tenant": "x"}}`},
	{"POST", "/v1/tasks", `{"biz_type": "order.close", "biz_key": "ord_\u00fc", "due_time": "2030-01-02T15:04:05.678+01:00"}`},
	{"POST", "/v1/tasks:batch", `{"tasks": [{"biz_type": "order.close", "biz_id": "1", "delay_ms": 1}, {"biz_type": "x", "biz_id": "2", "delay_ms": 1}]}`},
	{"GET", "/v1/tasks?biz_id=42&limit=3", ""},
	{"GET", "/v1/tasks?biz_key=ord%C3%BC", ""},
	{"GET", "/v1/tasks?status=pending&biz_type=order.close&cursor=AAAA", ""},
	{"GET", "/v1/tasks/117904638606316173", ""},
	{"GET", "/v1/tasks/117904638606316173/runs?limit=2&cursor=AAAA", ""},
	{"GET", "/v1/tasks/117904638606316173/why", ""},
	{"POST", "/v1/tasks/117904638606316173:cancel", ""},
	{"POST", "/v1/tasks/117904638606316173:reschedule", `{"delay_ms": 5}`},
	{"POST", "/v1/tasks/117904638606316173:bury", `{"reason": "void"}`},
	{"POST", "/v1/tasks:redrive", `{"biz_type": "order.close", "dry_run": true}`},
	{"GET", "/v1/biz-types/order.close", ""},
	{"POST", "/v1/biz-types/order.close:resume", ""},
	{"DELETE", "/v1/../v1/tasks", "[]"},
	{"POST", "/v1/schedules", `{"name": "report.daily", "biz_type": "order.close", "cron": "0 4 * * 1-5", "zone": "Europe/Berlin", "jitter": "90s", "missed": "all", "end": "2040-01-02T15:04:05Z"}`},
	{"POST", "/v1/schedules", `{"name": "r", "app": "a", "biz_type": "order.close", "biz_id": "7", "cron": "@every 90s", "start": "2030-01-02T15:04:05.678+01:00", "start_within": "1h", "headers": {"a": "b"}}`},
	{"PUT", "/v1/schedules/r?dry_run=true", `{"biz_type": "order.close", "cron": "*/5 * 1,15 feb-apr ?", "overlap": "queue", "pause_after": 3}`},
	{"PUT", "/v1/schedules/r", `{"biz_type": "order.close", "cron": "@monthly", "payload": "p"}`},
	{"GET", "/v1/schedules?app=a&biz_type=order.close&state=active&limit=2&cursor=AAAA", ""},
	{"GET", "/v1/schedules/r", ""},
	{"GET", "/v1/schedules/r/next?n=5", ""},
	{"GET", "/v1/schedules/r/runs?limit=5&cursor=AAAAAAAAAAAAAAAAAAAAAA", ""},
	{"GET", "/v1/tasks/117904638606316173/runs?limit=5", ""},
	{"POST", "/v1/schedules/r:deactivate", ""},
	{"POST", "/v1/schedules/r:activate", "{}"},
	{"POST", "/v1/schedules/r:run", ""},
	{"POST", "/v1/schedules/r:backfill", `{"from": "2026-01-02T15:04:05Z", "to": "2026-01-02T16:04:05Z", "dry_run": false}`},
	{"DELETE", "/v1/schedules/r", ""},
}

// FuzzRequests sends requests to an API over real servers. None may be answered with a 5xx, and every refusal is a problem that
// does not repeat the payload.
func FuzzRequests(f *testing.F) {
	for _, s := range seeds {
		f.Add(s[0], s[1], s[2], "application/json")
	}
	f.Add("POST", "/v1/tasks", "x=1", "text/plain")
	s := serve(f, func(c *api.Config) { c.Logger = nil })
	f.Fuzz(func(t *testing.T, method, target, body, kind string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || method == "" || strings.ContainsAny(method, " \r\n") {
			return // net/http refuses it
		}
		r := &http.Request{
			Method: method, URL: u, RequestURI: target, Host: "127.0.0.1", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "127.0.0.1:1",
			Header: http.Header{"Content-Type": {kind}, "Authorization": {"Bearer " + s.tokens["operate"]}, "If-Match": {"*"}}, Body: http.NoBody,
		}
		if body != "" {
			r.Body, r.ContentLength = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)).Body, int64(len(body))
		}
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r.WithContext(t.Context()))
		judge(t, method, w)
	})
}

// judge checks an answer to any request.
func judge(t *testing.T, method string, w *httptest.ResponseRecorder) {
	t.Helper()
	text := w.Body.Bytes()
	if w.Code >= 500 {
		t.Fatalf("%d: %s", w.Code, text)
	}
	if w.Code < 400 {
		if !json.Valid(text) && w.Code != http.StatusNoContent && method != http.MethodHead {
			t.Errorf("%d: not JSON: %s", w.Code, text)
		}
		return
	}
	var p api.Problem
	if w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d: %v", w.Code, w.Header())
	}
	if method == http.MethodHead {
		return
	}
	if err := json.Unmarshal(text, &p); err != nil || p.Status != w.Code || p.Code == "" || p.Detail == "" || p.Type == "" || strings.ContainsAny(p.Detail, "\r\n") {
		t.Errorf("%d: no problem: %v: %s", w.Code, err, text)
	}
}
