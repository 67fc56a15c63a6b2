package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

func TestACallbackCarriesHeadersAndKey(t *testing.T) {
	t.Parallel()
	var got Task
	url := receive(t, Config{Secrets: []string{secretA}}, func(_ context.Context, task Task) error {
		got = task
		return nil
	})
	s, err := NewSink(SinkConfig{URL: url, Secrets: []string{secretA}, Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func(headers tocsin.Headers, key string) error {
		info := task("x")
		info.Headers, info.BizKey = headers, key
		return s.Deliver(t.Context(), []tocsin.Info{info})[0]
	}
	if err := send(`{"traceparent":"00-1","tenant":"<ü>"}`, "ord_1"); err != nil || got.Headers.Get("tenant") != "<ü>" || got.Headers.Get("traceparent") != "00-1" || got.BizKey != "ord_1" {
		t.Errorf("%+v, %v", got, err)
	}
	got = Task{}
	verb, _, reason := tocsin.AsOutcome(send(`{"tenant":7}`, ""))
	if verb != tocsin.Retried || !strings.Contains(reason, "headers are not a JSON object of texts") || got != (Task{}) {
		t.Errorf("%s, %q, %+v", verb, reason, got)
	}
	if err := errors.Join(send("", "")); err != nil || got.Headers != "" || got.BizKey != "" || got.Payload != "x" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestACallbackOfARun: it names the schedule and the fire time; those of other tasks have neither field.
func TestACallbackOfARun(t *testing.T) {
	t.Parallel()
	fire := time.Date(2026, 11, 22, 4, 0, 0, 5e6, time.UTC)
	for _, want := range []Task{{Schedule: "report.daily", FireTime: fire}, {Schedule: "report.daily"}, {}} {
		var got Task
		url := receive(t, Config{Secrets: []string{secretA}}, func(_ context.Context, task Task) error {
			got = task
			return nil
		})
		s, err := NewSink(SinkConfig{URL: url, Secrets: []string{secretA}, Allow: loopback})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		info := task("x")
		info.Schedule, info.FireTime = want.Schedule, want.FireTime
		if err := s.Deliver(t.Context(), []tocsin.Info{info})[0]; err != nil || got.Schedule != want.Schedule || got.FireTime != want.FireTime {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}
