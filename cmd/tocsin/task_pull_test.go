package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/worker"
)

const pullYAML = `biz_types:
  - {name: order.close, number: 1, attempts: 3, history: true, backoff: {base: 1h, max: 1h}, pull: {lease: 5s}}
`

// pullSite has a biz type that is pulled, and a node with an API that has a token of the scope work.
func pullSite(t *testing.T) (s *site, n *serving, url, token string) {
	t.Helper()
	s = bareSite(t)
	s.applyDDL()
	s.applyBiz(pullYAML)
	address := devtest.FreeAddress()
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+fmt.Sprintf("node:\n  api: {listen: %q, tokens_file: %s/tokens.yaml}\n", address, s.dir))
	token = s.newToken("tokens.yaml", "--name", "worker", "--scope", "work", "--types", "order.*")
	n = s.serve("api")
	return s, n, "http://" + s.apiOf(n), token
}

// dueNow adds tasks that are due.
func (s *site) dueNow(payloads ...string) (ids []tocsin.JobID) {
	s.t.Helper()
	for i, payload := range payloads {
		ids = append(ids, decode[taskJSON](s.t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", fmt.Sprint(100+i), "--in", "0s", "--payload", payload)).JobID)
	}
	return ids
}

// reserved reads the lines of `task reserve --json`.
func (s *site) reserved(env []string, args ...string) (tasks []api.ReservedTask) {
	s.t.Helper()
	out := callWith(s.t, s.dir, "", env, append([]string{"task", "reserve", "--json"}, args...)...).ok(s.t)
	for line := range strings.Lines(out) {
		tasks = append(tasks, decodeText[api.ReservedTask](s.t, line))
	}
	return tasks
}

func TestAScriptReservesExtendsAndSettles(t *testing.T) {
	t.Parallel()
	s, _, url, token := pullSite(t)
	env := []string{"TOCSIN_TOKEN=" + token}
	do := func(args ...string) result { return callWith(t, s.dir, "", env, append([]string{"task"}, args...)...) }
	verbs := []string{"complete", "retry", "snooze", "bury", "release"}
	ids := s.dueNow(verbs...)
	leases := map[string]string{}
	s.waitFor("all tasks are reserved", func() bool {
		for _, task := range s.reserved(env, "order.close", "--max", "10", "--worker", "php-7") { // the address is that of the config
			if leases[task.Payload] = task.Lease; task.LeaseMS != 5000 || task.Status != "claimed" || task.Key != string(task.JobID)+".0" {
				t.Errorf("%+v", task)
			}
		}
		return len(leases) == len(verbs)
	})
	do("reserve", "order.close", "--wait", "0s", "--url", url).says(t, "no task has come")
	do("extend", leases["complete"], leases["retry"], leases["snooze"], leases["bury"], leases["release"]).says(t, "LEASE", "RESULT", leases["complete"]+"  ok, until 20")
	do("settle", leases["retry"], "--do", "retry", "--error", "busy", "--delay", "1h").says(t, "done")
	do("settle", leases["snooze"], "--do", "snooze", "--delay", "2h").says(t, "done")
	do("settle", leases["bury"], "--do", "bury", "--error", "no order", "--worker", "php-8").says(t, "done")
	do("settle", leases["release"], "--do", "release").says(t, "done")
	if got := decode[[]api.LeaseResult](t, do("settle", leases["complete"], "--do", "complete", "--output", "closed", "--json")); len(got) != 1 || got[0].Result != "done" {
		t.Errorf("%+v", got)
	}
	do("settle", leases["complete"], "--do", "complete").says(t, "already")
	lost := do("settle", leases["bury"], leases["complete"], "--do", "retry")
	if lost.refused(t, exitFailed, "tocsin: not all of 2 leases were settled: 2 lost"); !strings.Contains(lost.stdout, leases["bury"]+"  lost") {
		t.Errorf("%s", lost.stdout)
	}
	do("extend", leases["retry"]).refused(t, exitFailed, "not all of 1 leases were extended: 1 lost")
	for i, want := range map[int]string{0: "done", 1: "last error: busy", 2: "attempts 0", 3: "dead", 4: "attempts 0"} {
		s.run("task", "list", "--biz-id", fmt.Sprint(100+i)).says(t, want)
	}
	s.waitFor("the history has who did it", func() bool {
		runs := decode[[]operator.Run](t, s.run("task", "runs", ids[3].String(), "--json"))
		return len(runs) == 1 && runs[0].Outcome == "buried" && runs[0].Node == "php-8"
	})
	again := s.reserved(env, "order.close")
	if len(again) != 1 || again[0].Payload != "release" {
		t.Fatalf("%+v", again)
	}
	s.run("task", "cancel", string(again[0].JobID)).ok(t)
	do("extend", again[0].Lease).refused(t, exitFailed, "1 cancel_wanted")
	do("settle", "x", "--do", "complete").refused(t, exitFailed, "the API answered 422", "a lease is given as it came with its task")
	do("reserve", "order.x").refused(t, exitFailed, "the API answered 404")
	callIn(t, s.dir, "", "task", "reserve", "order.close").refused(t, exitFailed, "the API answered 401")
	do("reserve", "order.close", "--url", "http://"+devtest.FreeAddress()).refused(t, exitFailed, "connection refused")
}

// goHandler does what a task's payload asks for.
type goHandler struct {
	*site
	longer chan struct{} // closed when the lease of the task "long" lasts longer
	called chan struct{} // closed when the task "cancel" has come

	mu   sync.Mutex
	came map[string]int
}

func (h *goHandler) handle(ctx context.Context, task *tocsin.Task[string]) error {
	h.mu.Lock()
	h.came[task.Payload]++
	h.mu.Unlock()
	switch task.Payload {
	case "bury":
		return tocsin.Bury(errors.New("no order"))
	case "panic":
		panic("oh")
	case "long":
		until := task.ActionTime.Format("2006-01-02 15:04:05.000")
		for n := 0; n == 0 && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			_ = h.db.QueryRow("SELECT COUNT(*) FROM "+task.Table+" WHERE job_id = ? AND action_time > ?", uint64(task.JobID), until).Scan(&n)
		}
		close(h.longer)
		tocsin.Output(ctx, "took long")
		return ctx.Err()
	case "cancel":
		close(h.called)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// TestAGoWorkerDoesTheTasksOfTwoNodes has one of them end meanwhile.
func TestAGoWorkerDoesTheTasksOfTwoNodes(t *testing.T) {
	t.Parallel()
	s, first, url, token := pullSite(t)
	second := s.serve("second", "--api", "127.0.0.1:0")
	orderClose := tocsin.Define[string]("order.close")
	w, err := worker.New(worker.Config{URLs: []string{url, "http://" + s.apiOf(second)}, Token: token, Name: "go-1"})
	if err != nil {
		t.Fatal(err)
	}
	h := &goHandler{site: s, came: map[string]int{}, longer: make(chan struct{}), called: make(chan struct{})}
	worker.Handle(w, orderClose, h.handle)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(stop)
	ids := s.dueNow("bury", "panic", "long", "cancel")
	<-h.called
	tasks := make([]tocsin.NewTask, 400)
	for i := range tasks {
		tasks[i] = orderClose.New(uint64(1000+i), fmt.Sprint(i), tocsin.In(time.Duration(i)*10*time.Millisecond))
	}
	if _, err := s.client().AddMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	s.run("task", "cancel", "--type", "order.close", "--biz-id", "103").ok(t)
	s.waitFor("half of the tasks are done", func() bool { return s.count(tocsin.Done) > 100 })
	first.end(t)
	s.waitFor("all tasks are done", func() bool { return s.count(tocsin.Done) == 401 })
	<-h.longer
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.waitFor("the history has the output", func() bool {
		runs := decode[[]operator.Run](t, s.run("task", "runs", ids[2].String(), "--json"))
		return len(runs) == 1 && runs[0].Output == "took long" && runs[0].Node == "go-1"
	})
	for payload, n := range h.came {
		if n > 1 {
			t.Errorf("task %q came %d times", payload, n)
		}
	}
	if dead, pending := s.count(tocsin.Dead), s.counted("status = 0 AND attempts = 1 AND last_error = 'panic: oh'"); dead != 1 || pending != 1 || s.count(tocsin.Cancelled) != 1 {
		t.Errorf("%d dead, %d to be tried again, %d cancelled", dead, pending, s.count(tocsin.Cancelled))
	}
}
