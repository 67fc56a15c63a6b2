package main

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/why"
)

// why asks where a task is.
func (s *site) why(id tocsin.JobID, more ...string) why.Answer {
	s.t.Helper()
	r := s.run(append([]string{"task", "why", "--json", id.String()}, more...)...)
	a := decodeText[why.Answer](s.t, r.stdout)
	if gone := a.State == why.Gone; r.stderr != "" || r.code == exitOK == gone {
		s.t.Errorf("exit code %d, stderr %q: %+v", r.code, r.stderr, a)
	}
	return a
}

// says wants a state and, among all sentences, each of the parts.
func says(t *testing.T, a why.Answer, state why.State, parts ...string) {
	t.Helper()
	all := sentences(a)
	if a.State != state {
		t.Errorf("state %s, want %s:\n%s", a.State, state, all)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("%s: no %q in\n%s", state, part, all)
		}
	}
}

func sentences(a why.Answer) string {
	return strings.Join(slices.Concat([]string{a.Says}, a.Also, a.Unasked), "\n")
}

// due makes a task due since some time.
func (s *site) due(id tocsin.JobID, since, more string) {
	s.t.Helper()
	s.set(id, "action_time = UTC_TIMESTAMP(3) - INTERVAL "+since+", due_time = action_time"+more)
}

// Everything that the row and its policy say by themselves, in a cluster without a node.
func TestWhySaysWhatTheRowSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ahead := "action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, due_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR"
	behind := "action_time = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE, due_time = action_time"
	for name, c := range map[string]struct {
		columns string
		state   why.State
		parts   []string
	}{
		"not due":           {"", why.NotDue, []string{"not due before 20", "(in ", "group orders has no node: start one"}},
		"a failed attempt":  {ahead + ", attempts = 1, last_error = 'no stock'", why.Retry, []string{`1 attempt of 3 failed, the last one with "no stock"`}},
		"put off":           {ahead + ", last_error = 'later'", why.Snoozed, []string{"was due at 20", `: "later"`}},
		"claimed":           {ahead + ", status = 1, claimed_by = 'host-a-abcdefgh'", why.Claimed, []string{"claimed by host-a-abcdefgh until 20"}},
		"claimed by sweep":  {ahead + ", status = 1, claimed_by = 'host-a-sweep-abcdefgh'", why.Claimed, []string{"host-a-sweep-abcdefgh, a sweeper, until"}},
		"a claim ran out":   {behind + ", status = 1, claimed_by = 'host-a-abcdefgh', crashes = 2", why.RunOut, []string{"by host-a-abcdefgh ran out at 20", "5s after its end", "2 claims of it ran out", "with 5 it is dead"}},
		"done":              {behind + ", status = 2", why.Done, []string{"done at 20", "had been due at 20"}},
		"cancelled":         {behind + ", status = 3", why.Cancelled, []string{"cancelled at 20"}},
		"dead of attempts":  {behind + ", status = 4, attempts = 3, last_error = 'no stock'", why.Dead, []string{`after 3 failed attempts: "no stock"`, "tocsin task redrive "}},
		"dead of crashes":   {behind + ", status = 4, crashes = 5", why.Dead, []string{"5 claims that ran out", "no error is stored"}},
		"buried":            {behind + ", status = 4, attempts = 1, last_error = 'by hand'", why.Dead, []string{"1 failed attempt of 3, buried"}},
		"paused":            {behind + ", biz_type = 2", why.Paused, []string{"coupon.remind is paused until `tocsin biz resume coupon.remind`", "last changed at 20"}},
		"paused, not due":   {ahead + ", biz_type = 2", why.Snoozed, []string{"coupon.remind is paused"}},
		"of no policy":      {behind + ", biz_type = 99", why.UnknownType, []string{"no policy names its biz type, #99"}},
		"no node, overdue":  {"action_time = UTC_TIMESTAMP(3) - INTERVAL 2 MINUTE, due_time = action_time", why.NoOwner, []string{"group orders has no node", "past the grace time of 1m0s", "node.Sweep, group orders"}},
		"no node, just due": {"action_time = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND, due_time = action_time", why.NoOwner, []string{"takes it from 20", "after the grace time of 1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.add(7)
			if c.columns != "" {
				s.set(id, c.columns)
			}
			a := s.why(id)
			says(t, a, c.state, c.parts...)
			if a.Task == nil || a.Table != s.layout.Table(id.Table()) || a.Server != "db1" || len(a.Unasked) != 0 {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestWhySaysWhetherATaskCanHaveBeenPurged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.exec("DELETE FROM "+s.layout.Table(id.Table())+" WHERE job_id = ?", uint64(id))
	says(t, s.why(id), why.Gone, "too late for a purge, as tasks are kept for 30 days")
	says(t, s.why(513), why.Gone, "no such task in "+s.prefix+"_0.task_0001 on db1: it was purged, or never existed", "2026-01-01")
	says(t, s.why(id+tocsin.JobID(time.Hour.Milliseconds())<<22), why.Gone, "never was")
	s.run("task", "why", "4194303").refused(t, exitFailed, "it names table 8191, and the layout of the config, 2x4, has none of that number")
	s.run("task", "why").refused(t, exitUsage, "want JOB_ID, got 0 arguments")
	s.run("task", "why", "1", "2").refused(t, exitUsage, "want JOB_ID, got 2 arguments")
	s.run("task", "why", "abc").refused(t, exitUsage, `job_id "abc": want a decimal number`)
	s.run("task", "why", "513", "--ask", "nowhere").refused(t, exitUsage, `--ask "nowhere": want host:port`)
	r := s.run("task", "why", "513")
	if want := "task 513  " + s.prefix + "_0.task_0001 on db1\ngone: there is no such task"; r.code != exitFailed || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
}

// A server or database that can't be asked is the answer, and what else could not be asked is named.
func TestWhySaysWhatIsWrongWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, as the system does for a frozen server
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	good := s.yaml(s.layout, s.dsn())
	s.write("away.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	says(t, s.why(id, "--config", "away.yaml"), why.Away, "server db1 can't be asked for "+s.layout.Table(id.Table()), "refused")
	s.write("hangs.yaml", s.yaml(s.layout, "toc:hunter2@tcp("+silent.Addr().String()+")/"))
	says(t, s.why(id, "--config", "hangs.yaml"), why.Hangs, "server db1 hangs")
	s.write("other.yaml", "cluster: other\n"+good[strings.Index(good, "layout:"):])
	says(t, s.why(id, "--config", "other.yaml"), why.Refused, `cluster of the config is "other"`)
	s.write("noetcd.yaml", withoutEtcd(good))
	says(t, s.why(id, "--config", "noetcd.yaml"), why.NotDue, "etcd, which knows the owner of the table: etcd 127.0.0.1:1")
	database := s.layout.Database(s.layout.DatabaseOf(id.Table()))
	s.exec("UPDATE " + database + ".layout SET state = 'held'")
	says(t, s.why(id), why.OlderCopy, database+" on db1 is held", "tocsin ddl restore-check")
	s.exec("UPDATE " + database + ".layout SET state = 'active', mark = mark - 3600000")
	other := s.layout.Database(1 - s.layout.DatabaseOf(id.Table()))
	s.exec("UPDATE " + database + ".layout SET mark = 1")
	s.exec("INSERT INTO "+other+".mark (database_no, identity, mark, gmt_modified) SELECT ?, identity, 1800000000000, NOW() FROM "+other+".layout", s.layout.DatabaseOf(id.Table()))
	says(t, s.why(id), why.OlderCopy, database+" on db1 is an older copy")
}

func TestWhySaysThatTheServerTakesNoWrites(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, ownServer(t, devserver.MariaDBConfig{Args: []string{"--read-only"}})))
	s.applyDDL() // root may
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("task", "add", "--type", "order.close", "--biz-id", "1", "--in", "0s").ok(t)
	id := decode[[]taskJSON](t, s.run("task", "list", "--biz-id", "1", "--json"))[0].JobID
	says(t, s.why(id), why.ReadOnly, "server db1 is read-only", "group orders has no node")
}
