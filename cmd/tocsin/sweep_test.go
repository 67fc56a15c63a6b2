package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// hangSite makes a site with two biz types: hang.type, whose callbacks hang, and coupon.remind, whose callbacks are quick.
func hangSite(t *testing.T) (s *site, quick *callbacks, slow *hanging) {
	t.Helper()
	s, quick = callbackSite(t)
	slow = newHanging(t)
	s.applyBiz(s.text("biz.yaml") + fmt.Sprintf(`  - name: hang.type
    number: 1
    timeout: 9m
    webhook:
      url: %s
      allow: [127.0.0.0/8]
`, slow.URL))
	s.run("ddl", "grace", "20m").ok(t) // that of both types: twice the longer time-out is shorter
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn()))+"sweep: {grace: 20m}\n")
	return s, quick, slow
}

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

// sweptJSON is the part of the JSON, in addition to sweepJSON, that scripts may rely on.
type sweptJSON struct {
	sweepJSON
	CutOff     int            `json:"cut_off"`
	InDelivery int            `json:"in_delivery"`
	Left       map[string]int `json:"left"`
	Unread     int            `json:"unread"`
	TimedOut   bool           `json:"timed_out"`
	Stopped    bool           `json:"stopped"`
}

func TestSIGTERMEndsASweepWithinSecondsAndLosesNoTask(t *testing.T) {
	t.Parallel()
	const hanging, soon = 200, time.Minute // two seconds on an idle machine
	s, _, slow := hangSite(t)
	s.overdue("hang.type", hanging)
	n, log := s.start("sweep", "--once", "--timeout", "0s")
	s.waitFor("all slots are taken", func() bool { return len(slow.begun) == slots })
	at := time.Now()
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := ""
	for log.Scan() {
		said += log.Text() + "\n"
	}
	if err := n.Wait(); err == nil || n.ProcessState.ExitCode() != exitFailed {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if took := time.Since(at); took > soon {
		t.Errorf("it took %s to stop", took)
	}
	if want := fmt.Sprintf("overdue tasks are left: hang.type (stopped): %d\n", hanging); !strings.HasSuffix(said, want) {
		t.Errorf("it said\n%swant %s", said, want)
	}
	if waiting := s.counted("status = 0 AND attempts + crashes = 0"); waiting != hanging {
		t.Errorf("%d of %d tasks are pending", waiting, hanging)
	}
	slow.goOn()
	s.run("sweep", "--grace", "0s", "--timeout", "0s", "--force").endedWith(t, fmt.Sprintf("%d overdue, %d delivered", hanging, hanging))
}

func TestAResidentSweeperSweepsOthersWhileATypeHangs(t *testing.T) {
	t.Parallel()
	const hanging, others = 300, 20
	s, quick, slow := hangSite(t)
	s.overdue("hang.type", hanging)
	stays, log := s.start("sweep", "--cron", "@every 1s", "--grace", "0s", "--force")
	found := regexp.MustCompile(`"error":"(overdue tasks are left: [^"]*)".*; its time was over; 64 in delivery; .*"message":"swept; overdue tasks are left"`)
	said, want := "", fmt.Sprintf("overdue tasks are left: hang.type (no time left): %d", hanging-slots)
	for said != want && log.Scan() { // a sweep that has no time to read all tables counts fewer, and the next one may have it
		if m := found.FindStringSubmatch(log.Text()); m != nil {
			said = m[1]
		}
	}
	if said != want {
		t.Errorf("the log says %q, want %q", said, want)
	}
	s.overdue("coupon.remind", others)
	s.waitFor("the others are delivered", func() bool { seen, _, _ := quick.counts(); return seen == others })
	if _, again, early := quick.counts(); again+early != 0 {
		t.Errorf("%d of the others were delivered more than once, %d early", again, early)
	}
	if begun := len(slow.begun); begun != slots {
		t.Errorf("%d deliveries of the type that hangs have begun: those under way were cut off", begun)
	}
	s.stop(stays, log)
	s.waitFor("what was cut off is pending", func() bool { return s.counted("status = 0 AND attempts = 0") == hanging })
}

func TestTheExitCodeOfASweepSaysWhetherAnythingIsLeft(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "  - {name: order.close, number: 1, group: orders}\n")
	s.run("biz", "pause", "coupon.remind").ok(t)
	s.overdue("coupon.remind", 2)
	s.run("sweep").says(t, "2 overdue", "left coupon.remind (paused): 2") // left on purpose
	s.overdue("order.close", 3)
	for _, flags := range [][]string{nil, {"--dry-run"}, {"--json"}} {
		r := s.run(append([]string{"sweep"}, flags...)...)
		r.refused(t, exitFailed, "overdue tasks are left: order.close (no handler here): 3")
		if strings.Contains(r.stderr, "coupon.remind") || !strings.Contains(r.stdout, "coupon.remind (paused)") {
			t.Errorf("stdout:\n%sstderr:\n%s", r.stdout, r.stderr)
		}
	}
	s.run("biz", "pause", "order.close").ok(t)
	s.run("sweep").says(t, "5 overdue", "left order.close (paused): 3") // nobody pages for what is paused, with or without a handler
}

func TestASweepsTimeOutIsChecked(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.run("sweep", "--timeout=-1s").refused(t, exitUsage, "--timeout -1s: want 0s or more")
	s.write("bad.yaml", s.yaml(s.layout, s.dsn())+"sweep:\n  timeout: 25h\n")
	s.run("sweep", "--config", "bad.yaml").refused(t, exitFailed, "sweep.timeout 25h0m0s: use 1s to 24h0m0s")
	s.write("good.yaml", s.yaml(s.layout, s.dsn())+"sweep:\n  timeout: 2m\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(s.run("sweep", "--config", "good.yaml", "--json").ok(t)), &got); err != nil || got["timed_out"] != false {
		t.Errorf("%v: %v", got, err)
	}
}
