package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

func TestSeveralTasksAreChangedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one, two, third := s.add(1), s.add(2), s.add(3)
	s.set(third, "status = 2")
	all := []string{one.String(), two.String(), third.String(), one.String()}
	for _, c := range []struct {
		args string // without the ids
		says []string
	}{
		{"bury --reason void", []string{one.String() + "  order.close  dead", third.String() + "  order.close  done  not changed: task " + third.String() + " is done: only a task that is not final can be buried"}},
		{"redrive", []string{two.String() + "  order.close  pending", "is done: only a dead task can be redriven"}},
		{"redrive --same-key", []string{"is pending: only a dead task can be redriven"}},
		{"reschedule --in 2h", []string{one.String() + "  order.close  pending", "is done: only a task that has not ended can be rescheduled"}},
		{"cancel", []string{one.String() + "  order.close  cancelled", "is done: only a task that has not ended can be cancelled"}},
	} {
		r := s.run(append([]string{"task"}, append(strings.Fields(c.args), all...)...)...)
		failed := "tocsin: 1 of 3 tasks were not "
		if strings.Contains(c.args, "same-key") {
			failed = "tocsin: 3 of 3 tasks were not redriven"
		}
		if r.code != exitFailed || !strings.HasPrefix(r.stderr, failed) {
			t.Errorf("%s: exit code %d: %s", c.args, r.code, r.stderr)
		}
		for _, part := range c.says {
			if !strings.Contains(r.stdout, part) {
				t.Errorf("%s: no %q in\n%s", c.args, part, r.stdout)
			}
		}
	}
	got := decode[[]actedTask](t, s.run("task", "cancel", one.String(), two.String(), "--json"))
	if len(got) != 2 || got[0].JobID != one || got[0].Status != "cancelled" || got[0].BizType != "order.close" || got[1].Error != "" {
		t.Errorf("%+v", got)
	}
	if info := decode[taskJSON](t, s.run("task", "get", one.String(), "--json")); info.Version != 2 || info.Status != "cancelled" {
		t.Errorf("%+v", info)
	}
	s.run("task", "cancel", one.String(), "513").refused(t, exitFailed, "1 of 2 tasks were not cancelled")
	s.run("task", "bury").refused(t, exitUsage, "want JOB_ID, got 0 arguments")
	s.run("task", "bury", one.String(), "x").refused(t, exitUsage, `job_id "x"`)
	s.run("task", "redrive", one.String(), two.String(), "--all").refused(t, exitUsage, "name a JOB_ID, --type or --all")
	s.run("task", "cancel", one.String(), two.String(), "--type", "order.close").refused(t, exitUsage, "not both")
	s.run("task", "reschedule", one.String(), two.String()).refused(t, exitUsage, "no action time")
	s.run("task", "reschedule", one.String(), two.String(), "--at", "2137-01-01T00:00:00Z").refused(t, exitUsage, "more than 10 years away")
}

func TestDeadTasksAreShownByTheirError(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("task", "dead").says(t, "no dead tasks")
	var ids []tocsin.JobID
	for n, ago := range []string{"3 HOUR", "2 MINUTE", "1 MINUTE"} {
		ids = append(ids, s.settled(n+1, tocsin.Dead, ago))
		s.set(ids[n], "last_error = 'it can''t lock order "+ids[n].String()+"\n'")
	}
	s.set(ids[1], "last_error = 'no route'")
	s.run("task", "dead").says(t, "TASKS  BIZ TYPE     LAST", "2      order.close", ids[2].String(), "it can't lock order * \n", "no route",
		`to redrive the first group: tocsin task redrive --type order.close --error 'it can'\''t lock order' --dry-run`)
	s.run("task", "dead", "--since", "1h", "--type", "order.close").says(t, "1      order.close", "--error 'it can'")
	got := decode[operator.DeadGroups](t, s.run("task", "dead", "--until", "1h", "--json"))
	if len(got.Groups) != 1 || got.Tasks != 1 || got.More || !slices.Equal(got.Groups[0].JobIDs, ids[:1]) || time.Since(got.Groups[0].Last) < 2*time.Hour {
		t.Errorf("%+v", got)
	}
	s.run("task", "redrive", "--type", "order.close", "--error", "it can't lock order", "--dry-run").says(t, "2 dead tasks would be redriven")
	s.run("task", "dead", "--type", "x").refused(t, exitFailed, "unknown biz type")
	s.run("task", "dead", "--since", "soon").refused(t, exitUsage, "--since")
	if r := s.run("task", "dead", "--until", "2026-01-01T00:00:00Z", "--json"); !strings.Contains(r.stdout, `"groups": []`) {
		t.Errorf("none: %s", r.stdout)
	}
}
