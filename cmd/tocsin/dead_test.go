package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/operator"
)

func TestTaskListByStatusGoesThroughAllTables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var dead []tocsin.JobID // the latest first
	for n, ago := range []string{"1 MINUTE", "2 MINUTE", "3 MINUTE", "1 HOUR"} {
		dead = append(dead, s.settled(n+1, tocsin.Dead, ago))
	}
	pending := s.add(9)
	s.set(dead[3], "biz_type = 2, last_error = 'no luck'")
	list := func(args ...string) (ids []tocsin.JobID) {
		for _, task := range decode[[]taskJSON](t, s.run(append([]string{"task", "list", "--json"}, args...)...)) {
			ids = append(ids, task.JobID)
		}
		return ids
	}
	for args, want := range map[string][]tocsin.JobID{
		"--status dead":                      dead,
		"--status dead --limit 2":            dead[:2],
		"--status dead --type order.close":   dead[:3],
		"--status dead --type coupon.remind": dead[3:],
		"--status pending":                   {pending},
		"--status claimed":                   nil,
	} {
		if got := list(strings.Fields(args)...); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
	s.run("task", "list", "--status", "dead").says(t, dead[3].String()+"  coupon.remind  biz_id 4  dead", "last error: no luck")
	s.run("task", "list", "--status", "done").says(t, "no done tasks")
}

func TestTaskRedriveOfMany(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ids []tocsin.JobID
	for n := range 12 {
		ids = append(ids, s.settled(n+1, tocsin.Dead, "1 MINUTE"))
	}
	s.set(ids[11], "biz_type = 2")
	s.run("task", "redrive", "--type", "order.close").says(t, "11 dead tasks redriven")
	if got := decode[redriven](t, s.run("task", "redrive", "--all", "--json")); got.Redriven != 1 {
		t.Errorf("got %+v", got)
	}
	s.run("task", "redrive", "--all").says(t, "0 dead tasks redriven")
	for _, id := range ids {
		if got := decode[taskJSON](t, s.run("task", "get", id.String(), "--json")); got.Status != "pending" || got.Version != 1 {
			t.Errorf("got %+v", got)
		}
	}
}

func TestTaskRedriveTakesFlagsThatLimitIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ids []tocsin.JobID
	for n, ago := range []string{"1 MINUTE", "1 MINUTE", "3 HOUR", "3 HOUR", "1 MINUTE"} {
		ids = append(ids, s.settled(n+1, tocsin.Dead, ago))
	}
	s.set(ids[1], "last_error = 'no route'")
	s.set(ids[4], "last_error = '"+layoutrow.RestoredError+"yesterday'")
	left := "1 left, as they may have been delivered before a restore: --restored redrives them"
	for args, want := range map[string]string{
		"": "4 dead tasks would be redriven", "--since 1h": "2 dead tasks would be redriven", "--until 1h": "2 dead tasks would be redriven",
		"--since 4h --until 2h --limit 1": "1 dead tasks would be redriven", "--error route": "1 dead tasks would be redriven",
		"--since " + time.Now().Add(-2*time.Hour).Format(time.RFC3339): "2 dead tasks would be redriven", "--restored": "1 dead tasks would be redriven",
	} {
		s.run(append(strings.Fields("task redrive --all --dry-run"), strings.Fields(args)...)...).says(t, want)
	}
	s.run("task", "redrive", "--all", "--error", "route", "--same-key").says(t, "1 dead tasks redriven")
	s.run("task", "redrive", "--type", "order.close", "--per-second", "100").says(t, "3 dead tasks redriven", left)
	if got := decode[redriven](t, s.run("task", "redrive", "--all", "--restored", "--same-key", "--limit", "5", "--json")); got != (redriven{Redriven: 1}) {
		t.Errorf("%+v", got)
	}
	for i, version := range []int{1, 0, 1, 1, 0} {
		if got := decode[taskJSON](t, s.run("task", "get", ids[i].String(), "--json")); got.Status != "pending" || got.Version != version {
			t.Errorf("%+v, want version %d", got, version)
		}
	}
	s.run("task", "bury", ids[0].String()).ok(t)
	s.run("task", "redrive", ids[0].String(), "--same-key").says(t, "status       pending", "version      1")
}

func TestTaskRedriveOfAllWithAServerDownSaysHowMany(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	r := s.run("task", "redrive", "--all")
	r.refused(t, exitFailed, "db2", "refused")
	if r.stdout != "0 dead tasks redriven\n" {
		t.Errorf("said %q", r.stdout)
	}
}

func TestTaskBury(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.run("task", "bury", id.String(), "--reason", "the order is void").says(t, "status       dead", "last error   the order is void", "attempts     0")
	s.run("task", "bury", id.String()).refused(t, exitFailed, "task "+id.String()+" is dead: only a task that is not final can be buried")
	s.run("task", "redrive", id.String()).says(t, "status       pending")
	if got := decode[tocsin.Info](t, s.run("task", "bury", id.String(), "--json")); got.LastError != "buried by hand" || got.Status != tocsin.Dead {
		t.Errorf("got %+v", got)
	}
}

func TestBizStats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settled(1, tocsin.Dead, "1 MINUTE")
	s.set(s.add(2), "action_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR")
	got := decode[[]operator.Stats](t, s.run("biz", "stats", "--json"))
	if len(got) != 2 || got[0].BizType != "coupon.remind" || got[1].Dead != 1 || got[1].Pending != 1 || got[1].Overdue < 3600 {
		t.Errorf("got %+v", got)
	}
	s.run("biz", "stats").says(t, "coupon.remind  0        0        0     0          0     -", "order.close    1        0        0     0          1     1h0m")
}

func TestBizPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("biz", "pause", "order.close").says(t, "order.close  number 1  changed", "2 databases written")
	s.run("biz", "pause", "order.close").says(t, "order.close  number 1  unchanged", "0 databases written")
	p := decode[biztype.Policy](t, s.run("biz", "show", "order.close", "--json"))
	if !p.Paused || p.Attempts != 3 || p.Group != "orders" {
		t.Errorf("got %+v", p)
	}
	s.run("biz", "resume", "order.close").says(t, "changed")
	if p := decode[biztype.Policy](t, s.run("biz", "show", "order.close", "--json")); p.Paused {
		t.Errorf("got %+v", p)
	}
}
