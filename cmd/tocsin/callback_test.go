package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/webhook"
)

// Each task of a batch has its own fate, history and reason.
func TestCallbacksInBatches(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	requests, seen := 0, map[tocsin.JobID]int{}
	handle := func(_ context.Context, tasks []webhook.Task) (errs []error) {
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
	}
	receiver, err := webhook.NewBatch(webhook.Config{Unsigned: true}, handle)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	s := bareSite(t)
	s.applyDDL()
	s.applyBiz("biz_types:\n  - {name: coupon.remind, number: 2, concurrency: 1, history: true, webhook: {url: \"" + server.URL + "\", allow: [127.0.0.0/8], batch: 50}}\n")
	s.run("biz", "show", "coupon.remind").says(t, "batch: 50")
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
	s.waitFor("the history is stored", func() bool {
		runs := decode[[]operator.Run](t, s.run("task", "runs", ids["bury"].String(), "--json"))
		return len(runs) == 1 && runs[0].Outcome == "buried" && strings.Contains(runs[0].Output, "callback answered bury: no coupon")
	})
}

// From the policy to the callback, and back to the tasks by what it says.
func TestADeadTaskRaisesAnAlarmWhoseCommandsHelp(t *testing.T) {
	t.Parallel()
	got := make(chan webhook.Alarm, 10)
	var mended atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Type string
			Data struct{ Attribute string }
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case body.Type == "ops.alarm":
			var alarm webhook.Alarm
			if err := json.Unmarshal([]byte(body.Data.Attribute), &alarm); err != nil {
				t.Error(err)
			}
			got <- alarm
		case !mended.Load():
			http.Error(w, "no coupons", http.StatusGone)
		}
	}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	policies := fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    webhook: {url: %[1]s, allow: [127.0.0.0/8]}
    alarm: {to: ops.alarm, on: [dead], at_most_every: 1m}
  - name: ops.alarm
    number: 3
    webhook: {url: %[1]s, allow: [127.0.0.0/8]}
`, receiver.URL)
	s.applyBiz(policies)
	s.run("biz", "show", "coupon.remind").says(t, "alarm:", "to: ops.alarm", "at_most_every: 1m0s")
	s.serve("node")
	id := s.adding("coupon.remind", 7, "0s")
	var alarm webhook.Alarm
	select {
	case alarm = <-got:
	case <-time.After(upWithin):
		t.Fatal("waited too long for the alarm")
	}
	if alarm.Kind != "dead" || alarm.BizType != "coupon.remind" || alarm.Count != 1 || !slices.Equal(alarm.JobIDs, []tocsin.JobID{id}) || !strings.Contains(alarm.LastError, "410 Gone: no coupons") {
		t.Errorf("got %+v", alarm)
	}
	s.run("task", "list", "--biz-id", "2").says(t, "ops.alarm")
	mended.Store(true)
	for i, want := range []string{id.String(), "1 dead tasks redriven"} {
		s.run(strings.Fields(alarm.Do[i])[1:]...).says(t, want)
	}
	s.waitFor("the task is done", func() bool { return s.notDone() == 0 })
}

// The nodes' secrets_dir may be absent for a sweep on the same host: systemd gives each unit a directory of its own.
func TestAMissingSecretsDirectoryCostsSignedTypesOnly(t *testing.T) {
	t.Parallel()
	s, received := bareSite(t), newCallbacks(t)
	s.applyDDL()
	s.applyBiz(fmt.Sprintf("biz_types:\n"+
		"  - {name: coupon.remind, number: 2, timeout: 5s, webhook: {url: %[1]q, allow: [127.0.0.0/8], secrets: [TOCSIN_TEST_HOOK]}}\n"+
		"  - {name: open.remind, number: 3, timeout: 5s, webhook: {url: %[1]q, allow: [127.0.0.0/8]}}\n", received.URL))
	dir := filepath.Join(s.dir, "secrets")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+fmt.Sprintf("node:\n  secrets_dir: %q\n", dir))
	s.overdue("coupon.remind", 2)
	s.overdue("open.remind", 3)
	why := "the webhook's secret TOCSIN_TEST_HOOK is neither a file in " + dir + ", which does not exist, nor an environment variable"
	swept := s.run("sweep", "--once")
	if swept.code != exitFailed || !strings.Contains(swept.stderr, why) || !strings.Contains(swept.stderr, "are left: coupon.remind (no handler here): 2") || !strings.Contains(swept.stdout, "3 delivered") {
		t.Errorf("exit code %d, stdout:\n%sstderr:\n%s", swept.code, swept.stdout, swept.stderr)
	}
	n := s.serve("node")
	s.waitFor("the node's log says what is missing", func() bool { return strings.Contains(n.log.String(), why) })
	given := t.TempDir()
	if err := os.WriteFile(filepath.Join(given, "TOCSIN_TEST_HOOK"), []byte("whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	callWith(t, s.dir, "", []string{"CREDENTIALS_DIRECTORY=" + given}, "sweep", "--once").endedWith(t, "2 overdue, 2 delivered")
}
