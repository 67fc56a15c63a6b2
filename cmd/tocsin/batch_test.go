package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/webhook"
)

// batchSite has a biz type whose callbacks go to the receiver in signed batches, and a config file with its secret.
func batchSite(t *testing.T, handle func(context.Context, []webhook.Task) []error) *site {
	t.Helper()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receiver, err := webhook.NewBatch(webhook.Config{Secrets: []string{secret}}, handle)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	s := bareSite(t)
	s.applyDDL()
	secrets := filepath.Join(s.dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("secrets/coupon", secret+"\n")
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"\nnode:\n  secrets_dir: "+secrets+"\n")
	s.write("biz.yaml", fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    concurrency: 1
    history: true
    webhook: {url: %s, secrets: [coupon], allow: [127.0.0.0/8], batch: 50}
`, server.URL))
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("biz", "show", "coupon.remind").says(t, "batch: 50")
	return s
}

// Each task of a batch has its own fate, history and reason.
func TestCallbacksInBatches(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	requests, seen := 0, map[tocsin.JobID]int{}
	s := batchSite(t, func(_ context.Context, tasks []webhook.Task) (errs []error) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		for _, task := range tasks {
			seen[task.JobID]++
			errs = append(errs, map[string]error{
				"bury": tocsin.Bury(errors.New("no coupon")), "busy": tocsin.RetryIn(time.Hour, errors.New("no mail")), "snooze": tocsin.Snooze(time.Hour),
			}[task.Payload])
		}
		return errs
	})
	ids := map[string]tocsin.JobID{}
	for i, payload := range []string{"bury", "busy", "snooze"} {
		ids[payload] = decode[taskJSON](t, s.run("task", "add", "--json", "--type", "coupon.remind", "--biz-id", fmt.Sprint(9000+i), "--in", "0s", "--payload", payload)).JobID
	}
	s.fill(200, 0)
	s.serve("node")
	s.waitFor("all tasks have come", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 203 })
	s.waitFor("their outcomes are stored", func() bool {
		return s.counted("status = 2") == 200 && s.counted("status <> 2 AND action_time > UTC_TIMESTAMP() + INTERVAL 30 MINUTE") == 2
	})
	mu.Lock()
	if requests > 100 {
		t.Errorf("%d requests for 203 tasks", requests)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("task %s came %d times", id, n)
		}
	}
	mu.Unlock()
	s.run("task", "get", ids["bury"].String()).says(t, "dead", "callback answered bury: no coupon")
	for payload, attempts := range map[string]int{"busy": 1, "snooze": 0, "bury": 1} {
		got := decode[taskJSON](t, s.run("task", "get", "--json", ids[payload].String()))
		if got.Attempts != attempts {
			t.Errorf("%s: %+v", payload, got)
		}
	}
	s.run("task", "why", ids["busy"].String()).says(t, "no mail")
	s.waitFor("the history is stored", func() bool {
		runs := decode[[]operator.Run](t, s.run("task", "runs", ids["bury"].String(), "--json"))
		return len(runs) == 1 && runs[0].Outcome == "buried" && strings.Contains(runs[0].Output, "callback answered bury: no coupon")
	})
}
