package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// What docs/operations.md promises beyond what the tests of single commands show.

// start runs a command that stays, and gives its log line by line.
func (s *site) start(args ...string) (*exec.Cmd, *bufio.Scanner) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), runWithin)
	s.t.Cleanup(cancel)
	cmd := command(ctx, s.dir, args...)
	log, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(log)
}

// text reads a file of the site's folder.
func (s *site) text(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func TestSweepStaysWithACronExpressionAndLogsWhatItFinds(t *testing.T) {
	t.Parallel()
	const tasks = 20
	s, c := callbackSite(t)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
	stays, log := s.start("sweep", "--cron", "@every 10s", "--grace", "0s", "--force")
	s.fill(tasks, 0)
	found := regexp.MustCompile(`8 tables, (\d+) overdue.*"message":"swept"`)
	for swept := 0; swept < tasks && log.Scan(); {
		if m := found.FindStringSubmatch(log.Text()); m != nil {
			n, _ := strconv.Atoi(m[1])
			swept += n
		}
	}
	s.waitFor("all are settled", func() bool { return s.notDone() == 0 })
	if err := stays.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for log.Scan() { // until the process has ended, or Wait would take the log away
		t.Log(log.Text())
	}
	if err := stays.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if seen, again, early := c.counts(); seen != tasks || again+early != 0 {
		t.Errorf("%d of %d tasks seen, %d more than once, %d early", seen, tasks, again, early)
	}
}

func TestASweepForACrontabPrintsItsSummaryOnly(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn()))+"sweep:\n  cron: \"@every 1s\"\n")
	for _, flag := range []string{"--once", "--dry-run"} {
		if out := s.run("sweep", flag).ok(t); strings.Count(out, "\n") != 1 {
			t.Errorf("sweep %s printed\n%s", flag, out)
		}
	}
}

func TestACallbackWaitsForItsSecretAndTheLogNamesTheVariable(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	const variable = "TOCSIN_TEST_SECRET_OF_REMIND"
	s.write("signed.yaml", strings.Replace(s.text("biz.yaml"), "      allow:", "      secrets: ["+variable+"]\n      allow:", 1))
	s.run("biz", "apply", "signed.yaml").ok(t)
	s.fill(1, 0)
	r := s.run("sweep", "--grace", "0s")
	if r.code != exitFailed || !strings.Contains(r.stdout, "1 overdue, 0 delivered") || !strings.Contains(r.stdout, "left coupon.remind (no handler here): 1") {
		t.Errorf("exit code %d, stdout:\n%s", r.code, r.stdout)
	}
	if !strings.Contains(r.stderr, variable) || !strings.Contains(r.stderr, "coupon.remind") {
		t.Errorf("the log does not say which variable of which type is missing:\n%s", r.stderr)
	}
	with := command(t.Context(), s.dir, "sweep", "--grace", "0s")
	with.Env = append(with.Env, variable+"=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if out, err := with.CombinedOutput(); err != nil || !strings.Contains(string(out), "1 overdue, 1 delivered") {
		t.Errorf("with the variable: %v\n%s", err, out)
	}
	if seen, _, _ := c.counts(); seen != 1 {
		t.Errorf("%d tasks seen, want 1", seen)
	}
}

func TestAPausedTypeWaitsUntilItIsResumedOrAppliedAgain(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	for i, resume := range [][]string{{"biz", "resume", "coupon.remind"}, {"biz", "apply", "biz.yaml"}} {
		s.run("biz", "pause", "coupon.remind").says(t, "changed")
		s.fill(1, 0)
		s.run("sweep", "--grace", "0s").says(t, "1 overdue, 0 delivered", "left coupon.remind (paused): 1")
		s.run(resume...).says(t, "changed")
		s.run("sweep", "--grace", "0s").says(t, "1 overdue, 1 delivered")
		if seen, _, _ := c.counts(); seen != i+1 {
			t.Errorf("%d tasks seen, want %d", seen, i+1)
		}
	}
}

func TestAPurgeNeedsNoEtcdAndFreesTheDedupKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
	first := s.add(1, "--dedup", "once")
	if again := s.add(1, "--dedup", "once"); again != first {
		t.Fatalf("task %s was added beside %s", again, first)
	}
	s.set(first, "status = 2, action_time = UTC_TIMESTAMP(3) - INTERVAL 31 DAY")
	s.run("purge").says(t, "1 done")
	second := s.add(1, "--dedup", "once")
	if second == first {
		t.Errorf("task %s is still there", first)
	}
	if got := decode[taskJSON](t, s.run("task", "get", second.String(), "--json")); got.Status != tocsin.Pending.String() || got.Existing {
		t.Errorf("got %+v", got)
	}
}

func TestClusterNodesNamesWhatANodeCannotReachAndOthersDeliverIt(t *testing.T) {
	t.Parallel()
	const tasks = 40
	s, c := callbackSite(t)
	s.write("lame.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: toc@tcp(127.0.0.1:1)/\n    databases: [1]\netcd:", 1))
	s.serve("lame", "--config", "lame.yaml")
	s.serve("whole")
	s.waitFor("the node that reaches one server has its tables only", func() bool {
		for _, n := range s.nodes() {
			if strings.HasPrefix(n.ID, "lame-") && len(n.Misses) == 1 && n.Misses[0] == 1 && n.Tables == 4 {
				return true
			}
		}
		return false
	})
	s.ownedBy(map[string]int{"lame": 4, "whole": 4})
	if out := s.run("cluster", "nodes").ok(t); !strings.Contains(out, "note: lame-") || !strings.Contains(out, " can't use the databases 1: ") {
		t.Errorf("cluster nodes does not say what a node can't reach:\n%s", out)
	}
	s.fill(tasks, 0)
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	if seen, _, early := c.counts(); seen != tasks || early != 0 {
		t.Errorf("%d of %d tasks seen, %d early", seen, tasks, early)
	}
}

func TestANodeSeesAChangeOfAPolicySoon(t *testing.T) {
	t.Parallel()
	const tasks, soon = 20, time.Minute // a second, on a machine that has nothing else to do
	s, c := callbackSite(t)
	s.run("biz", "pause", "coupon.remind").says(t, "changed")
	s.serve("only")
	s.ownedBy(map[string]int{"only": 8})
	s.fill(tasks, 0)
	s.run("cluster", "tables", "--group", "callback").says(t, "8       20       0        0")
	if seen, _, _ := c.counts(); seen != 0 {
		t.Errorf("%d tasks of a paused type were delivered", seen)
	}
	s.run("biz", "resume", "coupon.remind").says(t, "changed")
	resumed := time.Now()
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	if took := time.Since(resumed); took > soon {
		t.Errorf("delivered %s after the type was resumed, want %s", took, soon)
	}
}
