package main

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// halfDown gives a site whose database 1 is on a server that is down.
func halfDown(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, devtest.DSN(t)), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: toc:hunter2@tcp(127.0.0.1:1)/\n    databases: [1]\netcd:", 1))
	return s
}

// bizIDIn gives a biz_id whose tasks are in the database.
func (s *site) bizIDIn(database int) string {
	for n := uint64(1); ; n++ {
		if s.layout.DatabaseOf(s.layout.TableOf(n)) == database {
			return fmt.Sprint(n)
		}
	}
}

func TestWithOneServerDownTheOtherStillServes(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	add := func(database int) result {
		return s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(database))
	}
	add(0).says(t, "pending")
	add(1).refused(t, exitFailed, "db2", "unreachable", "refused")
	s.run("task", "list", "--biz-id", s.bizIDIn(0)).says(t, "pending")
	s.run("biz", "list").says(t, "order.close")
	if n := s.rows(); n != 1 {
		t.Errorf("%d tasks are stored, want 1", n)
	}
}

func TestBizApplyWritesTheServersThatAnswerAndNamesTheOther(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
	r := s.run("biz", "apply", "biz.yaml", "--json")
	r.refused(t, exitFailed, "db2", "refused")
	if got := decodeText[appliedBiz](t, r.stdout); got.Databases != 1 {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(r.stderr, "hunter2") {
		t.Errorf("tells the password: %s", r.stderr)
	}
	s.run("biz", "show", "order.close").says(t, "attempts: 5")
}

// What the other servers hold is printed while one is away or frozen, and that one is named.
func TestListsHaveWhatTheOtherServersHold(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(0)).ok(t)
	for line, want := range map[string]string{
		"task list --status pending":     "order.close  biz_id ",
		"task list --status dead":        "no dead tasks in what could be read\n",
		"task list --status dead --json": "[]\n",
		"schedule list":                  "no schedules in what could be read\n",
		"biz stats":                      "not counted in full: db2\n",
		"cluster tables":                 "not counted in full: db2\n",
	} {
		r := s.run(strings.Fields(line)...)
		r.refused(t, exitFailed, "db2")
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%s: no %q in %q", line, want, r.stdout)
		}
	}
	s.user("SELECT ON {prefix}_0.layout", "SELECT ON {prefix}_1.layout", "SELECT ON {prefix}_0.biz_type", "SELECT ON {prefix}_1.biz_type")
	for _, line := range []string{"task list --status pending --json", "biz stats", "biz stats --json"} {
		r := s.run(strings.Fields(line)...)
		r.refused(t, exitFailed, "SELECT command denied")
		if r.stdout != "" {
			t.Errorf("%s prints of tables that it may not read: %s", line, r.stdout)
		}
	}
}

func TestAFrozenServerHoldsUpNoListForLong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Kill() })
	s.exec("DROP DATABASE {prefix}_1")
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, devtest.DSN(t)), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: "+m.DSN()+"\n    databases: [1]\netcd:", 1))
	s.run("ddl", "apply").ok(t)
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(0)).ok(t)
	if err := syscall.Kill(m.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var lists sync.WaitGroup
	for line, want := range map[string]string{
		"task list --status pending": "order.close  biz_id ", "schedule list": "no schedules in what could be read", "biz stats": "order.close    1 ",
	} {
		lists.Go(func() {
			r := s.run(strings.Fields(line)...)
			if r.code != exitFailed || !strings.Contains(r.stdout, want) || !strings.Contains(r.stderr, "on db2: no answer within ") {
				t.Errorf("%s: exit code %d\n%s%s", line, r.code, r.stdout, r.stderr)
			}
		})
	}
	lists.Go(func() {
		got := s.doctor()
		got.finding(t, "fail", "reachable", "read the clock on db2: no answer within 10", "it hangs: see docs/runbook.md#tocsinserverhangs")
		got.finding(t, "ok", "identity", "none other in etcd")
	})
	lists.Wait()
}
