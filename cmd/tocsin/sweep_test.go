package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// slots is the concurrency of a biz type whose policy sets none.
const slots = 64

// overdue adds tasks that were due half an hour ago, and makes the pending ones half an hour older.
func (s *site) overdue(name string, n int) {
	s.t.Helper()
	typ := tocsin.Define[string](name)
	var tasks []tocsin.NewTask
	for i := range n {
		tasks = append(tasks, typ.New(uint64(i+1), "{}", tocsin.In(0)))
	}
	if _, err := s.client().AddMany(s.t.Context(), tasks); err != nil {
		s.t.Fatal(err)
	}
	for table := range s.layout.Total() {
		s.exec("UPDATE " + s.layout.Table(table) + " SET action_time = action_time - INTERVAL 30 MINUTE WHERE status = 0")
	}
}

func TestSIGTERMEndsASweepWithinSecondsAndLosesNoTask(t *testing.T) {
	t.Parallel()
	const hanging, soon = 200, time.Minute // two seconds on an idle machine
	s, slow := bareSite(t), newHanging(t)
	s.applyDDL()
	s.applyBiz("biz_types:\n  - {name: hang.type, number: 1, timeout: 9m, webhook: {url: \"" + slow.URL + "\", allow: [127.0.0.0/8]}}\n")
	s.run("ddl", "grace", "20m").ok(t) // that of the type: twice its time-out is shorter
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn()))+"sweep: {grace: 20m}\n")
	s.overdue("hang.type", hanging)
	n := s.stays("sweep", "--once", "--timeout", "0s")
	s.waitFor("all slots are taken", func() bool { return len(slow.begun) == slots })
	at := time.Now()
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err == nil || n.ProcessState.ExitCode() != exitFailed {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if took := time.Since(at); took > soon {
		t.Errorf("it took %s to stop", took)
	}
	if want := fmt.Sprintf("overdue tasks are left: hang.type (stopped): %d\n", hanging); !strings.HasSuffix(n.log.String(), want) {
		t.Errorf("it said\n%swant %s", n.log, want)
	}
	if waiting := s.counted("status = 0 AND attempts + crashes = 0"); waiting != hanging {
		t.Errorf("%d of %d tasks are pending", waiting, hanging)
	}
	slow.goOn()
	s.run("sweep", "--grace", "0s", "--timeout", "0s", "--force").endedWith(t, fmt.Sprintf("%d overdue, %d delivered", hanging, hanging))
}

func TestTheExitCodeOfASweepSaysWhetherAnythingIsLeft(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "  - {name: order.close, number: 1, group: orders}\n")
	s.run("biz", "pause", "coupon.remind").ok(t)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn()))+"sweep:\n  cron: \"@every 1s\"\n")
	s.overdue("coupon.remind", 2)
	for _, flag := range []string{"--once", "--dry-run"} { // left on purpose; a crontab mails one line
		r := s.run("sweep", flag)
		if r.says(t, "2 overdue", "left coupon.remind (paused): 2"); strings.Count(r.stdout, "\n") != 1 {
			t.Errorf("sweep %s printed\n%s", flag, r.stdout)
		}
	}
	s.overdue("order.close", 3)
	for _, flags := range [][]string{{"--once"}, {"--dry-run"}, {"--once", "--json"}} {
		r := s.run(append([]string{"sweep"}, flags...)...)
		r.refused(t, exitFailed, "overdue tasks are left: order.close (no handler here): 3")
		if strings.Contains(r.stderr, "coupon.remind") || !strings.Contains(r.stdout, "coupon.remind (paused)") {
			t.Errorf("stdout:\n%sstderr:\n%s", r.stdout, r.stderr)
		}
		if len(flags) < 2 {
			continue
		}
		got := decodeText[map[string]any](t, r.stdout) // whose names scripts may rely on
		for _, name := range []string{"tables", "overdue", "delivered", "failed", "cut_off", "in_delivery", "left", "unread", "timed_out", "stopped"} {
			if _, ok := got[name]; !ok {
				t.Errorf("no %s in %s", name, r.stdout)
			}
		}
	}
	s.run("biz", "pause", "order.close").ok(t)
	s.run("sweep", "--once").says(t, "5 overdue", "left order.close (paused): 3") // nobody pages for what is paused, with or without a handler
}
