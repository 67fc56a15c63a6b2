package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/upkeep"
)

// settled adds a task and makes it final so long ago.
func (s *site) settled(bizID int, status tocsin.Status, ago string) tocsin.JobID {
	s.t.Helper()
	id := s.add(bizID)
	s.exec("UPDATE "+s.layout.Table(id.Table())+" SET status = ?, action_time = UTC_TIMESTAMP(3) - INTERVAL "+ago+" WHERE job_id = ?", status, uint64(id))
	return id
}

func TestPurgeRemovesWhatIsPastItsRetention(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn()))) // which a purge does not need
	s.settled(1, tocsin.Done, "31 DAY")
	s.settled(4, tocsin.Cancelled, "31 DAY")
	dead, young := s.settled(5, tocsin.Dead, "31 DAY"), s.settled(6, tocsin.Done, "29 DAY")
	pending := s.settled(7, tocsin.Pending, "31 DAY")

	dry := s.run("purge", "--dry-run")
	dry.says(t, "purge (dry run): 8 tables, 1 done, 1 cancelled, 0 dead, 0 bells, 0 batches", "order.close: 2")
	if n := s.rows(); n != 5 {
		t.Errorf("the dry run left %d tasks", n)
	}
	got := decode[upkeep.PurgeResult](t, s.run("purge", "--json"))
	got.Took = 0
	want := upkeep.PurgeResult{Tables: 8, Types: map[string]upkeep.Removed{"order.close": {Done: 1, Cancelled: 1}}, Batches: got.Batches, Lacking: []int{}, Failed: []string{}}
	if !reflect.DeepEqual(got, want) || got.Batches == 0 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, id := range []tocsin.JobID{dead, young, pending} {
		s.run("task", "get", id.String()).ok(t)
	}
	s.run("purge", "--dead").says(t, "purge: 8 tables, 0 done, 0 cancelled, 1 dead")
	s.run("task", "get", dead.String()).refused(t, exitFailed, "no task "+dead.String())
}

// A user whose rights were granted before there were runs purges all else, and cron's mail says how to mend it.
func TestPurgeWithoutARightToRunsPurgesTheRestAndSaysWhichGrant(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settled(1, tocsin.Done, "31 DAY")
	u := newRoleUser(s, "purge", func(_, on string) bool { return kind(on) != "run" }, "--per-table")
	r := s.run("purge", "--json")
	got := decodeText[upkeep.PurgeResult](t, r.stdout)
	if r.code != exitOK || got.Total().Done != 1 || len(got.Lacking) != s.layout.Databases || len(got.Failed) != 0 {
		t.Errorf("exit code %d, %+v", r.code, got)
	}
	if strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("not one line:\n%s", r.stderr)
	}
	_, grants, _ := strings.Cut(r.stderr, "an administrator may run: ")
	for grant := range strings.SplitSeq(strings.TrimSpace(grants), "; ") {
		s.exec(strings.TrimSuffix(grant, ";"))
	}
	if r := s.run("purge", "--json"); r.stderr != "" || len(decodeText[upkeep.PurgeResult](t, r.ok(t)).Lacking) != 0 {
		t.Errorf("after %s: %s %s", grants, r.stdout, r.stderr)
	}
	if err := u.runAll("purge --dry-run"); err != nil {
		t.Error(err)
	}
}

func TestPurgeStaysWithACronExpressionUntilItIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settled(1, tocsin.Done, "31 DAY")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"purge:\n  cron: \"@every 1s\"\n")
	stays := s.stays("purge")
	s.waitFor("the task is purged", func() bool { return s.rows() == 0 })
	stays.end(t)
	s.settled(2, tocsin.Done, "31 DAY")
	s.run("purge", "--once").says(t, "1 done")
}
