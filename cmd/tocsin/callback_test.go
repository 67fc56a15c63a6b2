package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/webhook"
)

// Two nodes deliver the tasks of one biz_id one by one, in the order of their times, and the one that waits says for which.
func TestTasksOfOneBizIDInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	now := 0
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		_, id, _ := strings.Cut(string(body), `"job_id":"`)
		id, _, _ = strings.Cut(id, `"`)
		order = append(order, id)
		if now++; now > 1 {
			t.Errorf("%d at once", now)
		}
		mu.Unlock()
		begun <- struct{}{}
		<-goOn
		mu.Lock()
		now--
		mu.Unlock()
	}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	policy := "biz_types:\n  - {name: order.step, number: 2, per_key: 1, timeout: 1m, webhook: {url: %q, allow: [127.0.0.0/8]}%s}\n"
	s.write("loose.yaml", fmt.Sprintf(policy, receiver.URL, ""))
	s.run("biz", "apply", "loose.yaml").refused(t, exitFailed, "per_key needs strict: true")
	s.applyBiz(fmt.Sprintf(policy, receiver.URL, ", strict: true"))
	s.run("biz", "show", "order.step").says(t, "per_key: 1")
	var ids []tocsin.JobID
	var want []string
	for i := range 12 {
		id := s.adding("order.step", 7, "1h")
		s.due(id, fmt.Sprintf("%d SECOND", 30-i), "")
		ids, want = append(ids, id), append(want, id.String())
	}
	s.serve("one")
	s.serve("two")
	<-begun
	s.until(ids[5], operator.StateTurn, nil, "it waits for job "+ids[0].String()+" of the same biz_id")
	close(goOn)
	s.waitFor("all tasks are done", func() bool { return s.counted("status = 2") == len(ids) })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
}

// A node tells how many tasks a second a low priority may load while others begin.
func TestALowPriorityGivesWay(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	s := bareSite(t)
	s.applyDDL()
	s.applyBiz("biz_types:\n" +
		"  - {name: coupon.remind, number: 2, webhook: {url: " + receiver.URL + ", allow: [127.0.0.0/8]}}\n" +
		"  - {name: report.mail, number: 3, priority: low, webhook: {url: " + receiver.URL + ", allow: [127.0.0.0/8]}}\n")
	s.run("biz", "show", "report.mail").says(t, "priority: low")
	s.run("biz", "show", "coupon.remind").says(t, "priority: normal")
	page := devtest.FreeAddress()
	s.serve("node", "--listen", page)
	low := s.adding("report.mail", 1, "0s")
	s.waitFor("the node says at what rate others give way", func() bool {
		s.adding("coupon.remind", 7, "0s")
		_, text := get(t, http.DefaultClient, "http://"+page+"/metrics", "")
		return strings.Contains(text, `tocsin_dispatcher_yield_rate{priority="normal"} 1`)
	})
	s.waitFor("the low task is done", func() bool { return s.counted("status <> 2 AND job_id = "+low.String()) == 0 })
}

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
	s.applyBiz(fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    concurrency: 1
    history: true
    webhook: {url: %s, secrets: [coupon], allow: [127.0.0.0/8], batch: 50}
`, server.URL))
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
	s.write("bad.yaml", policies+"    alarm: {to: coupon.remind}\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, "bad.yaml:5: biz type coupon.remind: its alarm is to ops.alarm, which has an alarm too: a biz type that delivers alarms has none")
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

// signedSite makes a site with one callback, whose secret is looked for in a
// directory that the config names.
func signedSite(t *testing.T) (s *site, received *callbacks, secret string) {
	t.Helper()
	s, received = bareSite(t), newCallbacks(t)
	s.applyDDL()
	s.applyBiz(fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    timeout: 5s
    webhook:
      url: %s
      secrets: [TOCSIN_TEST_HOOK]
      allow: [127.0.0.0/8]
`, received.URL))
	dir := filepath.Join(s.dir, "secrets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+fmt.Sprintf("node:\n  secrets_dir: %q\n", dir))
	return s, received, filepath.Join(dir, "TOCSIN_TEST_HOOK")
}

// delivered returns doctor's checks of what nodes deliver: level and text.
func (s *site) delivered() string {
	s.t.Helper()
	for _, c := range decodeText[examined](s.t, s.run("doctor", "--json").stdout).Checks {
		if c.Check == "delivered" {
			return c.Level + " " + c.Is
		}
	}
	return ""
}

func TestANodeWithoutASecretSaysSoAndTakesItWithoutARestart(t *testing.T) {
	t.Parallel()
	s, received, secret := signedSite(t)
	first := s.serve("first")
	s.ownedBy(map[string]int{"first": 8})
	s.waitFor("the log says that nobody delivers it", func() bool { return strings.Contains(first.log.String(), "by any node of the group: its tasks wait") })
	s.fill(8, 0)
	s.run("cluster", "nodes").says(t, "can't deliver coupon.remind", "TOCSIN_TEST_HOOK is neither a file in", "no node of its group can: such tasks wait")
	if is := s.delivered(); !strings.HasPrefix(is, "fail no node of group callback delivers coupon.remind") {
		t.Errorf("doctor says %q", is)
	}
	if err := os.WriteFile(secret, []byte("whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitFor("the tasks that waited are done", func() bool { return s.notDone() == 0 })
	if seen, again, _ := received.counts(); seen != 8 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them again", seen, again)
	}
	if out := s.run("cluster", "nodes").ok(t); strings.Contains(out, "can't deliver") {
		t.Errorf("it still lacks something:\n%s", out)
	}
	if is := s.delivered(); !strings.HasPrefix(is, "ok ") {
		t.Errorf("doctor says %q", is)
	}
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())) // as on a host that lacks the secret
	second := s.serve("second")
	s.ownedBy(map[string]int{"first": 4, "second": 4})
	s.waitFor("the log says that the other stands in", func() bool {
		return strings.Contains(second.log.String(), "other nodes of the group stand in") && strings.Contains(first.log.String(), "standing in for a node that lacks biz types")
	})
	s.run("cluster", "nodes").says(t, "can't deliver coupon.remind", "others of its group stand in for it")
	if is := s.delivered(); !strings.HasPrefix(is, "warn some nodes lack coupon.remind, and others stand in for them; second-") {
		t.Errorf("doctor says %q", is)
	}
}

// The nodes' secrets_dir may be absent for a sweep on the same host: systemd gives each unit a directory of its own.
func TestAMissingSecretsDirectoryCostsSignedTypesOnly(t *testing.T) {
	t.Parallel()
	s, received, secret := signedSite(t)
	dir := filepath.Dir(secret)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.applyBiz(s.text("biz.yaml") + fmt.Sprintf("  - {name: open.remind, number: 3, timeout: 5s, webhook: {url: %q, allow: [127.0.0.0/8]}}\n", received.URL))
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
	with := command(t.Context(), s.dir, "sweep", "--once")
	with.Env = append(with.Env, "CREDENTIALS_DIRECTORY="+given)
	if out, err := with.CombinedOutput(); err != nil || !strings.Contains(string(out), "2 overdue, 2 delivered") {
		t.Errorf("with credentials of systemd: %v\n%s", err, out)
	}
}
