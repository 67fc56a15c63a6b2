package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/upkeep"
)

// Every command does its work on the correct database, names the wrong one once, and
// fails.
func TestCommandsGoOnBesideAWrongDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wrong, says string }{
		"its layout table is gone":                  {"RENAME TABLE {prefix}_1.layout TO {prefix}_1.away", "{prefix}_1 on db1 has no layout table"},
		"it is of another cluster":                  {"UPDATE {prefix}_1.layout SET cluster_id = 'other'", `that of {prefix}_1 on db1 is "other"`},
		"it is of another cluster with the same id": {"UPDATE {prefix}_1.layout SET identity = 'other'", "that of {prefix}_1 on db1 is other"},
		"the database is gone":                      {"DROP DATABASE {prefix}_1", "{prefix}_1 on db1 has no layout table"},
		"it says that it is retired":                {"UPDATE {prefix}_1.layout SET state = 'retired'", "{prefix}_1 on db1 is retired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			says := strings.ReplaceAll(c.says, "{prefix}", s.prefix)
			for database := range 2 {
				n, err := strconv.Atoi(s.bizIDIn(database))
				if err != nil {
					t.Fatal(err)
				}
				s.settled(n, tocsin.Done, "31 DAY")
				s.settled(n, tocsin.Pending, "1 HOUR")
			}
			s.exec(c.wrong)
			fails := func(args ...string) result {
				r := s.run(args...)
				r.refused(t, exitFailed, says)
				if n := strings.Count(r.stderr, says); n > 1 {
					t.Errorf("%s names the database %d times: %s", args[0], n, r.stderr)
				}
				return r
			}
			if got := decodeText[node.SweepResult](t, fails("sweep", "--json").stdout); got.Tables != 4 || got.Overdue != 1 {
				t.Errorf("sweep: %+v, want 4 tables, 1 overdue", got)
			}
			if got := decodeText[upkeep.AuditReport](t, fails("audit", "--json").stdout); got.Tables != 4 || got.Faults["overdue"] != 1 {
				t.Errorf("audit: %+v, want 4 tables, 1 overdue", got)
			}
			if got := decodeText[upkeep.PurgeResult](t, fails("purge", "--json").stdout); got.Tables != 4 || got.Types["order.close"].Done != 1 {
				t.Errorf("purge: %+v, want 4 tables, 1 done", got)
			}
			s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
			if got := decodeText[appliedBiz](t, fails("biz", "apply", "biz.yaml", "--json").stdout); got.Databases != 1 {
				t.Errorf("biz apply: %+v, want 1 database", got)
			}
			s.run("biz", "show", "order.close").says(t, "attempts: 5")
			s.pausesTheOther(c.wrong, fails)
			add := func(database int) result {
				return s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(database))
			}
			add(0).says(t, "pending")
			add(1).refused(t, exitFailed, says)
			s.node("orders", "host", 1)
			if r := s.run("cluster", "nodes"); name != "it says that it is retired" && (r.code != exitFailed || !strings.Contains(r.stderr, says)) {
				t.Errorf("cluster nodes: exit code %d, want %s:\n%s", r.code, says, r.stderr)
			}
			if r := s.run("doctor"); r.code != exitFailed || !strings.Contains(r.stdout, says) {
				t.Errorf("doctor: exit code %d, want %s:\n%s", r.code, says, r.stdout)
			}
		})
	}
}

// pausesTheOther pauses a type in database 0 alone, and resumes it.
func (s *site) pausesTheOther(wrong string, fails func(args ...string) result) {
	s.t.Helper()
	if got := decodeText[appliedBiz](s.t, fails("biz", "pause", "order.close", "--json").stdout); got.Databases != 1 {
		s.t.Errorf("biz pause: %+v, want 1 database", got)
	}
	s.run("biz", "show", "order.close").says(s.t, "paused: true")
	s.unpaused(1, wrong)
	fails("biz", "resume", "order.close")
}

// unpaused fails the test if a type in a database was changed, unless the database is
// gone.
func (s *site) unpaused(database int, wrong string) {
	s.t.Helper()
	if strings.HasPrefix(wrong, "DROP DATABASE") {
		return
	}
	var policy string
	var revision int
	err := s.db.QueryRow("SELECT policy, revision FROM "+s.layout.Database(database)+".biz_type WHERE number = 1").Scan(&policy, &revision)
	if err != nil || revision != 1 || strings.Contains(policy, "paused") {
		s.t.Errorf("the wrong database was written: revision %d, %s, %v", revision, policy, err)
	}
}
