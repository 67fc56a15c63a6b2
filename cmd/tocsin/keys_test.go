package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/webhook"
)

func TestTasksOfAKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	number := strconv.FormatUint(tocsin.KeyID("ord_1"), 10)
	ofKey := decode[tocsin.Info](t, s.run("task", "add", "--json", "--type", "order.close", "--key", "ord_1", "--in", "1h", "--header", "tenant=shop=7", "--header", "b="))
	if ofKey.BizKey != "ord_1" || ofKey.Header("tenant") != "shop=7" || ofKey.Headers != `{"b":"","tenant":"shop=7"}` {
		t.Errorf("added %+v", ofKey)
	}
	ofNumber := decode[tocsin.Info](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", number, "--in", "1h"))
	if ofNumber.BizKey != "" || ofNumber.Headers != "" || ofNumber.BizID != ofKey.BizID {
		t.Errorf("added %+v", ofNumber)
	}
	s.run("task", "get", ofKey.JobID.String()).says(t, "biz_id       "+number, "key          ord_1", `headers      {"b":"","tenant":"shop=7"}`)
	s.run("task", "list", "--key", "ord_1").says(t, "job_id "+ofKey.JobID.String()+"  order.close  key ord_1  pending")
	for flag, want := range map[string]tocsin.JobID{"--key=ord_1": ofKey.JobID, "--biz-id=" + number: ofNumber.JobID} {
		if got := decode[[]tocsin.Info](t, s.run("task", "list", flag, "--json")); len(got) != 1 || got[0].JobID != want {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	s.run("task", "list", "--key", "ord_2").says(t, `no tasks of key "ord_2"`)
	s.run("task", "reschedule", "--type", "order.close", "--key", "ord_1", "--in", "2h").says(t, "1 rescheduled, of these 0 in delivery, 0 finished before")
	s.run("task", "cancel", "--type", "order.close", "--key", "ord_1").says(t, "1 cancelled, of these 0 in delivery, 0 finished before")
	if got := decode[tocsin.Info](t, s.run("task", "get", ofNumber.JobID.String(), "--json")); got.Status != tocsin.Pending || got.Version != 0 {
		t.Errorf("the task of the number is %+v", got)
	}
	for want, args := range map[string][]string{
		"one of --biz-id and --key are needed": {"add", "--biz-id", "1", "--key", "k", "--type", "order.close", "--in", "1h"},
		`header "a b"`:                         {"add", "--biz-id", "1", "--type", "order.close", "--in", "1h", "--header", "a b=1"},
		"want NAME=TEXT":                       {"add", "--biz-id", "1", "--type", "order.close", "--in", "1h", "--header", "a"},
		"biz_key is empty":                     {"add", "--key", "", "--type", "order.close", "--in", "1h"},
		"one of --biz-id and --key":            {"cancel", "--biz-id", "1", "--key", "k", "--type", "order.close"},
		"or --key, not both":                   {"cancel", ofKey.JobID.String(), "--key", "k"},
		"name the tasks":                       {"list", "--biz-id", "1", "--key", "k"},
	} {
		s.run(append([]string{"task"}, args...)...).refused(t, exitUsage, want)
	}
	if n := s.rows(); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// A task that plain SQL wants, by key and with headers, goes through the outbox, a relay, a node and a callback.
func TestHeadersAndKeysFromAnOutboxToACallback(t *testing.T) {
	t.Parallel()
	s, table := shopSite(t)
	got := make(chan webhook.Task, 10)
	receiver, err := webhook.New(webhook.Config{Unsigned: true}, func(_ context.Context, task webhook.Task) error { got <- task; return nil })
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(receiver)
	defer server.Close()
	s.write("biz.yaml", fmt.Sprintf("biz_types:\n  - {name: coupon.remind, number: 2, webhook: {url: %s, allow: [127.0.0.0/8]}}\n", server.URL))
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("outbox", "apply").ok(t)
	s.serve("node")
	s.exec("INSERT INTO " + table + ` (biz_type, biz_key, delay_ms, headers, attribute) VALUES ('coupon.remind', 'cus_9fQ2', 0, '{"from":"outbox"}', 'x')`)
	s.run("task", "add", "--type", "coupon.remind", "--key", "cus_9fQ2", "--in", "0s", "--header", "from=command", "--payload", "x").ok(t)
	seen := map[string]bool{}
	s.waitFor("both callbacks have come", func() bool {
		select {
		case task := <-got:
			if task.BizKey != "cus_9fQ2" || task.BizID != tocsin.KeyID("cus_9fQ2") || task.Payload != "x" {
				t.Errorf("%+v", task)
			}
			seen[task.Headers.Get("from")] = true
		default:
		}
		return seen["outbox"] && seen["command"]
	})
	rows := s.run("outbox", "list", "--json").ok(t)
	if !json.Valid([]byte(rows)) {
		t.Errorf("%s", rows)
	}
}
